//! The picker takes the example up: one more line in the registry, and a config may name it.

use std::sync::Arc;
use std::time::Duration;

use epp::config::{Environment, load};
use epp::generation::Generation;
use epp::sched::calls::NoCalls;
use epp::sched::decisions::Decisions;
use epp::sched::inputs::Inputs;
use epp::sched::metrics::SchedMetrics;
use epp_plugin_api::testing::{Row, request, snapshot};
use epp_plugin_api::{Ledger, MetricHub, Slots};
use epp_plugin_example::TYPE;
use futures_util::FutureExt;

const CONFIG: &str = "
apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
plugins:
- type: label-preference-scorer
  parameters: {label: rank}
schedulingProfiles:
- name: default
  plugins: [{pluginRef: label-preference-scorer, weight: 2}]
";

#[test]
fn a_registry_with_its_line_picks_by_it() {
    let registry = [epp::app::registry(), &[&TYPE]].concat();
    let (hub, slots) = (MetricHub::default(), Slots::default());
    let env = Environment {
        registry: &registry,
        slots: &slots,
        metrics: &hub,
        staleness: Duration::from_secs(2),
        allow_experimental: false,
        previous: None,
    };
    let plan = load(CONFIG, &env).expect("the config is right");
    let generation = Generation::new(1, plan, &Arc::new(SchedMetrics::new(&hub)), &hub);
    let board = Arc::new(snapshot(1, ["0.2", "0.9", "0.4"].map(|rank| Row::labelled(&[("rank", rank)]))));
    let request = request(b"", Default::default());
    let inputs = Inputs {
        board: &|| board.clone(),
        request: &request,
        subset: None,
        ledger: &Ledger::default(),
        now: request.received,
        with_scores: true,
        generation: generation.number,
        decisions: &Decisions::default(),
    };
    let ran = generation.pipeline.run(inputs, &NoCalls).now_or_never().expect("no service is asked");
    let (outcome, _) = ran.unwrap_or_else(|refusal| panic!("expected a pick, found {refusal:?}"));
    assert_eq!(outcome.target.name.name, "e1");
    assert_eq!(outcome.scores.iter().map(|(_, total)| *total).collect::<Vec<_>>(), [0.4, 1.8, 0.8]);
}
