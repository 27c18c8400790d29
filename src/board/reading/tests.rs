//! Tests of reading: what is read off pages of real engines and off odd ones.

use epp_plugin_api::{CustomMetric, EndpointName};

use super::*;

fn selector(spec: &str) -> Option<Selector> {
    let (family, labels) = spec.split_once('{').unwrap_or((spec, ""));
    let labels = labels.trim_end_matches('}').split(',').filter_map(|l| l.split_once('='));
    let labels = labels.map(|(n, v)| (n.to_owned(), v.to_owned())).collect();
    (!spec.is_empty()).then(|| Selector { family: family.to_owned(), labels })
}

fn mapping(name: &str, [queued, running, kv_usage, lora, cache_info]: [&str; 5]) -> EngineMapping {
    EngineMapping {
        name: name.to_owned(),
        queued: selector(queued),
        running: selector(running),
        kv_usage: selector(kv_usage),
        lora: selector(lora),
        cache_info: selector(cache_info),
        cache_block_size_label: "block_size".to_owned(),
        cache_num_blocks_label: "num_gpu_blocks".to_owned(),
        ..EngineMapping::default()
    }
}

pub(super) fn vllm() -> EngineMapping {
    let names = [
        "num_requests_waiting",
        "num_requests_running",
        "kv_cache_usage_perc",
        "lora_requests_info",
        "cache_config_info",
    ];
    let names = names.map(|n| format!("vllm:{n}"));
    let mapping = mapping("vllm", names.each_ref().map(String::as_str));
    EngineMapping { kv_usage_fallback: selector("vllm:gpu_cache_usage_perc"), ..mapping }
}

fn sglang() -> EngineMapping {
    let names =
        ["sglang:num_queue_reqs", "sglang:num_running_reqs", "sglang:token_usage", "", "sglang:cache_config_info"];
    EngineMapping {
        cache_block_size_label: "page_size".to_owned(),
        cache_num_blocks_label: "num_pages".to_owned(),
        ..mapping("sglang", names)
    }
}

fn trtllm() -> EngineMapping {
    EngineMapping {
        cache_block_size: selector("trtllm_kv_cache_tokens_per_block"),
        cache_num_blocks: selector("trtllm_kv_cache_max_blocks"),
        ..mapping(
            "trtllm-serve",
            ["trtllm_num_requests_waiting", "trtllm_num_requests_running", "trtllm_kv_cache_utilization", "", ""],
        )
    }
}

fn triton() -> EngineMapping {
    mapping("triton", ["nv_inference_pending_request_count", "", "", "", ""])
}

fn triton_trtllm() -> EngineMapping {
    let (requests, blocks) = ("nv_trt_llm_request_metrics", "nv_trt_llm_kv_cache_block_metrics");
    let names = [
        format!("{requests}{{request_type=waiting}}"),
        format!("{requests}{{request_type=scheduled}}"),
        format!("{blocks}{{kv_cache_block_type=fraction}}"),
    ];
    EngineMapping {
        cache_block_size: selector(&format!("{blocks}{{kv_cache_block_type=tokens_per}}")),
        cache_num_blocks: selector(&format!("{blocks}{{kv_cache_block_type=max}}")),
        ..mapping("triton-tensorrt-llm", [&names[0], &names[1], &names[2], "", ""])
    }
}

fn sample(name: &str) -> String {
    let path = format!("{}/tests/data/engine-metrics/{name}.txt", env!("CARGO_MANIFEST_DIR"));
    std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{path}: {e}"))
}

fn read(page: &str, mapping: &EngineMapping) -> (Observed, Vec<String>) {
    let mapping = CompiledMapping::new(mapping);
    let reading = read_page(page.as_bytes(), &mapping, &Observed::default(), Instant::now());
    (reading.observed, reading.missing.into_iter().map(str::to_owned).collect())
}

