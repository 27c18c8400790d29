//! `concurrency-detector`: the pool is as full as it has requests, or tokens, in flight from this picker.
//!
//! By `concurrencyMode`: `requests`, sum of requests in flight / (endpoints * `maxConcurrency`); `tokens`, the same of
//! tokens and `maxTokenConcurrency`; `hybrid`, the mean over the endpoints of the greater of the two shares. 1 or more is
//! full, and so is a pool without endpoints. It follows every pick and every end at once, whatever engines say. As a
//! filter it keeps the endpoints that are below the limit times (1 + `headroom`), rounded down, and none if none is.
//! Reads the column `InFlightLoadDataKey`. Costs one pass over the rows.
//!
//! ```yaml
//! - type: concurrency-detector
//!   parameters:
//!     maxConcurrency: 100            # requests an endpoint, above 0
//!     maxTokenConcurrency: 1000000   # tokens an endpoint, above 0
//!     concurrencyMode: requests      # or tokens, or hybrid
//!     headroom: 0.0                  # 0 or more
//!     inFlightLoadProducerName: ""   # default: inflight-load-producer
//! ```

use std::sync::Arc;

use epp_plugin_api::{
    Attribute, BuildContext, BuildError, Candidates, ColumnKey, Columns, Cycle, Departing, Filter, Instance, Kind,
    Ledger, NodeError, PluginType, Saturation, Snapshot, Stability,
};
use schemars::JsonSchema;
use serde::Deserialize;
use tokio::time::Instant;

use crate::attributes::InFlight;

/// The registry's line for this plugin.
pub static TYPE: PluginType = PluginType {
    name: "concurrency-detector",
    kinds: &[Kind::SaturationDetector, Kind::Filter],
    stability: Stability::Beta,
    replaced_by: None,
    reported: "concurrency-detector",
    summary: "Says how full the pool is by what is in flight from this picker.",
    schema: Some(crate::schema::of::<Config>),
    build,
};

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
struct Config {
    /// How many requests in flight make an endpoint full. Above 0. Default 100.
    #[schemars(extend("exclusiveMinimum" = 0))]
    max_concurrency: i64,
    /// How many tokens in flight make an endpoint full. Above 0. Default 1000000.
    #[schemars(extend("exclusiveMinimum" = 0))]
    max_token_concurrency: i64,
    /// What counts. Default `requests`.
    concurrency_mode: Mode,
    /// How far above the limit the filter still keeps an endpoint, as a share of it. 0 or more. Default 0.
    #[schemars(range(min = 0))]
    headroom: f64,
    /// The instance that counts what is in flight. Default `inflight-load-producer`.
    in_flight_load_producer_name: String,
}

#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
enum Mode {
    #[default]
    Requests,
    Tokens,
    /// The greater of the two.
    Hybrid,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            max_concurrency: 100,
            max_token_concurrency: 1_000_000,
            concurrency_mode: Mode::Requests,
            headroom: 0.0,
            in_flight_load_producer_name: String::new(),
        }
    }
}

fn build(cx: &mut BuildContext<'_>) -> Result<Instance, BuildError> {
    let cfg: Config = cx.config()?;
    let (requests, tokens) = (cfg.max_concurrency, cfg.max_token_concurrency);
    let mut mistakes = Vec::new();
    let mut expect = |holds: bool, path: &str, message: String| {
        if !holds {
            mistakes.push(NodeError { place: None, path: path.into(), message });
        }
    };
    expect(requests > 0, "maxConcurrency", format!("expected a number above 0, found {requests}"));
    expect(tokens > 0, "maxTokenConcurrency", format!("expected a number above 0, found {tokens}"));
    expect(cfg.headroom >= 0.0, "headroom", format!("expected 0 or more, found {}", cfg.headroom));
    if !mistakes.is_empty() {
        return Err(BuildError(mistakes));
    }
    let named = cfg.in_flight_load_producer_name.trim();
    let producer = if named.is_empty() { InFlight::DEFAULT_PRODUCER.unwrap_or_default() } else { named };
    let detector = Arc::new(Concurrency {
        mode: cfg.concurrency_mode,
        requests: requests as f64,
        tokens: tokens as f64,
        room: 1.0 + cfg.headroom,
        in_flight: cx.reads(producer),
        ledger: cx.slots.ledger(producer),
    });
    Ok(Instance { saturation: Some(detector.clone()), filter: Some(detector), ..Instance::default() })
}

struct Concurrency {
    mode: Mode,
    /// Most of an endpoint.
    requests: f64,
    tokens: f64,
    room: f64,
    in_flight: ColumnKey<InFlight>,
    /// What the producer of that column has charged.
    ledger: Arc<Ledger>,
}

impl Saturation for Concurrency {
    fn saturation(&self, snapshot: &Snapshot, among: &Candidates, now: Instant) -> f64 {
        self.saturation_with(snapshot, among, Departing::default(), now)
    }

