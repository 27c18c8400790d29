//! What a recorder leaves on disk.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use epp_plugin_api::testing::request;
use epp_plugin_api::{Candidates, Columns, MetricHub, Parsed};

use super::file::{Rotating, before};
use super::read::Reader;
use super::{Settings, start};
use crate::sched::draft::Draft;
use crate::sched::record::DecisionRecord;
use crate::sched::scratch::LoadBuffers;
use crate::sched::tape::{About, Seen, Tape, Taped};
use crate::tasks::Tasks;
use crate::telemetry::utc::Utc;

/// A directory of the test's own, which is gone after it.
struct Place(PathBuf);

impl Place {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("epp-recording-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn file(&self) -> PathBuf {
        self.0.join("decisions")
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn record(number: u64) -> DecisionRecord {
    DecisionRecord {
        at: Utc(Duration::from_micros(number)),
        request: format!("r{number}"),
        seed: u64::MAX - number,
        ..DecisionRecord::new(&request(b"", Parsed::default()), 1, 0)
    }
}

fn numbers(path: &std::path::Path) -> Vec<u64> {
    let cycles = Reader::open(path).unwrap().collect::<Result<Vec<_>, _>>().unwrap();
    assert!(cycles.iter().all(|cycle| cycle.line.seed == u64::MAX - cycle.line.cycle && cycle.config.text == "x: y\n"));
    cycles.iter().map(|cycle| cycle.line.cycle).collect()
}

fn about() -> Arc<About> {
    Arc::new(About { config: "x: y\n".into(), values: Vec::new(), headers: Vec::new() })
}

fn push(tape: &Arc<dyn Tape>, about: &Arc<About>, numbers: std::ops::Range<u64>) {
    let request = request(b"", Parsed::default());
    let (candidates, columns, loads) = (Candidates::default(), Columns::default(), LoadBuffers::default());
    let seen = Seen { request: &request, candidates: &candidates, columns: &columns, loads: &loads };
    let draft = Draft::default();
    numbers.for_each(|number| tape.take(&Taped { record: &record(number), about, draft: &draft, seen }));
}

/// Lets the recorder write what it has been given; time passes meanwhile.
async fn settle(hub: &MetricHub, n: u64) {
    let metrics = hub.families::<super::RecordingMetrics>();
    let mut ticks = tokio::time::interval(super::EVERY);
    while metrics.written.get() + metrics.dropped.get() < n {
        ticks.tick().await;
    }
}

#[tokio::test(start_paused = true)]
async fn the_newest_cycles_stay_within_two_bounded_files() {
    let place = Place::new("bounded");
    let (tasks, hub, config) = (Tasks::default(), MetricHub::default(), about());
    let settings = Settings { path: place.file(), most_bytes: 2000 };
    let tape = start(&settings, &tasks, &hub).unwrap();
    for i in 0..10 {
        push(&tape, &config, i * 10..(i + 1) * 10);
        settle(&hub, (i + 1) * 10).await;
    }
    for path in [place.file(), before(&place.file())] {
        let bytes = std::fs::metadata(path).unwrap().len();
        assert!(bytes > 500 && bytes <= 2000, "{bytes}");
    }
    let numbers = numbers(&place.file());
    assert!(numbers.len() > 15 && numbers.last() == Some(&99) && numbers.is_sorted(), "{numbers:?}");
    assert_eq!(numbers.len() as u64, 100 - numbers[0], "none is missing in between");
}

#[tokio::test(start_paused = true)]
async fn a_recording_is_continued_and_half_a_line_ended() {
    let place = Place::new("continued");
    let config = about();
    let settings = Settings { path: place.file(), most_bytes: 1 << 20 };
    for round in 0..3 {
        let (tasks, hub) = (Tasks::default(), MetricHub::default());
        let tape = start(&settings, &tasks, &hub).unwrap();
        push(&tape, &config, round * 3..round * 3 + 3);
        settle(&hub, 3).await;
        tasks.stop();
    }
    assert_eq!(numbers(&place.file()), (0..9).collect::<Vec<_>>());
    let mut text = std::fs::read(place.file()).unwrap();
    text.truncate(text.len() - 5);
    std::fs::write(place.file(), text).unwrap();
    let mut file = Rotating::open(place.file()).unwrap();
    file.write(b"end\n").unwrap();
    assert!(std::fs::read_to_string(place.file()).unwrap().ends_with("\nend\n"));
}

#[tokio::test(start_paused = true)]
async fn what_is_on_the_tape_when_the_tasks_stop_is_written() {
    let place = Place::new("stopped");
    let (tasks, hub, config) = (Tasks::default(), MetricHub::default(), about());
    let tape = start(&Settings { path: place.file(), most_bytes: 1 << 20 }, &tasks, &hub).unwrap();
    push(&tape, &config, 0..50);
    tasks.stop();
    settle(&hub, 50).await;
    assert_eq!(numbers(&place.file()).len(), 50);
}

#[tokio::test(start_paused = true)]
async fn cycles_that_come_too_fast_are_counted_and_hold_nobody_up() {
    let place = Place::new("fast");
    let (tasks, hub, config) = (Tasks::default(), MetricHub::default(), about());
    let tape = start(&Settings { path: place.file(), most_bytes: 1 << 30 }, &tasks, &hub).unwrap();
    // Nobody writes before this test waits.
    push(&tape, &config, 0..60_000);
    let metrics = hub.families::<super::RecordingMetrics>();
    let n_dropped = metrics.dropped.get();
    assert!(n_dropped > 0 && n_dropped < 50_000, "{n_dropped}");
    settle(&hub, 60_000).await;
    assert_eq!(metrics.dropped.get(), n_dropped);
    assert_eq!(numbers(&place.file()).len() as u64, 60_000 - n_dropped);
}

#[tokio::test(start_paused = true)]
async fn a_disk_that_fails_costs_cycles_and_nothing_else() {
    let place = Place::new("fails");
    let (tasks, hub, config) = (Tasks::default(), MetricHub::default(), about());
    let tape = start(&Settings { path: place.file(), most_bytes: 300 }, &tasks, &hub).unwrap();
    // What is in the way of the file before cannot be replaced.
    std::fs::create_dir_all(before(&place.file()).join("x")).unwrap();
    push(&tape, &config, 0..20);
    settle(&hub, 20).await;
    let metrics = hub.families::<super::RecordingMetrics>();
    assert!(metrics.dropped.get() > 0 && metrics.failures.get() > 0);
    std::fs::remove_dir_all(before(&place.file())).unwrap();
    push(&tape, &config, 20..21);
    settle(&hub, 21).await;
    assert_eq!(numbers(&place.file()).last(), Some(&20));
}

#[tokio::test]
async fn a_file_that_cannot_be_opened_is_refused_at_once() {
    let place = Place::new("refused");
    let settings = Settings { path: place.0.join("none/decisions"), most_bytes: 1 };
    assert!(start(&settings, &Tasks::default(), &MetricHub::default()).is_err());
}
