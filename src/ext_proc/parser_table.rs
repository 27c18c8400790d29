//! Room 2: which parser reads a request, by the suffix of its path.

use std::sync::Arc;

use epp_plugin_api::Parser;

use crate::config::plan::Plan;
use crate::sched::metrics::{SchedMetrics, Timer};

/// The parsers of a generation.
pub struct ParserTable {
    entries: Vec<Arc<ParserEntry>>,
    /// Claimed suffix and place in `entries`, longest suffix first.
    suffixes: Vec<(&'static str, usize)>,
    fallback: Option<usize>,
}

/// A parser and its timers.
pub struct ParserEntry {
    pub parser: Arc<dyn Parser>,
    pub request: Timer,
    pub response: Timer,
}

impl ParserTable {
    /// Builds the table. The first parser that claims no path is the fallback, and none after it is used; a second
    /// parser of one type is left out.
    ///
    /// # Panics
    /// If the plan lists a plugin that is no parser.
    pub fn new(plan: &Plan, metrics: &SchedMetrics) -> Self {
        let mut table = Self { entries: Vec::new(), suffixes: Vec::new(), fallback: None };
        let mut seen = Vec::new();
        for &at in &plan.parsers {
            let p = &plan.plugins[at];
            if table.fallback.is_some() || seen.contains(&p.kind.name) {
                tracing::warn!(parser = p.name, "parser is not used: one before it reads the same paths");
                continue;
            }
            seen.push(p.kind.name);
            let parser = p.instance.parser.clone().expect("a plan lists only parsers as parsers");
            let here = table.entries.len();
            if parser.paths().is_empty() {
                table.fallback = Some(here);
            }
            table.suffixes.extend(parser.paths().iter().map(|suffix| (*suffix, here)));
            let timer = |point| metrics.timer(point, p.kind.reported, &p.name);
            table.entries.push(Arc::new(ParserEntry {
                parser,
                request: timer("RequestParsing"),
                response: timer("ResponseParsing"),
            }));
        }
        // Stable, so that of two equal suffixes the one that is listed first counts.
        table.suffixes.sort_by_key(|(suffix, _)| std::cmp::Reverse(suffix.len()));
        table
    }

    /// The parser for a path without query.
    pub fn resolve(&self, path: &str) -> Option<&Arc<ParserEntry>> {
        let path = path.strip_suffix('/').unwrap_or(path);
        let claimed = self.suffixes.iter().find(|(suffix, _)| path.ends_with(suffix)).map(|(_, at)| *at);
        claimed.or(self.fallback).map(|at| &self.entries[at])
    }

    /// The suffixes that are claimed, for a message.
    pub fn claimed(&self) -> String {
        self.suffixes.iter().map(|(suffix, _)| *suffix).collect::<Vec<_>>().join(", ")
    }
}