    fn saturation_with(&self, snapshot: &Snapshot, among: &Candidates, departing: Departing, _: Instant) -> f64 {
        if among.is_empty() {
            return 1.0;
        }
        let n = among.count() as f64;
        let (mut requests, mut tokens, mut shares) = (departing.requests as f64, departing.tokens() as f64, 0.0);
        // What departs is spread over all; nobody knows yet where it goes.
        let (each_request, each_token) = (requests / n, tokens / n);
        let mut busy = 0.0;
        self.ledger.of_all(snapshot.ids(), |row, r, t| {
            if among.contains(epp_plugin_api::EndpointIdx(row as u32)) {
                let (r, t) = (r as f64, t as f64);
                requests += r;
                tokens += t;
                shares += ((r + each_request) / self.requests).max((t + each_token) / self.tokens);
                busy += 1.0;
            }
        });
        let idle = (each_request / self.requests).max(each_token / self.tokens);
        match self.mode {
            Mode::Requests => requests / (n * self.requests),
            Mode::Tokens => tokens / (n * self.tokens),
            Mode::Hybrid => (shares + (n - busy) * idle) / n,
        }
    }

    fn counts_requests(&self) -> bool {
        true
    }
}

impl Filter for Concurrency {
    fn filter(&self, _: &Cycle<'_>, columns: &Columns, keep: &mut Candidates) {
        let Some(in_flight) = columns.read(self.in_flight) else { return };
        let (requests, tokens) = ((self.requests * self.room).trunc(), (self.tokens * self.room).trunc());
        keep.retain(|idx| {
            let InFlight { requests: r, tokens: t } = in_flight[idx.row()];
            let (fits, fits_tokens) = ((r as f64) < requests, (t as f64) < tokens);
            match self.mode {
                Mode::Requests => fits,
                Mode::Tokens => fits_tokens,
                Mode::Hybrid => fits && fits_tokens,
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use epp_plugin_api::Charge;
    use serde_json::json;

    use crate::testing::{Rig, Row, close, kept_with, snapshot};

    use super::*;

    crate::conformance!(TYPE, json!({"concurrencyMode": "hybrid"}));

    fn check(mode: &str, in_flight: &[(i64, i64)], departing: Departing, expected: f64) {
        let rig = Rig::default();
        let parameters = json!({"maxConcurrency": 10, "maxTokenConcurrency": 100, "concurrencyMode": mode});
        let detector = rig.build(&TYPE, parameters).saturation.unwrap();
        let board = snapshot(1, vec![Row::default(); in_flight.len()]);
        let ledger = rig.slots.ledger("inflight-load-producer");
        let mut charges: Vec<Charge> = Vec::new();
        for (id, (requests, tokens)) in board.ids().iter().zip(in_flight) {
            charges.extend((0..*requests).map(|i| ledger.charge(*id, if i == 0 { *tokens } else { 0 })));
        }
        let among = Candidates::all(board.rows());
        close(&[detector.saturation_with(&board, &among, departing, Instant::now())], &[expected]);
    }

    fn nobody() -> Departing {
        Departing::default()
    }

    #[test]
    fn requests_tokens_or_the_greater_of_both_count() {
        check("requests", &[(10, 0), (0, 0)], nobody(), 0.5);
        check("requests", &[(15, 0), (5, 0)], nobody(), 1.0);
        check("requests", &[(15, 0), (15, 0)], nobody(), 1.5);
        check("tokens", &[(1, 3)], nobody(), 0.03);
        check("tokens", &[(1, 50), (0, 0)], nobody(), 0.25);
        check("hybrid", &[(2, 80)], nobody(), 0.8);
        check("hybrid", &[(9, 10)], nobody(), 0.9);
        check("hybrid", &[(10, 0), (1, 100)], nobody(), 1.0);
        check("requests", &[], nobody(), 1.0);
    }

    #[test]
    fn what_departs_counts_before_it_is_in_flight() {
        let two = Departing { requests: 2, bytes: 80 };
        check("requests", &[(8, 0)], two, 1.0);
        check("tokens", &[(1, 30), (0, 0)], two, 0.25);
        check("hybrid", &[(0, 0)], two, 0.2);
    }

    #[test]
    fn the_filter_keeps_what_is_below_the_limit_and_headroom() {
        let rig = Rig::default();
        let filter = rig.build(&TYPE, json!({"maxConcurrency": 50, "headroom": 0.2})).filter.unwrap();
        let board = snapshot(1, vec![Row::default(); 3]);
        let in_flight = [59, 60, 0].map(|requests| InFlight { requests, tokens: 0 });
        assert_eq!(kept_with(&*filter, &board, &rig.column("inflight-load-producer", &in_flight)), [0, 2]);
    }

    #[test]
    fn the_filter_keeps_nobody_if_all_are_full() {
        let rig = Rig::default();
        let filter = rig.build(&TYPE, json!({"maxConcurrency": 2, "concurrencyMode": "hybrid"})).filter.unwrap();
        let full = [InFlight { requests: 2, tokens: 0 }];
        let columns = rig.column("inflight-load-producer", &full);
        assert_eq!(kept_with(&*filter, &snapshot(1, [Row::default()]), &columns), [0; 0]);
    }

    #[test]
    fn refuses_parameters_out_of_range() {
        for (parameters, culprit) in [
            (json!({"maxConcurrency": 0}), "maxConcurrency"),
            (json!({"maxTokenConcurrency": -1}), "maxTokenConcurrency"),
            (json!({"headroom": -0.5}), "headroom"),
            (json!({"concurrencyMode": "both"}), "both"),
        ] {
            assert!(Rig::default().refused(&TYPE, parameters).contains(culprit));
        }
    }
}
