//! The lines of a recording: JSON, one object a line, of one of three kinds.
//!
//! A line `{"config": …}` says what is in force, and a line `{"endpoints": …}` which endpoints there are, for all lines
//! `{"cycle": …}` behind it until the next one of its kind. Scores stand in texts, a number a blank: each is read as exactly
//! the number that it was.

use std::sync::Arc;

use epp_plugin_api::{EndpointIdx, Snapshot};
use serde::Deserialize;

use crate::sched::tape::{RunView, Taped};

/// The config in force.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ConfigLine {
    /// Its number.
    pub config: u64,
    /// As YAML, with every default.
    pub text: String,
}

/// The endpoints, by row.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EndpointsLine {
    /// `host:port`.
    pub endpoints: Vec<String>,
    /// `namespace/name`.
    pub names: Vec<String>,
}

/// One cycle.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CycleLine {
    /// When, in microseconds since 1970.
    pub cycle: u64,
    /// The value of `x-request-id`.
    pub id: String,
    pub model: String,
    pub target: String,
    pub priority: i32,
    /// What its random choices began with.
    pub seed: u64,
    pub candidates: usize,
    /// The status of the refusal.
    #[serde(default)]
    pub refused: Option<u16>,
    /// The place of the profile whose endpoints the request went to.
    #[serde(default)]
    pub primary: Option<usize>,
    #[serde(default)]
    pub runs: Vec<RunLine>,
}

/// One run of a profile.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunLine {
    /// The place of the profile in the config.
    pub profile: usize,
    /// What the picker's random choices began with.
    pub seed: u64,
    /// How many each filter that ran has left.
    #[serde(default)]
    pub kept: Vec<u32>,
    /// The rows that got past the filters; all of them if it is missing.
    #[serde(default)]
    pub left: Option<Vec<u32>>,
    /// Of each scorer a score for each row of `left`, before clamping and weighting, or one for all of them.
    #[serde(default)]
    pub scores: Vec<String>,
    /// The rows that were picked, best first.
    pub picked: Vec<u32>,
}

/// Turns cycles into lines, and says what they are about where that changes.
#[derive(Debug, Default)]
pub struct Lines {
    /// What has not been written yet.
    pub text: Vec<u8>,
    config: Option<(u64, Arc<str>)>,
    /// Of the snapshot whose endpoints were said last.
    membership: Option<u64>,
}

impl Lines {
    /// What comes next says anew what it is about.
    pub fn forget(&mut self) {
        (self.config, self.membership) = (None, None);
    }

    /// Adds the lines of a cycle.
    pub fn push(&mut self, cycle: &Taped<'_>) {
        let number = cycle.record.generation;
        if self.config.as_ref().is_none_or(|(known, text)| *known != number || !Arc::ptr_eq(text, cycle.config)) {
            self.number(br#"{"config":"#, number);
            self.text.extend_from_slice(br#","text":"#);
            self.json(&**cycle.config);
            self.text.extend_from_slice(b"}\n");
            self.config = Some((number, cycle.config.clone()));
        }
        if let Some(snapshot) = cycle.draft.snapshot()
            && self.membership != Some(snapshot.membership())
        {
            self.endpoints(snapshot);
            self.membership = Some(snapshot.membership());
        }
        self.cycle(cycle);
    }

    fn endpoints(&mut self, snapshot: &Snapshot) {
        let metas = || snapshot.indices().map(|idx| snapshot.meta(idx));
        let endpoints: Vec<&str> = metas().map(|meta| meta.host_port.as_str()).collect();
        let names: Vec<String> = metas().map(|meta| meta.name.to_string()).collect();
        self.field(br#"{"endpoints":"#, &endpoints);
        self.field(br#","names":"#, &names);
        self.text.extend_from_slice(b"}\n");
    }

    fn cycle(&mut self, cycle: &Taped<'_>) {
        let (record, draft) = (cycle.record, cycle.draft);
        self.number(br#"{"cycle":"#, u64::try_from(record.at.0.as_micros()).unwrap_or(u64::MAX));
        self.field(br#","id":"#, &record.request);
        self.field(br#","model":"#, &record.model);
        self.field(br#","target":"#, &record.target_model);
        self.field(br#","priority":"#, &record.priority);
        self.number(br#","seed":"#, record.seed);
        self.number(br#","candidates":"#, record.candidates as u64);
        if let Some(refused) = &record.refused {
            self.number(br#","refused":"#, u64::from(refused.status));
        }
        if let Some(primary) = draft.primary() {
            self.number(br#","primary":"#, primary as u64);
        }
        let rows = draft.snapshot().map_or(0, Snapshot::rows);
        let mut n_runs = 0;
        for run in draft.runs() {
            self.text.extend_from_slice(if n_runs == 0 { br#","runs":["# } else { b"," });
            self.run(&run, rows);
            n_runs += 1;
        }
        self.text.extend_from_slice(if n_runs == 0 { b"}\n" } else { b"]}\n" });
    }

    fn run(&mut self, run: &RunView<'_>, rows: usize) {
        self.number(br#"{"profile":"#, run.profile as u64);
        self.number(br#","seed":"#, run.seed);
        if !run.kept.is_empty() {
            self.field(br#","kept":"#, run.kept);
        }
        if run.left.len() != rows {
            self.text.extend_from_slice(br#","left":"#);
            self.rows(run.left);
        }
        self.text.extend_from_slice(br#","scores":["#);
        for i in 0..run.n_scorers {
            let scores = &run.scores[i * run.left.len()..][..run.left.len()];
            self.text.extend_from_slice(if i == 0 { b"\"" } else { b",\"" });
            self.scores(scores);
            self.text.push(b'"');
        }
        self.text.extend_from_slice(br#"],"picked":"#);
        self.rows(run.picked);
        self.text.push(b'}');
    }

    fn scores(&mut self, scores: &[f64]) {
        let same =
            scores.split_first().is_some_and(|(first, rest)| rest.iter().all(|s| s.to_bits() == first.to_bits()));
        let told = if same { &scores[..1] } else { scores };
        for (i, score) in told.iter().enumerate() {
            if i > 0 {
                self.text.push(b' ');
            }
            // Most scores are one of these, and they are written fast.
            match *score {
                s if s.to_bits() == 0 => self.text.push(b'0'),
                1.0 => self.text.push(b'1'),
                // JSON knows no others.
                s if s.is_finite() => self.json(&s),
                s => self.text.extend_from_slice(s.to_string().as_bytes()),
            }
        }
    }

    fn rows(&mut self, rows: &[EndpointIdx]) {
        self.text.push(b'[');
        for (i, idx) in rows.iter().enumerate() {
            if i > 0 {
                self.text.push(b',');
            }
            self.json(&idx.0);
        }
        self.text.push(b']');
    }

    fn json<T: serde::Serialize + ?Sized>(&mut self, value: &T) {
        serde_json::to_writer(&mut self.text, value).expect("numbers and texts are JSON, and a buffer takes them");
    }

    fn field<T: serde::Serialize + ?Sized>(&mut self, name: &[u8], value: &T) {
        self.text.extend_from_slice(name);
        self.json(value);
    }

    fn number(&mut self, name: &[u8], value: u64) {
        self.field(name, &value);
    }
}
