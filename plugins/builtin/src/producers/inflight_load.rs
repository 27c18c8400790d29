//! `inflight-load-producer`: requests and tokens in flight from this picker, by endpoint.
//!
//! At the pick, the first endpoint of every profile is charged with one request and with the tokens that it would have
//! to compute: the prompt less what it has cached, and, if `addEstimatedOutputTokens` is set, prompt * `outputRatio` for
//! the answer, at most the client's cap and `maxEstimatedOutputTokens`. With the first bytes of the answer the tokens
//! are given back (unless the answer's are among them), and the charge of a profile named `prefill` whole; at the
//! stream's end, however it ends, everything is. Reads the value `TokenizedPrompt` and, if there, the column
//! `PrefixCacheMatchInfoDataKey`; writes the columns `InFlightLoadDataKey` and `UncachedRequestTokensDataKey`. Costs two
//! passes over the rows.
//!
//! ```yaml
//! - type: inflight-load-producer
//!   parameters:
//!     addEstimatedOutputTokens: false
//!     outputRatio: 1.5                  # 0 or more
//!     maxEstimatedOutputTokens: 4096    # 0 or more; default: no limit
//!     prefixMatchInfoProducerName: ""   # default: approx-prefix-cache-producer
//! ```

use std::sync::Arc;

use epp_plugin_api::{
    Attribute, BuildContext, BuildError, Charge, ColumnKey, Columns, Cycle, EndpointId, EndpointIdx, Held, Instance,
    Kind, Ledger, NodeError, PREFILL, Picked, PluginType, Producer, RequestKey, Stability,
};
use schemars::JsonSchema;
use serde::Deserialize;

use super::inflight_metrics::{Gauges, InFlightMetrics};
use crate::attributes::{InFlight, PrefixMatch, TokenizedPrompt, UncachedTokens};

/// The registry's line for this plugin.
pub static TYPE: PluginType = PluginType {
    name: "inflight-load-producer",
    kinds: &[Kind::Producer],
    stability: Stability::Beta,
    replaced_by: None,
    reported: "inflight-load-producer",
    summary: "Counts requests and tokens in flight from this picker.",
    schema: Some(crate::schema::of::<Config>),
    build,
};

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
struct Config {
    /// Whether the answer's expected tokens count, until the stream ends. Default false.
    add_estimated_output_tokens: bool,
    /// Tokens of the answer for one of the prompt. 0 or more. Default 1.5.
    #[schemars(range(min = 0))]
    output_ratio: f64,
    /// At most so many tokens are expected of an answer. 0 or more. Default: no limit.
    #[schemars(range(min = 0))]
    max_estimated_output_tokens: Option<i64>,
    /// The instance that knows what is cached. Default: `approx-prefix-cache-producer`, if there is one.
    prefix_match_info_producer_name: String,
    /// Accepted and without effect: several pickers do not tell each other what they have in flight. Each counts its own,
    /// and what engines report of their queues is of all.
    #[serde(rename = "syncCrossReplicaState")]
    _sync_cross_replica_state: bool,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            add_estimated_output_tokens: false,
            output_ratio: 1.5,
            max_estimated_output_tokens: None,
            prefix_match_info_producer_name: String::new(),
            _sync_cross_replica_state: true,
        }
    }
}

fn build(cx: &mut BuildContext<'_>) -> Result<Instance, BuildError> {
    let cfg: Config = cx.config()?;
    let mistake = |path: &str, message| NodeError { place: None, path: path.into(), message };
    let mut mistakes = Vec::new();
    if cfg.output_ratio.is_nan() || cfg.output_ratio < 0.0 {
        mistakes.push(mistake("outputRatio", format!("expected 0 or more, found {}", cfg.output_ratio)));
    }
    if let Some(most) = cfg.max_estimated_output_tokens.filter(|&most| most < 0) {
        mistakes.push(mistake("maxEstimatedOutputTokens", format!("expected 0 or more, found {most}")));
    }
    if !mistakes.is_empty() {
        return Err(BuildError(mistakes));
    }
    let output = Output { ratio: cfg.output_ratio, most: cfg.max_estimated_output_tokens.unwrap_or(i64::MAX) };
    let producer = Arc::new(InFlightLoad {
        output: cfg.add_estimated_output_tokens.then_some(output),
        ledger: cx.slots.ledger(cx.name),
        prompt: cx.reads_request(""),
        matches: cx.reads_if_there(&cfg.prefix_match_info_producer_name),
        in_flight: cx.writes(),
        uncached: cx.writes(),
        scratch: cx.writes_request(),
        metrics: InFlightMetrics::new(cx.metrics, cx.name),
    });
    let told = producer.clone();
    Ok(Instance { producer: Some(producer), state: Some(Arc::new(move || told.metrics.told())), ..Instance::default() })
}

