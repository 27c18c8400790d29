//! Room 2: headers and body become one request.

use std::sync::Arc;

use bytes::Bytes;
use epp_plugin_api::{Headers, InferenceRequest, Parsed, rewrite_model};
use tokio::time::Instant;

use crate::ext_proc::parser_table::ParserEntry;
use crate::ext_proc::wire::HttpHeaders;
use crate::flow::refusal::Refusal;
use crate::generation::Generation;

/// Asks for the record of the decision, and carries it on the response.
pub const EXPLAIN: &str = "x-llm-d-explain";

/// Control headers: read here, never passed on. A client that sends one gets it removed.
pub const CONTROL_HEADERS: [&str; 17] = [
    EXPLAIN,
    "x-llm-d-inference-fairness-id",
    "x-gateway-inference-fairness-id",
    "x-llm-d-inference-objective",
    "x-gateway-inference-objective",
    "x-llm-d-model-name-rewrite",
    "x-gateway-model-name-rewrite",
    "x-llm-d-slo-ttft-ms",
    "x-slo-ttft-ms",
    "x-llm-d-slo-tpot-ms",
    "x-slo-tpot-ms",
    "x-llm-d-video-fps",
    "x-llm-d-video-duration-seconds",
    "x-llm-d-video-resolution",
    "x-gateway-destination-endpoint-subset",
    "x-gateway-destination-endpoint-served",
    "x-llm-d-request-dropped-reason",
];

const DEFAULT_PATH: &str = "/v1/completions";
const DEFAULT_FLOW: &str = "default-flow";

/// The headers of a request, read.
#[derive(Debug)]
pub struct RequestHead {
    pub id: String,
    /// The client sent no id.
    pub id_is_new: bool,
    pub headers: Headers,
    /// Without its query.
    pub path: String,
    /// Control headers that the client sent.
    pub to_remove: Vec<String>,
    /// The flow that the request belongs to.
    pub fairness_id: String,
    pub received: Instant,
}

impl RequestHead {
    /// Reads the headers message. A missing header map reads as an empty one.
    pub fn new(message: HttpHeaders, received: Instant) -> Self {
        let mut headers = Headers::default();
        let mut to_remove = Vec::new();
        for header in message.headers.unwrap_or_default().headers {
            let value = String::from_utf8_lossy(header.bytes()).into_owned();
            if header.key.len() > 8 && CONTROL_HEADERS.iter().any(|c| c.eq_ignore_ascii_case(&header.key)) {
                to_remove.push(header.key.to_ascii_lowercase());
            }
            headers.set(header.key, value);
        }
        let path = [":path", "x-original-path", "x-forwarded-path"].iter().find_map(|key| headers.find(key));
        let path = path.unwrap_or(DEFAULT_PATH);
        let path = path.split_once('?').map_or(path, |(path, _)| path).trim().to_owned();
        let sent = headers.find("x-request-id").filter(|id| !id.is_empty()).map(str::to_owned);
        let id_is_new = sent.is_none();
        let id = sent.unwrap_or_else(new_id);
        let fairness_id = headers
            .find_either("x-llm-d-inference-fairness-id", "x-gateway-inference-fairness-id")
            .filter(|id| !id.is_empty())
            .unwrap_or(DEFAULT_FLOW)
            .to_owned();
        Self { id, id_is_new, headers, path, to_remove, fairness_id, received }
    }

    /// The head of a request whose headers never came.
    pub fn absent(received: Instant) -> Self {
        Self::new(HttpHeaders::default(), received)
    }

    fn objective(&self) -> Option<&str> {
        self.headers.find_either("x-llm-d-inference-objective", "x-gateway-inference-objective")
    }

    fn rewrite(&self) -> Option<&str> {
        self.headers
            .find_either("x-llm-d-model-name-rewrite", "x-gateway-model-name-rewrite")
            .filter(|model| !model.is_empty())
    }

    /// Makes the request of the head alone, for a set-up in which the pick comes before the body.
    pub fn without_body(&mut self, generation: &Generation) -> InferenceRequest {
        self.request(generation, Bytes::new(), Parsed::default())
    }

