//! The plugin types that the tests of the config know: named and wired as the real ones, but without any behaviour.

use std::sync::Arc;

use epp_plugin_api::{
    Attribute, BuildContext, BuildError, Candidates, Columns, Cycle, Decision, DiscoverySpec, EndpointId, EndpointIdx,
    Extraction, ExtractorSpec, Filter, HandlerError, Headers, Instance, Kind, KvPorts, KvSink, KvSubscription, Next,
    ParseError, Parsed, Parser, Payload, Picker, PluginType, Producer, ProfileHandler, ResponseKind, ResponseParser,
    Runs, Saturation, Scorer, Snapshot, SourceSpec, Stability,
};
use serde::Deserialize;
use tokio::time::Instant;

/// Every type that the tests know.
pub const REGISTRY: &[&PluginType] = &[
    &beta("decode-filter", &[Kind::Filter], |_| Ok(filter())),
    &beta("queue-scorer", &[Kind::Scorer], |cx| {
        cx.reads_metric("WaitingQueueSize");
        Ok(scorer())
    }),
    &beta("kv-cache-utilization-scorer", &[Kind::Scorer], |cx| {
        cx.reads_metric("KVCacheUsagePercent");
        Ok(scorer())
    }),
    &beta("load-aware-scorer", &[Kind::Scorer], |cx| {
        cx.config::<Threshold>()?;
        cx.reads_metric("WaitingQueueSize");
        Ok(scorer())
    }),
    &beta("prefix-cache-scorer", &[Kind::Scorer], |cx| {
        let config = cx.config::<PrefixScorer>()?;
        cx.reads::<Matches>(&config.prefix_match_info_producer_name);
        Ok(scorer())
    }),
    &beta("active-request-scorer", &[Kind::Scorer], |cx| {
        cx.reads::<InFlight>("");
        Ok(scorer())
    }),
    &PluginType { stability: Stability::Alpha, ..beta("session-affinity-scorer", &[Kind::Scorer], |_| Ok(scorer())) },
    &beta("optimist-scorer", &[Kind::Scorer], |cx| {
        cx.reads_if_there::<InFlight>("");
        Ok(scorer())
    }),
    &beta("friend-scorer", &[Kind::Scorer], |cx| {
        let config = cx.config::<Friends>()?;
        for friend in config.friends {
            cx.plugin("friends", &friend)?;
        }
        Ok(scorer())
    }),
    &beta("max-score-picker", &[Kind::Picker], |_| Ok(picker())),
    &beta("random-picker", &[Kind::Picker], |_| Ok(picker())),
    &beta("single-profile-handler", &[Kind::ProfileHandler], |_| {
        Ok(Instance { handler: Some(Arc::new(Fake)), ..Instance::default() })
    }),
    &beta("approx-prefix-cache-producer", &[Kind::Producer], |cx| {
        cx.config::<Approx>()?;
        cx.reads_request::<Tokens>("");
        cx.writes::<Matches>();
        Ok(producer())
    }),
    &beta("token-producer", &[Kind::Producer], |cx| {
        cx.writes_request::<Tokens>();
        Ok(producer())
    }),
    &beta("inflight-load-producer", &[Kind::Producer], |cx| {
        cx.reads_if_there::<Matches>("");
        cx.writes::<InFlight>();
        Ok(producer())
    }),
    &beta("ping-producer", &[Kind::Producer], |cx| {
        cx.reads::<Tokens>("pong-producer");
        cx.writes::<Tokens>();
        Ok(producer())
    }),
    &beta("pong-producer", &[Kind::Producer], |cx| {
        cx.reads::<Tokens>("ping-producer");
        cx.writes::<Tokens>();
        Ok(producer())
    }),
    &PluginType {
        stability: Stability::Alpha,
        ..beta("trial-producer", &[Kind::Producer], |cx| {
            cx.writes::<Trials>();
            Ok(producer())
        })
    },
    &beta("trial-scorer", &[Kind::Scorer], |cx| {
        cx.reads::<Trials>("");
        Ok(scorer())
    }),
    &beta("picky-producer", &[Kind::Producer], |cx| {
        cx.writes::<Whims>();
        Err(BuildError::at("whim", "expected a whim, found nothing"))
    }),
    &beta("picky-scorer", &[Kind::Scorer], |cx| {
        cx.reads::<Whims>("");
        Ok(scorer())
    }),
    &beta("metrics-data-source", &[Kind::Source], |_| Ok(Instance { source: Some(page()), ..Instance::default() })),
    &beta("endpoint-notification-source", &[Kind::Source], |_| Ok(Instance::default())),
    &beta("listening-scorer", &[Kind::Scorer], |cx| {
        let bind = cx.config::<Listening>()?.bind;
        let connect = bind.is_none().then_some(KvPorts { events: 5557, replay: None });
        let subscription = KvSubscription { topic: "kv@".into(), bind, connect, sink: Arc::new(Fake) };
        Ok(Instance { kv: Some(subscription), ..scorer() })
    }),
    &beta("core-metrics-extractor", &[Kind::Extractor], |cx| {
        cx.writes_metric("WaitingQueueSize");
        cx.writes_metric("KVCacheUsagePercent");
        let spec = ExtractorSpec { engine_label: String::new(), default_engine: String::new(), engines: Vec::new() };
        Ok(Instance { extractor: Some(Extraction::Engines(spec)), ..Instance::default() })
    }),
    &beta("file-discovery", &[Kind::Discovery], |cx| {
        let config = cx.config::<Discovery>()?;
        if config.path.is_empty() {
            return Err(BuildError::at("path", "expected the path of the endpoints file, found nothing"));
        }
        let spec = DiscoverySpec { path: config.path, watch: config.watch_file, clusters: false };
        Ok(Instance { discovery: Some(spec), ..Instance::default() })
    }),
    &beta("utilization-detector", &[Kind::SaturationDetector], |_| {
        Ok(Instance { saturation: Some(Arc::new(Fake)), ..Instance::default() })
    }),
    &beta("openai-parser", &[Kind::Parser], |_| Ok(parser())),
    &beta("vllmhttp-parser", &[Kind::Parser], |_| Ok(parser())),
    &beta("sglanghttp-parser", &[Kind::Parser], |_| Ok(parser())),
    &beta("passthrough-parser", &[Kind::Parser], |_| Ok(parser())),
    &beta("round-robin-fairness-policy", &[Kind::FairnessPolicy], |_| Ok(Instance::default())),
    &PluginType { replaced_by: Some("decode-filter"), ..beta("by-label", &[Kind::Filter], |_| Ok(filter())) },
];

