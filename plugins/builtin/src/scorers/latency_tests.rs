//! Tests of `latency-scorer`.

use serde_json::json;

use crate::testing::{Rig, Row, close, scores, snapshot};

use super::*;

crate::conformance!(TYPE, json!(null));

/// Headroom of both objectives and requests in flight; `None` if nothing is predicted.
type Predicted = Option<(f64, f64, u64)>;

fn check(parameters: serde_json::Value, predicted: &[Predicted], expected: &[f64]) {
    let rig = Rig::default();
    let scorer = rig.build(&TYPE, parameters).scorer.unwrap();
    let prediction = |&predicted: &Predicted| {
        predicted.map_or_else(LatencyPrediction::default, |(ttft_headroom, tpot_headroom, dispatched)| {
            LatencyPrediction { ttft_headroom, tpot_headroom, dispatched, ttft: 1.0, ..LatencyPrediction::default() }
        })
    };
    let predictions: Vec<_> = predicted.iter().map(prediction).collect();
    let columns = rig.column("predicted-latency-producer", &predictions);
    let got = scores(&*scorer, &snapshot(1, vec![Row::default(); predicted.len()]), &columns);
    close(&got, expected);
}

fn idle(headrooms: &[(f64, f64)]) -> Vec<Predicted> {
    headrooms.iter().map(|&(ttft, tpot)| Some((ttft, tpot, 0))).collect()
}

#[test]
fn the_least_headroom_wins_unless_told_otherwise() {
    let most = json!({"headroomSelectionStrategy": "most"});
    let other = json!({"headroomSelectionStrategy": "whatever"});
    check(json!(null), &idle(&[(100.0, 20.0), (30.0, 5.0)]), &[0.01, 1.0]);
    check(json!(null), &idle(&[(10.0, 2.0), (50.0, 10.0)]), &[1.0, 0.01]);
    check(json!(null), &idle(&[(100.0, 20.0), (30.0, 5.0), (65.0, 20.0)]), &[0.01, 1.0, 0.40]);
    check(most, &idle(&[(100.0, 20.0), (30.0, 5.0), (65.0, 20.0)]), &[1.0, 0.01, 0.61]);
    check(other, &idle(&[(100.0, 20.0), (30.0, 5.0)]), &[0.01, 1.0]);
}

#[test]
fn equal_headrooms_score_one_half() {
    check(json!(null), &idle(&[(100.0, 20.0)]), &[0.51]);
    check(json!(null), &idle(&[(100.0, 20.0), (100.0, 20.0)]), &[0.51, 0.51]);
    check(json!(null), &idle(&[(0.0, 0.0)]), &[0.51]);
    check(json!(null), &idle(&[(100.0, 20.0), (100.0, 5.0)]), &[0.01, 1.0]);
}

#[test]
fn weights_count_by_their_share() {
    let weights = |ttft, tpot| json!({"ttftWeight": ttft, "tpotWeight": tpot});
    check(weights(0, 0), &idle(&[(100.0, 5.0), (30.0, 20.0)]), &[0.01, 1.0]);
    check(weights(0, 1), &idle(&[(100.0, 5.0), (30.0, 20.0)]), &[1.0, 0.01]);
    check(weights(4, 1), &idle(&[(100.0, 20.0), (30.0, 5.0), (65.0, 20.0)]), &[0.01, 1.0, 0.40]);
}

#[test]
fn who_misses_an_objective_scores_nothing_beside_who_keeps_both() {
    check(json!(null), &idle(&[(100.0, 20.0), (-10.0, 20.0), (100.0, -5.0)]), &[0.51, 0.0, 0.0]);
    check(json!(null), &[None, Some((-10.0, 20.0, 0))], &[0.51, 0.0]);
    check(json!(null), &[None, Some((10.0, 20.0, 0))], &[1.0, 0.01]);
}

#[test]
fn the_smallest_miss_wins_whatever_the_strategy() {
    for parameters in [json!(null), json!({"headroomSelectionStrategy": "most"})] {
        check(parameters, &idle(&[(-10.0, -5.0), (-100.0, -30.0)]), &[1.0, 0.01]);
    }
    check(json!(null), &idle(&[(-50.0, -10.0), (-30.0, 5.0), (10.0, -8.0)]), &[0.01, 0.61, 0.89]);
}

#[test]
fn the_idle_come_first_and_then_the_lesser_evil() {
    let (both, ttft, tpot) = ((-50.0, -10.0), (-30.0, 5.0), (10.0, -8.0));
    let busy = |(ttft, tpot): (f64, f64)| Some((ttft, tpot, 5));
    check(json!(null), &[busy(both), Some((-50.0, -10.0, 0))], &[0.0, 0.51]);
    check(json!(null), &[busy(both), busy(ttft), busy(tpot)], &[0.0, 0.0, 0.51]);
    check(json!(null), &[busy(both), busy(ttft)], &[0.0, 0.51]);
    check(json!(null), &[busy(both), busy((-20.0, -4.0))], &[0.01, 1.0]);
}

fn composite(parameters: serde_json::Value, loads: &[(f64, f64)], expected: &[f64]) {
    let scorer = Rig::default().build(&TYPE, parameters).scorer.unwrap();
    let rows = loads.iter().map(|&(kv, waiting)| Row::heard(waiting, 0.0, kv));
    close(&scores(&*scorer, &snapshot(1, rows), &Columns::default()), expected);
}

#[test]
fn load_counts_without_predictions() {
    composite(json!(null), &[(0.2, 0.0), (0.8, 5.0)], &[0.60, 0.07]);
    composite(json!(null), &[(0.5, 0.0), (1.0, 0.0)], &[0.5, 0.33]);
    let only_queue = json!({"compositeKVWeight": 0, "compositePrefixWeight": 0});
    composite(only_queue, &[(0.2, 3.0), (0.8, 4.0)], &[0.25, 0.0]);
    let none = json!({"compositeKVWeight": 0, "compositeQueueWeight": 0, "compositePrefixWeight": 0});
    composite(none, &[(0.25, 0.0), (0.75, 4.0)], &[0.75, 0.25]);
}

#[test]
fn a_cached_prompt_counts_without_predictions() {
    let rig = Rig::default();
    let scorer = rig.build(&TYPE, json!({"compositeKVWeight": 0, "compositeQueueWeight": 0})).scorer.unwrap();
    let matches = [(0, 3), (1, 3), (3, 3), (0, 0)];
    let matches = matches.map(|(match_blocks, total_blocks)| PrefixMatch {
        match_blocks,
        total_blocks,
        ..PrefixMatch::default()
    });
    let columns = rig.column("approx-prefix-cache-producer", &matches);
    close(&scores(&*scorer, &snapshot(1, vec![Row::default(); 4]), &columns), &[0.0, 0.33, 1.0, 0.0]);
}
