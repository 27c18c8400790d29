//! Whole rounds against the constant server and against servers that do worse.

use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::bench::baseline;
use crate::bench::client::{Client, Mode};
use crate::bench::dial::Dial;
use crate::bench::load::{Plan, Round, run};
use crate::bench::report::Figures;
use crate::bench::target::{Patience, Target};
use crate::bench::work::tests::work;
use crate::bench::work::{Pace, Prompts};

/// The second prompt goes out in several pieces where bodies are streamed.
const TRACE: &str = "{\"timestamp\": 0, \"input_length\": 3, \"output_length\": 10, \"hash_ids\": [1]}\n\
                     {\"timestamp\": 20, \"input_length\": 16384, \"output_length\": 0, \"hash_ids\": [1, 101, 102, 103, 104, 105, 106, 107, 108, 109, 110, 111, 112, 113, 114, 115, 116, 117, 118, 119, 120, 121, 122, 123, 124, 125, 126, 127, 128, 129, 130, 131]}\n\
                     {\"timestamp\": 40, \"input_length\": 30, \"output_length\": 7, \"hash_ids\": [2]}\n";

fn patience() -> Patience {
    let long = Duration::from_secs(10);
    Patience { answer: long, response: long, token_time: Duration::from_micros(10) }
}

async fn client(address: &str, mode: Mode) -> Client {
    Client::connect(address, &Dial::Clear, mode, 2, Duration::from_secs(10)).await.unwrap()
}

async fn round(mode: Mode, pace: Pace, prompts: Prompts) -> Round {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let server = tokio::spawn(baseline::serve(port));
    let target = Target::Picker(client(&format!("127.0.0.1:{port}"), mode).await);
    let plan = Plan { pace, patience: patience() };
    let ended = Arc::new(AtomicUsize::new(0));
    let round = run(&Arc::new(target), &Arc::new(work(TRACE, prompts, 10, 1)), plan, None, &ended).await.unwrap();
    assert_eq!(ended.load(Ordering::Relaxed), 3);
    server.abort();
    round
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_request_is_picked_for_once_and_the_warm_up_is_not_counted() {
    for mode in [Mode::Direct, Mode::Lean, Mode::Duplex] {
        for (pace, prompts) in [(Pace::Scaled(1.0), Prompts::Ids), (Pace::AtOnce(2), Prompts::Text)] {
            let round = round(mode, pace, prompts).await;
            let Round { sent, tally, issued, .. } = &round;
            assert_eq!((*sent, tally.latency.len(), tally.failed, &tally.complaint), (2, 2, 0, &None), "{mode:?}");
            assert!(tally.service.min() > 1000 && tally.latency.min() >= tally.service.min(), "{mode:?}");
            assert_eq!(tally.picks.iter().next(), Some((&"127.0.0.1:8000".to_owned(), &2)));
            assert_eq!(issued.map(|i| i.asked), matches!(pace, Pace::Scaled(_)).then_some(Duration::from_millis(20)));
            assert_eq!(Figures::of(&round).answered, 2);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_that_breaks_off_is_a_failure_and_no_latency() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    // Takes connections, and drops each.
    let server = tokio::spawn(async move { while listener.accept().await.is_ok() {} });
    let target = Target::Picker(client(&address, Mode::Direct).await);
    let plan = Plan { pace: Pace::AtOnce(1), patience: patience() };
    let round = run(&Arc::new(target), &Arc::new(work(TRACE, Prompts::Ids, 10, 0)), plan, None, &Arc::default()).await;
    let tally = round.unwrap().tally;
    assert_eq!((tally.latency.len(), tally.failed), (0, 3));
    assert!(tally.complaint.is_some());
    server.abort();
}

#[tokio::test]
async fn an_address_where_nobody_listens_is_named() {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let address = format!("127.0.0.1:{port}");
    let refused = Client::connect(&address, &Dial::Clear, Mode::Direct, 1, Duration::ZERO).await;
    assert!(format!("{:#}", refused.unwrap_err()).contains(&address));
}
