//! A line on the terminal that says how far a long run is, how fast it goes and how long it will take. Where nobody looks
//! there is none.

use std::io::{IsTerminal as _, Write as _};
use std::path::Path;
use std::time::{Duration, Instant};

use epp_trace::bad::{Error, OnBad};
use epp_trace::format::Format;
use epp_trace::reader::Reader;
use epp_trace::trace::Trace;

/// How often the line is written anew.
const TELL_EVERY: Duration = Duration::from_millis(200);

/// What is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unit {
    Requests,
    Bytes,
}

/// The line; it is wiped off when this is dropped.
#[derive(Debug)]
pub(super) struct Progress {
    what: String,
    unit: Unit,
    /// How much there is to do; `None` if nobody knows.
    total: Option<u64>,
    began: Instant,
    told: Option<Instant>,
    watched: bool,
}

impl Progress {
    pub fn new(what: impl Into<String>, unit: Unit, total: Option<u64>) -> Self {
        let watched = std::io::stderr().is_terminal();
        Self { what: what.into(), unit, total, began: Instant::now(), told: None, watched }
    }

    /// A file, or a folder of files, that is being read.
    pub fn of_file(path: &Path) -> Self {
        let name =
            path.file_name().map_or_else(|| path.display().to_string(), |name| name.to_string_lossy().into_owned());
        Self::new(name, Unit::Bytes, size(path))
    }

    /// Says that so much is done.
    pub fn tell(&mut self, done: u64) {
        if !self.watched {
            return;
        }
        let now = Instant::now();
        if self.told.is_some_and(|told| now - told < TELL_EVERY) {
            return;
        }
        self.told = Some(now);
        let line = line(&self.what, self.unit, done, self.total, now - self.began);
        // Nobody is left to be told when the terminal is gone.
        let _ = write!(std::io::stderr(), "\r{line}\x1b[K");
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.told.is_some() {
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        }
    }
}

/// Reads a trace and says meanwhile how far it is.
///
/// # Errors
/// As [`Trace::read`].
pub(super) fn read_trace(path: &Path, format: Option<Format>, on_bad: OnBad) -> Result<Trace, Error> {
    let reader = Reader::open(path, format)?;
    // What is made of a few parameters is not read off a file.
    let is_made = reader.format() == Format::Generator;
    let mut progress = Progress::of_file(path);
    if is_made {
        (progress.unit, progress.total) = (Unit::Requests, None);
    }
    let mut n_records = 0;
    Trace::read_watched(reader, on_bad, &mut |n_bytes| {
        n_records += 1;
        progress.tell(if is_made { n_records } else { n_bytes });
    })
}

/// How much there is to read; `None` if it is no file, or not there.
fn size(path: &Path) -> Option<u64> {
    let found = std::fs::metadata(path).ok()?;
    if !found.is_dir() {
        return Some(found.len()).filter(|_| found.is_file());
    }
    let files = std::fs::read_dir(path).ok()?.filter_map(Result::ok);
    Some(
        files.filter_map(|file| file.metadata().ok()).filter(std::fs::Metadata::is_file).map(|found| found.len()).sum(),
    )
}

fn line(what: &str, unit: Unit, done: u64, total: Option<u64>, took: Duration) -> String {
    let rate = done as f64 / took.as_secs_f64().max(1e-9);
    let (name, size) = match unit {
        Unit::Requests => ("requests", 1.0),
        Unit::Bytes => ("MB", 1e6),
    };
    let said = |n: f64| {
        if n / size < 10.0 && unit == Unit::Bytes { format!("{:.1}", n / size) } else { format!("{:.0}", n / size) }
    };
    let of = total.map_or(String::new(), |total| format!(" of {}", said(total as f64)));
    let left = total
        .filter(|_| done > 0)
        .map_or(String::new(), |total| format!(", {:.0} s left", total.saturating_sub(done) as f64 / rate.max(1e-9)));
    format!("{what}: {}{of} {name}, {} a second{left}", said(done as f64), said(rate))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_tells_the_rate_and_the_time_left() {
        let s = Duration::from_secs;
        for (unit, done, total, want) in [
            (Unit::Requests, 250, Some(1000), "x: 250 of 1000 requests, 50 a second, 15 s left"),
            (Unit::Requests, 0, Some(1000), "x: 0 of 1000 requests, 0 a second"),
            (Unit::Bytes, 20_000_000, Some(120_000_000), "x: 20 of 120 MB, 4.0 a second, 25 s left"),
            (Unit::Bytes, 20_000_000, None, "x: 20 MB, 4.0 a second"),
            (Unit::Requests, 1200, Some(1000), "x: 1200 of 1000 requests, 240 a second, 0 s left"),
        ] {
            assert_eq!(line("x", unit, done, total, s(5)), want);
        }
    }

    #[test]
    fn what_is_no_file_has_no_size() {
        assert_eq!(size(Path::new("-")), None);
        assert!(size(Path::new(env!("CARGO_MANIFEST_DIR"))).is_some_and(|n| n > 0));
    }
}
