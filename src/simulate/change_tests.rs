//! Engines that fail, come and go, split prefill, and events about caches: nothing is lost or counted twice.

use std::time::Duration;

use super::arm::Arm;
use super::calibration::Calibration;
use super::report::ArmReport;
use super::run::Run;
use super::schedule::{self, Change};
use super::simulation::chooser;
use super::stage::Stage;
use super::tests::{CHATS, played, stage, traced};
use super::traffic::Traffic;

/// The sample config of split prefill; its endpoints file is not read.
const SPLIT: &str = include_str!("../../config/prefill-decode.yaml");

/// Engines of which each thing happens to one; endpoint 3 is not there at first.
const TROUBLE: &str = "
- {at: 30, endpoint: 3, what: join}
- {at: 40, endpoint: 0, what: fail, retry: true}
- {at: 60, endpoint: 1, what: slow, factor: 3}
- {at: 80, endpoint: 0, what: join}
- {at: 100, endpoint: 2, what: leave}
- {at: 150, endpoint: 2, what: join}
- {at: 150, endpoint: 3, what: fail}
- {at: 150.01, endpoint: 3, what: join}
";

fn arm(name: &str) -> Arm {
    match name {
        "split" => Arm::of_config(name, SPLIT.into()),
        _ => Arm::built_in(name).unwrap(),
    }
}

/// Plays an arm and looks at every moment whether anything was lost or made of nothing.
fn conserved(name: &str, stage: &Stage<'_>) -> ArmReport {
    fastrand::seed(stage.seed);
    let tell = &mut |_| ();
    let mut run = Run::new(stage, chooser(&arm(name), stage).unwrap(), tell);
    run.begin();
    while run.advance() {
        for (row, engine) in run.pool.engines.iter().enumerate() {
            let load = engine.load();
            assert!(load.used_blocks.max(load.cached_blocks) <= engine.settings().blocks, "{name}: {load:?}");
            assert_eq!(load.running + load.waiting > 0, !run.live[row].is_empty(), "{name}: engine {row}");
        }
        let in_flight: u32 = run.pool.in_flight.iter().sum();
        let there: usize = run.live.iter().map(|live| live.len()).sum();
        assert_eq!(in_flight as usize, there + run.moving.len(), "{name}");
    }
    assert_eq!(run.pool.in_flight, vec![0; stage.engines.len()], "{name}");
    let report = run.report(name);
    assert_eq!(report.requests, stage.traffic.len() as u64, "{name}");
    assert_eq!(report.completed + report.failures.values().sum::<u64>(), report.requests, "{name}");
    report
}

/// Engines that are slow, and too small for all that comes.
fn crowded() -> Calibration {
    Calibration { blocks: 1000, seats: 8, prefill_micros_per_token: 400.0, ..Calibration::default() }
}

/// `n` prompts of so many tokens that share nothing, one every `gap` milliseconds, with answers of `output` tokens.
fn apart(n: usize, prompt: usize, output: usize, gap: usize) -> Traffic {
    let line = |i: usize| {
        let ids: Vec<String> = (0..prompt.div_ceil(512)).map(|at| (i * 100 + at).to_string()).collect();
        format!(
            "{{\"timestamp\": {}, \"input_length\": {prompt}, \"output_length\": {output}, \"hash_ids\": [{}]}}\n",
            i * gap,
            ids.join(", ")
        )
    };
    traced(&(0..n).map(line).collect::<String>())
}

fn changes(text: &str) -> Vec<Change> {
    schedule::read(text, 4).unwrap()
}

#[test]
fn every_request_ends_once_whatever_happens_to_engines() {
    let traffic = traced(CHATS);
    let (changes, engine) = (changes(TROUBLE), crowded());
    for prefill in [0, 2] {
        let stage = Stage { changes: &changes, prefill, ..stage(&traffic, &engine, 4) };
        for name in [
            "default",
            "precise",
            "split",
            "go-burst",
            "random",
            "round-robin",
            "consistent-hash",
            "oracle",
            "foresight",
        ] {
            let report = conserved(name, &stage);
            assert!(report.completed > report.requests * 3 / 4, "{name}: {:?}", report.failures);
            let text = |report: &ArmReport| serde_json::to_string(report).unwrap();
            assert!(text(&report) == text(&conserved(name, &stage)), "{name}");
        }
    }
}

