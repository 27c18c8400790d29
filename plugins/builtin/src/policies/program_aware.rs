//! `program-aware-fairness`: serves the program first that has had least, a program being a flow.
//!
//! Of the flows of a band that have somebody waiting, the one of the highest score goes: `lasWeightService` * (1 -
//! norm(service)) + `lasWeightHeadWait` * norm(wait of its first request), where norm puts the least at 0, the most at 1,
//! and all at 0.5 if they are equal; of equals the first by name. Service is what the program's answers have reported,
//! prompt tokens + 2 * completion tokens, and halves every `lasHalfLifeSeconds`. A program is forgotten once it has had
//! nothing in flight for `evictionTtlSeconds`; at most 100,000 are remembered, and one that comes when there is no room
//! counts as new. Reads no column. Costs one pass over the flows that wait. Two instances share the families of metrics.
//!
//! ```yaml
//! - type: program-aware-fairness
//!   parameters:
//!     strategy: las              # least attained service
//!     lasWeightService: 0.8      # 0 or more
//!     lasWeightHeadWait: 0.2     # 0 or more
//!     lasHalfLifeSeconds: 60     # 0 or more; 0: service is never forgotten
//!     evictionTtlSeconds: 3600   # 0 or more; 0: programs are never forgotten
//!     evictionSweepSeconds: 300  # above 0
//! ```

use std::sync::Arc;
use std::time::Duration;

use epp_plugin_api::{
    BuildContext, BuildError, Columns, Cycle, EndpointId, FairnessPolicy, FlowId, HeaderEdits, Held, Hooks, Instance,
    Kind, NodeError, Parting, Picked, PluginType, ResponseEnd, Stability, Turns, WaitingFlows,
};
use parking_lot::Mutex;
use schemars::JsonSchema;
use serde::Deserialize;
use tokio::time::Instant;

use super::program_metrics::ProgramMetrics;
use super::programs::{Programs, Remembering};

/// The registry's line for this plugin.
pub static TYPE: PluginType = PluginType {
    name: "program-aware-fairness",
    kinds: &[Kind::FairnessPolicy, Kind::Hooks],
    stability: Stability::Beta,
    replaced_by: None,
    reported: "program-aware-fairness",
    summary: "Serves the program first that has had least.",
    schema: Some(crate::schema::of::<Config>),
    build,
};

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
struct Config {
    /// How programs are told apart in what they have had: `las`, least attained service. Default `las`.
    strategy: Strategy,
    /// How long a program is remembered that has nothing in flight, in seconds; 0: for ever. Default 3600.
    #[schemars(range(min = 0))]
    eviction_ttl_seconds: f64,
    /// How often programs are looked for that may be forgotten, in seconds. Above 0. Default 300.
    #[schemars(extend("exclusiveMinimum" = 0))]
    eviction_sweep_seconds: f64,
    /// How much it counts that a program has had little. 0 or more. Default 0.8.
    #[schemars(range(min = 0))]
    las_weight_service: f64,
    /// How much it counts that a program's first request has waited long. 0 or more. Default 0.2.
    #[schemars(range(min = 0))]
    las_weight_head_wait: f64,
    /// In what time service counts half, in seconds; 0: it always counts whole. 0 or more. Default 60.
    #[schemars(range(min = 0))]
    las_half_life_seconds: f64,
}

#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema, PartialEq, Eq)]
enum Strategy {
    #[default]
    #[serde(rename = "las", alias = "")]
    LeastAttainedService,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            strategy: Strategy::default(),
            eviction_ttl_seconds: 3600.0,
            eviction_sweep_seconds: 300.0,
            las_weight_service: 0.8,
            las_weight_head_wait: 0.2,
            las_half_life_seconds: 60.0,
        }
    }
}