fn load(page: &str, mapping: &EngineMapping) -> (Option<f64>, Option<f64>, Option<f64>) {
    let (o, _) = read(page, mapping);
    (o.waiting, o.running, o.kv_usage)
}

#[test]
fn reads_what_a_person_reads_off_a_page() {
    for (name, mapping, expected) in [
        ("sglang-0.3-gemma2-9b-old-names", sglang(), (None, None, Some(0.01))),
        ("sglang-0.4-docs-llama3.1-8b", sglang(), (Some(2826.0), Some(162.0), Some(0.28))),
        ("sglang-2026-pd-decode", sglang(), (Some(0.0), Some(1.0), Some(0.33))),
        ("sglang-2026-pd-prefill", sglang(), (Some(1.0), Some(0.0), Some(0.0))),
        ("sglang-2026-qwen3-8b-single", sglang(), (Some(3.0), Some(24.0), Some(0.73))),
        ("triton-server-2023-multimodel-gpu", triton(), (Some(0.0), None, None)),
        ("triton-tensorrtllm-23.11-old-statistics-names", triton_trtllm(), (None, None, None)),
        ("triton-tensorrtllm-inflight-after-23.12", triton_trtllm(), (Some(1.0), Some(1.0), Some(0.4875))),
        ("trtllm-serve-1.1-metrics-path-json-empty", trtllm(), (None, None, None)),
        ("trtllm-serve-prefixed-with-queue-gauges", trtllm(), (Some(1.0), Some(3.0), Some(0.42))),
        ("vllm-0.2-v0-early-exporter", vllm(), (None, None, Some(0.38849487785658))),
        ("vllm-0.26-v1-cpu-qwen2.5-0.5b-selected", vllm(), (Some(0.0), Some(0.0), Some(0.0))),
        ("vllm-0.6-0.7-v0-full-gauges", vllm(), (Some(2.0), Some(3.0), Some(0.0))),
        ("vllm-0.6-0.8-v0-qwen2.5-1.5b-histogram", vllm(), (Some(0.0), None, Some(0.0))),
        ("vllm-2026-05-dp2-two-lines", vllm(), (None, Some(0.0), None)),
        ("vllm-v1-kvname-dp2-engine-labels", vllm(), (Some(2.0), Some(8.0), Some(0.385))),
        ("vllm-v1-kvname-single-engine-docs", vllm(), (Some(0.0), Some(4.0), Some(0.4219))),
    ] {
        assert_eq!(load(&sample(name), &mapping), expected, "{name}");
    }
}

#[test]
fn reads_the_whole_page_of_a_loaded_vllm() {
    let page = include_str!("../../../tests/data/vllm-0.32.0-loaded.prom");
    let (observed, missing) = read(page, &vllm());
    assert_eq!(
        (observed.waiting, observed.running, observed.kv_usage),
        (Some(0.0), Some(94.0), Some(0.040529817493743514))
    );
    assert_eq!((observed.block_tokens, observed.blocks, observed.adapters), (Some(128), Some(16384), None));
    assert_eq!(missing, [""; 0]);
}

#[test]
fn the_new_name_of_the_kv_gauge_wins_wherever_it_stands() {
    for (page, expected) in [
        ("vllm:gpu_cache_usage_perc 0.42\n", Some(0.42)),
        ("vllm:kv_cache_usage_perc 0.42\n", Some(0.42)),
        ("vllm:kv_cache_usage_perc 0.42\nvllm:gpu_cache_usage_perc 0.9\n", Some(0.42)),
        ("vllm:gpu_cache_usage_perc 0.9\nvllm:kv_cache_usage_perc 0.42\n", Some(0.42)),
        ("vllm:gpu_cache_usage_perc 0.42\nvllm:kv_cache_usage_perc NaN\n", Some(0.42)),
        ("vllm:gpu_cache_usage_perc 0.42\nvllm:kv_cache_usage_perc 1.5\n", Some(1.0)),
    ] {
        let (observed, missing) = read(page, &vllm());
        assert_eq!(observed.kv_usage, expected, "{page}");
        assert!(!missing.iter().any(|f| f.contains("usage_perc")), "{page} {missing:?}");
    }
}

