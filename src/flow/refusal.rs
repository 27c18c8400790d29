//! Every way in which a request is turned away: its status, its text, its reason and its label side by side.

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
    /// Envoy is set up in a way that cannot be served.
    BodyMode { direction: &'static str, mode: &'static str },
    /// Something that must not happen did.
    Internal(&'static str),
}

/// The reasons of the header `x-llm-d-request-dropped-reason`.
const SATURATED: &str = "rejected-saturated";
const NO_ENDPOINTS: &str = "rejected-no-endpoints";

impl Refusal {
    /// The HTTP status.
    pub fn status(&self) -> u16 {
        match self {
            Self::NoParser { .. } | Self::BadBody(_) | Self::NoModel => 400,
            Self::BodyTooLarge { .. } => 413,
            Self::Exhausted | Self::NoDecision(_) | Self::Shed => 429,
            Self::EmptyPool | Self::BodyMode { .. } | Self::Internal(_) => 500,
            Self::NoCandidates | Self::ScreenedOut => 503,
            Self::NotCached => 412,
            Self::Denied { status, .. } => *status,
        }
    }

    /// The code in the text and in the label `error_code`.
    pub fn code(&self) -> &'static str {
        match self.status() {
            400 => "BadRequest",
            403 => "Forbidden",
            412 => "PreconditionFailed",
            413 => "PayloadTooLarge",
            429 => "ResourceExhausted",
            503 => "ServiceUnavailable",
            _ => "Internal",
        }
    }

    /// The value of `x-llm-d-request-dropped-reason`, for what would be served at another time.
    pub fn reason(&self) -> Option<&'static str> {
        match self {
            Self::Exhausted | Self::NoDecision(_) | Self::Shed => Some(SATURATED),
            Self::EmptyPool | Self::NoCandidates | Self::ScreenedOut => Some(NO_ENDPOINTS),
            Self::Denied { status, .. } => Some(if *status == 503 { NO_ENDPOINTS } else { SATURATED }),
            Self::NoParser { .. }
            | Self::BadBody(_)
            | Self::NoModel
            | Self::BodyTooLarge { .. }
            | Self::BodyMode { .. }
            | Self::NotCached
            | Self::Internal(_) => None,
        }
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
            Self::EmptyPool => "no pods available in datastore".into(),
            Self::NoCandidates => "failed to find endpoint candidates for serving the request".into(),
            Self::ScreenedOut => "screeners eliminated all endpoint candidates".into(),
            Self::Denied { message, .. } => format!("request cannot be admitted: {message}"),
            Self::NotCached => "no decode worker has the requested KV cache".into(),
            Self::Exhausted => "no endpoints available for the given request".into(),
            Self::NoDecision(why) => format!("failed to find target endpoint: {why}"),
            Self::Shed => "system saturated, sheddable request dropped".into(),
            Self::BodyMode { direction, mode } => format!(
                "{direction} body mode {mode} cannot be served, expected FULL_DUPLEX_STREAMED, BUFFERED or STREAMED"
            ),
            Self::Internal(what) => (*what).into(),
        }
    }

    /// The body of the answer to the client.
    pub fn body(&self) -> String {
        format!("inference error: {} - {}", self.code(), self.message())
    }
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
}
