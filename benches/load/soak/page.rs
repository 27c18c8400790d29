//! What the picker's page of metrics says.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// The page, or nothing if the picker does not answer.
pub fn page(metrics_port: u16) -> String {
    let read = || -> std::io::Result<String> {
        let mut stream = TcpStream::connect(("127.0.0.1", metrics_port))?;
        stream.set_read_timeout(Some(Duration::from_secs(5)))?;
        stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
        let mut page = String::new();
        stream.read_to_string(&mut page)?;
        Ok(page)
    };
    read().unwrap_or_default()
}

/// The sum of the samples of this name whose labels hold all of these texts, such as `priority="10"`.
pub fn sum(page: &str, name: &str, labels: &[&str]) -> f64 {
    let samples = page.lines().filter_map(|line| line.strip_prefix(name)).filter(|rest| rest.starts_with(['{', ' ']));
    let wanted = samples.filter(|rest| labels.iter().all(|label| rest.contains(label)));
    // Not `sum`: that of nothing is -0.
    wanted.filter_map(|rest| rest.rsplit(' ').next()?.parse::<f64>().ok()).fold(0.0, |sum, n| sum + n)
}
