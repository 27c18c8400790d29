//! The page of `epp simulate`: what was simulated, and every arm side by side.

mod load;
mod overview;
mod rollouts;

use serde_json::Value;

use super::arms::Arm;
use super::document::Document;
use super::markup::Markup;
use super::numbers::{grouped, number, round_time, short, tick};
use crate::simulate::arm::BUILT_IN;
use crate::simulate::report::{ArmReport, Report, Setup};

/// Names of traffic that are longer than this are no headline.
const LONGEST_TITLE: usize = 60;
/// What this picker does by itself; that and what is not built in is what the reader came for.
const OWN: &str = "default";

/// An arm of the report with how it looks.
type Shown<'a> = (&'a Arm, &'a ArmReport);

/// Draws the report. Equal reports give equal bytes.
pub fn page(report: &Report) -> String {
    let Report { setup, arms } = report;
    let of_interest = |name: &str| name == OWN || BUILT_IN.iter().all(|built_in| built_in.name != name);
    let looks = Arm::all(arms.iter().map(|arm| (arm.name.as_str(), of_interest(&arm.name))));
    let shown: Vec<Shown> = looks.iter().zip(arms).collect();
    let mut document = Document::new(&title(report), &summary(setup, arms.len()));
    document.head(|head| self::setup(head, setup));
    document.arms(&looks);
    overview::draw(&mut document, &shown);
    rollouts::draw(&mut document, &shown);
    load::draw(&mut document, &shown);
    document.into_html()
}

fn title(report: &Report) -> String {
    let traffic = &report.setup.traffic;
    match report.arms.iter().any(|arm| arm.rollouts.is_some()) {
        true if is_long(traffic) => "Simulation of rollouts".into(),
        false if is_long(traffic) => "Simulation".into(),
        true | false => format!("Simulation of {traffic}"),
    }
}

fn is_long(text: &str) -> bool {
    text.chars().count() > LONGEST_TITLE
}

fn summary(setup: &Setup, n_arms: usize) -> String {
    let Setup { requests, prompt_tokens, output_tokens, endpoints, .. } = setup;
    let of = |n: u64, one: &str, several: &str| format!("{} {}", grouped(n), if n == 1 { one } else { several });
    format!(
        "{} with {} prompt and {} output tokens, to {}, chosen in {}.",
        of(*requests, "request", "requests"),
        short(*prompt_tokens),
        short(*output_tokens),
        of(*endpoints, "endpoint", "endpoints"),
        of(n_arms as u64, "way", "ways"),
    )
}

/// What was simulated. What this page knows no words for is told by its name in the report.
fn setup(head: &mut Markup, setup: &Setup) {
    let speeds: Vec<String> = setup.speeds.iter().map(|speed| tick(*speed)).collect();
    let rate = if setup.rate_scale == 1.0 {
        "as recorded".into()
    } else {
        format!("{} × as fast as recorded", tick(setup.rate_scale))
    };
    let known =
        format!("every {}, {} late", round_time(setup.scrape_interval_seconds), round_time(setup.scrape_delay_seconds));
    let prefill = format!("the first {}", grouped(setup.prefill_endpoints));
    let mut facts = vec![
        // Lines may end at its commas.
        ("traffic", setup.traffic.replace(',', ", ")),
        ("requests", grouped(setup.requests)),
        ("prompt_tokens", grouped(setup.prompt_tokens)),
        ("output_tokens", grouped(setup.output_tokens)),
        ("endpoints", grouped(setup.endpoints)),
        ("speeds", speeds.join(", ")),
        ("rate_scale", rate),
        ("scrape_interval_seconds", known),
        ("scrape_delay_seconds", String::new()),
        ("event_delay_seconds", format!("{} late", round_time(setup.event_delay_seconds))),
        ("prefill_endpoints", if setup.prefill_endpoints > 0 { prefill } else { String::new() }),
        ("engine", setup.engine.name.clone()),
        ("seed", setup.seed.to_string()),
    ];
    let all = serde_json::to_value(setup).unwrap_or_default();
    let more: Vec<(String, String)> = fields(&all)
        .filter(|(name, _)| facts.iter().all(|(known, _)| known != name))
        .map(|(name, value)| (name.replace('_', " "), value))
        .collect();
    facts.retain(|(_, said)| !said.is_empty());
    head.nested("dl", &[("class", &"setup")], |list| {
        let known = facts.into_iter().map(|(name, said)| (told(name).to_owned(), said));
        for (name, said) in known.chain(more) {
            let class = if is_long(&said) { "long" } else { "short" };
            list.nested("div", &[("class", &class)], |fact| {
                fact.element("dt", &[], name);
                fact.element("dd", &[], said);
            });
        }
    });
    engine(head, &serde_json::to_value(&setup.engine).unwrap_or_default());
}

fn told(field: &str) -> &str {
    match field {
        "traffic" => "Traffic",
        "requests" => "Requests",
        "prompt_tokens" => "Prompt tokens",
        "output_tokens" => "Output tokens",
        "endpoints" => "Endpoints",
        "speeds" => "Speeds, in turns",
        "rate_scale" => "Arrivals",
        "scrape_interval_seconds" => "Load is known",
        "event_delay_seconds" => "Caches are known",
        "prefill_endpoints" => "For prefill",
        "engine" => "Engine",
        "seed" => "Seed",
        other => other,
    }
}

fn engine(head: &mut Markup, engine: &Value) {
    head.nested("details", &[("class", &"engine")], |details| {
        details.element("summary", &[], "The engine, and where its numbers come from");
        if let Some(source) = engine.get("source").and_then(Value::as_str) {
            details.element("p", &[], source);
        }
        details.nested("dl", &[("class", &"setup")], |list| {
            for (name, value) in fields(engine).filter(|(name, _)| !["name", "source"].contains(&name.as_str())) {
                list.nested("div", &[], |fact| {
                    fact.element("dt", &[], name);
                    fact.element("dd", &[], value);
                });
            }
        });
    });
}

/// The fields of an object that can be told in a line.
fn fields(value: &Value) -> impl Iterator<Item = (String, String)> {
    value.as_object().into_iter().flatten().filter(|(_, value)| !value.is_object()).filter_map(|(name, value)| {
        let said = said(value);
        (!said.is_empty()).then(|| (name.clone(), said))
    })
}

fn said(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        Value::Number(n) => n.as_u64().map_or_else(|| number(n.as_f64().unwrap_or(f64::NAN)), grouped),
        Value::Bool(is_so) => is_so.to_string(),
        Value::Array(all) => {
            let between = if all.iter().any(Value::is_object) { "; " } else { ", " };
            all.iter().map(said).collect::<Vec<_>>().join(between)
        }
        Value::Object(_) => fields(value).map(|(name, said)| format!("{name} {said}")).collect::<Vec<_>>().join(", "),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_this_page_has_no_words_for_is_told_by_its_name() {
        let told =
            json!({"a": 1234, "b": null, "c": {"d": 1}, "e": [{"at": 1.5, "what": "fail"}, {"at": 2}], "f": [1, 2]});
        let want = [("a", "1,234"), ("e", "at 1.50, what fail; at 2"), ("f", "1, 2")];
        assert_eq!(fields(&told).collect::<Vec<_>>(), want.map(|(name, said)| (name.to_owned(), said.to_owned())));
    }
}
