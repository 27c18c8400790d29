//! Clients that ask where to go and say no more.

use super::*;

const BURST: &str = "plugins:\n- {type: burst-prefix-cache-producer, parameters: {windowDurationMs: 600}}\n\
    - {type: prefix-cache-scorer, parameters: {prefixMatchInfoProducerName: burst-prefix-cache-producer}}\n";
const BODY: &str = r#"B{"model":"m","prompt":[1,2,3]}$"#;

/// Whether an equal request that comes after the first one's stream has ended goes on at once.
async fn is_followed(end: ClientEnd) -> bool {
    let bench = Bench::of(BURST, 2);
    let mut first = Talk::new(&bench, DUPLEX);
    first.say("H");
    first.send(BODY).await;
    first.stream.half_closed(end, Instant::now());
    drop(first);
    let mut second = Talk::new(&bench, DUPLEX);
    second.say("H");
    second.send(BODY).now_or_never().is_some()
}

#[tokio::test(start_paused = true)]
async fn a_burst_remembers_only_who_does_not_tell_of_the_end() {
    assert!(is_followed(ClientEnd::BeforeAnswers).await);
    assert!(!is_followed(ClientEnd::AfterAnswers).await);
}
