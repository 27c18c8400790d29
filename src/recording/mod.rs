//! Writes down what each cycle was decided on, in a file of bounded size, so that the decisions can be made again.

mod file;
pub mod line;
pub mod read;
#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use epp_plugin_api::{MetricFamilies, MetricHub, MetricRegistry};
use parking_lot::Mutex;
use prometheus_client::metrics::counter::Counter;
use tokio::sync::mpsc;

use self::file::Rotating;
use self::line::Lines;
use crate::sched::tape::{Tape, Taped};
use crate::tasks::Tasks;

/// Cycles that wait to be written; what is more is dropped and counted.
const MOST_WAITING: usize = 1024;
/// Cycles are written together, so often. The writer sleeps meanwhile, so that no request has to wake it.
const EVERY: Duration = Duration::from_millis(20);

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
pub fn start(settings: &Settings, tasks: &Tasks, hub: &MetricHub) -> std::io::Result<Tape> {
    let metrics = hub.families::<RecordingMetrics>();
    let file = Rotating::open(settings.path.clone(), settings.most_bytes)?;
    let (to, cycles) = mpsc::channel(MOST_WAITING);
    let tape = Tape::new(to, metrics.dropped.clone());
    let writer = Arc::new(Mutex::new(Writer { file, lines: Lines::default(), metrics, is_failing: false }));
    let recorder = Recorder { cycles, writer };
    tasks.spawn("recording", recorder.follow());
    Ok(tape)
}

/// Takes cycles off the tape. What is still on it when it is dropped is written, too.
struct Recorder {
    cycles: mpsc::Receiver<Taped>,
    writer: Arc<Mutex<Writer>>,
}

impl Recorder {
    async fn follow(mut self) {
        let mut batch = Vec::new();
        while self.cycles.recv_many(&mut batch, MOST_WAITING).await > 0 {
            let (writer, together) = (self.writer.clone(), std::mem::take(&mut batch));
            // If it breaks off, it has said so.
            let _ = tokio::task::spawn_blocking(move || writer.lock().write(&together)).await;
            tokio::time::sleep(EVERY).await;
        }
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        let mut rest = Vec::new();
        while let Ok(cycle) = self.cycles.try_recv() {
            rest.push(cycle);
        }
        self.writer.lock().write(&rest);
    }
}

struct Writer {
    file: Rotating,
    lines: Lines,
    metrics: Arc<RecordingMetrics>,
    is_failing: bool,
}

impl Writer {
    fn write(&mut self, cycles: &[Taped]) {
        let mut n_written = 0;
        let written = self.try_write(cycles, &mut n_written);
        self.metrics.written.inc_by(n_written as u64);
        self.metrics.dropped.inc_by((cycles.len() - n_written) as u64);
        if let Err(why) = &written {
            self.metrics.failures.inc();
            // The next file, or what comes after a gap in this one, says anew what it is about.
            self.lines.forget();
            if !self.is_failing {
                tracing::warn!(%why, "the recording cannot be written, decisions are missing from it");
            }
        }
        self.is_failing = written.is_err();
    }

    fn try_write(&mut self, cycles: &[Taped], n_written: &mut usize) -> std::io::Result<()> {
        let mut n_pending = 0;
        for cycle in cycles {
            let before = self.lines.text.len();
            self.lines.push(cycle);
            let is_first = n_pending == 0 && self.file.is_empty();
            if !is_first && !self.file.has_room_for(self.lines.text.len()) {
                self.lines.text.truncate(before);
                self.file.write(&mut self.lines.text)?;
                *n_written += std::mem::take(&mut n_pending);
                self.file.rotate()?;
                self.lines.forget();
                self.lines.push(cycle);
            }
            n_pending += 1;
        }
        self.file.write(&mut self.lines.text)?;
        *n_written += n_pending;
        Ok(())
    }
}
