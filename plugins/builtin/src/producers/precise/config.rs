//! The parameters of the precise prefix producer, and what they are lowered to.

use std::num::NonZeroUsize;
use std::time::Duration;

use epp_plugin_api::{BuildError, KvPorts, NodeError};
use epp_prefix_index::Limits;
use schemars::JsonSchema;
use serde::Deserialize;

use super::events::Dialect;
use super::keys::Algorithm;
use crate::{duration, size};

const DEFAULT_BLOCK_TOKENS: i64 = 16;
/// Larger blocks than any engine has.
const MOST_BLOCK_TOKENS: i64 = 1 << 20;
const DEFAULT_BLOCKS: i64 = 100_000_000;
/// What a block takes where `inMemoryConfig.size` counts blocks.
const BYTES_PER_BLOCK: usize = 24;
const DEFAULT_TTL: Duration = Duration::from_secs(2);
/// Places, each a tier and group of an endpoint.
const MOST_PLACES: usize = 1 << 18;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct Config {
    /// How prompts are cut into blocks.
    token_processor_config: TokenProcessor,
    /// What the index may take, and what the tiers of caches weigh.
    indexer_config: Indexer,
    /// Where events come from.
    kv_events_config: KvEvents,
    /// Whether the endpoint that a prompt was sent to counts as holding it for `speculativeTTL`, before the engine says
    /// so. Default false.
    speculative_indexing: bool,
    /// How long it does. Zero and less count as the default, `2s`.
    #[serde(rename = "speculativeTTL")]
    #[schemars(schema_with = "crate::schema::duration")]
    speculative_ttl: String,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            token_processor_config: TokenProcessor::default(),
            indexer_config: Indexer::default(),
            kv_events_config: KvEvents::default(),
            speculative_indexing: false,
            speculative_ttl: "2s".into(),
        }
    }
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
struct TokenProcessor {
    /// Tokens of a block. Best the block size of the engines; where it is not, one should divide the other. 16 where none
    /// is given.
    #[schemars(range(min = 1))]
    block_size_tokens: Option<i64>,
    /// The old name of `blockSizeTokens`; counts where that is not set or 0.
    block_size: i64,
    /// Prompts of different seeds share no key.
    hash_seed: String,
    /// How keys are made: `cbor-fnv` or `xxh64`. They never leave the picker, so the default, empty, is the fastest.
    hash_algorithm: String,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
struct Indexer {
    /// What the index may take.
    kv_block_index_config: BlockIndex,
    /// What a block on each tier counts. A tier that is not here counts 1; without a list `gpu` counts 1 and `cpu` 0.8.
    kv_cache_backend_configs: Vec<Tier>,
    /// Refused: tokens come from a token-producer.
    tokenizers_pool_config: Option<serde_json::Value>,
}

impl Default for Indexer {
    fn default() -> Self {
        let tier = |name: &str, weight| Tier { name: name.into(), weight };
        Self {
            kv_block_index_config: BlockIndex::default(),
            kv_cache_backend_configs: vec![tier("gpu", 1.0), tier("cpu", 0.8)],
            tokenizers_pool_config: None,
        }
    }
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
struct BlockIndex {
    /// Bounds the index by blocks.
    in_memory_config: InMemory,
    /// Bounds the index by bytes, in the place of `inMemoryConfig.size`.
    cost_aware_memory_config: Option<CostAware>,
    /// Refused: the index is in the picker's own memory.
    redis_config: Option<serde_json::Value>,
    /// Whether the `kv_cache_index` metrics are there. Default false.
    enable_metrics: bool,
    /// Accepted; nothing is logged at intervals.
    #[serde(rename = "metricsLoggingInterval")]
    _metrics_logging_interval: i64,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
struct InMemory {
    /// About how many blocks the index holds before the oldest leave; one is taken for 24 bytes. Default 100000000.
    #[schemars(range(min = 1))]
    size: i64,
    /// How many tiers of endpoints are remembered for one block, the most recent ones. Default: all.
    #[schemars(range(min = 1))]
    pod_cache_size: Option<i64>,
}

impl Default for InMemory {
    fn default() -> Self {
        Self { size: DEFAULT_BLOCKS, pod_cache_size: None }
    }
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
struct CostAware {
    /// Bytes that the index takes before the oldest blocks leave, as `64MiB`. Default `2GiB`.
    size: String,
}

impl Default for CostAware {
    fn default() -> Self {
        Self { size: "2GiB".into() }
    }
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
struct Tier {
    /// The tier as engines name it, in any case.
    name: String,
    /// What one of its blocks counts. 0 or more. Default 0.
    #[schemars(range(min = 0))]
    weight: f64,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
struct KvEvents {
    /// Whose form events have: `vllm` or `sglang`. Default, and for empty, `vllm`.
    engine_type: String,
    /// How the topics begin that are listened to. Default `kv@`.
    topic_filter: String,
    /// Accepted; events of one endpoint are applied in order, those of several at once. At least 1. Default 4.
    #[schemars(range(min = 1))]
    concurrency: i64,
    /// A ZeroMQ address to bind, as `tcp://*:5557`, for engines that connect by themselves.
    zmq_endpoint: String,
    /// Whether to connect to every endpoint. Default true.
    discover_pods: bool,
    /// Which ports to connect to.
    pod_discovery_config: PodDiscovery,
}

impl Default for KvEvents {
    fn default() -> Self {
        Self {
            engine_type: String::new(),
            topic_filter: "kv@".into(),
            concurrency: 4,
            zmq_endpoint: String::new(),
            discover_pods: true,
            pod_discovery_config: PodDiscovery::default(),
        }
    }
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
struct PodDiscovery {
    /// The port that engines publish at; the data-parallel rank is added. Default 5557.
    #[schemars(range(min = 1, max = 65535))]
    socket_port: i64,
    /// The port where missed events can be asked for; the data-parallel rank is added. 0 and less: none.
    #[schemars(range(max = 65535))]
    replay_socket_port: i64,
    /// Accepted; every endpoint is connected to.
    #[serde(rename = "podLabelSelector")]
    _pod_label_selector: String,
    /// Accepted; every endpoint is connected to.
    #[serde(rename = "podNamespace")]
    _pod_namespace: String,
}

impl Default for PodDiscovery {
    fn default() -> Self {
        Self {
            socket_port: 5557,
            replay_socket_port: 0,
            _pod_label_selector: "llm-d.ai/inference-serving=true".into(),
            _pod_namespace: String::new(),
        }
    }
}

/// What the parameters mean.
#[derive(Debug)]
pub struct Settings {
    pub block_tokens: NonZeroUsize,
    pub seed: String,
    pub algorithm: Algorithm,
    pub limits: Limits,
    pub index_metrics: bool,
    /// Lower-case names of tiers, and what a block there counts.
    pub weights: Vec<(String, f64)>,
    pub dialect: Dialect,
    pub topic: String,
    pub bind: Option<String>,
    pub connect: Option<KvPorts>,
    /// How long a prompt counts as held where it was sent; `None`: not at all.
    pub speculative_ttl: Option<Duration>,
}

impl Config {
    /// Checks the parameters and lowers them.
    ///
    /// # Errors
    /// Every mistake at once.
    pub fn settings(self) -> Result<Settings, BuildError> {
        let mut mistakes = Mistakes::default();
        let index = &self.indexer_config.kv_block_index_config;
        if self.indexer_config.tokenizers_pool_config.is_some() {
            let message = "expected no tokenizers here, as tokens come from a token-producer, found some";
            mistakes.add("indexerConfig.tokenizersPoolConfig", message);
        }
        if index.redis_config.is_some() {
            let message = "expected inMemoryConfig or costAwareMemoryConfig, as the index is in the picker's own \
                           memory, found redisConfig";
            mistakes.add("indexerConfig.kvBlockIndexConfig.redisConfig", message);
        }
        if self.kv_events_config.concurrency < 1 {
            let message = format!("expected a number above 0, found {}", self.kv_events_config.concurrency);
            mistakes.add("kvEventsConfig.concurrency", message);
        }
        let (processor, events) = (&self.token_processor_config, &self.kv_events_config);
        let settings = Settings {
            block_tokens: processor.block_tokens(&mut mistakes),
            seed: processor.hash_seed.clone(),
            algorithm: processor.algorithm(&mut mistakes),
            limits: index.limits(&mut mistakes),
            index_metrics: index.enable_metrics,
            weights: self.indexer_config.weights(&mut mistakes),
            dialect: events.dialect(&mut mistakes),
            topic: events.topic_filter.clone(),
            bind: Some(events.zmq_endpoint.clone()).filter(|address| !address.is_empty()),
            connect: events.ports(&mut mistakes),
            speculative_ttl: self.ttl(&mut mistakes),
        };
        if mistakes.0.is_empty() { Ok(settings) } else { Err(BuildError(mistakes.0)) }
    }