    /// Takes the headers along: the head has none afterwards.
    fn request(&mut self, generation: &Generation, body: Bytes, parsed: Parsed) -> InferenceRequest {
        let model = parsed.model.clone().unwrap_or_default();
        let target_model = self.rewrite().map_or_else(|| model.clone(), str::to_owned);
        let priority = self.objective().and_then(|name| generation.plan.objectives.get(name)).copied().unwrap_or(0);
        InferenceRequest {
            id: self.id.clone(),
            headers: std::mem::take(&mut self.headers),
            path: self.path.clone(),
            model,
            target_model,
            fairness_id: self.fairness_id.clone(),
            priority,
            body,
            parsed,
            received: self.received,
            waited: std::time::Duration::ZERO,
        }
    }
}

/// A UUID of version 4.
fn new_id() -> String {
    let bytes = fastrand::u128(..).to_ne_bytes();
    uuid::Builder::from_random_bytes(bytes).into_uuid().to_string()
}

/// A request, read, with what is to be sent on.
pub struct ReadRequest {
    pub request: InferenceRequest,
    pub parser: Arc<ParserEntry>,
    /// The body for the engine, if it is another than the one that came.
    pub rewritten: Option<Bytes>,
}

/// Why a request could not be read, with the model if that much was found.
pub struct Unreadable {
    pub refusal: Refusal,
    pub model: String,
}

/// Reads a whole request.
///
/// # Errors
/// If no parser claims the path, the parser refuses the body, or a model is needed and not there.
pub fn read(head: &mut RequestHead, body: Bytes, generation: &Generation) -> Result<ReadRequest, Unreadable> {
    let unreadable = |refusal| Unreadable { refusal, model: String::new() };
    let Some(parser) = generation.parsers.resolve(&head.path) else {
        return Err(unreadable(Refusal::NoParser { claimed: generation.parsers.claimed() }));
    };
    let began = Instant::now();
    let parsed = parser.parser.parse(&head.path, &head.headers, &body);
    parser.request.observe(began.elapsed());
    let parsed = parsed.map_err(|e| unreadable(Refusal::BadBody(e.0)))?;
    let request = head.request(generation, body, parsed);
    let mut rewritten = None;
    if request.parsed.model_aware {
        if request.target_model.is_empty() {
            return Err(Unreadable { refusal: Refusal::NoModel, model: request.model });
        }
        if request.target_model != request.model {
            rewritten = Some(Bytes::from(rewrite_model(&request.body, &request.parsed, &request.target_model)));
        }
    }
    Ok(ReadRequest { request, parser: parser.clone(), rewritten })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ext_proc::wire::{HeaderMap, HeaderValue};

    fn head(pairs: &[(&str, &str)]) -> RequestHead {
        let headers = pairs
            .iter()
            .map(|(k, v)| HeaderValue {
                key: (*k).into(),
                value: Bytes::new(),
                raw_value: Bytes::copy_from_slice(v.as_bytes()),
            })
            .collect();
        RequestHead::new(HttpHeaders { headers: Some(HeaderMap { headers }), end_of_stream: false }, Instant::now())
    }

    #[test]
    fn the_path_has_no_query_and_falls_back() {
        for (pairs, path) in [
            (vec![(":path", "/v1/embeddings?x=/v1/completions")], "/v1/embeddings"),
            (vec![("x-forwarded-path", "/a"), ("X-Original-Path", "/b")], "/b"),
            (vec![], "/v1/completions"),
        ] {
            assert_eq!(head(&pairs).path, path);
        }
    }

    #[test]
    fn an_empty_request_id_is_replaced() {
        let made = head(&[("x-request-id", "")]);
        assert!(made.id_is_new);
        assert_eq!((made.id.len(), &made.id[14..15]), (36, "4"));
        assert!(!head(&[("X-Request-Id", "mine")]).id_is_new);
    }

    #[test]
    fn control_headers_are_found_in_any_case() {
        let got = head(&[("X-LLM-D-SLO-TTFT-MS", "5"), ("accept", "a")]);
        assert_eq!(got.to_remove, ["x-llm-d-slo-ttft-ms"]);
    }

    #[test]
    fn a_header_value_may_come_in_either_field() {
        let value = |value: &'static [u8], raw: &'static [u8]| {
            let header = HeaderValue {
                key: ":path".into(),
                value: Bytes::from_static(value),
                raw_value: Bytes::from_static(raw),
            };
            let headers = Some(HeaderMap { headers: vec![header] });
            RequestHead::new(HttpHeaders { headers, end_of_stream: false }, Instant::now()).path
        };
        assert_eq!(
            (value(b"/a", b""), value(b"", b"/b"), value(b"/a", b"/b")),
            ("/a".into(), "/b".into(), "/b".into())
        );
    }
}