struct InFlightLoad {
    /// `None`: the answer's tokens do not count.
    output: Option<Output>,
    ledger: Arc<Ledger>,
    prompt: RequestKey<TokenizedPrompt>,
    matches: ColumnKey<PrefixMatch>,
    in_flight: ColumnKey<InFlight>,
    uncached: ColumnKey<UncachedTokens>,
    scratch: RequestKey<Scratch>,
    metrics: InFlightMetrics,
}

/// What is computed of one column before another is written.
#[derive(Clone, Debug, Default)]
struct Scratch(Vec<UncachedTokens>);

impl Attribute for Scratch {
    const NAME: &'static str = "UncachedRequestTokensScratch";
    const DEFAULT_PRODUCER: Option<&'static str> = None;
}

/// How long answers are expected to be.
#[derive(Clone, Copy, Debug)]
struct Output {
    ratio: f64,
    most: i64,
}

impl Output {
    /// Tokens expected of the answer to a prompt of so many tokens.
    fn tokens(self, input: i64, client_cap: Option<u64>) -> i64 {
        if input <= 0 {
            return 0;
        }
        let cap = client_cap.map_or(i64::MAX, |cap| i64::try_from(cap).unwrap_or(i64::MAX));
        ((input as f64 * self.ratio).round() as i64).min(cap).min(self.most)
    }
}

/// Tokens of a prompt that an endpoint would have to compute.
fn uncached(input: i64, known: Option<&PrefixMatch>) -> i64 {
    let Some(known) = known.filter(|known| known.block_tokens > 0) else { return input.max(0) };
    let (blocks, total, size) =
        (i64::from(known.match_blocks), i64::from(known.total_blocks), i64::from(known.block_tokens));
    ((total - blocks) * size).max(0) + (input - total * size).max(0)
}

impl InFlightLoad {
    fn input(&self, columns: &Columns) -> i64 {
        columns.read_request(self.prompt).map_or(0, |prompt| i64::try_from(prompt.tokens()).unwrap_or(i64::MAX))
    }

    fn charge(&self, cx: &Cycle<'_>, columns: &Columns, profile: &str, idx: EndpointIdx) -> Booking {
        let (id, input) = (cx.snapshot.id(idx), self.input(columns));
        let known = columns.read(self.matches).map(|matches| &matches[idx.row()]);
        let answer = self.output.map_or(0, |output| output.tokens(input, cx.request.parsed.max_output_tokens));
        let tokens = uncached(input, known).saturating_add(answer);
        let gauges = self.metrics.of(id, &cx.snapshot.meta(idx).name, &cx.request.fairness_id, cx.request.priority);
        gauges.requests.inc();
        gauges.tokens.inc_by(tokens);
        Booking { charge: self.ledger.charge(id, tokens), gauges, is_prefill: profile == PREFILL }
    }
}

impl Producer for InFlightLoad {
    fn produce(&self, cx: &Cycle<'_>, columns: &mut Columns) -> Result<(), String> {
        let mut scratch = std::mem::take(columns.write_request(self.scratch));
        let (input, matches) = (self.input(columns), columns.read(self.matches));
        scratch.0.clear();
        scratch.0.extend(
            (0..cx.snapshot.rows()).map(|row| UncachedTokens(uncached(input, matches.map(|matches| &matches[row])))),
        );
        columns.write(self.uncached).copy_from_slice(&scratch.0);
        *columns.write_request(self.scratch) = scratch;
        // Producers that come after this one see what is in flight, too.
        self.refresh(cx, columns);
        Ok(())
    }

    fn refresh(&self, cx: &Cycle<'_>, columns: &mut Columns) {
        let column = columns.write(self.in_flight);
        self.ledger.of_all(cx.snapshot.ids(), |row, requests, tokens| column[row] = InFlight { requests, tokens });
    }

    fn picked(&self, cx: &Cycle<'_>, columns: &Columns, picked: &Picked<'_>) -> Option<Box<dyn Held>> {
        let bookings: Vec<_> = picked.firsts().map(|(profile, idx)| self.charge(cx, columns, profile, idx)).collect();
        let counts_output = self.output.is_some();
        (!bookings.is_empty()).then(|| Box::new(Bookings { bookings, counts_output }) as Box<dyn Held>)
    }

    fn forget(&self, id: EndpointId) {
        self.metrics.forget(id);
    }
}

/// What one request has in flight.
struct Bookings {
    bookings: Vec<Booking>,
    counts_output: bool,
}

impl Held for Bookings {
    fn response_began(&mut self) {
        self.bookings.retain(|booking| !booking.is_prefill);
        if !self.counts_output {
            self.bookings.iter_mut().for_each(Booking::release_tokens);
        }
    }
}

/// What one profile's choice is charged with; given back when dropped.
struct Booking {
    charge: Charge,
    gauges: Gauges,
    is_prefill: bool,
}

impl Booking {
    fn release_tokens(&mut self) {
        self.gauges.tokens.dec_by(self.charge.release_tokens());
    }
}

impl Drop for Booking {
    fn drop(&mut self) {
        self.release_tokens();
        self.gauges.requests.dec();
    }
}

#[cfg(test)]
#[path = "inflight_load_tests.rs"]
mod tests;
