//! `weighted-random-picker`: endpoints by chance, in proportion to their totals.
//!
//! Draws without putting back (Efraimidis and Spirakis): each endpoint with a total above 0 gets the key ln(U) / total
//! with U even in (0, 1], and the highest keys win; so for one endpoint P(i) = total_i / sum of totals above 0. The
//! others come after those, in even order; with no total above 0 this is `random-picker`. Costs one pass and a
//! logarithm a candidate; for more than one endpoint also a sort.
//!
//! ```yaml
//! - type: weighted-random-picker
//!   parameters: {maxNumOfEndpoints: 2}   # default 1
//! ```

use std::cmp::Ordering;
use std::sync::Arc;

use epp_plugin_api::{
    BuildContext, BuildError, Candidates, EndpointIdx, Instance, Kind, Picker, PluginType, Stability,
};
use parking_lot::Mutex;

/// The registry's line for this plugin.
pub static TYPE: PluginType = PluginType {
    name: "weighted-random-picker",
    kinds: &[Kind::Picker],
    stability: Stability::Beta,
    replaced_by: None,
    reported: "weighted-random-picker",
    summary: "Picks endpoints by chance in proportion to their totals.",
    schema: Some(crate::schema::of::<super::Config>),
    build,
};

fn build(cx: &mut BuildContext<'_>) -> Result<Instance, BuildError> {
    let picker = WeightedRandom { most: super::max_endpoints(cx)?, drawn: Mutex::default() };
    Ok(Instance { picker: Some(Arc::new(picker)), ..Instance::default() })
}

struct WeightedRandom {
    most: usize,
    /// Kept between picks for its memory only.
    drawn: Mutex<Vec<(Ticket, EndpointIdx)>>,
}

impl Picker for WeightedRandom {
    fn pick(&self, among: &Candidates, totals: &[f64], rng: &mut fastrand::Rng, picked: &mut Vec<EndpointIdx>) {
        let tickets = among.iter().map(|idx| (Ticket::draw(totals[idx.row()], rng), idx));
        if self.most == 1 {
            picked.extend(tickets.max_by(|a, b| a.0.compare(b.0)).map(|(_, idx)| idx));
            return;
        }
        let mut drawn = self.drawn.lock();
        drawn.clear();
        drawn.extend(tickets);
        drawn.sort_unstable_by(|a, b| b.0.compare(a.0));
        picked.extend(drawn.iter().take(self.most).map(|(_, idx)| idx));
    }
}

#[derive(Clone, Copy)]
struct Ticket {
    weighs: bool,
    key: f64,
}

impl Ticket {
    fn draw(total: f64, rng: &mut fastrand::Rng) -> Self {
        let weighs = total > 0.0;
        Self { weighs, key: (1.0 - rng.f64()).ln() / if weighs { total } else { 1.0 } }
    }

    fn compare(self, other: Self) -> Ordering {
        self.weighs.cmp(&other.weighs).then(self.key.total_cmp(&other.key))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::testing::{Rig, draws};

    use super::*;

    crate::conformance!(TYPE, json!({"maxNumOfEndpoints": 3}));

    fn check(n: i64, totals: &[f64], first_share: &[f64]) {
        let picker = Rig::default().build(&TYPE, json!({"maxNumOfEndpoints": n})).picker.unwrap();
        let mut firsts = vec![0.0; totals.len()];
        for (order, times) in draws(&*picker, totals, 20_000) {
            firsts[order[0] as usize] += times as f64 / 20_000.0;
        }
        for (got, want) in firsts.iter().zip(first_share) {
            assert!((got - want).abs() <= if *want == 0.0 { 0.0 } else { 0.02 }, "{totals:?}: {firsts:?}");
        }
    }

    #[test]
    fn draws_in_proportion_to_the_totals() {
        for n in [1, 2] {
            check(n, &[10.0, 90.0], &[0.1, 0.9]);
            check(n, &[30.0, 0.0], &[1.0, 0.0]);
            check(
                n,
                &[100.0, 90.0, 50.0, 30.0, 20.0],
                &[100.0 / 290.0, 90.0 / 290.0, 50.0 / 290.0, 30.0 / 290.0, 20.0 / 290.0],
            );
            check(n, &[0.0, -1.0, f64::NAN], &[1.0 / 3.0; 3]);
        }
    }

    #[test]
    fn tiny_totals_keep_their_proportion() {
        check(1, &[1e-6, 3e-6], &[0.25, 0.75]);
    }

    #[test]
    fn what_weighs_nothing_comes_last() {
        let picker = Rig::default().build(&TYPE, json!({"maxNumOfEndpoints": 9})).picker.unwrap();
        for order in draws(&*picker, &[0.5, 0.0, 0.5], 200).into_keys() {
            assert_eq!((order.len(), order[2]), (3, 1));
        }
    }
}
