//! Whatever messages come in whatever order, a stream keeps to a few rules.

use proptest::prelude::*;

use super::*;

const MESSAGES: [&str; 17] = [
    "H",
    "H$",
    "H:path=/v9/none",
    "Hx-llm-d-model-name-rewrite=engine",
    r#"B{"model":"m","prompt":"x"}"#,
    r#"B{"model":"m","prompt":"x"}$"#,
    r#"B{"model":"m","#,
    "B",
    "B$",
    "T",
    "h",
    "h$",
    "h:status=500",
    r#"b{"model":"engine"}"#,
    "b$",
    "t",
    "-",
];

fn setups() -> impl Strategy<Value = Setup> {
    (-1..7, -1..7, any::<bool>()).prop_map(|(request, response, without_waiting)| Setup {
        request,
        response,
        without_waiting,
    })
}

proptest! {
    #[test]
    fn any_messages_in_any_order_are_served_by_the_rules(
        messages in prop::collection::vec((prop::sample::select(&MESSAGES[..]), prop::option::weighted(0.1, setups())), 1..12),
        setup in setups(),
    ) {
        let bench = Bench::new(3);
        let mut talk = Talk::new(&bench, setup);
        let mut answers = Vec::new();
        for (message, changed) in messages {
            talk.setup = talk.setup.or(changed);
            answers.extend(talk.say(message));
            prop_assert!((0..=1).contains(&bench.in_flight()), "one request in flight at most");
        }
        let n = |what: &str| answers.iter().filter(|a| a.contains(what)).count();
        let first = |what: &str| answers.iter().position(|a| a.starts_with(what));
        prop_assert!(n(" to ") <= 1, "one pick at most: {answers:?}");
        prop_assert!(answers.iter().filter(|a| a.starts_with("headers")).count() <= 1, "headers once: {answers:?}");
        if let (Some(headers), Some(body)) = (first("headers"), first("body")) {
            prop_assert!(headers < body, "headers before bodies: {answers:?}");
        }
        if let Some(refused) = first("immediate") {
            prop_assert_eq!(refused + 1, answers.len(), "nothing after a refusal: {:?}", answers);
            prop_assert!(talk.stream.is_over());
        }
        drop(talk);
        prop_assert_eq!(bench.in_flight(), 0);
    }
}
