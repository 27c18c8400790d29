//! Tests the metrics pages: every family can be read, and the numbers are those of the model.

use std::collections::BTreeMap;
use std::time::Duration;

use prometheus_parse::{Sample, Scrape, Value};

use super::*;
use crate::model::{Model, Prompt, Request};

const CREATED: f64 = 1_795_974_875.537_058_6;

/// Three finished requests, the second half cached; one running, one aborted.
fn view(web: WebTally) -> View {
    let settings = ModelSettings { seats: 2, ..ModelSettings::default() };
    let mut model = Model::new(settings.clone()).unwrap();
    let mut tally = Tally::default();
    let mut now = Duration::ZERO;
    for prompt in [0..64, 0..96, 500..520] {
        model
            .arrive(now, &Request { prompt: Prompt::Tokens(prompt.collect()), salt: 0, sample: 0, output_tokens: 8 })
            .unwrap();
        now += Duration::from_secs(10);
        model.advance(now).iter().for_each(|event| tally.observe(event));
    }
    let running = Request { prompt: Prompt::Tokens((900..1000).collect()), salt: 0, sample: 0, output_tokens: 100 };
    model.arrive(now, &running).unwrap();
    let gone = model.arrive(now, &running).unwrap();
    model.arrive(now, &running).unwrap();
    model.abort(now, gone);
    now += Duration::from_millis(40);
    model.advance(now).iter().for_each(|event| tally.observe(event));
    model.arrive(now, &running).unwrap();
    View { model_name: "tiny".into(), settings, started_unix: CREATED, load: model.load(), tally, web }
}

fn visited() -> WebTally {
    let mut web = WebTally::default();
    for handler in ["/v1/completions", "/inference/v1/generate", "/v1/completions"] {
        let took = Duration::from_millis(700);
        let visit = Visit { handler, method: "POST", status: "2xx", request_bytes: 100, response_bytes: 50, took };
        web.observe(&visit);
    }
    web
}

/// Reads a page with a parser that knows no colons in names.
fn parse(page: &str) -> Vec<Sample> {
    let plain = page.replace("vllm:", "vllm_").replace("sglang:", "sglang_");
    Scrape::parse(plain.lines().map(|line| Ok(line.to_owned()))).unwrap().samples
}

fn values(page: &str) -> BTreeMap<String, f64> {
    let samples = parse(page).into_iter().filter_map(|s| match s.value {
        Value::Counter(v) | Value::Gauge(v) | Value::Untyped(v) => Some((s.metric, v)),
        Value::Histogram(_) | Value::Summary(_) => None,
    });
    samples.collect()
}

/// Each family of a page on a line: name, type, how many series, and the label names of the first.
fn outline(page: &str) -> String {
    let mut families: Vec<(String, usize, String)> = Vec::new();
    for line in page.lines() {
        if let Some(family) = line.strip_prefix("# TYPE ") {
            families.push((family.to_owned(), 0, String::new()));
        } else if !line.starts_with('#') {
            let family = families.last_mut().expect("a family is opened before its samples");
            family.1 += 1;
            if family.1 == 1 {
                let labels = line.split_once('{').map_or("", |(_, rest)| rest.rsplit_once('}').unwrap_or_default().0);
                let names = labels.split("\",").filter_map(|label| label.split_once('=')).map(|(name, _)| name);
                family.2 = names.collect::<Vec<_>>().join(" ");
            }
        }
    }
    families.into_iter().map(|(family, n, labels)| format!("{family} {n} {labels}\n")).collect()
}

#[test]
fn the_vllm_page_has_the_families_of_vllm_in_order() {
    let page = view(visited()).page(Kind::Vllm);
    insta::assert_snapshot!(outline(&page));
}

#[test]
fn the_vllm_page_is_as_long_as_a_real_one() {
    for web in [WebTally::default(), visited()] {
        let bytes = view(web).page(Kind::Vllm).len();
        assert!((45_000..56_000).contains(&bytes), "{bytes} bytes");
    }
}

