//! What tests of plugins have in common: parameters from JSON, snapshots, requests, draws of a picker, and the rules that
//! every plugin must keep.

pub mod conformance;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::{
    Attribute, BuildContext, BuildError, Candidates, Columns, Cycle, DataKey, EndpointId, EndpointIdx, EndpointMeta,
    EndpointName, Filter, Headers, InferenceRequest, Instance, Load, MetricHub, Node, Observed, Parsed, Picker, Place,
    PluginType, Scorer, Slots, Snapshot, SnapshotRow, Value,
};

/// Where instances are built: the slots and metrics that they share.
#[derive(Default)]
pub struct Rig {
    pub slots: Slots,
    pub metrics: MetricHub,
    others: BTreeMap<&'static str, Instance>,
}

impl Rig {
    /// Adds an instance that others can refer to by this name.
    pub fn with(mut self, name: &'static str, instance: Instance) -> Self {
        self.others.insert(name, instance);
        self
    }

    /// Builds an instance that is named after its type.
    pub fn build(&self, kind: &PluginType, parameters: serde_json::Value) -> Instance {
        self.try_build(kind, parameters).unwrap_or_else(|e| panic!("{}: {e:?}", kind.name))
    }

    /// As `build`; the mistakes, one a line, if it is refused.
    pub fn refused(&self, kind: &PluginType, parameters: serde_json::Value) -> String {
        let shown = parameters.to_string();
        match self.try_build(kind, parameters) {
            Ok(_) => panic!("{} accepts {shown}", kind.name),
            Err(e) => e.0.iter().map(|e| e.to_string()).collect::<Vec<_>>().join("\n"),
        }
    }

    fn try_build(&self, kind: &PluginType, parameters: serde_json::Value) -> Result<Instance, BuildError> {
        let (parameters, others) = (node(parameters), |name: &str| self.others.get(name).cloned());
        let mut cx = self.context(kind, &parameters).with_others(&others);
        (kind.build)(&mut cx)
    }

    /// The required reads, the optional reads and the writes that a build declares.
    pub fn keys(&self, kind: &PluginType, parameters: serde_json::Value) -> [Vec<DataKey>; 3] {
        let parameters = node(parameters);
        let mut cx = self.context(kind, &parameters);
        assert!((kind.build)(&mut cx).is_ok());
        let (reads, optional, writes) = cx.into_keys();
        [reads, optional, writes]
    }

    fn context<'a>(&'a self, kind: &'a PluginType, parameters: &'a Node) -> BuildContext<'a> {
        BuildContext::new(kind.name, Some(parameters), &self.slots, &self.metrics, Duration::from_secs(2))
    }

    /// A column that the named producer has filled with these values.
    pub fn column<T: Attribute>(&self, producer: &str, values: &[T]) -> Columns {
        let mut columns = Columns::default();
        columns.reset(values.len());
        columns.write(self.slots.column::<T>(producer)).clone_from_slice(values);
        columns
    }

    /// The page of metrics.
    pub fn page(&self) -> String {
        let mut page = String::new();
        let wrote = self.metrics.with_registry(|r| prometheus_client::encoding::text::encode(&mut page, r));
        assert!(wrote.is_ok());
        page
    }
}

/// A config node from JSON.
pub fn node(json: serde_json::Value) -> Node {
    let place = Place { line: 1, column: 1 };
    let value = match json {
        serde_json::Value::Null => Value::Null,
        serde_json::Value::Bool(v) => Value::Bool(v),
        serde_json::Value::Number(v) => v.as_i64().map_or_else(|| Value::Float(v.as_f64().unwrap()), Value::Int),
        serde_json::Value::String(v) => Value::String(v),
        serde_json::Value::Array(v) => Value::List(v.into_iter().map(node).collect()),
        serde_json::Value::Object(v) => Value::Map(v.into_iter().map(|(k, v)| (k, place, node(v))).collect()),
    };
    Node { place, value }
}

/// One endpoint of a test's snapshot.
#[derive(Clone, Debug, Default)]
pub struct Row {
    pub labels: BTreeMap<String, String>,
    pub observed: Observed,
}