#[test]
fn executions_of_triton_are_not_running_requests() {
    let page = "nv_inference_pending_request_count{model=\"a\"} 2\nnv_inference_pending_request_count{model=\"b\"} 5\n\
                # TYPE nv_inference_exec_count counter\nnv_inference_exec_count 1e9\n";
    assert_eq!(load(page, &triton()), (Some(7.0), None, None));
}

#[test]
fn names_the_families_that_say_nothing() {
    let (_, missing) = read("vllm:num_requests_waiting 5\nvllm:num_requests_running NaN\n", &vllm());
    assert_eq!(missing, ["vllm:num_requests_running", "vllm:kv_cache_usage_perc", "vllm:cache_config_info"]);
}

#[test]
fn a_page_that_says_nothing_changes_nothing() {
    let compiled = CompiledMapping::new(&vllm());
    let before = Observed { waiting: Some(6.0), at: Some(Instant::now()), ..Observed::default() };
    for page in ["", "[]", "<html></html>", "other 1\n", "vllm:num_requests_waiting NaN\n", "\0\u{1}\u{2}"] {
        let reading = read_page(page.as_bytes(), &compiled, &before, Instant::now());
        assert_eq!((reading.observed, reading.found_any), (before.clone(), false), "{page:?}");
        assert!(!reading.missing.is_empty(), "{page:?}");
    }
}

#[test]
fn what_a_page_no_longer_shows_becomes_unknown() {
    let compiled = CompiledMapping::new(&vllm());
    let before = Observed { waiting: Some(6.0), running: Some(3.0), ..Observed::default() };
    let now = Instant::now();
    let reading = read_page(b"vllm:num_requests_running 4\n", &compiled, &before, now);
    assert_eq!(reading.observed, Observed { running: Some(4.0), at: Some(now), ..Observed::default() });
}

#[test]
fn a_mapping_that_wants_nothing_misses_nothing() {
    for page in ["vllm:num_requests_running 4\n", ""] {
        assert_eq!(read(page, &EngineMapping::default()), (Observed::default(), vec![]), "{page}");
    }
}

#[test]
fn reads_the_geometry_of_the_cache() {
    let info = "vllm:cache_config_info{block_size=\"B\",num_gpu_blocks=\"N\"} 1\n";
    let vllm_page = |b, n| info.replace('B', b).replace('N', n);
    let triton = "nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type=\"fraction\"} 0.42\n\
                  nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type=\"max\"} 6239\n\
                  nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type=\"tokens_per\"} 64\n";
    for (page, mapping, expected) in [
        (vllm_page("128", "512"), vllm(), (Some(128), Some(512))),
        (vllm_page("None", "10"), vllm(), (None, Some(10))),
        (vllm_page("128", "None"), vllm(), (Some(128), None)),
        (vllm_page("0", "-1"), vllm(), (None, None)),
        (sample("vllm-0.7-0.8-cache-config-info-line"), vllm(), (Some(16), Some(573))),
        (
            "sglang:cache_config_info{page_size=\"64\",num_pages=\"11147\"} 1\n".to_owned(),
            sglang(),
            (Some(64), Some(11147)),
        ),
        (
            "trtllm_kv_cache_tokens_per_block 32\ntrtllm_kv_cache_max_blocks 1e3\n".to_owned(),
            trtllm(),
            (Some(32), Some(1000)),
        ),
        (triton.to_owned(), triton_trtllm(), (Some(64), Some(6239))),
    ] {
        let (observed, missing) = read(&page, &mapping);
        assert_eq!((observed.block_tokens, observed.blocks), expected, "{page}");
        assert!(!missing.iter().any(|f| f.contains("cache_config") || f.contains("max_blocks")), "{page} {missing:?}");
    }
}

