//! Opens boards on real files with engines that say what a test tells them to.

use std::collections::BTreeSet;

use epp_plugin_api::{EndpointIdx, Observed};
use prometheus_client::encoding::text::encode;

use super::watch::tests::Engines;
use super::*;
use crate::files::tests::Scratch;

struct Fixture {
    dir: Scratch,
    board: Arc<Board>,
    engines: Engines,
    hub: MetricHub,
    tasks: Tasks,
}

impl Drop for Fixture {
    fn drop(&mut self) {
        self.tasks.stop();
    }
}

fn write(dir: &Scratch, entries: &[&str]) {
    let text = entries.iter().fold("endpoints:\n".to_owned(), |text, e| format!("{text}- {{{e}}}\n"));
    dir.replace("endpoints.yaml", &text);
}

const A: &str = "name: a, address: 10.0.0.1, port: 1";
const B: &str = "name: b, address: 10.0.0.2, port: 2";

async fn open(entries: &[&str]) -> Fixture {
    let dir = Scratch::new();
    write(&dir, entries);
    let (engines, hub, tasks) = (Engines::default(), MetricHub::default(), Tasks::default());
    let spec = DiscoverySpec { path: dir.path("endpoints.yaml").display().to_string(), watch: true, clusters: false };
    let board = Board::open(Settings::new(spec), Box::new(engines.clone()), &tasks, &hub).await.unwrap();
    Fixture { dir, board, engines, hub, tasks }
}

impl Fixture {
    /// Waits until the snapshot is as wanted.
    async fn until(&self, done: impl Fn(&Snapshot) -> bool) -> Arc<Snapshot> {
        let mut changes = self.board.changes();
        let waiting = async {
            while !done(&self.board.load()) {
                changes.changed().await.expect("the board outlives its fixture");
            }
        };
        tokio::time::timeout(Duration::from_secs(20), waiting).await.expect("such a snapshot within the deadline");
        self.board.snapshot()
    }

    fn page(&self) -> String {
        let mut text = String::new();
        self.hub.with_registry(|registry| encode(&mut text, registry)).unwrap();
        text
    }
}

fn names(snapshot: &Snapshot) -> Vec<String> {
    snapshot.indices().map(|i| format!("{}@{}", snapshot.meta(i).name.name, snapshot.meta(i).host_port)).collect()
}

fn waiting(n: f64) -> Observed {
    Observed { waiting: Some(n), at: Some(Instant::now()), ..Observed::default() }
}

#[tokio::test]
async fn knows_every_endpoint_once_it_is_open() {
    let f = open(&[A, B]).await;
    assert_eq!(names(&f.board.snapshot()), ["a@10.0.0.1:1", "b@10.0.0.2:2"]);
    assert_eq!(f.engines.asked(), ["a@10.0.0.1:1", "b@10.0.0.2:2"]);
    assert!(f.page().contains("llm_d_epp_ready_endpoints{name=\"epp\"} 0\n"));
}

#[tokio::test]
async fn an_endpoint_that_leaves_is_told_of_and_its_counts_do_not_come_back() {
    let f = open(&[A, B]).await;
    let gone = Arc::new(Mutex::new(Vec::new()));
    let heard = gone.clone();
    f.board.on_gone(Box::new(move |id| heard.lock().push(id)));
    let a = f.board.load().id(EndpointIdx(0));
    let _charge = f.board.ledger().charge(a, 5);
    write(&f.dir, &[B]);
    f.until(|s| s.rows() == 1).await;
    assert_eq!(f.engines.asked(), ["b@10.0.0.2:2"]);
    write(&f.dir, &[B, A]);
    let now = f.until(|s| s.rows() == 2).await;
    assert_eq!(*gone.lock(), [a]);
    let again = now.id(EndpointIdx(1));
    assert_eq!((again.slot(), again == a), (a.slot(), false));
    assert_eq!(f.board.ledger().of(again), (0, 0));
}

#[tokio::test]
async fn a_changed_entry_keeps_its_identity_and_what_was_observed() {
    let f = open(&[A]).await;
    f.engines.say("a", waiting(4.0));
    let before = f.until(|s| s.waiting() == [4.0]).await;
    write(&f.dir, &["name: a, address: 10.0.0.1, port: 7, labels: {tier: gold}"]);
    let after = f.until(|s| s.membership() != before.membership()).await;
    assert_eq!(after.ids(), before.ids());
    assert_eq!(names(&after), ["a@10.0.0.1:7"]);
    assert_eq!(after.waiting(), [4.0]);
}

#[tokio::test]
async fn another_file_is_followed_and_endpoints_of_both_stay_what_they_were() {
    let f = open(&[A, B]).await;
    f.engines.say("b", waiting(4.0));
    let before = f.until(|s| s.waiting() == [4.0, 4.0]).await;
    let path = f.dir.path("other.yaml").display().to_string();
    let spec = DiscoverySpec { path, watch: true, clusters: false };
    assert!(f.board.look_at(&spec).await.is_err());
    f.dir.replace("other.yaml", &format!("endpoints: [{{{B}}}]"));
    f.board.move_to(f.board.look_at(&spec).await.unwrap()).await;
    let after = f.until(|s| s.rows() == 1).await;
    assert_eq!((after.ids(), after.waiting()), (&before.ids()[1..], &[4.0][..]));
    assert_eq!(f.engines.asked(), ["b@10.0.0.2:2"]);
    assert!(f.board.report().file.path.ends_with("other.yaml"));
    write(&f.dir, &[A]);
    f.dir.replace("other.yaml", &format!("endpoints: [{{{B}}}, {{name: c, address: 10.0.0.3, port: 3}}]"));
    assert_eq!(names(&*f.until(|s| s.rows() != 1).await), ["b@10.0.0.2:2", "c@10.0.0.3:3"]);
}

