//! Follows endpoints files that are written, spoiled and written again.

use super::resolve::tests::Names;
use super::*;
use crate::files::tests::Scratch;

fn spec(dir: &Scratch, watch: bool) -> DiscoverySpec {
    DiscoverySpec { path: dir.path("endpoints.yaml").display().to_string(), watch, clusters: false }
}

fn entry(name: &str, address: &str) -> String {
    format!("{{name: {name}, address: \"{address}\", port: 1}}")
}

fn write(dir: &Scratch, entries: &[String]) {
    dir.replace("endpoints.yaml", &format!("endpoints: [{}]", entries.join(", ")));
}

fn names(discovery: &Discovery) -> Vec<String> {
    discovery.listing().endpoints.iter().map(|m| m.name.name.clone()).collect()
}

async fn until(discovery: &mut Discovery, done: impl Fn(&Discovery) -> bool) {
    let waiting = async {
        while !done(discovery) {
            assert!(discovery.changed().await, "nothing will change any more");
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(20), waiting).await.expect("a change within the deadline");
}

#[tokio::test]
async fn does_not_begin_without_a_file_that_parses() {
    let dir = Scratch::new();
    let open = || async { Discovery::open(&spec(&dir, true), resolve::system(), &Tasks::default()).await };
    let error = open().await.unwrap_err();
    assert!(matches!(error, OpenError::Unreadable { .. }), "{error}");
    assert!(error.to_string().contains(&dir.path("endpoints.yaml").display().to_string()));
    dir.write("endpoints.yaml", "\nendpoints: 5");
    let error = open().await.unwrap_err();
    assert!(error.to_string().contains("endpoints.yaml: line 2"), "{error}");
}

#[tokio::test]
async fn a_bad_entry_does_not_stop_the_start() {
    let dir = Scratch::new();
    write(&dir, &[entry("a", "10.0.0.1"), entry("b", "nope!"), entry("c", "10.0.0.3")]);
    let discovery = Discovery::open(&spec(&dir, false), resolve::system(), &Tasks::default()).await.unwrap();
    assert_eq!(names(&discovery), ["a", "c"]);
    assert_eq!(discovery.listing().problems.len(), 1);
}

#[tokio::test]
async fn endpoints_stay_through_garbage_and_leave_with_an_empty_list() {
    let (dir, tasks) = (Scratch::new(), Tasks::default());
    write(&dir, &[entry("a", "10.0.0.1")]);
    let mut discovery = Discovery::open(&spec(&dir, true), resolve::system(), &tasks).await.unwrap();
    dir.replace("endpoints.yaml", "endpoints: [}");
    until(&mut discovery, |d| d.refused().is_some()).await;
    assert_eq!(names(&discovery), ["a"]);
    write(&dir, &[]);
    until(&mut discovery, |d| d.refused().is_none()).await;
    assert_eq!(names(&discovery), [""; 0]);
    write(&dir, &[entry("b", "10.0.0.1")]);
    until(&mut discovery, |d| names(d) == ["b"]).await;
}

#[tokio::test]
async fn a_file_that_is_not_watched_is_read_once() {
    let (dir, tasks) = (Scratch::new(), Tasks::default());
    write(&dir, &[entry("a", "10.0.0.1")]);
    let mut discovery = Discovery::open(&spec(&dir, false), resolve::system(), &tasks).await.unwrap();
    assert!(discovery.contents.is_none());
    tasks.stop();
    assert!(!discovery.changed().await);
}

#[tokio::test]
async fn a_host_name_that_comes_with_a_reload_is_resolved() {
    let (dir, tasks, service) = (Scratch::new(), Tasks::default(), Names::default());
    service.set("one", &["10.0.0.1"]);
    service.set("two", &["10.0.0.2"]);
    write(&dir, &[entry("a", "one"), entry("x", "unknown")]);
    let mut discovery = Discovery::open(&spec(&dir, true), service.lookup(), &tasks).await.unwrap();
    assert_eq!(names(&discovery), ["a"]);
    assert_eq!(discovery.listing().endpoints[0].host_port, "10.0.0.1:1");
    assert_eq!(discovery.listing().problems.len(), 1);
    write(&dir, &[entry("a", "two")]);
    until(&mut discovery, |d| d.listing().endpoints[0].host_port == "10.0.0.2:1").await;
    assert_eq!(discovery.listing().problems, []);
}