    fn ttl(&self, mistakes: &mut Mistakes) -> Option<Duration> {
        let text = self.speculative_ttl.as_str();
        let ttl = match text.strip_prefix('-') {
            // Less than no time counts as the default, but must be a time.
            Some(rest) => duration::parse(rest).map(|_| DEFAULT_TTL),
            None if text.is_empty() => Ok(DEFAULT_TTL),
            None => duration::parse(text).map(|ttl| if ttl.is_zero() { DEFAULT_TTL } else { ttl }),
        };
        let ttl = ttl.map_err(|message| mistakes.add("speculativeTTL", message)).ok();
        ttl.filter(|_| self.speculative_indexing)
    }
}

impl TokenProcessor {
    fn block_tokens(&self, mistakes: &mut Mistakes) -> NonZeroUsize {
        let (path, tokens) = match self.block_size_tokens {
            None | Some(0) if self.block_size != 0 => ("blockSize", self.block_size),
            given => ("blockSizeTokens", given.unwrap_or(DEFAULT_BLOCK_TOKENS)),
        };
        let tokens = Some(tokens).filter(|n| (1..=MOST_BLOCK_TOKENS).contains(n)).unwrap_or_else(|| {
            let message = format!("expected a number from 1 to {MOST_BLOCK_TOKENS}, found {tokens}");
            mistakes.add(format!("tokenProcessorConfig.{path}"), message);
            DEFAULT_BLOCK_TOKENS
        });
        NonZeroUsize::new(tokens as usize).unwrap_or(NonZeroUsize::MIN)
    }