fn build(cx: &mut BuildContext<'_>) -> Result<Instance, BuildError> {
    let cfg: Config = cx.config()?;
    let Strategy::LeastAttainedService = cfg.strategy;
    let mut mistakes = Vec::new();
    let mut seconds = |path: &str, value: f64, above_zero: bool| {
        if value.is_nan() || value < 0.0 || (above_zero && value == 0.0) {
            let expected = if above_zero { "a number above 0" } else { "0 or more" };
            let message = format!("expected {expected}, found {value}");
            mistakes.push(NodeError { place: None, path: path.into(), message });
        }
        // What is too long for the clock is for ever.
        Duration::try_from_secs_f64(value).ok().filter(|time| !time.is_zero())
    };
    let remembering = Remembering {
        half_life: seconds("lasHalfLifeSeconds", cfg.las_half_life_seconds, false),
        forget_after: seconds("evictionTtlSeconds", cfg.eviction_ttl_seconds, false),
        sweep_every: seconds("evictionSweepSeconds", cfg.eviction_sweep_seconds, true).unwrap_or(Duration::MAX),
    };
    seconds("lasWeightService", cfg.las_weight_service, false);
    seconds("lasWeightHeadWait", cfg.las_weight_head_wait, false);
    if !mistakes.is_empty() {
        return Err(BuildError(mistakes));
    }
    let programs = Programs::new(remembering, ProgramMetrics::new(cx.metrics));
    let policy = Arc::new(ProgramAware {
        programs: Arc::new(Mutex::new(programs)),
        service: cfg.las_weight_service,
        head_wait: cfg.las_weight_head_wait,
    });
    let told = policy.programs.clone();
    let state = Arc::new(move || told.lock().report());
    Ok(Instance { fairness: Some(policy.clone()), hooks: Some(policy), state: Some(state), ..Instance::default() })
}

struct ProgramAware {
    programs: Arc<Mutex<Programs>>,
    service: f64,
    head_wait: f64,
}

impl FairnessPolicy for ProgramAware {
    fn turns(&self) -> Box<dyn Turns> {
        let Self { programs, service, head_wait } = self;
        Box::new(LeastServed { programs: programs.clone(), service: *service, head_wait: *head_wait, seen: Vec::new() })
    }
}

impl Hooks for ProgramAware {
    fn picked(&self, cx: &Cycle<'_>, _: &Columns, _: &Picked<'_>, _: &mut HeaderEdits) -> Option<Box<dyn Held>> {
        let program = self.programs.lock().went(&cx.request.fairness_id, cx.request.waited, cx.now)?;
        Some(Box::new(InService { programs: self.programs.clone(), program, now: cx.now }))
    }

    fn forget(&self, _: EndpointId) {}
}

/// A request that its program has in flight.
struct InService {
    programs: Arc<Mutex<Programs>>,
    program: FlowId,
    /// When anything was last heard of it.
    now: Instant,
}

impl Held for InService {
    fn response_chunk(&mut self, now: Instant) {
        self.now = now;
    }

    fn response_ended(&mut self, end: &ResponseEnd) -> Parting {
        self.now = end.now;
        let tokens = end.usage.prompt.unwrap_or(0) as f64 + 2.0 * end.usage.completion.unwrap_or(0) as f64;
        self.programs.lock().served(&self.program, tokens, end.now);
        Parting::default()
    }
}

impl Drop for InService {
    fn drop(&mut self) {
        self.programs.lock().ended(&self.program, self.now);
    }
}

struct LeastServed {
    programs: Arc<Mutex<Programs>>,
    service: f64,
    head_wait: f64,
    /// What the flows have had and how long they have waited, in their order; kept for its memory.
    seen: Vec<(f64, f64)>,
}

/// The least and the most of some numbers.
struct Span(f64, f64);

impl Span {
    fn widen(&mut self, value: f64) {
        (self.0, self.1) = (self.0.min(value), self.1.max(value));
    }

    fn norm(&self, value: f64) -> f64 {
        if self.0 < self.1 { (value - self.0) / (self.1 - self.0) } else { 0.5 }
    }
}

