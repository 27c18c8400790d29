//! `epp pick`: asks a running picker as a direct client does, and shows what it answered and how long that took.

use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow, bail};
use bytes::Bytes;
use prost_types::value::Kind;
use prost_types::{Struct, Value};
use tonic::client::Grpc;
use tonic::transport::{Channel, Endpoint, Uri};
use tonic_prost::ProstCodec;

use crate::bench::dial::{Dial, Speaks};
use crate::cli::explain;
use crate::ext_proc::answer::{DECISION, DESTINATION, EXPLANATIONS};
use crate::ext_proc::reading::EXPLAIN;
use crate::ext_proc::wire::{
    HeaderMap, HeaderValue, HttpBody, HttpHeaders, Metadata, ProcessingRequest, ProcessingResponse, Request, Response,
};

const METHOD: &str = "/envoy.service.ext_proc.v3.ExternalProcessor/Process";

/// Asks a running picker for an endpoint.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// Address of the picker's ext_proc port.
    #[arg(default_value = "127.0.0.1:9002", value_name = "HOST:PORT")]
    address: String,
    /// Speak TLS, and take any certificate.
    #[arg(long)]
    tls: bool,
    /// Model to ask for.
    #[arg(long, default_value = "model")]
    model: String,
    /// Prompt as text; asks /v1/completions.
    #[arg(long, default_value = "Hello!", conflicts_with = "token_ids")]
    prompt: String,
    /// Prompt as token ids, separated by commas; asks /inference/v1/generate.
    #[arg(long, value_delimiter = ',')]
    token_ids: Vec<u32>,
    /// Ask for this path instead.
    #[arg(long)]
    path: Option<String>,
    /// The body to send, as it is, instead of one made of the model and the prompt.
    #[arg(long, conflicts_with_all = ["prompt", "token_ids"])]
    body: Option<String>,
    /// A request header, `name: value`; may be repeated.
    #[arg(long, value_name = "HEADER")]
    header: Vec<String>,
    /// Only endpoints on these hosts, separated by commas.
    #[arg(long, value_delimiter = ',', value_name = "HOSTS")]
    subset: Option<Vec<String>>,
    /// Show why: the record of the decision (the picker must run with --explain-header).
    #[arg(long)]
    explain: bool,
    /// How often to ask, one after another.
    #[arg(long, default_value_t = 1, value_name = "N")]
    count: u32,
    /// How long to wait for an answer.
    #[arg(long, default_value_t = 10, value_name = "SECONDS")]
    timeout: u64,
}

/// Asks and prints.
///
/// # Errors
/// If the picker cannot be reached or does not pick.
pub async fn run(args: Args) -> anyhow::Result<()> {
    let channel = connect(&args).await.with_context(|| format!("cannot reach {}", args.address))?;
    let messages = args.messages()?;
    for _ in 0..args.count {
        let began = Instant::now();
        let answers = tokio::time::timeout(Duration::from_secs(args.timeout), ask(channel.clone(), messages.clone()))
            .await
            .map_err(|_| anyhow!("no answer within {} s", args.timeout))??;
        print(&answers, began.elapsed())?;
        if args.explain && !answers.iter().any(|answer| explanation(answer).is_some()) {
            eprintln!("why is not told: the picker runs without --explain-header");
        }
    }
    Ok(())
}

impl Args {
    fn messages(&self) -> anyhow::Result<Vec<ProcessingRequest>> {
        let (path, body) = match (&self.body, self.token_ids.is_empty()) {
            (Some(body), _) => ("/v1/completions", body.clone()),
            (None, true) => {
                ("/v1/completions", serde_json::json!({"model": self.model, "prompt": self.prompt}).to_string())
            }
            (None, false) => (
                "/inference/v1/generate",
                serde_json::json!({"model": self.model, "token_ids": self.token_ids}).to_string(),
            ),
        };
        let mut headers = vec![
            header(":method", "POST"),
            header(":path", self.path.as_deref().unwrap_or(path)),
            header("content-type", "application/json"),
        ];
        if self.explain {
            headers.push(header(EXPLAIN, "1"));
        }
        for line in &self.header {
            let (name, value) = line.split_once(':').ok_or_else(|| anyhow!("--header: expected `name: value`"))?;
            headers.push(header(name.trim(), value.trim()));
        }
        let head = HttpHeaders { headers: Some(HeaderMap { headers }), end_of_stream: false };
        let body = HttpBody { body: body.into(), end_of_stream: true };
        Ok(vec![
            ProcessingRequest { request: Some(Request::RequestHeaders(head)), ..Default::default() },
            ProcessingRequest {
                request: Some(Request::RequestBody(body)),
                metadata_context: self.subset.as_deref().map(subset_metadata),
                ..Default::default()
            },
        ])
    }
}

