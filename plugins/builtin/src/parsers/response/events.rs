//! A response of server-sent events: the lines that may report usage, whole even if they come in several chunks.
//!
//! Engines may report usage with every event, each time more. Only the last report counts, so it is held back until the
//! API's last event, or the end of the response.

use epp_plugin_api::{ResponseParser, Usage};
use memchr::memmem::Finder;
use memchr::{memchr, memrchr};

/// A longer line that comes in several chunks is skipped.
const MAX_LINE: usize = 1 << 20;
const FIELD: &[u8] = b"data: ";

/// How an API reports usage in its events.
pub trait Report: Send {
    /// A word without which an event reports no usage.
    const WORD: &'static str;
    /// A word without which an event is not the last one.
    const LAST_WORD: &'static str;
    /// Takes the data of an event that holds one of the words. Adds what it reports to `usage`. Says whether it is the
    /// last event.
    fn event(&mut self, data: &[u8], usage: &mut Option<Usage>) -> bool;
}

/// Goes through the lines.
pub struct Events<R> {
    report: R,
    word: Finder<'static>,
    last_word: Finder<'static>,
    /// The beginning of a line whose end has not come yet.
    partial: Vec<u8>,
    /// The rest of the line that is coming in is of no interest.
    skipping: bool,
    usage: Option<Usage>,
    over: bool,
}

impl<R: Report> Events<R> {
    /// Makes a reader for one response.
    pub fn new(report: R) -> Self {
        Self {
            report,
            word: Finder::new(R::WORD),
            last_word: Finder::new(R::LAST_WORD),
            partial: Vec::new(),
            skipping: false,
            usage: None,
            over: false,
        }
    }

    /// Takes whole lines.
    fn lines(&mut self, lines: &[u8]) {
        let reports = self.word.find(lines).is_some();
        if self.over || !reports && (self.usage.is_none() || self.last_word.find(lines).is_none()) {
            return;
        }
        for line in lines.split(|&b| b == b'\n') {
            let Some(data) = line.strip_prefix(FIELD) else { continue };
            // Before any report the last event says nothing, so that it does not matter which lines come together.
            if self.word.find(data).is_some() || (self.usage.is_some() && self.last_word.find(data).is_some()) {
                let last = self.report.event(data.trim_ascii_end(), &mut self.usage);
                if last && self.usage.is_some() {
                    self.over = true;
                    return;
                }
            }
        }
    }

    /// Keeps the beginning of a line, if it is one of data and not too long.
    fn keep(&mut self, start: &[u8]) {
        if self.skipping || start.is_empty() {
            return;
        }
        self.partial.extend_from_slice(start);
        let seen = self.partial.len().min(FIELD.len());
        if self.partial[..seen] != FIELD[..seen] || self.partial.len() > MAX_LINE {
            self.partial = Vec::new();
            self.skipping = true;
        }
    }
}

impl<R: Report> ResponseParser for Events<R> {
    fn feed(&mut self, chunk: &[u8]) -> Option<Usage> {
        if self.over {
            return None;
        }
        let Some(last) = memrchr(b'\n', chunk) else {
            self.keep(chunk);
            return None;
        };
        let (mut whole, rest) = (&chunk[..last], &chunk[last + 1..]);
        if self.skipping || !self.partial.is_empty() {
            let first = memchr(b'\n', whole).unwrap_or(whole.len());
            self.keep(&whole[..first]);
            let line = std::mem::take(&mut self.partial);
            self.lines(&line);
            self.skipping = false;
            whole = whole.get(first + 1..).unwrap_or_default();
        }
        self.lines(whole);
        self.keep(rest);
        if self.over { self.usage.take() } else { None }
    }

    fn finish(&mut self) -> Option<Usage> {
        let line = std::mem::take(&mut self.partial);
        if !self.over {
            self.lines(&line);
        }
        self.over = true;
        self.usage.take()
    }
}