impl Row {
    /// An endpoint with these labels.
    pub fn labelled(labels: &[(&str, &str)]) -> Self {
        let labels = labels.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect();
        Self { labels, ..Self::default() }
    }

    /// An endpoint whose engine was heard just now.
    pub fn heard(waiting: f64, running: f64, kv_usage: f64) -> Self {
        let (waiting, running, kv_usage) = (Some(waiting), Some(running), Some(kv_usage));
        let observed = Observed { waiting, running, kv_usage, at: Some(Instant::now()), ..Observed::default() };
        Self { observed, ..Self::default() }
    }
}

/// A snapshot of endpoints e0, e1, and so on.
pub fn snapshot(membership: u64, rows: impl IntoIterator<Item = Row>) -> Snapshot {
    let rows = rows.into_iter().enumerate().map(|(i, row)| {
        let name = EndpointName { namespace: "default".into(), name: format!("e{i}") };
        let meta = EndpointMeta::new(name, "127.0.0.1".into(), 8000 + i as u16, row.labels, 0);
        SnapshotRow { id: EndpointId::new(i as u32, i as u32 + 1), meta: Arc::new(meta), observed: row.observed }
    });
    Snapshot::new(membership, rows, Instant::now(), Duration::from_secs(2))
}

/// A request with this body, as its parser read it.
pub fn request(body: &[u8], parsed: Parsed) -> InferenceRequest {
    InferenceRequest {
        id: "r".into(),
        headers: Headers::default(),
        path: "v1/completions".into(),
        model: "m".into(),
        target_model: "m".into(),
        fairness_id: "default-flow".into(),
        priority: 0,
        body: body.to_vec().into(),
        parsed,
        received: Instant::now(),
        waited: std::time::Duration::ZERO,
    }
}

/// A cycle with the snapshot's own loads.
pub fn cycle<'a>(snapshot: &'a Snapshot, request: &'a InferenceRequest) -> Cycle<'a> {
    let load = Load { waiting: snapshot.waiting(), running: snapshot.running(), kv_usage: snapshot.kv_usage() };
    Cycle { snapshot, request, load, peer: None, now: Instant::now() }
}

/// The scores of every endpoint, all of them candidates.
pub fn scores(scorer: &dyn Scorer, snapshot: &Snapshot, columns: &Columns) -> Vec<f64> {
    let request = request(b"", Parsed::default());
    let mut scores = vec![0.0; snapshot.rows()];
    scorer.score(&cycle(snapshot, &request), columns, &Candidates::all(snapshot.rows()), &mut scores);
    scores
}

/// The rows that a filter keeps of all.
pub fn kept(filter: &dyn Filter, snapshot: &Snapshot) -> Vec<u32> {
    kept_with(filter, snapshot, &Columns::default())
}

/// The rows that a filter keeps of all, with these columns.
pub fn kept_with(filter: &dyn Filter, snapshot: &Snapshot, columns: &Columns) -> Vec<u32> {
    let request = request(b"", Parsed::default());
    let mut keep = Candidates::all(snapshot.rows());
    filter.filter(&cycle(snapshot, &request), columns, &mut keep);
    keep.iter().map(|i| i.0).collect()
}

/// How often a picker answers each order in so many picks.
pub fn draws(picker: &dyn Picker, totals: &[f64], times: usize) -> BTreeMap<Vec<u32>, usize> {
    let mut rng = fastrand::Rng::with_seed(7);
    let among = Candidates::all(totals.len());
    let mut seen = BTreeMap::new();
    for _ in 0..times {
        let mut picked: Vec<EndpointIdx> = Vec::new();
        picker.pick(&among, totals, &mut rng, &mut picked);
        *seen.entry(picked.iter().map(|i| i.0).collect()).or_insert(0) += 1;
    }
    seen
}

/// Asserts that both are the same up to rounding.
#[track_caller]
pub fn close(got: &[f64], want: &[f64]) {
    assert!(
        got.len() == want.len() && got.iter().zip(want).all(|(g, w)| (g - w).abs() < 1e-9),
        "got {got:?}, want {want:?}"
    );
}
