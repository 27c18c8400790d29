//! Writes down what each cycle was decided on, in a file of bounded size, so that the decisions can be made again.

mod board;
mod file;
mod floats;
pub mod line;
pub mod read;
#[cfg(test)]
mod tests;
pub mod write;

use std::path::PathBuf;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use epp_plugin_api::{MetricFamilies, MetricHub, MetricRegistry};
use futures_util::future::select;
use parking_lot::Mutex;
use prometheus_client::metrics::counter::Counter;
use tokio::sync::Notify;
use tokio::time::sleep;

use self::file::Rotating;
use self::write::Lines;
use crate::sched::tape::{Tape, Taped};
use crate::tasks::Tasks;

/// Bytes of lines that wait to be written; what comes when there are more is dropped and counted.
const MOST_WAITING: usize = 4 << 20;
/// From so many bytes on the writer is woken at once.
const MANY_WAITING: usize = MOST_WAITING / 8;
/// Otherwise lines are written together, so often. To wake a thread costs as much as many lines, so it is rare; who is killed
/// loses the decisions of so long a time.
const EVERY: Duration = Duration::from_millis(250);

/// Where cycles are recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The newest cycles. When it is full, it takes the place of the file of this name with `.1` behind it.
    pub path: PathBuf,
    /// Most bytes of each of the two files.
    pub most_bytes: u64,
}

/// How recording goes.
#[derive(Debug, Default)]
pub struct RecordingMetrics {
    written: Counter,
    dropped: Counter,
    failures: Counter,
}

impl MetricFamilies for RecordingMetrics {
    fn register(&self, registry: &mut MetricRegistry) {
        let help = "[ALPHA] Decisions that were written to the recording";
        registry.register("epp_recording_written_cycles", help, self.written.clone());
        let help =
            "[ALPHA] Decisions that are missing from the recording, because they came too fast or could not be written";
        registry.register("epp_recording_dropped_cycles", help, self.dropped.clone());
        let help = "[ALPHA] How often the recording could not be written";
        registry.register("epp_recording_failures", help, self.failures.clone());
    }
}

/// Records until the tasks stop.
///
/// # Errors
/// If the file cannot be opened.
pub fn start(settings: &Settings, tasks: &Tasks, hub: &MetricHub) -> std::io::Result<Arc<dyn Tape>> {
    let file = Rotating::open(settings.path.clone())?;
    let pending = Pending { in_file: file.bytes(), ..Pending::default() };
    let waiting = Arc::new(Waiting {
        most_bytes: settings.most_bytes,
        pending: Mutex::new(pending),
        any: Notify::new(),
        many: Notify::new(),
        metrics: hub.families(),
    });
    let writer = Writer { file, text: Vec::new(), is_failing: false };
    let recorder = Recorder { waiting: waiting.clone(), writer: Arc::new(Mutex::new(writer)) };
    tasks.spawn("recording", recorder.follow());
    Ok(waiting)
}

/// Lines that wait to be written.
#[derive(Debug)]
struct Waiting {
    most_bytes: u64,
    pending: Mutex<Pending>,
    /// Is told when there is something after there was nothing.
    any: Notify,
    /// Is told when there is much.
    many: Notify,
    metrics: Arc<RecordingMetrics>,
}

#[derive(Debug, Default)]
struct Pending {
    lines: Lines,
    n_cycles: u64,
    /// Places in the text where another file begins.
    cuts: Vec<usize>,
    /// Bytes of the file that is written, with those that wait for it.
    in_file: u64,
}

impl Tape for Waiting {
    fn take(&self, cycle: &Taped<'_>) {
        let mut pending = self.pending.lock();
        let before = pending.lines.text.len();
        if before >= MOST_WAITING {
            self.metrics.dropped.inc();
            return;
        }
        pending.push(cycle, self.most_bytes);
        if before == 0 {
            self.any.notify_one();
        }
        if before < MANY_WAITING && pending.lines.text.len() >= MANY_WAITING {
            self.many.notify_one();
        }
    }
}

impl Pending {
    fn push(&mut self, cycle: &Taped<'_>, most_bytes: u64) {
        let before = self.lines.text.len();
        self.lines.push(cycle);
        let mut added = (self.lines.text.len() - before) as u64;
        if self.in_file > 0 && self.in_file + added > most_bytes {
            self.lines.text.truncate(before);
            self.lines.forget();
            self.lines.push(cycle);
            self.cuts.push(before);
            added = (self.lines.text.len() - before) as u64;
            self.in_file = 0;
        }
        self.in_file += added;
        self.n_cycles += 1;
    }
}

/// Writes what waits. What still does when it is dropped is written, too.
struct Recorder {
    waiting: Arc<Waiting>,
    writer: Arc<Mutex<Writer>>,
}

impl Recorder {
    async fn follow(self) {
        loop {
            self.waiting.any.notified().await;
            select(pin!(self.waiting.many.notified()), pin!(sleep(EVERY))).await;
            let (writer, waiting) = (self.writer.clone(), self.waiting.clone());
            // If it breaks off, it has said so.
            let _ = tokio::task::spawn_blocking(move || writer.lock().write(&waiting)).await;
        }
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        self.writer.lock().write(&self.waiting);
    }
}

struct Writer {
    file: Rotating,
    /// What is being written; its memory and that of what waits are exchanged.
    text: Vec<u8>,
    is_failing: bool,
}

impl Writer {
    fn write(&mut self, waiting: &Waiting) {
        self.text.clear();
        let (cuts, n_cycles) = {
            let mut pending = waiting.pending.lock();
            std::mem::swap(&mut pending.lines.text, &mut self.text);
            (std::mem::take(&mut pending.cuts), std::mem::take(&mut pending.n_cycles))
        };
        let written = self.try_write(&cuts);
        match &written {
            Ok(()) => waiting.metrics.written.inc_by(n_cycles),
            Err(_) => waiting.metrics.dropped.inc_by(n_cycles),
        };
        if let Err(why) = &written {
            waiting.metrics.failures.inc();
            // What came meanwhile may be about what is lost; what comes now says anew what it is about.
            let mut pending = waiting.pending.lock();
            waiting.metrics.dropped.inc_by(pending.n_cycles);
            *pending = Pending { in_file: self.file.bytes(), ..Pending::default() };
            if !self.is_failing {
                tracing::warn!(%why, "the recording cannot be written, decisions are missing from it");
            }
        }
        self.is_failing = written.is_err();
    }

    fn try_write(&mut self, cuts: &[usize]) -> std::io::Result<()> {
        let mut begin = 0;
        for &cut in cuts {
            self.file.write(&self.text[begin..cut])?;
            self.file.rotate()?;
            begin = cut;
        }
        self.file.write(&self.text[begin..])
    }
}
