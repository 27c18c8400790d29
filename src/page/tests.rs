//! Whole pages: what is on them, that nothing of a user's is markup, and that equal reports give equal bytes.

use epp_trace::bad::OnBad;
use epp_trace::reader::Reader;
use epp_trace::summary::Summary;
use epp_trace::trace::Trace;
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::page::{bench, simulation, traffic};
use crate::simulate::report::Report;

const HOSTILE: &str = "</title><script>alert('&\"')</script>";

fn spread(of: f64) -> Value {
    json!({"mean": of, "p50": of, "p90": of * 2.0, "p99": of * 3.0, "max": of * 4.0})
}

fn arm(name: &str, ttft: f64) -> Value {
    let histogram = json!({"bounds": [0.001, 0.01, 0.1], "counts": [1, 2, 1]});
    json!({
        "name": name, "requests": 5, "completed": 4, "failures": {"engine: full": 1},
        "prompt_tokens": 4000, "output_tokens": 400, "reused_tokens": 1000, "reusable_tokens": 2000, "reuse_share": 0.5,
        "inflight_max_over_mean": 1.25, "inflight_momentary_max_over_mean": 1.5, "makespan_seconds": 9.5,
        "ttft_seconds": spread(ttft), "tpot_seconds": spread(0.01), "e2e_seconds": spread(1.0), "wait_seconds": spread(0.1),
        "preemptions": 0, "retries": 0, "prefilled_elsewhere": 0, "picks_per_endpoint": [3, 2],
        "histograms": {"ttft": histogram, "tpot": histogram, "e2e": histogram},
        "series": {
            "seconds_each": 5.0, "in_flight_per_endpoint": [[2.0, 1.0], [1.0, 1.0]], "in_flight_mean": [1.5, 1.0],
            "in_flight_max": [2.0, 1.0], "waiting": [1.0, 0.0], "kv_usage": [0.5, 0.25]
        }
    })
}

/// A report as it is written, which is what pages are drawn of.
fn report(arms: Vec<Value>) -> Report {
    let setup = json!({
        "traffic": "t.jsonl", "requests": 5, "prompt_tokens": 4000, "output_tokens": 400, "endpoints": 2, "speeds": [1.0],
        "seed": 1, "rate_scale": 1.0, "scrape_interval_seconds": 0.05, "scrape_delay_seconds": 0.01,
        "event_delay_seconds": 0.005, "prefill_endpoints": 0, "engine": {}
    });
    Report::read(&json!({"setup": setup, "arms": arms}).to_string()).unwrap()
}

fn rollouts(mut arm: Value) -> Value {
    let step = |began: f64| {
        json!({
            "began_seconds": began, "makespan_seconds": 4.0, "trajectory_seconds": spread(1.0),
            "endpoint_done_seconds": [4.0, 3.0]
        })
    };
    arm["rollouts"] = json!({
        "colocated_groups": 1.0, "straggler_ratio": 2.0, "tail_share": 0.25, "idle_share": 0.125,
        "steps": [step(0.0), step(5.0)]
    });
    arm
}

fn summary(text: &'static str) -> Summary {
    Summary::of(&Trace::read(Reader::new(Box::new(text.as_bytes()), None).unwrap(), OnBad::Stop).unwrap())
}

fn measured() -> Value {
    let round = |ms: f64| {
        json!({
            "sent": 10, "answered": 10, "refused": 0, "answers_per_second": 100.0, "new_figure": 4.5,
            "new": {"sort_of": {"p50_ms": ms}}, "latency": {"p50_ms": ms, "p99_ms": ms * 2.0}, "service": {"p50_ms": ms},
            "process": {"cpu_us_per_request": 70.0, "resident_mb": 30.0}, "picks_per_endpoint": {"a:1": 4, "b:1": 6}
        })
    };
    let picker = |name: &str, ms: f64| {
        json!({
            "name": name, "address": "127.0.0.1:9002", "rounds": [round(ms), round(ms * 1.5)],
            "over_rounds": {"latency_p50_ms": {"median": ms, "low": ms, "high": ms * 1.5}}
        })
    };
    json!({
        "trace": "some/where/t.jsonl", "requests": 10, "warm_up": 1, "mode": "direct", "load": "closed loop", "valid": true,
        "problems": [], "pickers": [picker("target", 0.25), picker("versus", 0.5)],
        "ratios": [{"figure": "latency_p50_ms", "of": "target", "to": "versus", "median": 0.5, "low": 0.4, "high": 0.6}]
    })
}

