//! Whole simulations: against closed forms, against themselves, and of arms against each other.

use std::time::Duration;

use epp_trace::bad::OnBad;
use epp_trace::reader::Reader;
use epp_trace::trace::Trace;

use super::arm::{Arm, BUILT_IN};
use super::calibration::Calibration;
use super::report::{ArmReport, Report};
use super::rollout::Rollouts;
use super::simulation::run;
use super::stage::Stage;
use super::traffic::Traffic;

pub(super) fn traced(text: &str) -> Traffic {
    let reader = Reader::new(Box::new(std::io::Cursor::new(text.to_owned())), None).unwrap();
    Traffic::of_trace(Trace::read(reader, OnBad::Stop).unwrap(), 1.0, usize::MAX).unwrap()
}

pub(super) fn stage<'a>(traffic: &'a Traffic, engine: &Calibration, n_endpoints: usize) -> Stage<'a> {
    Stage {
        traffic,
        engines: vec![engine.at_speed(1.0).unwrap(); n_endpoints],
        seed: 7,
        scrape_interval: Duration::from_millis(50),
        scrape_delay: Duration::from_millis(10),
        event_delay: Duration::from_millis(5),
        prefill: 0,
        transfer: engine.transfer().unwrap(),
        changes: &[],
        staleness: Duration::from_secs(2),
        registry: crate::app::registry(),
    }
}

pub(super) fn played(arm: &str, stage: &Stage<'_>) -> ArmReport {
    let report = run(&Arm::built_in(arm).unwrap(), stage, &mut |_| ()).unwrap();
    assert_eq!(report.requests, stage.traffic.len() as u64, "{arm}");
    assert_eq!(report.completed + report.failures.values().sum::<u64>(), report.requests, "{arm}");
    assert_eq!(report.picks_per_endpoint.iter().sum::<u64>(), report.completed, "{arm}");
    report
}

/// The mean wait for an engine that serves one request at a time, 1 ms a token; sessions come 5 a second.
fn mean_wait(input: &str) -> f64 {
    let text = format!(
        r#"{{"seed": 11, "requests": 150000, "clients": [{{"rate": 5, "input": {input}, "output": {{"fixed": 1}}}}]}}"#
    );
    let engine = Calibration {
        seats: 1,
        step_tokens: 1_000_000,
        blocks: 200_000,
        prefill_micros_per_token: 1000.0,
        ..Calibration::default()
    };
    let traffic = traced(&text);
    let stage = Stage { scrape_interval: Duration::from_secs(10), ..stage(&traffic, &engine, 1) };
    played("round-robin", &stage).wait_seconds.mean
}

fn close(found: f64, expected: f64) {
    assert!((found / expected - 1.0).abs() < 0.03, "expected {expected} within 3 %, found {found}");
}

#[test]
fn waits_are_those_of_a_queue_with_exponential_service() {
    // Half busy: rho / (mu - lambda).
    close(mean_wait(r#"{"exponential": {"mean": 100}}"#), 0.5 / (10.0 - 5.0));
}

#[test]
fn waits_are_those_of_a_queue_with_constant_service() {
    // rho / (2 mu (1 - rho)).
    close(mean_wait(r#"{"fixed": 100}"#), 0.5 / (2.0 * 10.0 * 0.5));
}

/// Conversations of two kinds and single requests, so few at a time that no balance costs reuse.
pub(super) const CHATS: &str = r#"{"seed": 3, "requests": 600, "clients": [
    {"rate": 0.05, "sharedTokens": 2000, "input": {"logNormal": {"median": 400, "sigma": 1}}, "output": {"exponential": {"mean": 60}},
     "turns": {"uniform": {"least": 1, "most": 6}}, "thinkSeconds": {"exponential": {"mean": 3}}},
    {"rate": 0.05, "sharedTokens": 3000, "input": {"logNormal": {"median": 400, "sigma": 1}}, "output": {"exponential": {"mean": 60}},
     "turns": {"uniform": {"least": 1, "most": 6}}, "thinkSeconds": {"exponential": {"mean": 3}}},
    {"rate": 0.1, "sharedTokens": 500, "input": {"logNormal": {"median": 300, "sigma": 1}}, "output": {"exponential": {"mean": 60}}}]}"#;

#[test]
fn every_arm_ends_every_request_and_none_reuses_much_more_than_the_oracle() {
    let traffic = traced(CHATS);
    let stage = stage(&traffic, &Calibration::default(), 4);
    let oracle = played("oracle", &stage).reused_tokens;
    assert!(oracle > 0);
    for arm in BUILT_IN {
        let reused = played(arm.name, &stage).reused_tokens;
        // It weighs waiting against computing, so it may compute a prefix again where others wait for it.
        assert!(reused as f64 * 0.97 <= oracle as f64, "{}: {reused}, the oracle {oracle}", arm.name);
    }
}

#[test]
fn who_knows_what_is_to_come_reuses_more_where_caches_are_small() {
    // Conversations that pause, and prompts in between that nobody wants again.
    let traffic = traced(
        r#"{"seed": 3, "requests": 1000, "clients": [
        {"rate": 0.1, "input": {"fixed": 2000}, "output": {"fixed": 20}, "turns": {"fixed": 5}, "thinkSeconds": {"fixed": 10}},
        {"rate": 0.5, "input": {"fixed": 4000}, "output": {"fixed": 20}}]}"#,
    );
    let engine = Calibration { blocks: 1500, ..Calibration::default() };
    let stage = stage(&traffic, &engine, 2);
    let [oracle, foresight] = ["oracle", "foresight"].map(|arm| played(arm, &stage).reused_tokens);
    assert!(foresight as f64 > 1.1 * oracle as f64, "{foresight}, without foresight {oracle}");
}