impl Turns for LeastServed {
    fn next(&mut self, flows: &dyn WaitingFlows, now: Instant) -> FlowId {
        let (programs, seen) = (self.programs.lock(), &mut self.seen);
        let (mut services, mut waits) = (Span(f64::MAX, f64::MIN), Span(f64::MAX, f64::MIN));
        seen.clear();
        flows.each(&mut |flow, head| {
            let (service, wait) =
                (programs.service(flow, now), now.saturating_duration_since(head.since).as_secs_f64());
            services.widen(service);
            waits.widen(wait);
            seen.push((service, wait));
        });
        let score = |(service, wait): &(f64, f64)| {
            self.service * (1.0 - services.norm(*service)) + self.head_wait * waits.norm(*wait)
        };
        // Of equals the first counts.
        let best = (0..seen.len()).rev().max_by(|a, b| score(&seen[*a]).total_cmp(&score(&seen[*b])));
        let (mut at, mut chosen) = (0, None);
        flows.each(&mut |flow, _| {
            if best == Some(at) {
                chosen = Some(flow.clone());
            }
            at += 1;
        });
        chosen.unwrap_or_else(|| flows.first())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::policies::testing::Flows;
    use crate::testing::Rig;

    use super::*;

    crate::conformance!(TYPE, json!({"lasHalfLifeSeconds": 10}));

    fn policy(service: f64, head_wait: f64) -> ProgramAware {
        let remembering = Remembering { half_life: None, forget_after: None, sweep_every: Duration::MAX };
        let programs = Programs::new(remembering, ProgramMetrics::new(&Default::default()));
        ProgramAware { programs: Arc::new(Mutex::new(programs)), service, head_wait }
    }

    /// Whose turn it is after programs have had so much, at 10 s of the flows' time.
    fn next(policy: &ProgramAware, had: &[(&str, f64)], flows: &[(&str, &[u64])]) -> String {
        let flows = Flows::new(flows);
        for (program, tokens) in had {
            policy.programs.lock().went(program, Duration::ZERO, flows.zero);
            policy.programs.lock().served(program, *tokens, flows.zero);
            policy.programs.lock().ended(program, flows.zero);
        }
        policy.turns().next(&flows, flows.zero + Duration::from_secs(10)).to_string()
    }

    #[test]
    fn the_program_that_had_least_goes_first() {
        let flows: &[(&str, &[u64])] = &[("big", &[0, 1]), ("small", &[2, 3])];
        assert_eq!(next(&policy(1.0, 0.0), &[("big", 200.0), ("small", 12.0)], flows), "small");
        assert_eq!(next(&policy(1.0, 0.0), &[("small", 1.0)], flows), "big");
    }

    #[test]
    fn waiting_counts_against_service_by_the_weights() {
        let flows: &[(&str, &[u64])] = &[("big", &[0]), ("small", &[9000])];
        let had = [("big", 200.0), ("small", 12.0)];
        assert_eq!(next(&policy(0.8, 0.2), &had, flows), "small");
        assert_eq!(next(&policy(0.2, 0.8), &had, flows), "big");
    }

    #[test]
    fn of_equals_the_first_by_name_goes() {
        assert_eq!(next(&policy(0.8, 0.2), &[], &[("b", &[0]), ("a", &[0]), ("c", &[0])]), "a");
    }

    #[test]
    fn refuses_parameters_out_of_range() {
        for (parameters, culprit) in [
            (json!({"strategy": "x"}), "strategy"),
            (json!({"evictionSweepSeconds": 0}), "evictionSweepSeconds"),
            (json!({"evictionTtlSeconds": -1}), "evictionTtlSeconds"),
            (json!({"lasWeightService": -1}), "lasWeightService"),
            (json!({"lasWeightHeadWait": -1}), "lasWeightHeadWait"),
            (json!({"lasHalfLifeSeconds": -1}), "lasHalfLifeSeconds"),
        ] {
            let message = Rig::default().refused(&TYPE, parameters);
            assert!(message.contains(culprit), "{message}");
        }
    }
}
