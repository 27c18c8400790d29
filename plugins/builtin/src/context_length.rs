//! `context-length-aware`: prefers, and if asked to keeps, endpoints whose label says that they are made for prompts as
//! long as this one.
//!
//! The label holds a range of tokens, `min-max`. As a filter, with `enableFiltering`: keeps an endpoint if the prompt is
//! within its range or it has no label; one whose label is no range goes. As a scorer: no label 0.5, no range 0; within
//! the range 0.3 + 0.7 * (0.7 / (1 + width / 10000) + 0.3 * (max - length) / width), 1 if the range is one length;
//! outside 0.3 / (1 + distance / 1000). A prompt that cannot be counted has the length 0. Reads the value
//! `TokenizedPrompt`. Costs one pass over the endpoints; labels are read when the membership changes.
//!
//! ```yaml
//! - type: context-length-aware
//!   parameters:
//!     label: llm-d.ai/context-length-range
//!     enableFiltering: false
//! ```

use std::sync::Arc;

use epp_plugin_api::{
    BuildContext, BuildError, Candidates, Columns, Cycle, EndpointMeta, Filter, Instance, Kind, PluginType, RequestKey,
    Scorer, Stability,
};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::attributes::TokenizedPrompt;
use crate::per_row::PerRow;

/// The registry's line for this plugin.
pub static TYPE: PluginType = PluginType {
    name: "context-length-aware",
    kinds: &[Kind::Filter, Kind::Scorer],
    stability: Stability::Beta,
    replaced_by: None,
    reported: "context-length-aware",
    summary: "Prefers, and if asked to keeps, endpoints that are made for prompts as long as this one.",
    schema: Some(crate::schema::of::<Config>),
    build,
};

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
struct Config {
    /// The key of the label with the range. Not empty. Default `llm-d.ai/context-length-range`.
    #[schemars(length(min = 1))]
    label: String,
    /// Whether endpoints of another range are taken out. Default false.
    enable_filtering: bool,
}

impl Default for Config {
    fn default() -> Self {
        Self { label: "llm-d.ai/context-length-range".into(), enable_filtering: false }
    }
}

fn build(cx: &mut BuildContext<'_>) -> Result<Instance, BuildError> {
    let cfg: Config = cx.config()?;
    if cfg.label.is_empty() {
        return Err(BuildError::at("label", "expected the key of a label, found nothing"));
    }
    let plugin = Arc::new(ContextLength { cfg, prompt: cx.reads_request(""), ranges: PerRow::default() });
    Ok(Instance { filter: Some(plugin.clone()), scorer: Some(plugin), ..Instance::default() })
}

struct ContextLength {
    cfg: Config,
    prompt: RequestKey<TokenizedPrompt>,
    ranges: PerRow<Range>,
}

/// What an endpoint's label says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Range {
    NoLabel,
    Unreadable,
    Tokens { min: i64, max: i64 },
}

impl Range {
    fn of(label: Option<&str>) -> Self {
        let Some(label) = label else { return Self::NoLabel };
        let number = |text: &str| text.trim().parse::<i64>().ok();
        let range = label.split_once('-').and_then(|(min, max)| Some((number(min)?, number(max)?)));
        match range {
            Some((min, max)) if 0 <= min && min <= max => Self::Tokens { min, max },
            Some(_) | None => Self::Unreadable,
        }
    }

    fn admits(self, length: i64) -> bool {
        match self {
            Self::NoLabel => true,
            Self::Unreadable => false,
            Self::Tokens { min, max } => (min..=max).contains(&length),
        }
    }

    fn score(self, length: i64) -> f64 {
        match self {
            Self::NoLabel => 0.5,
            Self::Unreadable => 0.0,
            Self::Tokens { min, max } if (min..=max).contains(&length) => {
                let width = (max - min) as f64;
                if width == 0.0 {
                    return 1.0;
                }
                let tightness = 1.0 / (1.0 + width / 10_000.0);
                let room = (max - length) as f64 / width;
                0.3 + 0.7 * (0.7 * tightness + 0.3 * room)
            }
            Self::Tokens { min, max } => {
                let distance = if length > max { length - max } else { min - length };
                0.3 / (1.0 + distance as f64 / 1000.0)
            }
        }
    }
}

impl ContextLength {
    fn length(&self, columns: &Columns) -> i64 {
        columns.read_request(self.prompt).map_or(0, |prompt| i64::try_from(prompt.tokens()).unwrap_or(i64::MAX))
    }

    fn ranges(&self, cx: &Cycle<'_>) -> Arc<[Range]> {
        self.ranges.of(cx.snapshot, |meta: &EndpointMeta| Range::of(meta.label(&self.cfg.label)))
    }
}

