//! What the author of a plugin sees, and nothing else: the snapshot of the endpoints, the request, the columns that
//! producers fill, the roles that a plugin can play, and how its parameters are read.
//!
//! Nothing here does I/O, spawns a task, or reads a clock or a global source of randomness; what the feature `testing` adds,
//! for the tests of plugins, does not run in the picker.

mod adapters;
mod candidates;
mod columns;
mod endpoint;
mod flow;
mod kv;
mod ledger;
mod metrics;
mod node;
mod parse;
mod plugin;
pub mod recorded;
mod registry;
mod request;
mod rewrite;
mod snapshot;
mod specs;
#[cfg(feature = "testing")]
pub mod testing;

pub use adapters::{Adapters, Name, Names};
pub use candidates::Candidates;
pub use columns::{Attribute, ColumnKey, Columns, DataKey, RequestKey, Slots};
pub use endpoint::{EndpointId, EndpointIdx, EndpointMeta, EndpointName, Role, host_port};
pub use flow::{
    Departing, FairnessPolicy, FlowId, OrderingPolicy, Rank, Turns, UsageLimitPolicy, Waiting, WaitingFlows,
};
pub use kv::{KvPorts, KvSink, KvSubscription};
pub use ledger::{Charge, Ledger};
pub use metrics::{MetricFamilies, MetricHub, MetricRegistry, ShowOne};
pub use node::{Node, NodeError, Place, Value};
pub use parse::{Api, ParseError, Parsed, Parser, Piece, ResponseKind, ResponseParser, Usage};
pub use plugin::{
    Admitter, Answers, Call, Cycle, Decider, Decision, Denial, Filter, Gather, Gathered, HandlerError, Held, Hooks,
    Job, Load, Next, PREFILL, Parting, Picked, Picker, Producer, ProfileHandler, ProfileRun, Question, Remote, Report,
    ResponseEnd, Runs, Saturation, Scorer, Screener, Served, Targets,
};
pub use registry::{BuildContext, BuildError, Instance, Kind, PluginType, Stability};
pub use request::{HeaderEdits, Headers, InferenceRequest};
pub use rewrite::{ModelRestorer, restore_model, rewrite_model};
pub use snapshot::{Observed, Snapshot, SnapshotRow};
pub use specs::{CustomMetric, DiscoverySpec, EngineMapping, Extraction, ExtractorSpec, Payload, Selector, SourceSpec};
