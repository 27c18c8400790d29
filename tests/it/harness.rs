//! Starts the real picker with fake engines behind it, and speaks to it through its ports only.

pub mod engine;
pub mod picker;
pub mod talk;

use std::time::Duration;

use tokio::time::Instant;

/// How long something that must come about may take on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// Asks until the answer is true.
pub async fn until(what: &str, mut condition: impl AsyncFnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !condition().await {
        assert!(Instant::now() < end, "{what} did not come about");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// An endpoints file of these engines, named e0 and so on.
pub fn endpoints(ports: &[u16]) -> String {
    let entries = ports.iter().enumerate().map(|(i, port)| entry(&format!("e{i}"), *port, "{}"));
    format!("endpoints:\n{}", entries.collect::<String>())
}

/// One entry of an endpoints file.
pub fn entry(name: &str, port: u16, labels: &str) -> String {
    format!("- {{name: {name}, address: 127.0.0.1, port: \"{port}\", labels: {labels}}}\n")
}
