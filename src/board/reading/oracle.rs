//! Tests of reading: random pages say the same to a full parser.

use std::collections::BTreeMap;

use epp_plugin_api::{EngineMapping, Observed, Selector};
use prometheus_parse::{Scrape, Value};
use proptest::prelude::*;
use tokio::time::Instant;

use super::{CompiledMapping, read_page};

const WAITING: &str = "vllm:num_requests_waiting";
const RUNNING: &str = "vllm:num_requests_running";
const USAGE: &str = "vllm:kv_cache_usage_perc";

fn mapping() -> EngineMapping {
    let selector = |family: &str, labels: &[(&str, &str)]| {
        let labels = labels.iter().map(|&(n, v)| (n.to_owned(), v.to_owned())).collect();
        Some(Selector { family: family.to_owned(), labels })
    };
    EngineMapping {
        queued: selector(WAITING, &[]),
        running: selector(RUNNING, &[("model", "a")]),
        kv_usage: selector(USAGE, &[]),
        ..EngineMapping::default()
    }
}

/// The newest value of every series of the family that has the label.
fn oracle(page: &Scrape, family: &str, label: Option<(&str, &str)>) -> Vec<f64> {
    let mut newest = BTreeMap::new();
    for s in &page.samples {
        let has = label.is_none_or(|(name, value)| s.labels.get(name) == Some(value));
        if s.metric != family.replace(':', "_") || !has {
            continue;
        }
        let value = match s.value {
            Value::Gauge(v) | Value::Counter(v) | Value::Untyped(v) => v,
            Value::Histogram(_) | Value::Summary(_) => continue,
        };
        let entry = newest.entry(s.labels.to_string()).or_insert((s.timestamp, value));
        if s.timestamp > entry.0 {
            *entry = (s.timestamp, value);
        }
    }
    newest.into_values().map(|(_, v)| v).collect()
}

fn count(values: Vec<f64>) -> Option<f64> {
    let counts: Vec<f64> = values.into_iter().filter(|v| *v >= 0.0 && *v <= 1e15).map(f64::trunc).collect();
    (!counts.is_empty()).then(|| counts.iter().sum())
}

fn mean(values: Vec<f64>) -> Option<f64> {
    let shares: Vec<f64> = values.into_iter().filter(|v| *v >= 0.0 && v.is_finite()).map(|v| v.min(1.0)).collect();
    (!shares.is_empty()).then(|| shares.iter().sum::<f64>() / shares.len() as f64)
}

fn any_line(stamped: bool) -> impl Strategy<Value = String> {
    let name = prop_oneof![
        3 => Just(WAITING.to_owned()),
        3 => Just(RUNNING.to_owned()),
        3 => Just(USAGE.to_owned()),
        1 => Just(format!("{WAITING}_by_reason")),
        1 => Just("vllm:num".to_owned()),
        1 => "[a-z]{1,30}",
    ];
    let label = (prop_oneof!["model", "engine", "x"], prop_oneof!["a", "b", "[ a-z0-9/.-]{0,12}"]);
    let labels = prop::collection::btree_map(label.clone().prop_map(|l| l.0), label.prop_map(|l| l.1), 0..3);
    let value = prop_oneof![
        4 => (0u32..2000).prop_map(|v| format!("{v}.0")),
        4 => (0.0..1.5).prop_map(|v| format!("{v}")),
        1 => (-1e18..1e18).prop_map(|v| format!("{v:e}")),
        1 => prop_oneof!["NaN", "\\+Inf", "-Inf", "-5", "abc"],
    ];
    let line = (name, labels, value, " {1,2}|\t", 1i64..5).prop_map(move |(name, labels, value, gap, at)| {
        let labels: Vec<_> = labels.iter().map(|(n, v)| format!("{n}=\"{v}\"")).collect();
        let labels = if labels.is_empty() { String::new() } else { format!("{{{}}}", labels.join(",")) };
        let at = if stamped { format!(" {at}") } else { String::new() };
        format!("{name}{labels}{gap}{value}{at}")
    });
    let comment = prop_oneof![
        Just(format!("# TYPE {WAITING} gauge")),
        Just(format!("# HELP {RUNNING} what runs")),
        Just(String::new()),
        Just("%%% noise".to_owned()),
    ];
    prop_oneof![8 => line, 1 => comment]
}

fn any_page() -> impl Strategy<Value = String> {
    let lines = any::<bool>().prop_flat_map(|stamped| prop::collection::vec(any_line(stamped), 0..40));
    (lines, prop_oneof!["\n", "\r\n"], any::<bool>()).prop_map(|(lines, end, closed)| {
        let page = lines.join(&end);
        if closed { page + &end } else { page }
    })
}

fn near(a: Option<f64>, b: Option<f64>) -> bool {
    match (a, b) {
        (Some(a), Some(b)) => (a - b).abs() <= 1e-9 * b.abs().max(1.0),
        (a, b) => a == b,
    }
}

proptest! {
    #[test]
    fn reads_what_a_full_parser_reads(page in any_page()) {
        let compiled = CompiledMapping::new(&mapping());
        let got = read_page(page.as_bytes(), &compiled, &Observed::default(), Instant::now()).observed;
        let lines = page.lines().map(|l| Ok(l.replace(':', "_")));
        let parsed = Scrape::parse(lines).expect("a page in memory can be read");
        let expected = (
            count(oracle(&parsed, WAITING, None)),
            count(oracle(&parsed, RUNNING, Some(("model", "a")))),
            mean(oracle(&parsed, USAGE, None)),
        );
        let same = near(got.waiting, expected.0) && near(got.running, expected.1) && near(got.kv_usage, expected.2);
        prop_assert!(same, "{:?} {:?}", got, expected);
    }

    #[test]
    fn no_bytes_make_it_fail(page in prop::collection::vec(any::<u8>(), 0..300), at in 0usize..300) {
        let mut page = page;
        let at = at.min(page.len());
        page.splice(at..at, format!("\n{WAITING}{{").into_bytes());
        let compiled = CompiledMapping::new(&mapping());
        let o = read_page(&page, &compiled, &Observed::default(), Instant::now()).observed;
        prop_assert!(o.waiting.is_none_or(f64::is_finite) && o.kv_usage.is_none_or(|u| (0.0..=1.0).contains(&u)));
    }
}