fn whole(traffic: &Traffic, arms: &[&str]) -> String {
    let stage = stage(traffic, &Calibration::default(), 4);
    arms.iter().map(|arm| serde_json::to_string(&played(arm, &stage)).unwrap()).collect()
}

#[test]
fn equal_input_gives_equal_bytes() {
    let arms = BUILT_IN.map(|arm| arm.name);
    let chats = || whole(&traced(CHATS), &arms);
    assert!(chats() == chats());
    let of: Rollouts = "groups=6,samples=4,turns=2,steps=2,output=64".parse().unwrap();
    let rollouts = || whole(&Traffic::of_rollouts(&of, 5), &arms);
    assert!(rollouts() == rollouts());
}

#[test]
fn samples_of_one_prompt_stay_together_where_the_config_says_so() {
    let of: Rollouts = "groups=16,samples=8,output=64,steps=2".parse().unwrap();
    let traffic = Traffic::of_rollouts(&of, 5);
    let stage = stage(&traffic, &Calibration::default(), 4);
    let (burst, random) = (played("go-burst", &stage), played("random", &stage));
    let together = |report: &ArmReport| report.rollouts.as_ref().unwrap().colocated_groups;
    assert_eq!((together(&burst), together(&random)), (1.0, 0.0));
    assert!(burst.reused_tokens > random.reused_tokens);
    assert_eq!(burst.rollouts.unwrap().steps.len(), 2);
}

#[test]
fn new_weights_make_caches_worthless() {
    let of: Rollouts = "groups=1,samples=1,steps=3,output=8".parse().unwrap();
    let traffic = Traffic::of_rollouts(&of, 5);
    assert_eq!(traffic.reusable_tokens, 0);
    assert_eq!(played("round-robin", &stage(&traffic, &Calibration::default(), 1)).reused_tokens, 0);
}

#[test]
fn a_turn_comes_when_the_one_before_is_answered_and_its_gap_is_over() {
    let of: Rollouts = "groups=1,samples=1,turns=5,steps=1,output=8,sigma=0,gap=100".parse().unwrap();
    let traffic = Traffic::of_rollouts(&of, 5);
    let gaps: f64 = traffic.jobs.iter().map(|job| job.gap.as_secs_f64()).sum();
    let report = played("round-robin", &stage(&traffic, &Calibration::default(), 1));
    let busy = report.e2e_seconds.mean * 5.0;
    assert!((report.makespan_seconds - gaps - busy).abs() < 1e-4, "{} {gaps} {busy}", report.makespan_seconds);
}

#[test]
fn a_prompt_that_fits_nowhere_is_a_failure_with_its_reason() {
    let traffic = traced(CHATS);
    let small = Calibration { blocks: 200, ..Calibration::default() };
    let report = played_with_failures(&stage(&traffic, &small, 2));
    assert!(report.failures["engine: prompt longer than its cache"] > 0);
}

fn played_with_failures(stage: &Stage<'_>) -> ArmReport {
    let report = run(&Arm::built_in("default").unwrap(), stage, &mut |_| ()).unwrap();
    assert_eq!(report.completed + report.failures.values().sum::<u64>(), report.requests);
    report
}

#[test]
fn a_config_with_mistakes_names_them() {
    let traffic = traced(CHATS);
    let arm = Arm::of_config("mine", "plugins: [{type: wibble}]\n".into());
    let mistakes = run(&arm, &stage(&traffic, &Calibration::default(), 1), &mut |_| ()).unwrap_err();
    assert!(mistakes[0].to_string().contains("wibble"), "{mistakes:?}");
}

#[test]
fn a_report_is_as_its_schema_says() {
    let schema = super::report::schema();
    let arm = &schema["$defs"]["ArmReport"]["properties"];
    for name in ["name", "requests", "reused_tokens", "reusable_tokens", "inflight_max_over_mean", "picks_per_endpoint"]
    {
        assert!(arm[name].is_object(), "{name}");
    }
    // Unknown fields are refused, so this reads no more than the schema has.
    let of: Rollouts = "groups=2,samples=2,output=8".parse().unwrap();
    let traffic = Traffic::of_rollouts(&of, 5);
    let arms = vec![played("default", &stage(&traffic, &Calibration::default(), 2))];
    let setup = super::report::Setup {
        traffic: of.to_string(),
        requests: 8,
        prompt_tokens: 1,
        output_tokens: 1,
        endpoints: 2,
        speeds: vec![1.0],
        seed: 7,
        rate_scale: 1.0,
        scrape_interval_seconds: 0.05,
        scrape_delay_seconds: 0.01,
        event_delay_seconds: 0.005,
        prefill_endpoints: 0,
        changes: Vec::new(),
        engine: Calibration::default(),
    };
    let text = Report { setup, arms }.json();
    assert_eq!(serde_json::from_str::<Report>(&text).unwrap().json(), text);
}
