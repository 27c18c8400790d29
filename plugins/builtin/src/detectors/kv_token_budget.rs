//! `kv-token-budget-detector`: an endpoint is as full as its KV cache is of tokens that are there or will be.
//!
//! The budget of an endpoint is the size of its cache in tokens (block size * blocks, as its engine says) times (1 -
//! `headroom`). What it holds is the greater of the tokens in use by its engine's word and of those in flight from this
//! picker: prompts, and for each answer `defaultOutputTokens` or the client's cap, whichever is less, all until the
//! request ends. The saturation is that of the endpoint that has most room, held / budget, so requests go as long as one
//! endpoint has room; 1 or more is full, and so is a pool without endpoints. Where the size of a cache is not known,
//! `unknownSize` decides: the endpoint counts as the `mean` of those that are known (idle if none is), as `idle`, or as
//! `full`. As a filter it keeps the endpoints below their budget, and all of them if none is. Reads the value
//! `TokenizedPrompt`. Costs one pass over the rows.
//!
//! ```yaml
//! - type: kv-token-budget-detector
//!   parameters:
//!     headroom: 0.1               # share of each cache that is left free; 0 or more, below 1
//!     defaultOutputTokens: 1024   # expected of an answer; 0 or more
//!     unknownSize: mean           # or idle, or full
//! ```

use std::sync::Arc;

use epp_plugin_api::{
    BuildContext, BuildError, Candidates, Charge, Columns, Cycle, Departing, EndpointIdx, Filter, HeaderEdits, Held,
    Hooks, Instance, Kind, Ledger, NodeError, PREFILL, Picked, PluginType, RequestKey, Saturation, Snapshot, Stability,
};
use schemars::JsonSchema;
use serde::Deserialize;
use tokio::time::Instant;

use crate::attributes::TokenizedPrompt;

/// The registry's line for this plugin.
pub static TYPE: PluginType = PluginType {
    name: "kv-token-budget-detector",
    kinds: &[Kind::SaturationDetector, Kind::Filter, Kind::Hooks],
    stability: Stability::Beta,
    replaced_by: None,
    reported: "kv-token-budget-detector",
    summary: "Says how full the pool is by the tokens that KV caches hold and will hold.",
    schema: Some(crate::schema::of::<Config>),
    build,
};

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
struct Config {
    /// The share of each cache that is left free. 0 or more, below 1. Default 0.1.
    #[schemars(range(min = 0, max = 1))]
    headroom: f64,
    /// How many tokens an answer is expected to have, unless its client allows fewer. 0 or more. Default 1024.
    #[schemars(range(min = 0))]
    default_output_tokens: i64,
    /// What an endpoint counts as whose cache is of unknown size. Default `mean`.
    unknown_size: Unknown,
}

#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
enum Unknown {
    /// As full as the known ones are on average.
    #[default]
    Mean,
    Idle,
    Full,
}

impl Default for Config {
    fn default() -> Self {
        Self { headroom: 0.1, default_output_tokens: 1024, unknown_size: Unknown::Mean }
    }
}

fn build(cx: &mut BuildContext<'_>) -> Result<Instance, BuildError> {
    let Config { headroom, default_output_tokens: answer, unknown_size: unknown } = cx.config()?;
    let mut mistakes = Vec::new();
    let mistake = |path: &str, message| NodeError { place: None, path: path.into(), message };
    if !(0.0..1.0).contains(&headroom) {
        mistakes.push(mistake("headroom", format!("expected 0 or more and less than 1, found {headroom}")));
    }
    if answer < 0 {
        mistakes.push(mistake("defaultOutputTokens", format!("expected 0 or more, found {answer}")));
    }
    if !mistakes.is_empty() {
        return Err(BuildError(mistakes));
    }
    let budget = Arc::new(Budget {
        share: 1.0 - headroom,
        answer,
        unknown,
        prompt: cx.reads_request(""),
        ledger: cx.slots.ledger(cx.name),
    });
    let (saturation, filter) = (Some(budget.clone() as Arc<dyn Saturation>), Some(budget.clone() as Arc<dyn Filter>));
    Ok(Instance { saturation, filter, hooks: Some(budget), ..Instance::default() })
}

struct Budget {
    /// Of each cache.
    share: f64,
    /// Tokens expected of an answer.
    answer: i64,
    unknown: Unknown,
    prompt: RequestKey<TokenizedPrompt>,
    ledger: Arc<Ledger>,
}

