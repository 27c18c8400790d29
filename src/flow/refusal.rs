//! Every way in which a request is turned away: its status, its text, its reason and its label side by side.

use std::fmt::Write;

/// Why a request is not served. Nothing in it comes from the client but sizes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// No parser claims the path and there is no fallback; holds the suffixes that are claimed.
    NoParser { claimed: String },
    /// The parser says what is wrong with the body.
    BadBody(String),
    /// The body names no model, and nothing else supplies one.
    NoModel,
    /// The body grew over the limit.
    BodyTooLarge { limit: usize },
    /// The bodies that have begun and not ended grew over their limit.
    BodiesTooLarge { limit: usize },
    /// The body takes too long.
    BodyTooSlow,
    /// There is no endpoint for a request without a body.
    EmptyPool,
    /// No endpoint is left after the subset hint.
    NoCandidates,
    /// The screeners left nobody.
    ScreenedOut,
    /// An admitter said no, with a status and a message of its own.
    Denied { status: u16, message: String },
    /// The client wants the request served only where its prompt is cached, and it is not.
    NotCached,
    /// The filters left nobody.
    Exhausted,
    /// The profile handler came to no decision.
    NoDecision(String),
    /// The pool is full and the request's priority is below zero.
    Shed,
    /// There is no room to wait.
    QueueFull,
    /// There is no room to wait, and no endpoint to wait for.
    QueueFullNoEndpoints,
    /// It waited as long as it may.
    WaitedTooLong,
    /// It waited as long as it may while there was no endpoint.
    WaitedForEndpoints,
    /// Its client left while it waited.
    ClientLeft,
    /// It came while the picker was shutting down.
    ComesAtShutdown,
    /// It still waited when the picker shut down.
    WaitsAtShutdown,
    /// It was under way, and was ended to make room for another of higher priority.
    Evicted,
    /// Envoy is set up in a way that cannot be served.
    BodyMode { direction: &'static str, mode: &'static str },
    /// Something that must not happen did.
    Internal(&'static str),
}

/// The reasons of the header `x-llm-d-request-dropped-reason`.
const SATURATED: &str = "rejected-saturated";
const NO_ENDPOINTS: &str = "rejected-no-endpoints";
const TTL_EXPIRED: &str = "rejected-ttl-expired";
const CLIENT_LEFT: &str = "rejected-context-cancelled";
const SHUTTING_DOWN: &str = "rejected-shutting-down";
const EVICTED: &str = "evicted";

impl Refusal {
    /// The HTTP status, the value of `x-llm-d-request-dropped-reason` for what would be served at another time, and what
    /// the refusal means.
    fn row(&self) -> (u16, Option<&'static str>, &'static str) {
        match self {
            Self::NoParser { .. } => (400, None, "no parser reads this path"),
            Self::BadBody(_) => (400, None, "the body cannot be read; the text says why"),
            Self::NoModel => (400, None, "a model must be named, and is not"),
            Self::BodyTooLarge { .. } => (413, None, "the body is larger than `--max-request-body`"),
            Self::BodiesTooLarge { .. } => (
                429,
                Some(SATURATED),
                "all bodies that have begun and not ended are larger than `--max-request-bodies`",
            ),
            Self::BodyTooSlow => (408, None, "the body is not complete after `--request-body-timeout`"),
            Self::EmptyPool => (500, Some(NO_ENDPOINTS), "a request without a body finds no endpoint at all"),
            Self::NoCandidates => (503, Some(NO_ENDPOINTS), "no endpoint is among those that Envoy allows"),
            Self::ScreenedOut => (503, Some(NO_ENDPOINTS), "screeners leave no endpoint"),
            Self::Denied { status, .. } => {
                let reason = if *status == 503 { NO_ENDPOINTS } else { SATURATED };
                (*status, Some(reason), "an admitter turns the request away; the text says why")
            }
            Self::NotCached => {
                (412, None, "`prefer: if-available` is asked for, and no endpoint has the prompt cached")
            }
            Self::Exhausted => (429, Some(SATURATED), "filters leave no endpoint"),
            Self::NoDecision(_) => (429, Some(SATURATED), "the profile handler finds no endpoint; the text says why"),
            Self::Shed => (429, Some(SATURATED), "without flow control, the pool is full and the priority below 0"),
            Self::QueueFull => (429, Some(SATURATED), "as many wait as may"),
            Self::QueueFullNoEndpoints => (503, Some(NO_ENDPOINTS), "as many wait as may, and there is no endpoint"),
            Self::WaitedTooLong => (429, Some(TTL_EXPIRED), "it waited as long as it may"),
            Self::WaitedForEndpoints => {
                (503, Some(NO_ENDPOINTS), "it waited as long as it may while there was no endpoint")
            }
            Self::ClientLeft => (503, Some(CLIENT_LEFT), "its client left while it waited; only counted"),
            Self::ComesAtShutdown => (503, Some(SHUTTING_DOWN), "it came when the drain was over"),
            Self::WaitsAtShutdown => (503, Some(SHUTTING_DOWN), "it still waited when the drain was over"),
            Self::Evicted => (429, Some(EVICTED), "it was under way, and made room for a higher priority"),
            Self::BodyMode { .. } => (500, None, "Envoy sends bodies in a mode that cannot be served"),
            Self::Internal(_) => (500, None, "a fault of the picker"),
        }
    }

