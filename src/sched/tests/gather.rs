//! Requests that are kept back until those that belong together are there.

use super::*;

const MS: fn(u64) -> Duration = Duration::from_millis;

/// A window of 600 ms, so a burst is over after 30 ms without an arrival, and groups are placed after 6 ms.
const BURST: &str = "plugins:\n\
    - {type: burst-prefix-cache-producer, parameters: {windowDurationMs: 600, blockSizeTokens: 1}}\n\
    - {type: prefix-cache-scorer, parameters: {prefixMatchInfoProducerName: burst-prefix-cache-producer}}\n";

fn bench() -> Bench {
    Bench::of_roles(BURST, &["", "", ""])
}

/// The destination, and after how many milliseconds it is known.
async fn timed(bench: &Bench, prompt: &[u32], after: u64) -> (String, u64) {
    let start = Instant::now();
    tokio::time::sleep_until(start + MS(after)).await;
    let (outcome, record) = bench.ask("m", prompt, &NoCalls).await.unwrap();
    assert!(record.gathered_seconds.is_some());
    (outcome.destination, start.elapsed().as_millis() as u64)
}

#[tokio::test(start_paused = true)]
async fn the_first_of_a_group_waits_for_the_second_and_no_longer() {
    let bench = bench();
    let (a, b, c) = (timed(&bench, &[1, 2], 0), timed(&bench, &[1, 2], 3), timed(&bench, &[1, 2], 3));
    let (a, b, c) = tokio::join!(a, b, c);
    // The group is placed once nobody has come for 6 ms; the timer of the runtime is a millisecond coarse.
    assert!([a.1, b.1, c.1].iter().all(|took| (9..11).contains(took)), "{a:?} {b:?} {c:?}");
    let alone = timed(&bench, &[1, 2], 0).await.1;
    assert!((30..32).contains(&alone), "all of the group are over: {alone}");
    assert!(a.0 == b.0 && b.0 == c.0, "{a:?} {b:?} {c:?}");
}

#[tokio::test(start_paused = true)]
async fn a_lone_request_goes_on_once_it_is_quiet() {
    let bench = bench();
    let (a, b) = tokio::join!(timed(&bench, &[1], 0), timed(&bench, &[2], 20));
    // The timer of the runtime is a millisecond coarse.
    assert!((50..52).contains(&a.1) && (50..52).contains(&b.1), "{a:?} {b:?}");
}

#[tokio::test(start_paused = true)]
async fn an_endpoint_that_is_gone_after_the_wait_is_not_picked() {
    let bench = bench();
    let (a, b, ()) = tokio::join!(timed(&bench, &[7], 0), timed(&bench, &[8], 0), async {
        tokio::time::sleep(MS(2)).await;
        let left = Snapshot::new(3, [row(2, &[], Observed::default())], Instant::now(), Duration::from_secs(2));
        bench.snapshot.store(left.into());
    });
    assert_eq!((a.0.as_str(), b.0.as_str()), ("10.0.0.2:8000", "10.0.0.2:8000"));
}

#[tokio::test(start_paused = true)]
async fn a_request_that_is_cut_short_while_it_waits_draws_nobody() {
    let bench = bench();
    let cut = tokio::time::timeout(MS(5), bench.ask("m", &[1], &NoCalls)).await;
    assert!(cut.is_err());
    let (_, took) = timed(&bench, &[1], 0).await;
    assert!((30..32).contains(&took), "it found somebody of its group, or waited for nothing: {took}");
}

#[tokio::test(start_paused = true)]
async fn nobody_left_after_the_wait_is_an_empty_pool() {
    let bench = bench();
    let empty = async {
        tokio::time::sleep(MS(2)).await;
        bench.snapshot.store(Snapshot::new(2, [], Instant::now(), Duration::from_secs(2)).into());
    };
    let (refused, ()) = tokio::join!(bench.ask("m", &[1], &NoCalls), empty);
    assert!(matches!(refused, Err(Refusal::NoCandidates | Refusal::EmptyPool)));
}