#[test]
fn what_runs_on_an_engine_that_fails_is_lost() {
    let (traffic, engine) = (apart(40, 1000, 100, 100), Calibration::default());
    let failing = changes("- {at: 2.05, endpoint: 0, what: fail}\n");
    let report = conserved("round-robin", &Stage { changes: &failing, ..stage(&traffic, &engine, 2) });
    assert!(report.failures["engine: gone"] > 1, "{report:?}");
    assert_eq!(report.failures.len(), 1);
    let again = changes("- {at: 2.05, endpoint: 0, what: fail, retry: true}\n");
    let report = conserved("round-robin", &Stage { changes: &again, ..stage(&traffic, &engine, 2) });
    assert_eq!((report.completed, report.failures.len()), (40, 0));
    assert!(report.retries > 1);
    // Nobody is left at last.
    let all = changes("- {at: 2.05, endpoint: 0, what: fail}\n- {at: 2.05, endpoint: 1, what: fail}\n");
    for (name, says) in
        [("round-robin", "picker: there is no endpoint"), ("default", "picker: 503 rejected-no-endpoints")]
    {
        let report = conserved(name, &Stage { changes: &all, ..stage(&traffic, &engine, 2) });
        assert!(report.failures.contains_key(says), "{:?}", report.failures);
    }
}

#[test]
fn who_leaves_ends_what_it_has_begun_and_gets_nothing_new() {
    let (traffic, engine) = (apart(40, 1000, 100, 100), Calibration::default());
    let leaving = changes("- {at: 2.0, endpoint: 1, what: leave}\n");
    for name in ["round-robin", "random", "default", "precise"] {
        let report = conserved(name, &Stage { changes: &leaving, ..stage(&traffic, &engine, 2) });
        assert_eq!(report.completed, 40, "{name}");
        assert!(report.picks_per_endpoint[1] < 21, "{name}: {:?}", report.picks_per_endpoint);
    }
}

#[test]
fn who_joins_is_known_one_scrape_interval_later() {
    let (traffic, engine) = (apart(40, 100, 10, 100), Calibration::default());
    for (at, picks) in [("1.94", [30, 10]), ("1.96", [31, 9])] {
        let joining = changes(&format!("- {{at: {at}, endpoint: 1, what: join}}\n"));
        let report = conserved("round-robin", &Stage { changes: &joining, ..stage(&traffic, &engine, 2) });
        assert_eq!(report.picks_per_endpoint, picks, "{at}");
    }
}

#[test]
fn a_slow_engine_takes_as_many_times_as_long() {
    let traffic = apart(1, 1000, 100, 0);
    let e2e = |text: &str| {
        let slow = changes(text);
        let engine = Calibration::default();
        conserved("round-robin", &Stage { changes: &slow, ..stage(&traffic, &engine, 1) }).e2e_seconds.mean
    };
    let times = e2e("- {at: 0, endpoint: 0, what: slow, factor: 3}\n") / e2e("[]");
    assert!((times - 3.0).abs() < 1e-4, "{times}");
}

#[test]
fn a_prompt_that_is_computed_elsewhere_waits_for_its_blocks() {
    let traffic = apart(1, 1000, 2, 0);
    let engine = Calibration {
        prefill_micros_per_token: 100.0,
        decode_step_millis: 10.0,
        decode_micros_per_request: 0.0,
        decode_nanos_per_context_token: 0.0,
        transfer_millis: 20.0,
        transfer_tokens_per_second: 100_000.0,
        ..Calibration::default()
    };
    let report = conserved("split", &Stage { prefill: 1, ..stage(&traffic, &engine, 2) });
    // 1000 tokens computed, 20 ms and 1000 tokens to move, the last token again; then one step.
    let ttft = 0.1 + 0.02 + 0.01 + 0.0001;
    assert!((report.ttft_seconds.mean - ttft).abs() < 1e-6, "{}", report.ttft_seconds.mean);
    assert!((report.e2e_seconds.mean - ttft - 0.01).abs() < 1e-6, "{}", report.e2e_seconds.mean);
    assert_eq!((report.prefilled_elsewhere, report.picks_per_endpoint), (1, vec![1, 1]));
}

#[test]
fn an_arm_that_names_nobody_for_prefill_has_all_done_at_one_engine() {
    let (traffic, engine) = (apart(20, 1000, 10, 100), Calibration::default());
    for name in ["round-robin", "default"] {
        let report = conserved(name, &Stage { prefill: 1, ..stage(&traffic, &engine, 2) });
        assert_eq!(report.prefilled_elsewhere, 0, "{name}");
    }
    // Without roles every endpoint decodes, and nobody prefills for others.
    assert_eq!(conserved("split", &stage(&traffic, &engine, 2)).prefilled_elsewhere, 0);
}