    /// The HTTP status.
    pub fn status(&self) -> u16 {
        self.row().0
    }

    /// The code in the text and in the label `error_code`.
    pub fn code(&self) -> &'static str {
        match self.status() {
            400 => "BadRequest",
            403 => "Forbidden",
            408 => "RequestTimeout",
            412 => "PreconditionFailed",
            413 => "PayloadTooLarge",
            429 => "ResourceExhausted",
            503 => "ServiceUnavailable",
            _ => "Internal",
        }
    }

    /// The value of `x-llm-d-request-dropped-reason`, for what would be served at another time.
    pub fn reason(&self) -> Option<&'static str> {
        self.row().1
    }

    /// What is wrong, and what was expected.
    pub fn message(&self) -> String {
        match self {
            Self::NoParser { claimed } => {
                format!("no parser registered matching path suffix for: the request's path (claimed are {claimed})")
            }
            Self::BadBody(why) => why.clone(),
            Self::NoModel => "model not found in request body".into(),
            Self::BodyTooLarge { limit } => format!("request body is larger than the limit of {limit} bytes"),
            Self::BodiesTooLarge { limit } => {
                format!("request bodies that are not complete take more than the {limit} bytes that they may together")
            }
            Self::BodyTooSlow => "request body was not complete in time".into(),
            Self::EmptyPool => "no pods available in datastore".into(),
            Self::NoCandidates => "failed to find endpoint candidates for serving the request".into(),
            Self::ScreenedOut => "screeners eliminated all endpoint candidates".into(),
            Self::Denied { message, .. } => format!("request cannot be admitted: {message}"),
            Self::NotCached => "no decode worker has the requested KV cache".into(),
            Self::Exhausted => "no endpoints available for the given request".into(),
            Self::NoDecision(why) => format!("failed to find target endpoint: {why}"),
            Self::Shed => "system saturated, sheddable request dropped".into(),
            Self::QueueFull => "request rejected pre-queue: queue at capacity".into(),
            Self::QueueFullNoEndpoints => {
                "no endpoints available: request rejected pre-queue: no endpoints available".into()
            }
            Self::WaitedTooLong => "request timed out in queue: request evicted from queue: request TTL expired".into(),
            Self::WaitedForEndpoints => "request timed out in queue and no endpoints are available: \
                                         request evicted from queue: request TTL expired: no endpoints available"
                .into(),
            Self::ClientLeft => "client disconnected: request evicted from queue: request context cancelled".into(),
            Self::ComesAtShutdown => {
                "flow controller shutting down: request rejected pre-queue: flow controller is not running".into()
            }
            Self::WaitsAtShutdown => {
                "flow controller shutting down: request evicted from queue: flow controller is not running".into()
            }
            Self::Evicted => "request evicted by flow control".into(),
            Self::BodyMode { direction, mode } => format!(
                "{direction} body mode {mode} cannot be served, expected FULL_DUPLEX_STREAMED, BUFFERED or STREAMED"
            ),
            Self::Internal(what) => (*what).into(),
        }
    }

    /// The body of the answer to the client.
    pub fn body(&self) -> String {
        match self {
            // It was accepted once, so it is no error of inference.
            Self::Evicted => self.message(),
            _ => format!("inference error: {} - {}", self.code(), self.message()),
        }
    }

    /// One of each kind, in the order of their definition, with words for what only a request can say.
    fn samples() -> Vec<Self> {
        vec![
            Self::NoParser { claimed: "SUFFIXES".into() },
            Self::BadBody("WHY".into()),
            Self::NoModel,
            Self::BodyTooLarge { limit: 67_108_864 },
            Self::BodiesTooLarge { limit: 1_073_741_824 },
            Self::BodyTooSlow,
            Self::EmptyPool,
            Self::NoCandidates,
            Self::ScreenedOut,
            Self::Denied { status: 403, message: "WHY".into() },
            Self::Denied { status: 429, message: "WHY".into() },
            Self::Denied { status: 503, message: "WHY".into() },
            Self::NotCached,
            Self::Exhausted,
            Self::NoDecision("WHY".into()),
            Self::Shed,
            Self::QueueFull,
            Self::QueueFullNoEndpoints,
            Self::WaitedTooLong,
            Self::WaitedForEndpoints,
            Self::ClientLeft,
            Self::ComesAtShutdown,
            Self::WaitsAtShutdown,
            Self::Evicted,
            Self::BodyMode { direction: "request", mode: "NONE" },
            Self::Internal("WHAT"),
        ]
    }
}

