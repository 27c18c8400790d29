//! What is under way in a simulation: requests in engines, blocks between them, messages about caches.

use std::time::Duration;

use epp_plugin_api::EndpointId;

use super::picker::Lasting;

/// A request in an engine.
pub(super) struct Live {
    pub job: u32,
    pub arrived: Duration,
    pub admitted: Duration,
    pub first_token: Duration,
    pub lasting: Lasting,
    pub part: Part,
}

/// Which part of its work a request is at an engine for.
#[derive(Clone, Copy, Debug)]
pub(super) enum Part {
    Whole,
    /// It goes on to that row.
    Prefill {
        then: usize,
    },
    /// What the engine that computed the prompt said of it.
    Decode {
        cached_tokens: usize,
        preemptions: usize,
    },
}

impl Part {
    pub fn is_first(&self) -> bool {
        matches!(self, Self::Whole | Self::Prefill { .. })
    }

    pub fn is_last(&self) -> bool {
        matches!(self, Self::Whole | Self::Decode { .. })
    }
}

/// A request whose blocks are on their way.
pub(super) struct Moving {
    pub to: usize,
    pub live: Live,
    pub ids: Vec<u32>,
}

/// A message on its way.
pub(super) struct Said {
    pub row: usize,
    pub from: EndpointId,
    pub payload: Vec<u8>,
}
