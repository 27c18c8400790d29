//! The endpoints file and the config, which change all the time, and who may be picked meanwhile.

use std::collections::HashMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// So long after a change has been written a pick may still go by what was there before: files are read once they have
/// been quiet, or half a second after they began to change.
pub const GRACE: Duration = Duration::from_millis(1500);
/// So many engines serve all the time.
const STEADY: usize = 4;

/// What the file says of an engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    Decodes,
    Prefills,
    Absent,
}

#[derive(Debug)]
struct Engine {
    address: String,
    standing: Standing,
    /// When it was last to be picked, if it is not.
    ended: Instant,
    changes_at: Instant,
}

/// Every engine there is, in the file or not.
pub struct World {
    path: PathBuf,
    engines: Mutex<Vec<Engine>>,
    by_address: HashMap<String, usize>,
}

impl World {
    /// Takes over the endpoints file that the engines wrote.
    pub fn new(directory: &Path) -> Self {
        let path = directory.join("endpoints.yaml");
        let text = std::fs::read_to_string(&path).expect("the engines wrote it");
        let ports = text.lines().filter_map(|line| line.trim().strip_prefix("port: ")).map(|p| p.trim_matches('"'));
        let now = Instant::now();
        let engine = |port: &str| Engine {
            address: format!("127.0.0.1:{port}"),
            standing: Standing::Decodes,
            ended: now,
            changes_at: now + Duration::from_secs(2),
        };
        let engines: Vec<Engine> = ports.map(engine).collect();
        let by_address = engines.iter().enumerate().map(|(at, e)| (e.address.clone(), at)).collect();
        Self { path, engines: Mutex::new(engines), by_address }
    }

    /// Writes the file anew. Engines whose time has come are dropped, brought back, or given another role; one label
    /// changes every time.
    pub fn rewrite(&self, turn: u64) {
        let now = Instant::now();
        let mut engines = self.engines.lock();
        let mut ended = Vec::new();
        for (at, engine) in engines.iter_mut().enumerate().skip(STEADY).filter(|(_, e)| e.changes_at <= now) {
            let next = [Standing::Decodes, Standing::Prefills, Standing::Absent][fastrand::usize(..3)];
            if engine.standing == Standing::Decodes && next != Standing::Decodes {
                ended.push(at);
            }
            engine.standing = next;
            engine.changes_at = now + Duration::from_millis(fastrand::u64(2000..6000));
        }
        let mut text = "endpoints:\n".to_owned();
        for (at, engine) in engines.iter().enumerate() {
            let role = match engine.standing {
                Standing::Decodes => "decode",
                Standing::Prefills => "prefill",
                Standing::Absent => continue,
            };
            let (address, port) = engine.address.split_once(':').expect("it has a port");
            let entry = format!("name: e{at}, address: \"{address}\", port: \"{port}\"");
            writeln!(text, "- {{{entry}, labels: {{llm-d.ai/role: {role}, turn: \"{turn}\"}}}}").expect("a string");
        }
        replace(&self.path, &text);
        let now = Instant::now();
        ended.into_iter().for_each(|at| engines[at].ended = now);
    }

    /// Why this pick of a request that was asked for then is wrong, if it is.
    pub fn wrong(&self, address: &str, asked: Instant) -> Option<String> {
        let Some(&at) = self.by_address.get(address) else { return Some(format!("{address} was never there")) };
        let engines = self.engines.lock();
        let engine = &engines[at];
        let is_wrong = engine.standing != Standing::Decodes && engine.ended + GRACE < asked;
        is_wrong.then(|| format!("{address}: {:?} for {:?}", engine.standing, asked - engine.ended))
    }
}

/// The config with this number; no two in a row are equal.
pub fn config(endpoints: &Path, turn: u64) -> String {
    format!(
        "apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
featureGates: [flowControl]
plugins:
- {{type: file-discovery, parameters: {{path: {}}}}}
- {{type: decode-filter}}
- {{type: prefix-cache-scorer}}
- {{type: active-request-scorer}}
- {{type: round-robin-fairness-policy}}
- {{type: concurrency-detector, parameters: {{maxConcurrency: {}}}}}
dataLayer: {{discovery: {{pluginRef: file-discovery}}}}
objectives: {{high: 10, batch: -1}}
flowControl:
  saturationDetector: {{pluginRef: concurrency-detector}}
  defaultRequestTTL: 2s
  enableEviction: true
  defaultPriorityBand: {{fairnessPolicyRef: round-robin-fairness-policy, maxRequests: 2000}}
schedulingProfiles:
- name: default
  plugins:
  - {{pluginRef: decode-filter}}
  - {{pluginRef: prefix-cache-scorer, weight: {}}}
  - {{pluginRef: active-request-scorer, weight: 2}}
",
        endpoints.display(),
        12 + turn % 2,
        1 + turn % 3,
    )
}

/// Puts a text in the place of a file, in one step.
pub fn replace(path: &Path, text: &str) {
    let part = path.with_extension("part");
    std::fs::write(&part, text).expect("the target directory can be written");
    std::fs::rename(&part, path).expect("the target directory can be written");
}