#[test]
fn every_family_can_be_read() {
    for kind in Kind::ALL {
        for web in [WebTally::default(), visited()] {
            let page = view(web).page(kind);
            let samples = parse(&page);
            let (histograms, plain): (Vec<_>, Vec<_>) =
                samples.iter().partition(|s| matches!(s.value, Value::Histogram(_)));
            let lines: Vec<&str> = page.lines().filter(|line| !line.starts_with('#')).collect();
            let bucket = |line: &&&str| line.contains("_bucket{");
            assert_eq!(plain.len(), lines.iter().filter(|line| !bucket(line)).count(), "{kind}");
            assert_eq!(histograms.len(), lines.iter().filter(|line| line.contains("le=\"+Inf\"")).count(), "{kind}");
            // the parser knows no type for the two sums of a histogram, and knows it for everything else
            let untyped = plain.iter().filter(|s| matches!(s.value, Value::Untyped(_)));
            let untyped: Vec<&str> = untyped.map(|s| s.metric.as_str()).collect();
            assert!(untyped.iter().all(|name| name.ends_with("_count") || name.ends_with("_sum")), "{untyped:?}");
        }
    }
}

#[test]
fn histograms_add_up() {
    for kind in Kind::ALL {
        for sample in parse(&view(visited()).page(kind)) {
            if let Value::Histogram(buckets) = sample.value {
                assert!(buckets.is_sorted_by(|a, b| a.less_than < b.less_than && a.count <= b.count), "{kind}");
                assert_eq!(buckets.last().unwrap().less_than, f64::INFINITY, "{}", sample.metric);
            }
        }
    }
}

#[test]
fn the_numbers_are_those_of_the_model() {
    let expected: &[(Kind, &[(&str, f64)])] = &[
        (
            Kind::Vllm,
            &[
                ("vllm_num_requests_running", 2.0),
                ("vllm_num_requests_waiting", 1.0),
                ("vllm_kv_cache_usage_perc", 8.0 / 2048.0),
                ("vllm_prefix_cache_queries_total", 380.0),
                ("vllm_prefix_cache_hits_total", 64.0 + 96.0),
                ("vllm_generation_tokens_total", 30.0),
                ("vllm_cache_config_info", 1.0),
            ],
        ),
        (
            Kind::Sglang,
            &[
                ("sglang_num_running_reqs", 2.0),
                ("sglang_num_queue_reqs", 1.0),
                ("sglang_token_usage", 8.0 / 2048.0),
                ("sglang_num_aborted_requests_total", 1.0),
                ("sglang_max_total_num_tokens", 32768.0),
            ],
        ),
        (
            Kind::Trtllm,
            &[
                ("trtllm_num_requests_running", 2.0),
                ("trtllm_num_requests_waiting", 1.0),
                ("trtllm_kv_cache_utilization", 8.0 / 2048.0),
                ("trtllm_kv_cache_tokens_per_block", 16.0),
                ("trtllm_kv_cache_max_blocks", 2048.0),
            ],
        ),
    ];
    for (kind, numbers) in expected {
        let page = values(&view(visited()).page(*kind));
        for (name, value) in *numbers {
            assert_eq!(page.get(*name), Some(value), "{name}");
        }
    }
}

#[test]
fn the_cache_size_is_in_the_labels_that_each_engine_uses() {
    for (kind, name, size, blocks) in [
        (Kind::Vllm, "vllm_cache_config_info", "block_size", "num_gpu_blocks"),
        (Kind::Sglang, "sglang_cache_config_info", "page_size", "num_pages"),
    ] {
        let samples = parse(&view(WebTally::default()).page(kind));
        let info = samples.iter().find(|s| s.metric == name).unwrap();
        assert_eq!((info.labels.get(size), info.labels.get(blocks)), (Some("16"), Some("2048")), "{kind}");
    }
}