impl Budget {
    /// Tokens held and the budget, if the size of the cache is known.
    fn of(&self, snapshot: &Snapshot, idx: EndpointIdx, in_flight: i64) -> Option<(f64, f64)> {
        let observed = snapshot.observed(idx);
        let size = f64::from(observed.block_tokens?) * f64::from(observed.blocks?);
        let resident = snapshot.kv_usage()[idx.row()] * size;
        (size > 0.0).then(|| (resident.max(in_flight as f64), size * self.share))
    }

    /// Calls `each` with how full every endpoint of `among` is if it also gets `more` tokens; `None`: not known.
    fn each(&self, snapshot: &Snapshot, among: &Candidates, more: f64, mut each: impl FnMut(EndpointIdx, Option<f64>)) {
        for idx in among.iter() {
            let (_, in_flight) = self.ledger.of(snapshot.id(idx));
            each(idx, self.of(snapshot, idx, in_flight).map(|(held, budget)| (held + more) / budget));
        }
    }
}

impl Saturation for Budget {
    fn saturation(&self, snapshot: &Snapshot, among: &Candidates, now: Instant) -> f64 {
        self.saturation_with(snapshot, among, Departing::default(), now)
    }

    fn saturation_with(&self, snapshot: &Snapshot, among: &Candidates, departing: Departing, _: Instant) -> f64 {
        let n = among.count();
        if n == 0 {
            return 1.0;
        }
        let more = departing.tokens() as f64 + departing.requests as f64 * self.answer as f64;
        let (mut least, mut sum, mut known) = (f64::INFINITY, 0.0, 0usize);
        self.each(snapshot, among, more / n as f64, |_, share| {
            if let Some(share) = share {
                least = least.min(share);
                sum += share;
                known += 1;
            }
        });
        let unknown = match self.unknown {
            _ if known == n => f64::INFINITY,
            Unknown::Mean if known == 0 => 0.0,
            Unknown::Mean => sum / known as f64,
            Unknown::Idle => 0.0,
            Unknown::Full => 1.0,
        };
        least.min(unknown)
    }

    fn counts_requests(&self) -> bool {
        true
    }
}

impl Filter for Budget {
    fn filter(&self, cx: &Cycle<'_>, _: &Columns, keep: &mut Candidates) {
        let mut fits = Candidates::none(keep.rows());
        self.each(cx.snapshot, keep, 0.0, |idx, share| {
            if share.map_or(self.unknown != Unknown::Full, |share| share < 1.0) {
                fits.insert(idx);
            }
        });
        if !fits.is_empty() {
            keep.copy_from(&fits);
        }
    }
}

impl Hooks for Budget {
    fn picked(
        &self,
        cx: &Cycle<'_>,
        columns: &Columns,
        picked: &Picked<'_>,
        _: &mut HeaderEdits,
    ) -> Option<Box<dyn Held>> {
        let prompt = columns.read_request(self.prompt).map_or(0, |prompt| prompt.tokens());
        let cap = cx.request.parsed.max_output_tokens.and_then(|cap| i64::try_from(cap).ok()).unwrap_or(i64::MAX);
        let tokens = i64::try_from(prompt).unwrap_or(i64::MAX).saturating_add(self.answer.min(cap));
        let charge = |(profile, idx)| (profile == PREFILL, self.ledger.charge(cx.snapshot.id(idx), tokens));
        Some(Box::new(Charges(picked.firsts().map(charge).collect())))
    }
}

/// What one request has charged, and whether for the prefill alone.
struct Charges(Vec<(bool, Charge)>);

impl Held for Charges {
    fn response_began(&mut self) {
        self.0.retain(|(prefill, _)| !prefill);
    }
}

#[cfg(test)]
mod tests {
    use epp_plugin_api::{ProfileRun, Runs};
    use serde_json::json;

    use crate::testing::{Rig, Row, close, cycle, kept, request, snapshot};

    use super::*;

    crate::conformance!(TYPE, json!({"unknownSize": "full"}));

    /// An endpoint with a cache of so many tokens, of which a share is in use.
    fn row(tokens: Option<u32>, usage: f64) -> Row {
        let mut row = Row::heard(0.0, 0.0, usage);
        (row.observed.block_tokens, row.observed.blocks) = (tokens.map(|_| 10), tokens.map(|tokens| tokens / 10));
        row
    }

