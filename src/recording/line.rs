//! The lines of a recording: JSON, one object a line, of one of three kinds.
//!
//! A line `{"config": …}` says what is in force, and a line `{"endpoints": …}` which endpoints there are, for all lines
//! `{"cycle": …}` behind it until the next one of its kind. Scores stand in texts, a number a blank: each is read as exactly
//! the number that it was.

use std::io::Write as _;
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
    snapshot: Option<Arc<Snapshot>>,
}

impl Lines {
    /// What comes next says anew what it is about.
    pub fn forget(&mut self) {
        (self.config, self.snapshot) = (None, None);
    }

    /// Adds the lines of a cycle.
    pub fn push(&mut self, cycle: &Taped) {
        let number = cycle.record.generation;
        if self.config.as_ref().is_none_or(|(known, text)| *known != number || !Arc::ptr_eq(text, &cycle.config)) {
            self.raw(format_args!(r#"{{"config":{number},"text":"#));
            self.json(&*cycle.config);
            self.text.extend_from_slice(b"}\n");
            self.config = Some((number, cycle.config.clone()));
        }
        if let Some(snapshot) = &cycle.snapshot
            && self.snapshot.as_ref().is_none_or(|known| known.membership() != snapshot.membership())
        {
            self.endpoints(snapshot);
        }
        // Not the same snapshot, but the same endpoints; a newer one holds no more memory.
        self.snapshot = cycle.snapshot.clone().or(self.snapshot.take());
        self.cycle(cycle);
    }

    fn endpoints(&mut self, snapshot: &Snapshot) {
        let metas = || snapshot.indices().map(|idx| snapshot.meta(idx));
        let endpoints: Vec<&str> = metas().map(|meta| meta.host_port.as_str()).collect();
        let names: Vec<String> = metas().map(|meta| meta.name.to_string()).collect();
        self.raw(format_args!(r#"{{"endpoints":"#));
        self.json(&endpoints);
        self.raw(format_args!(r#","names":"#));
        self.json(&names);
        self.text.extend_from_slice(b"}\n");
    }

    fn cycle(&mut self, cycle: &Taped) {
        let record = &*cycle.record;
        self.raw(format_args!(r#"{{"cycle":{},"id":"#, record.at.0.as_micros()));
        self.json(&record.request);
        self.raw(format_args!(r#","model":"#));
        self.json(&record.model);
        self.raw(format_args!(r#","target":"#));
        self.json(&record.target_model);
        let (priority, seed, candidates) = (record.priority, record.seed, record.candidates);
        self.raw(format_args!(r#","priority":{priority},"seed":{seed},"candidates":{candidates}"#));
        if let Some(refused) = &record.refused {
            self.raw(format_args!(r#","refused":{}"#, refused.status));
        }
        if let Some(primary) = cycle.primary {
            self.raw(format_args!(r#","primary":{primary}"#));
        }
        let rows = cycle.snapshot.as_ref().map_or(0, |snapshot| snapshot.rows());
        for (i, run) in cycle.views().enumerate() {
            self.text.extend_from_slice(if i == 0 { br#","runs":["# } else { b"," });
            self.run(&run, rows);
        }
        self.text.extend_from_slice(if cycle.runs.is_empty() { b"}\n" } else { b"]}\n" });
    }

    fn run(&mut self, run: &RunView<'_>, rows: usize) {
        self.raw(format_args!(r#"{{"profile":{},"seed":{}"#, run.profile, run.seed));
        if !run.kept.is_empty() {
            self.raw(format_args!(r#","kept":"#));
            self.json(run.kept);
        }
        if run.left.len() != rows {
            self.raw(format_args!(r#","left":"#));
            self.rows(run.left);
        }
        self.raw(format_args!(r#","scores":["#));
        for i in 0..run.n_scorers {
            let scores = &run.scores[i * run.left.len()..][..run.left.len()];
            self.text.extend_from_slice(if i == 0 { b"\"" } else { b",\"" });
            self.scores(scores);
            self.text.push(b'"');
        }
        self.raw(format_args!(r#"],"picked":"#));
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
                s => self.raw(format_args!("{s}")),
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

    fn raw(&mut self, text: std::fmt::Arguments<'_>) {
        self.text.write_fmt(text).expect("a buffer takes every write");
    }
}
