//! Turns cycles into the lines of a recording, and says what they are about where that has changed.

use std::sync::Arc;

use epp_plugin_api::recorded::{Told, push_number, tell};
use epp_plugin_api::{EndpointIdx, Observed, Snapshot};

use super::floats::Floats;
use crate::sched::draft::TapedRun;
use crate::sched::tape::{About, Seen, Taped};

/// The flow of requests that name none.
const DEFAULT_FLOW: &str = "default-flow";

/// Lines that are put together, and what was said so far.
#[derive(Debug, Default)]
pub struct Lines {
    /// What has not been written yet.
    pub text: Vec<u8>,
    about: Option<(u64, Arc<About>)>,
    snapshot: Option<Arc<Snapshot>>,
    /// What was told of each value of `about`.
    told: Vec<Told>,
    /// What was told of each scorer, by the places of profiles.
    scores: Vec<Vec<Vec<f64>>>,
    floats: Floats,
}

impl Lines {
    /// What comes next says anew what it is about.
    pub fn forget(&mut self) {
        self.about = None;
        self.forget_rows();
    }

    fn forget_rows(&mut self) {
        self.snapshot = None;
        self.told.clear();
        self.scores.clear();
    }

    /// Adds the lines of a cycle.
    pub fn push(&mut self, cycle: &Taped<'_>) {
        let number = cycle.record.generation;
        if self.about.as_ref().is_none_or(|(known, about)| *known != number || !Arc::ptr_eq(about, cycle.about)) {
            self.config(number, cycle.about);
        }
        if let Some(snapshot) = cycle.draft.snapshot()
            && self.snapshot.as_ref().is_none_or(|known| !Arc::ptr_eq(known, snapshot))
        {
            self.board(snapshot);
        }
        self.cycle(cycle);
    }