impl Filter for ContextLength {
    fn filter(&self, cx: &Cycle<'_>, columns: &Columns, keep: &mut Candidates) {
        if self.cfg.enable_filtering {
            let (length, ranges) = (self.length(columns), self.ranges(cx));
            keep.retain(|idx| ranges[idx.row()].admits(length));
        }
    }
}

impl Scorer for ContextLength {
    fn score(&self, cx: &Cycle<'_>, columns: &Columns, among: &Candidates, scores: &mut [f64]) {
        let (length, ranges) = (self.length(columns), self.ranges(cx));
        for idx in among.iter() {
            scores[idx.row()] = ranges[idx.row()].score(length);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::testing::{Rig, Row, kept_with, scores, snapshot};

    use super::*;

    crate::conformance!(TYPE, json!({"enableFiltering": true}));

    #[track_caller]
    fn check(length: i64, ranges: &[&str], expected: &[f64]) {
        let got: Vec<f64> = ranges.iter().map(|range| Range::of(Some(range)).score(length)).collect();
        assert!(got.iter().zip(expected).all(|(got, want)| (got - want).abs() < 1e-6), "{length}: {got:?}");
    }

    #[test]
    fn a_tight_range_with_room_scores_highest() {
        check(0, &["0-20", "0-10000", "500-1000"], &[0.999_022, 0.755, 0.2]);
        check(9000, &["0-2048", "0-8192"], &[0.037_726, 0.165_929]);
        check(50, &["500-2048", "100-1024"], &[0.206_897, 0.285_714]);
        check(14_999, &["0-15000", "15001-20000"], &[0.496_014, 0.299_401]);
        check(100, &["100-100", "99-99"], &[1.0, 0.3 / 1.001]);
    }

    #[test]
    fn what_is_no_range_scores_nothing_and_no_label_one_half() {
        for label in ["0-100-200", "100-50", "abc-100", "", "100", "-5-10", "-", "1-99999999999999999999"] {
            assert_eq!(Range::of(Some(label)), Range::Unreadable, "{label}");
        }
        assert_eq!(Range::of(Some(" 0 - 100 ")), Range::Tokens { min: 0, max: 100 });
        assert_eq!((Range::Unreadable.score(1), Range::of(None).score(1)), (0.0, 0.5));
    }

    fn board() -> epp_plugin_api::Snapshot {
        let ranges = ["0-100", "100-500", "0-2000", "bad"].map(|range| Row::labelled(&[("ctx", range)]));
        snapshot(1, ranges.into_iter().chain([Row::default()]))
    }

    fn counted(rig: &Rig, length: usize) -> Columns {
        let mut columns = Columns::default();
        let prompt = columns.write_request(rig.slots.request::<TokenizedPrompt>("token-producer"));
        prompt.push_packed(|bytes| bytes.resize(4 * length, 1));
        columns
    }

    #[test]
    fn keeps_ranges_that_hold_the_prompt_when_asked_to() {
        let rig = Rig::default();
        let filter = rig.build(&TYPE, json!({"label": "ctx", "enableFiltering": true})).filter.unwrap();
        for (length, expected) in [(0, vec![0, 2, 4]), (100, vec![0, 1, 2, 4]), (501, vec![2, 4])] {
            assert_eq!(kept_with(&*filter, &board(), &counted(&rig, length)), expected, "{length}");
        }
        assert_eq!(kept_with(&*filter, &board(), &Columns::default()), [0, 2, 4]);
        let off = rig.build(&TYPE, json!({"label": "ctx"})).filter.unwrap();
        assert_eq!(kept_with(&*off, &board(), &counted(&rig, 501)), [0, 1, 2, 3, 4]);
    }

    #[test]
    fn a_prompt_within_one_of_two_ranges_goes_there() {
        let rig = Rig::default();
        let filter = rig.build(&TYPE, json!({"label": "ctx", "enableFiltering": true})).filter.unwrap();
        let board = snapshot(1, ["0-52", "142-242"].map(|range| Row::labelled(&[("ctx", range)])));
        for (length, expected) in [(42, &[0][..]), (52, &[0]), (53, &[]), (142, &[1]), (242, &[1])] {
            assert_eq!(kept_with(&*filter, &board, &counted(&rig, length)), expected, "{length}");
        }
    }

    #[test]
    fn scores_by_the_length_of_the_prompt() {
        let rig = Rig::default();
        let scorer = rig.build(&TYPE, json!({"label": "ctx"})).scorer.unwrap();
        let got = scores(&*scorer, &board(), &counted(&rig, 501));
        assert_eq!((got[3], got[4]), (0.0, 0.5));
        assert!(got[2] > 0.3 && got[1] < 0.3 && got[1] > got[0], "{got:?}");
    }

    #[test]
    fn refuses_an_empty_label() {
        assert!(Rig::default().refused(&TYPE, json!({"label": ""})).contains("label"));
    }
}
