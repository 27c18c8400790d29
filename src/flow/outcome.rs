//! How waiting ends: every request ends in exactly one of these ways, and is counted under its name once.

use crate::flow::refusal::Refusal;

/// How a request's wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// It was let go.
    Dispatched,
    /// There was no room for it to wait.
    RejectedCapacity,
    /// There was no room for it to wait, and no endpoint to wait for.
    RejectedNoEndpoints,
    /// The picker was shutting down when it came.
    RejectedOther,
    /// It waited as long as it may.
    EvictedTtl,
    /// It waited as long as it may while there was no endpoint.
    EvictedNoEndpoints,
    /// Its client left.
    EvictedContextCancelled,
    /// The picker was shutting down while it waited.
    EvictedOther,
}

impl Outcome {
    pub const ALL: [Self; 8] = [
        Self::Dispatched,
        Self::RejectedCapacity,
        Self::RejectedNoEndpoints,
        Self::RejectedOther,
        Self::EvictedTtl,
        Self::EvictedNoEndpoints,
        Self::EvictedContextCancelled,
        Self::EvictedOther,
    ];

    /// The value of the label `outcome`.
    pub fn label(self) -> &'static str {
        match self {
            Self::Dispatched => "Dispatched",
            Self::RejectedCapacity => "RejectedCapacity",
            Self::RejectedNoEndpoints => "RejectedNoEndpoints",
            Self::RejectedOther => "RejectedOther",
            Self::EvictedTtl => "EvictedTTL",
            Self::EvictedNoEndpoints => "EvictedNoEndpoints",
            Self::EvictedContextCancelled => "EvictedContextCancelled",
            Self::EvictedOther => "EvictedOther",
        }
    }

    /// What the client is told; `None`: it was let go.
    pub fn refusal(self) -> Option<Refusal> {
        Some(match self {
            Self::Dispatched => return None,
            Self::RejectedCapacity => Refusal::QueueFull,
            Self::RejectedNoEndpoints => Refusal::QueueFullNoEndpoints,
            Self::RejectedOther => Refusal::ComesAtShutdown,
            Self::EvictedTtl => Refusal::WaitedTooLong,
            Self::EvictedNoEndpoints => Refusal::WaitedForEndpoints,
            Self::EvictedContextCancelled => Refusal::ClientLeft,
            Self::EvictedOther => Refusal::WaitsAtShutdown,
        })
    }
}