fn header(key: &str, value: &str) -> HeaderValue {
    HeaderValue { key: key.into(), value: Bytes::new(), raw_value: Bytes::copy_from_slice(value.as_bytes()) }
}

fn subset_metadata(hosts: &[String]) -> Metadata {
    let text = |host: &String| Value { kind: Some(Kind::StringValue(host.clone())) };
    let list = prost_types::ListValue { values: hosts.iter().map(text).collect() };
    let fields = [("x-gateway-destination-endpoint-subset".to_owned(), Value { kind: Some(Kind::ListValue(list)) })];
    let hint = Struct { fields: fields.into() };
    Metadata { filter_metadata: [("envoy.lb.subset_hint".to_owned(), hint)].into() }
}

async fn connect(args: &Args) -> anyhow::Result<Channel> {
    let endpoint =
        Endpoint::from_shared(format!("http://{}", args.address))?.connect_timeout(Duration::from_secs(args.timeout));
    let dial = if args.tls { Dial::tls(None, Speaks::Grpc)? } else { Dial::Clear };
    let address = args.address.clone();
    let connect = move |_: Uri| {
        let (dial, address) = (dial.clone(), address.clone());
        async move { dial.connect(&address).await }
    };
    Ok(endpoint.connect_with_connector(tower::service_fn(connect)).await?)
}

async fn ask(channel: Channel, messages: Vec<ProcessingRequest>) -> anyhow::Result<Vec<ProcessingResponse>> {
    let mut grpc = Grpc::new(channel).max_decoding_message_size(usize::MAX);
    grpc.ready().await?;
    let codec = ProstCodec::<ProcessingRequest, ProcessingResponse>::default();
    let request = tonic::Request::new(futures_util::stream::iter(messages));
    let path = http::uri::PathAndQuery::from_static(METHOD);
    let mut stream = grpc.streaming(request, path, codec).await.map_err(|s| anyhow!("{}", s.message()))?.into_inner();
    let mut answers = Vec::new();
    while let Some(answer) = stream.message().await.map_err(|s| anyhow!("{:?}: {}", s.code(), s.message()))? {
        answers.push(answer);
    }
    Ok(answers)
}

fn print(answers: &[ProcessingResponse], took: Duration) -> anyhow::Result<()> {
    let mut picked = false;
    for answer in answers {
        match &answer.response {
            Some(Response::Immediate(i)) => {
                let status = i.status.map_or(0, |s| s.code);
                bail!("{status}: {}", String::from_utf8_lossy(&i.body));
            }
            Some(Response::RequestHeaders(headers)) => {
                let mutation = headers.response.as_ref().and_then(|r| r.header_mutation.as_ref());
                for option in mutation.iter().flat_map(|m| &m.set_headers) {
                    let Some(header) = &option.header else { continue };
                    let value = String::from_utf8_lossy(header.bytes());
                    if header.key == DESTINATION {
                        picked = true;
                        println!("{value}  in {:.2} ms", took.as_secs_f64() * 1e3);
                    } else if header.key != "content-length" {
                        println!("  {}: {value}", header.key);
                    }
                }
            }
            _ => {}
        }
        match (explanation(answer), &answer.dynamic_metadata) {
            (Some(json), _) => print!("{}", explain::table(&serde_json::from_str(json)?)),
            (None, Some(metadata)) => print_scores(metadata),
            (None, None) => {}
        }
    }
    if picked { Ok(()) } else { bail!("the picker ended the stream without an answer") }
}

/// The record of the decision as JSON, if the answer has it.
fn explanation(answer: &ProcessingResponse) -> Option<&str> {
    let metadata = answer.dynamic_metadata.as_ref()?;
    let Some(Kind::StructValue(fields)) = &metadata.fields.get(EXPLANATIONS)?.kind else { return None };
    match &fields.fields.get(DECISION)?.kind {
        Some(Kind::StringValue(text)) => Some(text),
        _ => None,
    }
}

fn print_scores(metadata: &Struct) {
    let lb = metadata.fields.get("envoy.lb").and_then(|v| v.kind.as_ref());
    let Some(Kind::StructValue(lb)) = lb else { return };
    let scores = lb.fields.get("x-gateway-destination-endpoint-scores").and_then(|v| v.kind.as_ref());
    let Some(Kind::StructValue(scores)) = scores else { return };
    for (endpoint, score) in &scores.fields {
        if let Some(Kind::NumberValue(score)) = score.kind {
            println!("  score {score:<8.4} {endpoint}");
        }
    }
}