    fn algorithm(&self, mistakes: &mut Mistakes) -> Algorithm {
        match self.hash_algorithm.as_str() {
            "" => Algorithm::Fast,
            "cbor-fnv" => Algorithm::CborFnv,
            "xxh64" => Algorithm::Xxh64,
            other => {
                let message = format!("expected cbor-fnv, xxh64 or nothing, found {other:?}");
                mistakes.add("tokenProcessorConfig.hashAlgorithm", message);
                Algorithm::Fast
            }
        }
    }
}

impl BlockIndex {
    fn limits(&self, mistakes: &mut Mistakes) -> Limits {
        let path = |rest: &str| format!("indexerConfig.kvBlockIndexConfig.{rest}");
        let mut above_0 = |rest: &str, n: i64| {
            if n <= 0 {
                mistakes.add(path(rest), format!("expected a number above 0, found {n}"));
            }
            usize::try_from(n).unwrap_or(0)
        };
        let blocks = above_0("inMemoryConfig.size", self.in_memory_config.size);
        let holders = self.in_memory_config.pod_cache_size.map(|n| above_0("inMemoryConfig.podCacheSize", n));
        let bytes = match &self.cost_aware_memory_config {
            None => blocks.saturating_mul(BYTES_PER_BLOCK),
            Some(given) => size::parse(&given.size)
                .map_err(|message| mistakes.add(path("costAwareMemoryConfig.size"), message))
                .unwrap_or_default(),
        };
        Limits { bytes, slots: MOST_PLACES, holders }
    }
}

impl Indexer {
    fn weights(&self, mistakes: &mut Mistakes) -> Vec<(String, f64)> {
        for (at, Tier { name, weight }) in self.kv_cache_backend_configs.iter().enumerate() {
            let path = |member: &str| format!("indexerConfig.kvCacheBackendConfigs[{at}].{member}");
            if name.is_empty() {
                mistakes.add(path("name"), "expected the name of a tier such as gpu, found nothing");
            }
            if !weight.is_finite() || *weight < 0.0 {
                mistakes.add(path("weight"), format!("expected a number of 0 or more, found {weight}"));
            }
        }
        self.kv_cache_backend_configs.iter().map(|tier| (tier.name.to_lowercase(), tier.weight)).collect()
    }
}

impl KvEvents {
    fn dialect(&self, mistakes: &mut Mistakes) -> Dialect {
        match self.engine_type.as_str() {
            "" | "vllm" => Dialect::Vllm,
            "sglang" => Dialect::Sglang,
            other => {
                let message = format!("expected vllm or sglang, found {other:?}");
                mistakes.add("kvEventsConfig.engineType", message);
                Dialect::Vllm
            }
        }
    }