#[tokio::test]
async fn a_replaced_endpoint_leaves_no_gap() {
    let f = open(&[A]).await;
    let (board, (tx, mut rx)) = (f.board.clone(), watch_channel::channel(None));
    f.board.on_gone(Box::new(move |_| {
        tx.send_replace(Some(names(&board.load())));
    }));
    write(&f.dir, &[B]);
    let waiting = rx.wait_for(Option::is_some);
    let seen = tokio::time::timeout(Duration::from_secs(20), waiting).await.unwrap().unwrap().clone();
    assert_eq!(seen, Some(vec!["b@10.0.0.2:2".to_owned()]));
}

#[tokio::test]
async fn a_snapshot_without_news_stays() {
    let f = open(&[A]).await;
    f.engines.say("a", waiting(1.0));
    let first = f.until(|s| s.waiting() == [1.0]).await;
    f.board.refresh();
    assert!(Arc::ptr_eq(&first, &f.board.snapshot()));
}

#[tokio::test]
async fn gauges_are_there_as_soon_as_an_engine_is_heard() {
    let f = open(&[A, B]).await;
    f.engines.say("a", waiting(4.0));
    f.until(|s| s.waiting() == [4.0, 4.0]).await;
    assert!(f.page().contains("llm_d_epp_average_queue_size{name=\"epp\"} 4.0\n"));
}

#[tokio::test]
async fn an_endpoint_that_falls_silent_becomes_stale() {
    let f = open(&[A]).await;
    f.engines.say("a", waiting(4.0));
    f.until(|s| s.stale().is_empty()).await;
    f.board.measure();
    assert!(f.page().contains("epp_board_stale_endpoints 0\n"));
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(3)).await;
    f.board.refresh();
    f.board.measure();
    assert_eq!(f.board.load().stale(), [EndpointIdx(0)]);
    let page = f.page();
    for line in [
        "epp_board_stale_endpoints 1\n",
        "llm_d_epp_ready_endpoints{name=\"epp\"} 0\n",
        "llm_d_epp_average_queue_size{name=\"epp\"} 4.0\n",
    ] {
        assert!(page.contains(line), "{line} in {page}");
    }
}

#[tokio::test]
async fn series_of_a_removed_endpoint_vanish() {
    let f = open(&[A, B]).await;
    let shown = || {
        let page = f.page();
        let of = |name: &str| page.contains(&format!("model_server_endpoint=\"{name}\""));
        (of("a"), of("b"))
    };
    assert_eq!(shown(), (true, true));
    write(&f.dir, &[B]);
    f.until(|s| s.rows() == 1).await;
    assert_eq!(shown(), (false, true));
}

#[tokio::test]
async fn reports_endpoints_and_bad_entries() {
    let bad = "name: spoiled, namespace: n, address: 10.0.0.3, port: 0";
    let labels = "labels: {llm-d.ai/engine-type: sglang}";
    let f = open(&[&format!("{A}, rankIndex: 2, {labels}"), bad]).await;
    f.engines.say("a", Observed { custom: Arc::new([("depth".into(), 1.5)]), ..waiting(4.0) });
    let _charge = f.board.ledger().charge(f.board.load().id(EndpointIdx(0)), 7);
    let report = serde_json::to_value(f.board.report()).unwrap();
    for (path, expected) in [
        ("/total", "1"),
        ("/endpoints/0/name", "\"a\""),
        ("/endpoints/0/namespace", "\"default\""),
        ("/endpoints/0/address", "\"10.0.0.1:1\""),
        ("/endpoints/0/rank", "2"),
        ("/endpoints/0/engine", "\"sglang\""),
        ("/endpoints/0/fresh", "true"),
        ("/endpoints/0/last/waiting", "4.0"),
        ("/endpoints/0/last/custom/depth", "1.5"),
        ("/endpoints/0/in_flight/requests", "1"),
        ("/endpoints/0/in_flight/tokens", "7"),
        ("/endpoints/0/scrapes/errors", "1"),
        ("/endpoints/0/scrapes/last_error", "\"connection refused\""),
        ("/file/bad_total", "1"),
        ("/file/bad/0/name", "\"spoiled\""),
        ("/file/bad/0/line", "3"),
        ("/file/bad/0/last_good_version_in_use", "false"),
    ] {
        assert_eq!(report.pointer(path).map(ToString::to_string).as_deref(), Some(expected), "{path} in {report:#}");
    }
    assert!(f.page().contains("epp_board_bad_entries 1\n"));
}

#[tokio::test]
async fn reports_at_most_a_thousand_endpoints() {
    let entries: Vec<String> = (1..=1005).map(|i| format!("name: e{i}, address: 10.0.0.1, port: {i}")).collect();
    let f = open(&entries.iter().map(String::as_str).collect::<Vec<_>>()).await;
    let report = f.board.report();
    assert_eq!((report.total, report.endpoints.len()), (1005, 1000));
    let slots: BTreeSet<usize> = f.board.load().ids().iter().map(|id| id.slot()).collect();
    assert_eq!(slots, (0..1005).collect());
}