/// Goes by what engines tell alone.
const TOLD: &str = "
plugins:
- {type: precise-prefix-cache-producer}
- {type: prefix-cache-scorer, parameters: {prefixMatchInfoProducerName: precise-prefix-cache-producer}}
- {type: endpoint-notification-source}
schedulingProfiles:
- name: default
  plugins: [{pluginRef: prefix-cache-scorer, weight: 1}]
";
const LISTENS: &str = "
dataLayer:
  sources:
  - {pluginRef: endpoint-notification-source, extractors: [{pluginRef: precise-prefix-cache-producer}]}
";

#[test]
fn a_precise_config_knows_what_is_cached_as_soon_as_it_is_told() {
    let traffic = traced(CHATS);
    let engine = Calibration::default();
    let reused = |text: &str, delay: u64| {
        let stage = Stage { event_delay: Duration::from_secs(delay), ..stage(&traffic, &engine, 4) };
        let arm = Arm::of_config("told", text.to_owned());
        super::simulation::run(&arm, &stage, &mut |_| ()).unwrap().reused_tokens
    };
    let hears = TOLD.to_owned() + LISTENS;
    let (soon, late, never) = (reused(&hears, 0), reused(&hears, 60), reused(TOLD, 0));
    assert!(soon > late && late > never, "{soon}, {late}, {never}");
    // A prompt of a session is found whole, so no more is lost than what comes before anybody knows.
    assert!(soon as f64 > 0.9 * traffic.reusable_tokens as f64, "{soon} of {}", traffic.reusable_tokens);
}

#[test]
fn what_a_config_asks_for_and_is_not_played_is_noted() {
    let traffic = apart(2, 100, 2, 10);
    let engine = Calibration::default();
    let text = "plugins: [{type: token-producer, parameters: {modelName: m, vllm: {url: \"http://10.0.0.9:8000\"}}}]\n";
    let arm = Arm::of_config("asks", text.into());
    let report = super::simulation::run(&arm, &stage(&traffic, &engine, 1), &mut |_| ()).unwrap();
    assert_eq!(report.notes, ["token-producer asks a service, and there is none"]);
    assert_eq!(played("default", &stage(&traffic, &engine, 1)).notes, [""; 0]);
}

/// So many requests in flight at most at each endpoint; more wait in the picker, for as long as is said.
fn waits(most: usize, ttl: &str) -> String {
    format!(
        "featureGates: [flowControl]
plugins:
- {{type: concurrency-detector, parameters: {{maxConcurrency: {most}}}}}
- {{type: active-request-scorer}}
flowControl: {{saturationDetector: {{pluginRef: concurrency-detector}}, defaultRequestTTL: {ttl}}}
schedulingProfiles:
- name: default
  plugins: [{{pluginRef: active-request-scorer}}]
"
    )
}

#[test]
fn requests_wait_in_the_picker_while_the_pool_is_full() {
    let (traffic, engine) = (apart(40, 1000, 50, 1), Calibration::default());
    let stage = stage(&traffic, &engine, 2);
    let most = |name: &str, text: &str| {
        let arm = Arm::of_config(name, text.to_owned());
        let tell = &mut |_| ();
        let mut run = Run::new(&stage, chooser(&arm, &stage).unwrap(), tell);
        run.begin();
        let mut most = 0;
        while run.advance() {
            most = most.max(run.pool.in_flight.iter().sum::<u32>());
        }
        (most, run.report(name))
    };
    let (held, report) = most("waits", &waits(4, "60s"));
    assert_eq!((held, report.completed), (8, 40), "{:?}", report.failures);
    let (free, at_once) = most("free", "");
    assert!(free > 30 && at_once.completed == 40, "{free}");
    assert!(report.wait_seconds.mean > at_once.wait_seconds.mean);
    let (_, late) = most("late", &waits(1, "1s"));
    assert!(late.failures["picker: 429 rejected-ttl-expired"] > 0, "{:?}", late.failures);
    assert_eq!(late.completed + late.failures.values().sum::<u64>(), 40);
}

#[test]
fn who_waits_for_an_endpoint_that_never_comes_is_told_in_the_end() {
    let (traffic, engine) = (apart(4, 100, 10, 10), Calibration::default());
    let gone = changes("- {at: 0, endpoint: 0, what: fail}\n");
    let stage = Stage { changes: &gone, scrape_interval: Duration::from_millis(1), ..stage(&traffic, &engine, 1) };
    let arm = Arm::of_config("waits", waits(4, "0s"));
    let report = super::simulation::run(&arm, &stage, &mut |_| ()).unwrap();
    assert_eq!(report.failures.values().sum::<u64>(), 4, "{:?}", report.failures);
}
