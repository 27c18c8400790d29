//! How often requests were split into which stages, and how often a wanted stage found nobody.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use epp_plugin_api::{MetricFamilies, MetricHub, MetricRegistry, ProfileRun, Runs};
use parking_lot::RwLock;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;

/// So many models get series of their own; later ones share the series [`OTHER`].
const MOST_MODELS: usize = 1000;
const OTHER: &str = "other";
const UNKNOWN: &str = "unknown";

/// The stages that a request was split into. Decode is always one of them.
const KINDS: [&str; 4] = ["decode-only", "prefill-decode", "encode-decode", "encode-prefill-decode"];

#[derive(Clone, Debug, Default, EncodeLabelSet, PartialEq, Eq, Hash)]
struct Labels {
    plugin_name: String,
    plugin_type: &'static str,
    model_name: String,
    decision_type: &'static str,
}

#[derive(Clone, Debug, Default, EncodeLabelSet, PartialEq, Eq, Hash)]
struct OldLabels {
    model_name: String,
    decision_type: &'static str,
}

#[derive(Clone, Debug, Default, EncodeLabelSet, PartialEq, Eq, Hash)]
struct StageLabels {
    plugin_name: String,
    plugin_type: &'static str,
    stage: &'static str,
}

/// A family under its name and under its older one.
#[derive(Clone, Default)]
struct Families {
    now: Family<Labels, Counter>,
    old: Family<OldLabels, Counter>,
}

impl Families {
    fn put(&self, name: &str, registry: &mut MetricRegistry) {
        let now = format!("llm_d_epp_{name}");
        registry.register(&now, "Requests by the stages that they were split into", self.now.clone());
        registry.register_deprecated(format!("llm_d_inference_scheduler_{name}"), &now, self.old.clone());
    }
}

#[derive(Default)]
struct Disagg(Families);

impl MetricFamilies for Disagg {
    fn register(&self, registry: &mut MetricRegistry) {
        self.0.put("disagg_decision", registry);
    }
}

#[derive(Default)]
struct Pd(Families);

impl MetricFamilies for Pd {
    fn register(&self, registry: &mut MetricRegistry) {
        self.0.put("pd_decision", registry);
    }
}

#[derive(Default)]
struct Fallbacks(Family<StageLabels, Counter>);

impl MetricFamilies for Fallbacks {
    fn register(&self, registry: &mut MetricRegistry) {
        let help = "Requests that went on without a stage that was wanted, because its filters left nobody";
        registry.register("epp_judge_stage_fallbacks", help, self.0.clone());
    }
}

/// The series of one model, by [`KINDS`]. A kind shows once it was decided.
type Series = [OnceLock<(Counter, Counter)>; KINDS.len()];

/// The counters of one handler.
pub struct Decisions {
    families: Families,
    plugin_name: String,
    plugin_type: &'static str,
    models: RwLock<HashMap<Box<str>, Arc<Series>, foldhash::fast::RandomState>>,
    no_prefill: Counter,
    no_encode: Counter,
}

impl Decisions {
    /// The counters of a `disagg-profile-handler`.
    pub fn of_disagg(hub: &MetricHub, name: &str, kind: &'static str) -> Self {
        Self::new(hub, hub.families::<Disagg>().0.clone(), name, kind)
    }

    /// The counters of a `pd-profile-handler`.
    pub fn of_pd(hub: &MetricHub, name: &str, kind: &'static str) -> Self {
        Self::new(hub, hub.families::<Pd>().0.clone(), name, kind)
    }

    fn new(hub: &MetricHub, families: Families, name: &str, kind: &'static str) -> Self {
        let fallbacks = hub.families::<Fallbacks>();
        let fallback = |stage| {
            fallbacks.0.get_or_create_owned(&StageLabels { plugin_name: name.to_owned(), plugin_type: kind, stage })
        };
        Self {
            families,
            plugin_name: name.to_owned(),
            plugin_type: kind,
            models: RwLock::default(),
            no_prefill: fallback("prefill"),
            no_encode: fallback("encode"),
        }
    }

    /// Counts one request for the model that decode was found for. A stage without a profile is none.
    pub fn count(&self, model: &str, runs: &Runs, prefill: Option<usize>, encode: Option<usize>) {
        let run = |at: Option<usize>| at.map_or(&ProfileRun::NotRun, |at| &runs.runs[at]);
        let (prefill, encode) = (run(prefill), run(encode));
        for (run, nobody) in [(prefill, &self.no_prefill), (encode, &self.no_encode)] {
            if *run == ProfileRun::Exhausted {
                nobody.inc();
            }
        }
        let kind = usize::from(prefill.targets().is_some()) + 2 * usize::from(encode.targets().is_some());
        let model = if model.is_empty() { UNKNOWN } else { model };
        let (model, series) = self.series(model);
        let (now, old) = series[kind].get_or_init(|| self.counters(model, KINDS[kind]));
        now.inc();
        old.inc();
    }

    /// The label for a model, and its series.
    fn series<'a>(&self, model: &'a str) -> (&'a str, Arc<Series>) {
        {
            let known = self.models.read();
            if let Some(series) = known.get(model) {
                return (model, series.clone());
            }
            if let Some(series) = known.get(OTHER).filter(|_| known.len() >= MOST_MODELS) {
                return (OTHER, series.clone());
            }
        }
        let mut known = self.models.write();
        let model = if known.len() + 1 >= MOST_MODELS && !known.contains_key(model) { OTHER } else { model };
        (model, known.entry(model.into()).or_default().clone())
    }

    fn counters(&self, model: &str, decision_type: &'static str) -> (Counter, Counter) {
        let model_name = model.to_owned();
        let old = OldLabels { model_name: model_name.clone(), decision_type };
        let (plugin_name, plugin_type) = (self.plugin_name.clone(), self.plugin_type);
        let now = Labels { plugin_name, plugin_type, model_name, decision_type };
        (self.families.now.get_or_create_owned(&now), self.families.old.get_or_create_owned(&old))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Rig;

    #[test]
    fn models_beyond_the_bound_share_a_series() {
        let rig = Rig::default();
        let decisions = Decisions::of_pd(&rig.metrics, "h", "pd-profile-handler");
        for i in 0..MOST_MODELS + 9 {
            decisions.count(&format!("m{i}"), &Runs::default(), None, None);
        }
        decisions.count("", &Runs::default(), None, None);
        decisions.count("m0", &Runs::default(), None, None);
        let page = rig.page();
        let of = |model: &str| {
            let label = format!("model_name=\"{model}\",");
            let ours = |line: &&str| line.starts_with("llm_d_epp_pd_decision_total{") && line.contains(&label);
            page.lines().find(ours).map(|line| line.rsplit(' ').next().unwrap_or_default().to_owned())
        };
        assert_eq!(of("m0").as_deref(), Some("2"));
        assert_eq!(of("m998").as_deref(), Some("1"));
        assert_eq!((of("m999"), of("other").as_deref()), (None, Some("11")));
        assert_eq!(page.lines().filter(|line| line.starts_with("llm_d_epp_pd_decision_total{")).count(), MOST_MODELS);
    }
}
