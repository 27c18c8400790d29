//! Makes recorded decisions again, under the config that they were made under or another one, and says which differ and
//! why.
//!
//! Done again: filters and scorers look at what they looked at then, and the picker chooses, with the random choices that it
//! had then. Taken as recorded: who the candidates were, what producers filled, which profiles ran, and plugins that go by
//! more than what is recorded. A cycle is judged by itself: what another pick would have changed about the next one is not
//! in it.

mod judge;
mod recalled;
pub mod report;
mod rules;
#[cfg(test)]
mod tests;

use std::path::Path;

use anyhow::Context as _;
use epp_plugin_api::PluginType;

use self::report::Report;
use crate::recording::read::Reader;

/// What is judged.
#[derive(Clone, Debug, Default)]
pub struct Wish<'a> {
    /// Another config than the recorded one, as YAML.
    pub config: Option<&'a str>,
    /// Only so many cycles, the last ones.
    pub last: Option<usize>,
    /// So many differences are told in full.
    pub n_shown: usize,
}

/// Replays a recording, and the file before it if there is one; `tell` hears how many bytes have been replayed.
///
/// # Errors
/// If the recording cannot be read, or was made with plugins that this program does not have, or the config is wrong or
/// wants to know what was not recorded.
pub fn run(
    path: &Path,
    wish: &Wish<'_>,
    registry: &[&'static PluginType],
    tell: &mut dyn FnMut(u64),
) -> anyhow::Result<Report> {
    // A recording may be larger than memory, so it is read twice.
    let skipped = match wish.last {
        None => 0,
        Some(last) => Reader::open(path)?.try_fold(0_usize, |n, cycle| cycle.map(|_| n + 1))?.saturating_sub(last),
    };
    replay(Reader::open(path)?, skipped, wish, registry, tell)
}

/// Replays the cycles that a reader gives, without the first `skipped`.
///
/// # Errors
/// As [`run`].
pub fn replay(
    mut cycles: Reader,
    skipped: usize,
    wish: &Wish<'_>,
    registry: &[&'static PluginType],
    tell: &mut dyn FnMut(u64),
) -> anyhow::Result<Report> {
    let mut judges = judge::Judges::new(wish.config, registry);
    let mut report = Report::new(wish.n_shown);
    cycles.by_ref().take(skipped).try_for_each(|cycle| cycle.map(drop))?;
    while let Some(cycle) = cycles.next() {
        let cycle = cycle?;
        tell(cycles.n_bytes);
        let judge = judges.of(&cycle.config)?;
        judge.judge(&cycle, &mut report).with_context(|| cycles.place())?;
    }
    let mut notes = judges.into_notes();
    if cycles.n_cut > 0 {
        notes.push(format!("{} lines of the recording were cut short and left out", cycles.n_cut));
    }
    report.conclude(notes);
    Ok(report)
}