    fn check(parameters: serde_json::Value, rows: &[Row], in_flight: &[i64], departing: Departing, expected: f64) {
        let rig = Rig::default();
        let detector = rig.build(&TYPE, parameters).saturation.unwrap();
        let (board, ledger) = (snapshot(1, rows.iter().cloned()), rig.slots.ledger(TYPE.name));
        let _charges: Vec<_> = board.ids().iter().zip(in_flight).map(|(id, t)| ledger.charge(*id, *t)).collect();
        let among = Candidates::all(board.rows());
        close(&[detector.saturation_with(&board, &among, departing, Instant::now())], &[expected]);
    }

    #[test]
    fn the_endpoint_with_most_room_counts() {
        let none = Departing::default();
        check(json!({"headroom": 0}), &[row(Some(1000), 0.5)], &[], none, 0.5);
        check(json!({"headroom": 0.5}), &[row(Some(1000), 0.5)], &[], none, 1.0);
        check(json!({"headroom": 0}), &[row(Some(1000), 0.9), row(Some(1000), 0.2)], &[], none, 0.2);
        check(json!({"headroom": 0}), &[row(Some(1000), 0.2)], &[700], none, 0.7);
        check(json!(null), &[], &[], none, 1.0);
    }

    #[test]
    fn what_departs_counts_with_its_answer() {
        let parameters = json!({"headroom": 0, "defaultOutputTokens": 50});
        check(parameters, &[row(Some(1000), 0.0)], &[], Departing { requests: 2, bytes: 400 }, 0.2);
    }

    #[test]
    fn a_cache_of_unknown_size_counts_as_configured() {
        let none = Departing::default();
        for (unknown, expected) in [("mean", 0.9), ("idle", 0.0), ("full", 0.9)] {
            let parameters = json!({"headroom": 0, "unknownSize": unknown});
            check(parameters, &[row(Some(1000), 0.9), row(None, 0.0)], &[], none, expected);
        }
        check(json!({"unknownSize": "mean"}), &[row(None, 1.0)], &[], none, 0.0);
        check(json!({"unknownSize": "full"}), &[row(None, 0.0)], &[], none, 1.0);
    }

    #[test]
    fn a_request_holds_its_prompt_and_its_answer_until_it_ends() {
        let rig = Rig::default();
        let hooks = rig.build(&TYPE, json!({"defaultOutputTokens": 100})).hooks.unwrap();
        let (board, ledger) = (snapshot(1, vec![Row::default(); 2]), rig.slots.ledger(TYPE.name));
        for (cap, expected) in [(None, 100), (Some(30), 30), (Some(500), 100)] {
            let mut request = request(b"", Default::default());
            request.parsed.max_output_tokens = cap;
            let mut runs = Runs { names: vec!["prefill".into(), "decode".into()], ..Runs::default() };
            runs.runs = vec![ProfileRun::Chose(vec![EndpointIdx(0)]), ProfileRun::Chose(vec![EndpointIdx(1)])];
            let picked = Picked { runs: &runs, primary: 1 };
            let mut held =
                hooks.picked(&cycle(&board, &request), &Columns::default(), &picked, &mut Default::default());
            let tokens = || [0, 1].map(|row| ledger.of(board.id(EndpointIdx(row))).1);
            assert_eq!(tokens(), [expected, expected]);
            held.as_mut().unwrap().response_began();
            assert_eq!(tokens(), [0, expected]);
            drop(held);
            assert_eq!(tokens(), [0, 0]);
        }
    }

    #[test]
    fn the_filter_keeps_what_is_below_its_budget_or_all() {
        let filter = Rig::default().build(&TYPE, json!({"headroom": 0.2})).filter.unwrap();
        let full = row(Some(1000), 0.8);
        assert_eq!(kept(&*filter, &snapshot(1, [full.clone(), row(Some(1000), 0.7), row(None, 0.0)])), [1, 2]);
        assert_eq!(kept(&*filter, &snapshot(1, [full.clone(), full])), [0, 1]);
    }

    #[test]
    fn refuses_parameters_out_of_range() {
        let refused = Rig::default().refused(&TYPE, json!({"headroom": 1, "defaultOutputTokens": -1}));
        assert!(refused.contains("headroom") && refused.contains("defaultOutputTokens"), "{refused}");
        assert!(Rig::default().refused(&TYPE, json!({"unknownSize": "x"})).contains("unknownSize"));
    }
}
