//! `max-score-picker`: the endpoints with the highest totals.
//!
//! Ties are broken by chance, evenly, so that equal endpoints share the load. A total that is no number ranks below
//! every other. Costs one pass over the candidates for one endpoint; for more, a shuffle and a sort.
//!
//! ```yaml
//! - type: max-score-picker
//!   parameters: {maxNumOfEndpoints: 2}   # default 1
//! ```

use std::sync::Arc;

use epp_plugin_api::{
    BuildContext, BuildError, Candidates, EndpointIdx, Instance, Kind, Picker, PluginType, Stability,
};

/// The registry's line for this plugin.
pub static TYPE: PluginType = PluginType {
    name: "max-score-picker",
    kinds: &[Kind::Picker],
    stability: Stability::Beta,
    replaced_by: None,
    reported: "max-score-picker",
    summary: "Picks the endpoints with the highest totals, ties by chance.",
    schema: Some(crate::schema::of::<super::Config>),
    build,
};

fn build(cx: &mut BuildContext<'_>) -> Result<Instance, BuildError> {
    Ok(Instance { picker: Some(Arc::new(MaxScore { most: super::max_endpoints(cx)? })), ..Instance::default() })
}

struct MaxScore {
    most: usize,
}

impl Picker for MaxScore {
    fn pick(&self, among: &Candidates, totals: &[f64], rng: &mut fastrand::Rng, picked: &mut Vec<EndpointIdx>) {
        if self.most == 1 {
            picked.extend(best(among, totals, rng));
            return;
        }
        picked.extend(among.iter());
        // After an even shuffle even a sort that is not stable leaves ties in even order.
        rng.shuffle(picked);
        picked.sort_unstable_by(|a, b| rank(totals[b.row()]).total_cmp(&rank(totals[a.row()])));
        picked.truncate(self.most);
    }
}

fn best(among: &Candidates, totals: &[f64], rng: &mut fastrand::Rng) -> Option<EndpointIdx> {
    let (mut best, mut highest, mut ties) = (None, f64::NEG_INFINITY, 0);
    for idx in among.iter() {
        let total = rank(totals[idx.row()]);
        if best.is_none() || total > highest {
            (best, highest, ties) = (Some(idx), total, 1);
        } else if total == highest {
            ties += 1;
            if rng.u32(0..ties) == 0 {
                best = Some(idx);
            }
        }
    }
    best
}

/// The total to compare by: no number is the least, and -0 equals 0.
fn rank(total: f64) -> f64 {
    if total.is_nan() { f64::NEG_INFINITY } else { total + 0.0 }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::testing::{Rig, draws};

    use super::*;

    crate::conformance!(TYPE, json!({"maxNumOfEndpoints": 3}));

    fn check(n: i64, totals: &[f64], expected: &[&[u32]]) {
        let picker = Rig::default().build(&TYPE, json!({"maxNumOfEndpoints": n})).picker.unwrap();
        let seen = draws(&*picker, totals, 200);
        let expected = expected.iter().map(|e| e.to_vec()).collect::<std::collections::BTreeSet<_>>();
        assert_eq!(seen.into_keys().collect::<std::collections::BTreeSet<_>>(), expected);
    }

    #[test]
    fn picks_the_highest_totals_best_first() {
        check(1, &[10.0, 25.0, 15.0], &[&[1]]);
        check(0, &[10.0, 25.0, 15.0], &[&[1]]);
        check(-2, &[-10.0, -25.0, -15.0], &[&[0]]);
        check(2, &[50.0, 50.0, 30.0], &[&[0, 1], &[1, 0]]);
        check(2, &[20.0, 25.0, 30.0], &[&[2, 1]]);
        check(4, &[20.0, 25.0, 30.0], &[&[2, 1, 0]]);
        check(3, &[30.0, 25.0, 30.0], &[&[0, 2, 1], &[2, 0, 1]]);
    }

    #[test]
    fn a_total_that_is_no_number_comes_last() {
        check(1, &[f64::NAN, -5.0], &[&[1]]);
        check(2, &[f64::NAN, -5.0], &[&[1, 0]]);
        check(1, &[f64::NAN, f64::NAN], &[&[0], &[1]]);
        check(1, &[0.0, -0.0], &[&[0], &[1]]);
    }

    #[test]
    fn ties_share_evenly() {
        for n in [1, 2] {
            let picker = Rig::default().build(&TYPE, json!({"maxNumOfEndpoints": n})).picker.unwrap();
            let mut firsts = [0; 4];
            for (order, times) in draws(&*picker, &[0.0; 4], 10_000) {
                firsts[order[0] as usize] += times;
            }
            // Three standard deviations of a fair draw.
            assert!(firsts.iter().all(|n| (2370..=2630).contains(n)), "{firsts:?}");
        }
    }
}
