//! `soft-reflective-ceiling-policy`: the fuller the pool, the more rarely lower priorities may go.
//!
//! With n priorities, that of rank i (the highest has 0) has room while the saturation s is below 1 - i * s / (n - 1). From
//! there on it goes every so many times that it is asked: every round(s / (1 - s)) times, and not at all from a saturation
//! of 1 on. Below 0.5 everyone goes. The highest priority always has room below 1. All priorities without room may go at
//! the same times. While one of them waits, it is asked again every millisecond. Takes no parameters; reads no column.
//! Costs one pass over the priorities.
//!
//! ```yaml
//! - type: soft-reflective-ceiling-policy
//! ```

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use epp_plugin_api::{BuildContext, BuildError, Instance, Kind, PluginType, Stability, UsageLimitPolicy};

/// The registry's line for this plugin.
pub static TYPE: PluginType = PluginType {
    name: "soft-reflective-ceiling-policy",
    kinds: &[Kind::UsageLimitPolicy],
    stability: Stability::Alpha,
    replaced_by: None,
    reported: "soft-reflective-ceiling-policy",
    summary: "Lets lower priorities go more rarely the fuller the pool is.",
    schema: None,
    build,
};

/// How long one that waits for its time does before it is asked again.
const AGAIN: Duration = Duration::from_millis(1);

fn build(_: &mut BuildContext<'_>) -> Result<Instance, BuildError> {
    Ok(Instance { usage_limit: Some(Arc::new(SoftReflective::default())), ..Instance::default() })
}

#[derive(Default)]
struct SoftReflective {
    /// How often it was asked while it mattered.
    asked: AtomicU64,
}

impl UsageLimitPolicy for SoftReflective {
    fn ceilings(&self, saturation: f64, priorities: &[i32], ceilings: &mut [f64]) -> Option<Duration> {
        let s = saturation;
        let thins = (0.5..1.0).contains(&s);
        let asked = if thins { self.asked.fetch_add(1, Relaxed) + 1 } else { self.asked.load(Relaxed) };
        let period = (s / (1.0 - s + 1e-9)).round().max(1.0) as u64;
        let opens = asked.is_multiple_of(period);
        let steps = priorities.len().saturating_sub(1).max(1) as f64;
        let mut waits = false;
        for (rank, ceiling) in ceilings.iter_mut().enumerate() {
            let has_room = s < 1.0 - rank as f64 * s / steps;
            let goes = s < 0.5 || has_room || (thins && opens) || rank == 0;
            *ceiling = if goes { 1.0 } else { 0.0 };
            waits |= !goes && thins;
        }
        waits.then_some(AGAIN)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::testing::Rig;

    use super::*;

    crate::conformance!(TYPE, json!(null));

    /// The ceilings of so many priorities when asked again and again.
    fn asked(saturation: f64, n: usize, times: usize) -> Vec<Vec<f64>> {
        let policy = Rig::default().build(&TYPE, json!(null)).usage_limit.unwrap();
        let priorities: Vec<i32> = (0..n as i32).rev().collect();
        let ask = |_| {
            let mut ceilings = vec![9.0; n];
            policy.ceilings(saturation, &priorities, &mut ceilings);
            ceilings
        };
        (0..times).map(ask).collect()
    }

    fn lower(saturation: f64, times: usize) -> Vec<f64> {
        asked(saturation, 2, times).iter().map(|ceilings| ceilings[1]).collect()
    }

    #[test]
    fn the_lower_of_two_goes_ever_more_rarely() {
        assert_eq!(lower(0.3, 3), [1.0; 3]);
        assert_eq!(lower(0.5, 3), [1.0; 3]);
        assert_eq!(lower(0.7, 4), [0.0, 1.0, 0.0, 1.0]);
        assert_eq!(lower(0.75, 6), [0.0, 0.0, 1.0, 0.0, 0.0, 1.0]);
        assert_eq!(lower(0.8, 4), [0.0, 0.0, 0.0, 1.0]);
    }

    #[test]
    fn a_full_pool_is_left_to_the_highest_and_an_idle_one_to_all() {
        for s in [1.0, 1.7] {
            assert_eq!(asked(s, 3, 2), vec![vec![1.0, 0.0, 0.0]; 2]);
        }
        assert_eq!(asked(0.3, 3, 2), vec![vec![1.0; 3]; 2]);
        assert_eq!(asked(0.9, 1, 2), vec![vec![1.0]; 2]);
        assert_eq!(asked(0.7, 4, 1), [vec![1.0, 1.0, 0.0, 0.0]]);
    }

    #[test]
    fn asks_to_be_asked_again_only_while_that_may_help() {
        let policy = SoftReflective::default();
        let again = |s| policy.ceilings(s, &[1, 0], &mut [0.0; 2]);
        assert_eq!([again(0.3), again(0.8), again(1.0)], [None, Some(AGAIN), None]);
    }
}
