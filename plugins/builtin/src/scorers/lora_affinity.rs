//! `lora-affinity-scorer`: prefers engines that have the request's LoRA adapter loaded, or room for it.
//!
//! Score = 1 where the model is among the running adapters; 0.8 where fewer adapters run and wait than the engine can
//! hold; 0.6 where the model is among the waiting ones; else, and where nothing is known, 0. Reads no column; needs an
//! extractor for `ActiveModels` and `WaitingModels`. Costs a comparison with the hash of each adapter of each endpoint. Parameters are ignored.
//!
//! ```yaml
//! - type: lora-affinity-scorer
//! ```

use std::sync::Arc;

use epp_plugin_api::{
    Adapters, BuildContext, BuildError, Candidates, Columns, Cycle, Instance, Kind, Name, PluginType, Scorer, Stability,
};

/// The registry's line for this plugin.
pub static TYPE: PluginType = PluginType {
    name: "lora-affinity-scorer",
    kinds: &[Kind::Scorer],
    stability: Stability::Beta,
    replaced_by: None,
    reported: "lora-affinity-scorer",
    summary: "Prefers engines that have the request's LoRA adapter loaded, or room for it.",
    schema: None,
    build,
};

fn build(cx: &mut BuildContext<'_>) -> Result<Instance, BuildError> {
    cx.reads_metric("ActiveModels");
    cx.reads_metric("WaitingModels");
    Ok(Instance { scorer: Some(Arc::new(LoraAffinity)), ..Instance::default() })
}

struct LoraAffinity;

fn score(model: &Name<'_>, adapters: &Adapters) -> f64 {
    let Adapters { running, waiting, most } = adapters;
    if running.contains(model) {
        1.0
    } else if running.len() + waiting.len() < *most as usize {
        0.8
    } else if waiting.contains(model) {
        0.6
    } else {
        0.0
    }
}

impl Scorer for LoraAffinity {
    fn score(&self, cx: &Cycle<'_>, _columns: &Columns, among: &Candidates, scores: &mut [f64]) {
        let model = Name::new(&cx.request.target_model);
        for idx in among.iter() {
            if let Some(adapters) = &cx.snapshot.observed(idx).adapters {
                scores[idx.row()] = score(&model, adapters);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use epp_plugin_api::Observed;
    use serde_json::json;

    use crate::testing::{Rig, Row, scores, snapshot};

    use super::*;

    crate::conformance!(TYPE, json!({"bogus": 1}));

    fn adapters(running: &str, waiting: &str, most: u32) -> Adapters {
        let names = |list: &str| list.split(',').filter(|name| !name.is_empty()).map(str::to_owned).collect();
        Adapters { running: names(running), waiting: names(waiting), most }
    }

    #[test]
    fn loaded_is_better_than_room_and_room_than_waiting() {
        for (running, waiting, most, expected) in [
            ("m", "", 5, 1.0),
            ("other,m", "", 2, 1.0),
            ("other", "m", 5, 0.8),
            ("other", "", 2, 0.8),
            ("other", "m", 2, 0.6),
            ("a,b", "", 2, 0.0),
            ("a,b", "c", 4, 0.8),
            ("a,b", "c", 3, 0.0),
            ("M", "", 1, 0.0),
            ("", "", 0, 0.0),
        ] {
            assert_eq!(
                score(&Name::new("m"), &adapters(running, waiting, most)),
                expected,
                "{running:?} {waiting:?} {most}"
            );
        }
    }

    #[test]
    fn an_engine_that_says_nothing_of_adapters_scores_nothing() {
        let scorer = Rig::default().build(&TYPE, json!(null)).scorer.unwrap();
        let observed = Observed { adapters: Some(Arc::new(adapters("m", "", 1))), ..Observed::default() };
        let board = snapshot(1, [Row { observed, ..Row::default() }, Row::default()]);
        assert_eq!(scores(&*scorer, &board, &Columns::default()), [1.0, 0.0]);
    }

    #[test]
    fn needs_what_engines_say_of_adapters() {
        let [reads, ..] = Rig::default().keys(&TYPE, json!(null));
        let reads: Vec<_> = reads.iter().map(ToString::to_string).collect();
        assert_eq!(reads, ["ActiveModels/core-metrics-extractor", "WaitingModels/core-metrics-extractor"]);
    }
}