/// Every number of a drawing is one, and every element that is opened is closed.
fn check(page: &str) {
    for word in ["NaN", "inf ", "=\"inf", "Minf", "-inf,", "undefined"] {
        let around = page.split(word).next().map(|before| before.chars().rev().take(80).collect::<Vec<_>>());
        let around: String = around.into_iter().flatten().rev().collect();
        assert!(!page.contains(word), "found {word} behind {around}");
    }
    for tag in ["svg", "div", "figure", "table", "section", "details", "path", "rect", "ul", "dl"] {
        let opened = page.matches(&format!("<{tag} ")).count() + page.matches(&format!("<{tag}>")).count();
        let closed = page.matches(&format!("</{tag}>")).count() + closed_at_once(page, tag);
        assert_eq!(opened, closed, "{tag}");
    }
    assert!(!page.contains("<script") && !page.contains("http://") && !page.contains("https://"));
}

fn closed_at_once(page: &str, tag: &str) -> usize {
    let opening = format!("<{tag} ");
    let rest = page.split(&opening).skip(1);
    rest.filter(|rest| rest.split_once('>').is_some_and(|(element, _)| element.ends_with('/'))).count()
}

/// Puts a value in the place of the number that has so many before it; no value empties the list that has so many before.
fn change(inside: &mut Value, n_before: &mut usize, new: &Value) {
    let counts = if new.is_null() { inside.is_array() } else { inside.is_number() };
    if counts {
        if *n_before == 0 {
            *inside = if new.is_null() { json!([]) } else { new.clone() };
        }
        *n_before = n_before.wrapping_sub(1);
    }
    match inside {
        Value::Array(all) => all.iter_mut().for_each(|value| change(value, n_before, new)),
        Value::Object(all) => all.values_mut().for_each(|value| change(value, n_before, new)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

proptest! {
    #[test]
    fn whatever_a_report_says_there_is_a_page(changes in prop::collection::vec((0_usize..180, 0_usize..7), 1..12)) {
        let extremes = [json!(0), json!(u64::MAX), json!(-1.0), json!(1e308), json!(-1e308), json!(1e-308), json!(null)];
        let mut arms = json!([rollouts(arm("default", 0.01)), arm("mine", 0.02)]);
        for (mut at, what) in changes {
            change(&mut arms, &mut at, &extremes[what]);
        }
        let setup = serde_json::to_value(report(Vec::new()).setup).unwrap();
        // A count that is none is no report.
        if let Ok(report) = Report::read(&json!({"setup": setup, "arms": arms}).to_string()) {
            check(&simulation::page(&report));
        }
    }
}

fn sections(page: &str) -> Vec<&str> {
    page.split("<h2>").skip(1).filter_map(|rest| rest.split_once("</h2>")).map(|(title, _)| title).collect()
}

#[test]
fn a_simulation_is_shown_in_all_its_parts() {
    let page = simulation::page(&report(vec![rollouts(arm("default", 0.01)), rollouts(arm("mine", 0.02))]));
    check(&page);
    let want = [
        "Arms side by side",
        "Requests that failed",
        "How times are spread",
        "Reuse against what was possible",
        "Steps of the rollouts",
        "Load of each endpoint over time",
        "Over time",
        "Requests by endpoint",
    ];
    assert_eq!(sections(&page), want);
    assert!(page.contains("<td class=\"best\"><data value=\"0.01\">10.0 ms</data>"));
}

#[test]
fn parts_without_data_are_left_out() {
    let mut empty = arm("none", 0.0);
    for field in ["requests", "completed", "prompt_tokens", "reused_tokens", "reusable_tokens", "makespan_seconds"] {
        empty[field] = json!(0);
    }
    let nothing = json!({"bounds": [], "counts": []});
    empty["histograms"] = json!({"ttft": nothing, "tpot": nothing, "e2e": nothing});
    (empty["failures"], empty["picks_per_endpoint"]) = (json!({}), json!([0, 0]));
    empty["series"] = json!({
        "seconds_each": 0.1, "in_flight_per_endpoint": [[], []], "in_flight_mean": [], "in_flight_max": [], "waiting": [],
        "kv_usage": []
    });
    let page = simulation::page(&report(vec![empty]));
    check(&page);
    assert_eq!(sections(&page), ["Arms side by side"]);
    check(&simulation::page(&report(Vec::new())));
}

#[test]
fn many_endpoints_are_a_band_and_one_moment_is_a_dot() {
    let mut crowd = arm("crowd", 0.01);
    crowd["picks_per_endpoint"] = json!(vec![1; 1000]);
    crowd["series"]["in_flight_per_endpoint"] = json!([]);
    for field in ["in_flight_mean", "in_flight_max", "waiting", "kv_usage"] {
        crowd["series"][field] = json!([1.0]);
    }
    let mut steps = rollouts(crowd);
    for step in steps["rollouts"]["steps"].as_array_mut().unwrap() {
        step["endpoint_done_seconds"] = json!([]);
    }
    let page = simulation::page(&report(vec![steps]));
    check(&page);
    assert!(sections(&page).contains(&"Load of endpoints over time") && page.contains("h0"));
}

#[test]
fn values_out_of_all_measure_are_drawn_somewhere() {
    let mut wild = arm("wild", 1e300);
    for field in ["in_flight_mean", "in_flight_max", "waiting", "kv_usage"] {
        wild["series"][field] = json!([1e308, -1e308]);
    }
    wild["series"]["in_flight_per_endpoint"] = json!([[1e308], [1e-308, -3.0]]);
    wild["histograms"]["ttft"] = json!({"bounds": [0.0, -1.0, 1e308], "counts": [1, 0, u64::MAX]});
    wild["picks_per_endpoint"] = json!([u64::MAX, 0]);
    (wild["makespan_seconds"], wild["completed"]) = (json!(1e308), json!(99));
    check(&simulation::page(&report(vec![rollouts(wild), arm("default", -1.0)])));
}

#[test]
fn names_of_users_are_text_and_nothing_else() {
    let mut hostile = report(vec![arm(HOSTILE, 0.01), arm("b", 0.02)]);
    hostile.setup.traffic = HOSTILE.into();
    hostile.setup.engine.source = HOSTILE.into();
    hostile.arms[0].notes = vec![HOSTILE.to_owned()];
    hostile.arms[0].failures = [(HOSTILE.to_owned(), 1)].into();
    let mut slow = measured();
    slow["pickers"][0]["name"] = json!(HOSTILE);
    (slow["trace"], slow["problems"], slow["valid"]) = (json!(HOSTILE), json!([HOSTILE]), json!(false));
    let trace = summary("Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n5,<script>,1,2,3,c\n");
    for page in [simulation::page(&hostile), bench::page(&slow).unwrap(), traffic::page(HOSTILE, &trace)] {
        check(&page);
        assert!(
            page.contains("&lt;/title&gt;&lt;script&gt;alert(&#39;&amp;&quot;&#39;)")
                || page.contains("&lt;script&gt;")
        );
    }
}

#[test]
fn equal_reports_give_equal_bytes() {
    let page = || simulation::page(&report(vec![rollouts(arm("default", 0.01)), arm("random", 0.02)]));
    assert_eq!(page(), page());
    assert_eq!(bench::page(&measured()).unwrap(), bench::page(&measured()).unwrap());
}

#[test]
fn a_trace_is_shown_by_what_it_tells() {
    let page = traffic::page(
        "t.jsonl",
        &summary(
            "{\"timestamp\": 0, \"input_length\": 1024, \"output_length\": 10, \"hash_ids\": [1, 2]}\n\
             {\"timestamp\": 60000, \"input_length\": 1500, \"output_length\": 0, \"hash_ids\": [1, 2, 3]}\n",
        ),
    );
    check(&page);
    assert_eq!(sections(&page), ["Arrivals", "Lengths", "Reuse that is possible"]);
    let lengths = summary("TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03.9799600,4808,10\n");
    let page = traffic::page("one.csv", &lengths);
    check(&page);
    assert_eq!(sections(&page), ["Lengths", "Reuse that is possible"]);
}

#[test]
fn a_measurement_is_shown_with_figures_that_are_new() {
    let page = bench::page(&measured()).unwrap();
    check(&page);
    let want = [
        "Figures",
        "Times",
        "What target is to the others",
        "CPU, memory and rate",
        "Picks by endpoint",
        "Every round",
    ];
    assert_eq!(sections(&page), want);
    assert!(
        page.contains("new figure")
            && page.contains("<h3>New sort of</h3>")
            && page.contains("Measurement with t.jsonl")
    );
    check(&bench::page(&json!({})).unwrap());
    assert!(bench::page(&json!({"pickers": 3})).is_err());
}