fn lora(running: &str, waiting: &str, most: &str, value: &str) -> String {
    format!(
        "vllm:lora_requests_info{{max_lora=\"{most}\",running_lora_adapters=\"{running}\",waiting_lora_adapters=\"{waiting}\"}} {value}\n"
    )
}

#[test]
fn reads_the_newest_adapters() {
    for (page, running, waiting, most) in [
        (lora("a,b", "c", "4", "1"), "a,b", "c", 4),
        (lora("a, b ", " c", "3", "1"), "a,b", "c", 3),
        (lora("a,,", "", "", "1"), "a", "", 0),
        (lora("a", "", "None", "1"), "a", "", 0),
        (lora("new", "", "2", "3000") + &lora("old,older", "", "4", "1000"), "new", "", 2),
        (lora("old,older", "", "4", "1000") + &lora("new", "", "1", "3000"), "new", "", 1),
        (sample("vllm-v1-lora-requests-info-three-series"), "", "", 2),
    ] {
        let (observed, _) = read(&page, &vllm());
        let adapters = observed.adapters.expect("adapters are shown");
        let join = |names: &epp_plugin_api::Names| names.iter().cloned().collect::<Vec<_>>().join(",");
        assert_eq!(
            (join(&adapters.running), join(&adapters.waiting), adapters.most),
            (running.into(), waiting.into(), most),
            "{page}"
        );
    }
}

#[test]
fn unchanged_adapters_and_custom_numbers_are_shared() {
    let custom =
        CustomMetric { attribute_key: "gold".to_owned(), metric: selector("depth{tier=gold}").expect("a selector") };
    let compiled = CompiledMapping::new(&EngineMapping { custom: vec![custom], ..vllm() });
    let page = lora("a", "", "4", "1") + "depth{tier=\"silver\"} 7\ndepth{tier=\"gold\"} -42.5\n";
    let first = read_page(page.as_bytes(), &compiled, &Observed::default(), Instant::now()).observed;
    assert_eq!(*first.custom, [("gold".to_owned(), -42.5)]);
    let second = read_page(page.as_bytes(), &compiled, &first, Instant::now()).observed;
    assert!(Arc::ptr_eq(&first.custom, &second.custom));
    assert!(first.adapters.zip(second.adapters).is_some_and(|(a, b)| Arc::ptr_eq(&a, &b)));
}

#[test]
fn a_label_chooses_the_engine() {
    let spec = ExtractorSpec {
        engine_label: "my/engine".to_owned(),
        default_engine: "vllm".to_owned(),
        engines: vec![vllm(), sglang(), trtllm()],
    };
    let (mine, legacy) = ("my/engine", ExtractorSpec::LEGACY_ENGINE_LABEL);
    for (labels, expected) in [
        (&[][..], "vllm"),
        (&[(mine, "sglang")], "sglang"),
        (&[(mine, "SGLang")], "vllm"),
        (&[(legacy, "sglang")], "sglang"),
        (&[(mine, "trtllm-serve"), (legacy, "sglang")], "trtllm-serve"),
        (&[(mine, ""), (legacy, "sglang")], "sglang"),
        (&[(mine, "unknown"), (legacy, "sglang")], "vllm"),
        (&[("llm-d.ai/engine-type", "sglang")], "vllm"),
    ] {
        let name = EndpointName { namespace: "default".into(), name: "e".into() };
        let labels = labels.iter().map(|&(k, v)| (k.to_owned(), v.to_owned())).collect();
        let meta = EndpointMeta::new(name, "127.0.0.1".into(), 1, labels, 0);
        assert_eq!(Engines::new(&spec).of(&meta).name, expected, "{:?}", meta.labels);
    }
}

