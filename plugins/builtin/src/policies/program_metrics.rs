//! The gauges of programs: what each has had, how long it waited, and how even that is.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use epp_plugin_api::{MetricFamilies, MetricHub, MetricRegistry};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;

/// So many programs have series of their own; later ones have none until there is room.
const MOST_SERIES: usize = 1000;

type Float = Gauge<f64, AtomicU64>;

#[derive(Clone, Debug, Default, EncodeLabelSet, PartialEq, Eq, Hash)]
struct Labels {
    program_id: String,
}

#[derive(Default)]
struct Families {
    index: Float,
    wait: Family<Labels, Float>,
    service: Family<Labels, Float>,
}

impl MetricFamilies for Families {
    fn register(&self, registry: &mut MetricRegistry) {
        registry.register(
            "llm_d_epp_program_aware_jains_fairness_index",
            "[ALPHA] How even the average waits of programs are, 1 being all equal",
            self.index.clone(),
        );
        registry.register(
            "llm_d_epp_program_aware_avg_wait_time_milliseconds",
            "[ALPHA] How long requests of a program have waited on average",
            self.wait.clone(),
        );
        registry.register(
            "llm_d_epp_program_aware_attained_service_tokens",
            "[ALPHA] What a program has had, as it counted when its last answer ended",
            self.service.clone(),
        );
    }
}

/// The series of one instance.
pub struct ProgramMetrics {
    families: Arc<Families>,
    shown: HashSet<String>,
}

impl ProgramMetrics {
    /// Puts the families on the page.
    pub fn new(hub: &MetricHub) -> Self {
        Self { families: hub.families(), shown: HashSet::new() }
    }

    /// How even the waits are.
    pub fn index(&self, index: f64) {
        self.families.index.set(index);
    }

    /// How long the program has waited on average, in milliseconds.
    pub fn waited(&mut self, program: &str, milliseconds: f64) {
        if self.shows(program) {
            let labels = Labels { program_id: program.to_owned() };
            self.families.wait.get_or_create_owned(&labels).set(milliseconds);
        }
    }

    /// What the program has had.
    pub fn served(&mut self, program: &str, tokens: f64) {
        if self.shows(program) {
            let labels = Labels { program_id: program.to_owned() };
            self.families.service.get_or_create_owned(&labels).set(tokens);
        }
    }

    /// Takes the series of a program off the page.
    pub fn forget(&mut self, program: &str) {
        if self.shown.remove(program) {
            let labels = Labels { program_id: program.to_owned() };
            self.families.wait.remove(&labels);
            self.families.service.remove(&labels);
        }
    }

    fn shows(&mut self, program: &str) -> bool {
        if self.shown.contains(program) {
            return true;
        }
        if program.len() > 512 || program.contains(char::is_control) || self.shown.len() >= MOST_SERIES {
            return false;
        }
        self.shown.insert(program.to_owned())
    }
}