/// The page of all refusals as Markdown.
pub fn markdown() -> String {
    let mut page = "# Refusals\n\n\
        Every answer that the picker gives instead of an endpoint. Where there is a reason, it is the value of the header\n\
        `x-llm-d-request-dropped-reason`, and the request may be served at another time. The code is also the label\n\
        `error_code` of `llm_d_epp_request_error_total`. Words in capitals stand for what the request at hand decides.\n\n\
        This page is written by `make docs`.\n\n\
        | status | code | reason | when | body |\n|---|---|---|---|---|\n"
        .to_owned();
    for refusal in Refusal::samples() {
        let (status, reason, when) = refusal.row();
        let reason = reason.map_or_else(String::new, |reason| format!("`{reason}`"));
        let (code, body) = (refusal.code(), refusal.body());
        writeln!(page, "| {status} | {code} | {reason} | {when} | `{body}` |").expect("a string takes all text");
    }
    page
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_pool_answers_429_with_its_reason() {
        assert_eq!(
            (Refusal::Exhausted.status(), Refusal::Exhausted.reason(), Refusal::Exhausted.body()),
            (
                429,
                Some("rejected-saturated"),
                "inference error: ResourceExhausted - no endpoints available for the given request".into()
            )
        );
    }

    #[test]
    fn an_empty_pool_answers_503_with_its_reason() {
        assert_eq!(
            (Refusal::NoCandidates.status(), Refusal::NoCandidates.reason()),
            (503, Some("rejected-no-endpoints"))
        );
    }

    #[test]
    fn what_cannot_be_served_at_any_time_has_no_reason() {
        assert_eq!(Refusal::NoModel.reason(), None);
        assert_eq!(Refusal::BodyTooLarge { limit: 5 }.status(), 413);
    }

    #[test]
    fn whoever_may_come_again_is_told_why_it_was_turned_away() {
        for refusal in Refusal::samples().iter().filter(|refusal| matches!(refusal.status(), 429 | 503)) {
            assert!(refusal.reason().is_some(), "{refusal:?}");
        }
    }
}