/// What a custom number that stands at `spec` is, and the families that are missed.
fn custom(page: &str, spec: &str) -> (Option<f64>, Vec<String>) {
    let metric = selector(spec).expect("a selector");
    let custom = vec![CustomMetric { attribute_key: "key".to_owned(), metric }];
    let (observed, missing) = read(page, &EngineMapping { custom, ..EngineMapping::default() });
    assert_eq!((observed.waiting, observed.running, observed.kv_usage), (None, None, None), "{page}");
    (observed.custom.first().map(|(_, value)| *value), missing)
}

#[test]
fn labels_choose_the_series() {
    let two = "f{label1=\"value1\"} 1 1000\nf{label1=\"value2\"} 2 2000\n";
    let more = "f{labelA=\"A1\",labelB=\"B1\"} 3 1500\nf{labelA=\"A2\",labelB=\"B2\"} 4 2500\n";
    for (page, spec, value) in [
        (two, "f{label1=value1}", Some(1.0)),
        (two, "f{label1=value3}", None),
        (two, "f", Some(2.0)),
        (more, "f{labelA=A1}", Some(3.0)),
        (more, "f{labelA=A1,labelB=B2}", None),
        ("f 5 3000\nf 6 1000\n", "f", Some(5.0)),
        ("f{tier=\"gold\"} 42.5\n", "f{tier=gold}", Some(42.5)),
        ("g 1\n", "f", None),
    ] {
        let missing = if value.is_some() { vec![] } else { vec!["f".to_owned()] };
        assert_eq!(custom(page, spec), (value, missing), "{spec} of {page}");
    }
}

#[test]
fn reads_everything_that_one_page_says() {
    let page = "vllm:num_requests_waiting 7\nvllm:num_requests_running 3\nvllm:kv_cache_usage_perc 0.55\n".to_owned()
        + &lora("adapter-a,adapter-b", "adapter-c", "4", "1")
        + "vllm:cache_config_info{block_size=\"16\",num_gpu_blocks=\"512\"} 1\n";
    let (observed, missing) = read(&page, &vllm());
    let set = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    let adapters = Adapters { running: set(&["adapter-a", "adapter-b"]), waiting: set(&["adapter-c"]), most: 4 };
    let expected = Observed {
        waiting: Some(7.0),
        running: Some(3.0),
        kv_usage: Some(0.55),
        block_tokens: Some(16),
        blocks: Some(512),
        adapters: Some(adapters.into()),
        at: observed.at,
        ..Observed::default()
    };
    assert!(observed.at.is_some());
    assert_eq!((observed, missing), (expected, vec![]));
}

#[test]
fn adapters_are_not_read_when_they_are_not_wanted() {
    let page = "vllm:num_requests_waiting 7\n".to_owned() + &lora("a", "", "4", "1");
    let wants = EngineMapping { lora: None, ..vllm() };
    let (observed, _) = read(&page, &wants);
    assert_eq!((observed.waiting, observed.adapters), (Some(7.0), None));
}

#[test]
fn each_engine_is_read_by_its_own_names() {
    let page = "vllm:num_requests_waiting 10\nsglang:num_queue_reqs 20\n";
    for (mapping, expected) in [(vllm(), 10.0), (sglang(), 20.0)] {
        assert_eq!(load(page, &mapping).0, Some(expected), "{}", mapping.name);
    }
}

#[test]
fn an_unknown_default_engine_reads_nothing() {
    let spec = ExtractorSpec { engine_label: "e".into(), default_engine: "nope".into(), engines: vec![vllm()] };
    let name = EndpointName { namespace: "default".into(), name: "e".into() };
    let meta = EndpointMeta::new(name, "127.0.0.1".into(), 1, Default::default(), 0);
    let engines = Engines::new(&spec);
    let reading = read_page(b"vllm:num_requests_running 4\n", engines.of(&meta), &Observed::default(), Instant::now());
    assert_eq!((reading.found_any, reading.missing), (false, vec![]));
}
