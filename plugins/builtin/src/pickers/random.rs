//! `random-picker`: any endpoint, each as likely as the next.
//!
//! Ignores the totals. Costs one pass over the candidates.
//!
//! ```yaml
//! - type: random-picker
//!   parameters: {maxNumOfEndpoints: 2}   # default 1
//! ```

use std::sync::Arc;

use epp_plugin_api::{
    BuildContext, BuildError, Candidates, EndpointIdx, Instance, Kind, Picker, PluginType, Stability,
};

/// The registry's line for this plugin.
pub static TYPE: PluginType = PluginType {
    name: "random-picker",
    kinds: &[Kind::Picker],
    stability: Stability::Beta,
    replaced_by: None,
    reported: "random-picker",
    summary: "Picks endpoints by chance, whatever their totals.",
    schema: Some(crate::schema::of::<super::Config>),
    build,
};

fn build(cx: &mut BuildContext<'_>) -> Result<Instance, BuildError> {
    Ok(Instance { picker: Some(Arc::new(Random { most: super::max_endpoints(cx)? })), ..Instance::default() })
}

struct Random {
    most: usize,
}

impl Picker for Random {
    fn pick(&self, among: &Candidates, _totals: &[f64], rng: &mut fastrand::Rng, picked: &mut Vec<EndpointIdx>) {
        let count = among.count();
        if self.most == 1 {
            picked.extend(among.iter().nth(rng.usize(0..count.max(1))));
            return;
        }
        picked.extend(among.iter());
        for at in 0..self.most.min(count) {
            picked.swap(at, rng.usize(at..count));
        }
        picked.truncate(self.most);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::testing::{Rig, draws};

    use super::*;

    crate::conformance!(TYPE, json!({"maxNumOfEndpoints": 3}));

    #[test]
    fn every_order_is_as_likely_as_the_next() {
        for (n, orders) in [(0, 4), (1, 4), (2, 12), (4, 24), (9, 24)] {
            let picker = Rig::default().build(&TYPE, json!({"maxNumOfEndpoints": n})).picker.unwrap();
            let seen = draws(&*picker, &[1.0, 0.0, -3.0, f64::NAN], 400 * orders);
            assert_eq!(seen.len(), orders, "{n}");
            // Five standard deviations of a fair draw.
            assert!(seen.values().all(|times| (300..=500).contains(times)), "{n}: {seen:?}");
        }
    }
}