const fn beta(
    name: &'static str,
    kinds: &'static [Kind],
    build: fn(&mut BuildContext<'_>) -> Result<Instance, BuildError>,
) -> PluginType {
    PluginType {
        name,
        kinds,
        stability: Stability::Beta,
        replaced_by: None,
        reported: name,
        summary: "",
        schema: None,
        build,
    }
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
struct Threshold {
    #[serde(rename = "threshold")]
    _threshold: i64,
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Friends {
    friends: Vec<String>,
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
struct PrefixScorer {
    prefix_match_info_producer_name: String,
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
struct Approx {
    #[serde(rename = "blockSizeTokens")]
    _block_size_tokens: i64,
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
struct Discovery {
    path: String,
    watch_file: bool,
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Listening {
    bind: Option<String>,
}

macro_rules! attributes {
    ($($type:ident $name:literal $producer:literal;)*) => {$(
        #[derive(Clone, Default)]
        struct $type;
        impl Attribute for $type {
            const NAME: &'static str = $name;
            const DEFAULT_PRODUCER: Option<&'static str> = Some($producer);
        }
    )*};
}

attributes! {
    Matches "PrefixCacheMatchInfoDataKey" "approx-prefix-cache-producer";
    InFlight "InFlightLoadDataKey" "inflight-load-producer";
    Tokens "TokenizedPrompt" "token-producer";
    Trials "TrialDataKey" "trial-producer";
    Whims "WhimDataKey" "picky-producer";
}

fn filter() -> Instance {
    Instance { filter: Some(Arc::new(Fake)), ..Instance::default() }
}

fn scorer() -> Instance {
    Instance { scorer: Some(Arc::new(Fake)), ..Instance::default() }
}

fn picker() -> Instance {
    Instance { picker: Some(Arc::new(Fake)), ..Instance::default() }
}

fn producer() -> Instance {
    Instance { producer: Some(Arc::new(Fake)), ..Instance::default() }
}

fn parser() -> Instance {
    Instance { parser: Some(Arc::new(Fake)), ..Instance::default() }
}

fn page() -> SourceSpec {
    SourceSpec {
        gives: Payload::Metrics,
        tls: false,
        path: "/metrics".into(),
        port: None,
        skip_verify: false,
        ca_cert_path: String::new(),
        client_cert_path: String::new(),
        client_key_path: String::new(),
        interval: None,
    }
}

struct Fake;

impl Filter for Fake {
    fn filter(&self, _: &Cycle<'_>, _: &Columns, _: &mut Candidates) {}
}

impl Scorer for Fake {
    fn score(&self, _: &Cycle<'_>, _: &Columns, _: &Candidates, _: &mut [f64]) {}
}

impl Picker for Fake {
    fn pick(&self, _: &Candidates, _: &[f64], _: &mut fastrand::Rng, _: &mut Vec<EndpointIdx>) {}
}

impl Producer for Fake {}

impl KvSink for Fake {
    fn message(&self, _: EndpointId, _: &[u8], _: &[u8]) {}
    fn lost(&self, _: EndpointId) {}
}

impl Saturation for Fake {
    fn saturation(&self, _: &Snapshot, _: &Candidates, _: Instant) -> f64 {
        0.0
    }
}

impl ProfileHandler for Fake {
    fn next(&self, _: &Cycle<'_>, _: &Columns, _: &mut Runs) -> Next {
        Next::Done
    }

    fn decide(&self, _: &Cycle<'_>, _: &Columns, _: &Runs) -> Result<Decision, HandlerError> {
        Ok(Decision::default())
    }

    fn check(&self, profiles: &[&str]) -> Result<(), String> {
        if profiles.len() == 1 { Ok(()) } else { Err(format!("expected one profile, found {}", profiles.len())) }
    }
}

impl Parser for Fake {
    fn paths(&self) -> &'static [&'static str] {
        &[]
    }

    fn parse(&self, _: &str, _: &Headers, _: &[u8]) -> Result<Parsed, ParseError> {
        Ok(Parsed::default())
    }

    fn response(&self, _: &str, _: ResponseKind) -> Box<dyn ResponseParser> {
        Box::new(Fake)
    }
}

impl ResponseParser for Fake {
    fn feed(&mut self, _: &[u8]) -> Option<epp_plugin_api::Usage> {
        None
    }

    fn finish(&mut self) -> Option<epp_plugin_api::Usage> {
        None
    }
}
