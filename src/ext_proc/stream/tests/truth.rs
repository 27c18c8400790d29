//! What an engine reports as cached is told beside what was believed.

use super::*;

const CONFIG: &str = "plugins: [{type: prefix-cache-scorer}]\n";

/// One request whose engine reports this usage; what the record of its decision says of it.
fn served(bench: &Bench, setup: Setup, usage: &str) -> serde_json::Value {
    let prompt: Vec<u32> = (0..200).collect();
    let mut talk = Talk::new(bench, setup);
    talk.say("H");
    talk.say(&format!(r#"B{{"model":"m","prompt":{prompt:?}}}$"#));
    talk.say("h");
    if setup.response == 4 {
        talk.say(&format!(r#"b{{"usage":{usage}}}$"#));
    }
    talk.say("t");
    talk.say("-");
    let record = serde_json::to_value(&bench.cx.decisions.last(1)[0]).unwrap();
    record["served"].clone()
}

#[test]
fn the_record_tells_what_was_cached_and_what_was_believed() {
    let bench = Bench::of(CONFIG, 1);
    let usage = r#"{"prompt_tokens":200,"completion_tokens":1,"prompt_tokens_details":{"cached_tokens":16}}"#;
    let expected = |predicted: u64| serde_json::json!({"prompt_tokens": 200, "cached_tokens": 16, "predicted_cached_tokens": predicted});
    assert_eq!(served(&bench, DUPLEX, usage), expected(0));
    assert_eq!(served(&bench, DUPLEX, usage), expected(200), "no more than the prompt has");
}

#[test]
fn nothing_is_told_where_nothing_is_seen_or_reported() {
    let bench = Bench::of(CONFIG, 1);
    assert_eq!(served(&bench, LEAN, ""), serde_json::Value::Null);
    assert_eq!(served(&bench, DUPLEX, r#"{"prompt_tokens":200}"#), serde_json::Value::Null);
}