    fn config(&mut self, number: u64, about: &Arc<About>) {
        let names: Vec<String> = about.values.iter().map(|value| value.name()).collect();
        self.number(br#"{"config":"#, number);
        self.field(br#","text":"#, &about.config);
        self.field(br#","values":"#, &names);
        self.field(br#","headers":"#, &about.headers);
        self.text.extend_from_slice(b"}\n");
        // Columns and scorers may be others.
        let snapshot = self.snapshot.take();
        self.forget_rows();
        self.snapshot = snapshot;
        self.about = Some((number, about.clone()));
    }

    /// Says what is new about endpoints and engines.
    fn board(&mut self, snapshot: &Arc<Snapshot>) {
        let mut before = self.snapshot.take();
        if before.as_ref().is_none_or(|before| before.membership() != snapshot.membership()) {
            self.endpoints(snapshot);
            self.forget_rows();
            before = None;
        }
        let changed = |idx: &EndpointIdx| {
            before.as_ref().is_none_or(|before| {
                before.is_fresh(*idx) != snapshot.is_fresh(*idx)
                    || !says_the_same(before.observed(*idx), snapshot.observed(*idx))
            })
        };
        let mut is_first = true;
        for idx in snapshot.indices().filter(changed) {
            self.text.extend_from_slice(if std::mem::take(&mut is_first) { br#"{"observed":["# } else { b"," });
            self.observed(idx, snapshot);
        }
        if !is_first {
            self.text.extend_from_slice(b"]}\n");
        }
        self.snapshot = Some(snapshot.clone());
    }

    fn endpoints(&mut self, snapshot: &Snapshot) {
        let metas = || snapshot.indices().map(|idx| snapshot.meta(idx));
        let endpoints: Vec<&str> = metas().map(|meta| meta.host_port.as_str()).collect();
        let names: Vec<String> = metas().map(|meta| meta.name.to_string()).collect();
        self.field(br#"{"endpoints":"#, &endpoints);
        self.field(br#","names":"#, &names);
        if metas().any(|meta| !meta.labels.is_empty()) {
            self.field(br#","labels":"#, &metas().map(|meta| &meta.labels).collect::<Vec<_>>());
        }
        if metas().any(|meta| meta.rank != 0) {
            self.field(br#","ranks":"#, &metas().map(|meta| meta.rank).collect::<Vec<_>>());
        }
        self.text.extend_from_slice(b"}\n");
    }

    fn observed(&mut self, idx: EndpointIdx, snapshot: &Snapshot) {
        let Observed { waiting, running, kv_usage, block_tokens, blocks, adapters, custom, at: _ } =
            snapshot.observed(idx);
        self.number(br#"{"row":"#, idx.0.into());
        if !snapshot.is_fresh(idx) {
            self.text.extend_from_slice(br#","stale":true"#);
        }
        for (before, load) in [(&br#","load":""#[..], waiting), (b" ", running), (b" ", kv_usage)] {
            self.text.extend_from_slice(before);
            match load {
                Some(load) => self.floats.push(*load, &mut self.text),
                None => self.text.push(b'-'),
            }
        }
        self.text.push(b'"');
        if let Some(tokens) = block_tokens {
            self.number(br#","block_tokens":"#, (*tokens).into());
        }
        if let Some(blocks) = blocks {
            self.number(br#","blocks":"#, (*blocks).into());
        }
        if let Some(adapters) = adapters {
            self.field(br#","adapters":{"running":"#, &adapters.running.iter().collect::<Vec<_>>());
            self.field(br#","waiting":"#, &adapters.waiting.iter().collect::<Vec<_>>());
            self.number(br#","most":"#, adapters.most.into());
            self.text.push(b'}');
        }
        for (i, (key, value)) in custom.iter().enumerate() {
            self.text.extend_from_slice(if i == 0 { br#","custom":{"# } else { b"," });
            self.word(key);
            self.text.extend_from_slice(b":\"");
            self.floats.push(*value, &mut self.text);
            self.text.push(b'"');
        }
        self.text.extend_from_slice(if custom.is_empty() { b"}" } else { b"}}" });
    }

    fn cycle(&mut self, cycle: &Taped<'_>) {
        let Taped { record, about, draft, seen } = cycle;
        // Most lines are shorter, and so need to look for room once.
        self.text.reserve(512);
        self.number(br#"{"cycle":"#, u64::try_from(record.at.0.as_micros()).unwrap_or(u64::MAX));
        self.text(br#","id":"#, &record.request);
        self.text(br#","model":"#, &record.model);
        if record.target_model != record.model {
            self.text(br#","target":"#, &record.target_model);
        }
        if record.priority != 0 {
            self.field(br#","priority":"#, &record.priority);
        }
        if seen.request.fairness_id != DEFAULT_FLOW {
            self.text(br#","flow":"#, &seen.request.fairness_id);
        }
        self.number(br#","body":"#, seen.request.body.len() as u64);
        for (i, header) in about.headers.iter().enumerate() {
            self.text.extend_from_slice(if i == 0 { br#","headers":["# } else { b"," });
            match seen.request.headers.find(header) {
                Some(value) => self.word(value),
                None => self.text.extend_from_slice(b"null"),
            }
        }
        if !about.headers.is_empty() {
            self.text.push(b']');
        }
        self.number(br#","seed":"#, record.seed);
        self.number(br#","candidates":"#, record.candidates as u64);
        if let Some(snapshot) = draft.snapshot() {
            self.inputs(about, seen, snapshot);
        }
        if let Some(refused) = &record.refused {
            self.number(br#","refused":"#, u64::from(refused.status));
        }
        if let Some(primary) = draft.primary() {
            self.number(br#","primary":"#, primary as u64);
        }
        for (i, run) in draft.runs().iter().enumerate() {
            self.text.extend_from_slice(if i == 0 { br#","runs":["# } else { b"," });
            self.run(run, record.seed);
        }
        self.text.extend_from_slice(if draft.runs().is_empty() { b"}\n" } else { b"]}\n" });
    }

    /// What plugins looked at, beside the board and the request.
    fn inputs(&mut self, about: &About, seen: &Seen<'_>, snapshot: &Snapshot) {
        if seen.candidates.count() != snapshot.rows() {
            self.rows(br#","among":["#, seen.candidates.iter());
        }
        let in_flight = || snapshot.stale().iter().map(|idx| seen.in_flight(snapshot, *idx));
        if in_flight().any(|requests| requests != 0) {
            self.field(br#","stale":"#, &in_flight().collect::<Vec<_>>());
        }
        self.told.resize_with(about.values.len(), Told::default);
        for (i, value) in about.values.iter().enumerate() {
            self.text.extend_from_slice(if i == 0 { br#","values":["# } else { b"," });
            let before = self.text.len();
            self.text.push(b'"');
            let is_written = value.write(seen.columns, &mut self.told[i], &mut self.text);
            if value.is_of_request() {
                self.escape(before + 1);
            }
            self.text.push(b'"');
            if !is_written {
                self.text.truncate(before);
                self.text.extend_from_slice(b"null");
            }
        }
        if !about.values.is_empty() {
            self.text.push(b']');
        }
    }

    fn run(&mut self, run: &TapedRun, seed: u64) {
        self.number(br#"{"profile":"#, run.profile as u64);
        if run.seed != seed {
            self.number(br#","seed":"#, run.seed);
        }
        if let Some(peer) = run.peer {
            self.number(br#","peer":"#, peer.0.into());
        }
        if !run.kept.is_empty() {
            self.rows(br#","kept":["#, run.kept.iter().map(|n| EndpointIdx(*n)));
        }
        if run.left.count() != run.left.rows() {
            self.rows(br#","left":["#, run.left.iter());
        }
        if self.scores.len() <= run.profile {
            self.scores.resize_with(run.profile + 1, Vec::new);
        }
        let before = &mut self.scores[run.profile];
        if before.len() < run.scores().len() {
            before.resize_with(run.scores().len(), Vec::new);
        }
        self.text.extend_from_slice(br#","scores":["#);
        for (i, (scores, before)) in run.scores().iter().zip(before).enumerate() {
            self.text.extend_from_slice(if i == 0 { b"\"" } else { b",\"" });
            let floats = &mut self.floats;
            let same = |a: &f64, b: &f64| a.to_bits() == b.to_bits();
            tell(scores, before, same, |score, out| floats.push(*score, out), &mut self.text);
            self.text.push(b'"');
        }
        self.rows(br#"],"picked":["#, run.picked.iter().copied());
        self.text.push(b'}');
    }

    fn rows<const N: usize>(&mut self, name: &[u8; N], rows: impl Iterator<Item = EndpointIdx>) {
        self.text.extend_from_slice(name);
        for (i, idx) in rows.enumerate() {
            if i > 0 {
                self.text.push(b',');
            }
            push_number(idx.0.into(), &mut self.text);
        }
        self.text.push(b']');
    }

    /// A text of JSON.
    fn word(&mut self, text: &str) {
        self.text.push(b'"');
        let begin = self.text.len();
        self.text.extend_from_slice(text.as_bytes());
        self.escape(begin);
        self.text.push(b'"');
    }

    /// Makes what stands there from `begin` on the inside of a text of JSON. Few need that.
    fn escape(&mut self, begin: usize) {
        let is_odd = |byte: u8| !(b' '..0x7f).contains(&byte) | (byte == b'"') | (byte == b'\\');
        if self.text[begin..].iter().fold(false, |any, byte| any | is_odd(*byte)) {
            let odd = self.text.split_off(begin);
            self.json(&String::from_utf8_lossy(&odd));
            // Without the quotes.
            self.text.remove(begin);
            self.text.pop();
        }
    }

    fn text<const N: usize>(&mut self, name: &[u8; N], text: &str) {
        self.text.extend_from_slice(name);
        self.word(text);
    }

    fn json<T: serde::Serialize + ?Sized>(&mut self, value: &T) {
        serde_json::to_writer(&mut self.text, value).expect("numbers and texts are JSON, and a buffer takes them");
    }

    fn field<T: serde::Serialize + ?Sized>(&mut self, name: &[u8], value: &T) {
        self.text.extend_from_slice(name);
        self.json(value);
    }

    // The length of a name is known where it is written, so no copy of it is a call.
    fn number<const N: usize>(&mut self, name: &[u8; N], value: u64) {
        self.text.extend_from_slice(name);
        push_number(value, &mut self.text);
    }
}

/// Whether an engine says the same of itself, whenever that was.
fn says_the_same(a: &Observed, b: &Observed) -> bool {
    (a.waiting, a.running, a.kv_usage, a.block_tokens, a.blocks)
        == (b.waiting, b.running, b.kv_usage, b.block_tokens, b.blocks)
        && a.adapters == b.adapters
        && a.custom == b.custom
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_read_as_it_was_whatever_is_in_it() {
        for text in ["", "bench-1", "a \"b\" \\ c", "\n\u{1}\u{7f}", "größer"] {
            let mut lines = Lines::default();
            lines.text(br#"["#, text);
            lines.text.push(b']');
            assert_eq!(serde_json::from_slice::<[String; 1]>(&lines.text).unwrap(), [text]);
        }
    }
}