    fn ports(&self, mistakes: &mut Mistakes) -> Option<KvPorts> {
        let ports = &self.pod_discovery_config;
        let mut port = |member: &str, n: i64| {
            u16::try_from(n).ok().filter(|&port| port > 0).unwrap_or_else(|| {
                let path = format!("kvEventsConfig.podDiscoveryConfig.{member}");
                mistakes.add(path, format!("expected a port from 1 to 65535, found {n}"));
                1
            })
        };
        let replay = (ports.replay_socket_port > 0).then(|| port("replaySocketPort", ports.replay_socket_port));
        let events = port("socketPort", ports.socket_port);
        self.discover_pods.then_some(KvPorts { events, replay })
    }
}

#[derive(Default)]
struct Mistakes(Vec<NodeError>);

impl Mistakes {
    fn add(&mut self, path: impl Into<String>, message: impl Into<String>) {
        self.0.push(NodeError { place: None, path: path.into(), message: message.into() });
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::testing::node;

    use super::*;

    fn settings(parameters: Value) -> Settings {
        node(parameters).decode::<Config>().unwrap().settings().unwrap()
    }

    fn refused(parameters: Value) -> String {
        let shown = parameters.to_string();
        let mistakes = match node(parameters).decode::<Config>() {
            Ok(cfg) => cfg.settings().map_err(|e| e.0).expect_err(&shown),
            Err(e) => vec![e],
        };
        mistakes.iter().map(|e| e.to_string()).collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn without_parameters_all_is_at_its_default() {
        let it = settings(json!({}));
        assert_eq!((it.block_tokens.get(), it.algorithm, it.dialect), (16, Algorithm::Fast, Dialect::Vllm));
        assert_eq!((it.limits.bytes, it.limits.holders), (2_400_000_000, None));
        assert_eq!(it.weights, [("gpu".to_owned(), 1.0), ("cpu".to_owned(), 0.8)]);
        assert_eq!((it.topic.as_str(), it.bind, it.speculative_ttl), ("kv@", None, None));
        assert_eq!(it.connect, Some(KvPorts { events: 5557, replay: None }));
        assert!(!it.index_metrics);
    }

    #[test]
    fn a_partial_object_keeps_the_other_defaults() {
        let it = settings(json!({
            "tokenProcessorConfig": {"hashSeed": "42"},
            "indexerConfig": {"kvBlockIndexConfig": {"inMemoryConfig": {"podCacheSize": 3}, "enableMetrics": true}},
            "kvEventsConfig": {"podDiscoveryConfig": {"replaySocketPort": 6000}, "zmqEndpoint": "tcp://*:5557"},
        }));
        assert_eq!((it.block_tokens.get(), it.seed.as_str()), (16, "42"));
        assert_eq!((it.limits.bytes, it.limits.holders, it.index_metrics), (2_400_000_000, Some(3), true));
        assert_eq!(it.weights.len(), 2);
        assert_eq!(it.connect, Some(KvPorts { events: 5557, replay: Some(6000) }));
        assert_eq!(it.bind.as_deref(), Some("tcp://*:5557"));
    }

    #[test]
    fn the_old_name_of_the_block_size_counts_where_the_new_one_is_not_set() {
        for (processor, tokens) in [
            (json!({"blockSize": 64}), 64),
            (json!({"blockSize": 64, "blockSizeTokens": 0}), 64),
            (json!({"blockSize": 64, "blockSizeTokens": 32}), 32),
            (json!({"blockSizeTokens": 5}), 5),
        ] {
            let it = settings(json!({"tokenProcessorConfig": processor.clone()}));
            assert_eq!(it.block_tokens.get(), tokens, "{processor}");
        }
    }

    #[test]
    fn a_ttl_of_nothing_and_less_is_the_default() {
        for (ttl, millis) in [("300ms", 300), ("0", 2000), ("-5s", 2000), ("", 2000)] {
            let it = settings(json!({"speculativeIndexing": true, "speculativeTTL": ttl}));
            assert_eq!(it.speculative_ttl, Some(Duration::from_millis(millis)), "{ttl}");
        }
    }

    #[test]
    fn replay_is_off_unless_there_is_a_port() {
        for (port, replay) in [(0, None), (6000, Some(6000)), (-1, None)] {
            let it = settings(json!({"kvEventsConfig": {"podDiscoveryConfig": {"replaySocketPort": port}}}));
            assert_eq!(it.connect.unwrap().replay, replay);
        }
        assert_eq!(settings(json!({"kvEventsConfig": {"discoverPods": false}})).connect, None);
    }

    #[test]
    fn a_size_in_bytes_takes_the_place_of_blocks() {
        let sized = |index: Value| settings(json!({"indexerConfig": {"kvBlockIndexConfig": index}})).limits.bytes;
        assert_eq!(sized(json!({"costAwareMemoryConfig": {"size": "64MiB"}, "inMemoryConfig": {"size": 1}})), 64 << 20);
        assert_eq!(sized(json!({"costAwareMemoryConfig": {}})), 2 << 30);
        assert_eq!(
            sized(json!({"inMemoryConfig": {"size": 1000}, "metricsLoggingInterval": 60_000_000_000i64})),
            24_000
        );
    }

    #[test]
    fn what_cannot_be_meant_is_refused_with_its_path() {
        let index = |index: Value| json!({"indexerConfig": {"kvBlockIndexConfig": index}});
        let events = |events: Value| json!({"kvEventsConfig": events});
        let processor = |processor: Value| json!({"tokenProcessorConfig": processor});
        for (parameters, culprit) in [
            (
                processor(json!({"blockSizeTokens": -16})),
                "blockSizeTokens: expected a number from 1 to 1048576, found -16",
            ),
            (processor(json!({"blockSizeTokens": 0})), "blockSizeTokens: expected a number from 1"),
            (processor(json!({"blockSize": -1})), "tokenProcessorConfig.blockSize: expected a number from 1"),
            (
                processor(json!({"hashAlgorithm": "md5"})),
                "hashAlgorithm: expected cbor-fnv, xxh64 or nothing, found \"md5\"",
            ),
            (processor(json!({"blockSizeTokns": 1})), "unknown key"),
            (events(json!({"engineType": "tgi"})), "kvEventsConfig.engineType: expected vllm or sglang, found \"tgi\""),
            (events(json!({"concurrency": 0})), "kvEventsConfig.concurrency: expected a number above 0"),
            (events(json!({"podDiscoveryConfig": {"socketPort": 0}})), "socketPort: expected a port"),
            (events(json!({"podDiscoveryConfig": {"replaySocketPort": 65536}})), "replaySocketPort: expected a port"),
            (
                index(json!({"redisConfig": {"address": "redis://x"}})),
                "kvBlockIndexConfig.redisConfig: expected inMemory",
            ),
            (index(json!({"costAwareMemoryConfig": {"size": "big"}})), "costAwareMemoryConfig.size: expected a size"),
            (index(json!({"inMemoryConfig": {"size": 0}})), "inMemoryConfig.size: expected a number above 0"),
            (index(json!({"inMemoryConfig": {"podCacheSize": 0}})), "podCacheSize: expected a number above 0"),
            (json!({"indexerConfig": {"tokenizersPoolConfig": {}}}), "tokenizersPoolConfig: expected no tokenizers"),
            (
                json!({"indexerConfig": {"kvCacheBackendConfigs": [{"name": "gpu", "weight": -1}, {"weight": 1}]}}),
                "kvCacheBackendConfigs[0].weight: expected a number of 0 or more, found -1\n\
                 indexerConfig.kvCacheBackendConfigs[1].name: expected the name of a tier",
            ),
            (json!({"speculativeIndexing": true, "speculativeTTL": "soon"}), "speculativeTTL: expected a duration"),
            (json!({"colour": 1}), "unknown key \"colour\""),
        ] {
            let said = refused(parameters);
            assert!(said.contains(culprit), "{said}");
        }
    }
}
