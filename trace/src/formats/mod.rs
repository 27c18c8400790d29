//! One file a format; here is what they have in common.

mod azure;
mod bailian;
mod batch;
mod burstgpt;
mod decisions;
mod generator;
mod lengths;
mod mooncake;
mod recording;
mod request_log;
mod rollout;
mod weka;

use std::collections::VecDeque;

use crate::bad::Complaint;
use crate::format::Format;
use crate::record::Record;

/// Turns pieces of the input into records.
pub trait Parser {
    /// What one piece is.
    fn unit(&self) -> Unit {
        Unit::Line
    }

    /// Takes the next piece. What is wrong with all of it is the error; what is wrong with one of its records goes out
    /// beside the good ones.
    fn take(&mut self, text: &str, out: &mut Out) -> Result<(), Complaint>;

    /// Gives the next record if there is one that needs no further input.
    fn more(&mut self, _out: &mut Out) {}
}

/// What a parser takes at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    Line,
    File,
}

/// Where parsers put what they found.
#[derive(Debug, Default)]
pub struct Out {
    queue: VecDeque<Result<Record, Complaint>>,
    n_records: u32,
}

impl Out {
    /// The number that the next record will have.
    pub fn next_number(&self) -> u32 {
        self.n_records
    }

    pub fn push(&mut self, record: Record) {
        self.n_records = self.n_records.saturating_add(1);
        self.queue.push_back(Ok(record));
    }

    pub fn complain(&mut self, complaint: Complaint) {
        self.queue.push_back(Err(complaint));
    }

    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    pub fn pop(&mut self) -> Option<Result<Record, Complaint>> {
        self.queue.pop_front()
    }
}

/// The parser of a format.
pub fn parser(format: Format) -> Box<dyn Parser> {
    match format {
        Format::Mooncake => Box::new(mooncake::Mooncake),
        Format::Weka => Box::new(weka::Weka::default()),
        Format::Azure => Box::new(azure::Azure::default()),
        Format::Bailian => Box::new(bailian::Bailian::default()),
        Format::BurstGpt => Box::new(burstgpt::BurstGpt::default()),
        Format::Generator => Box::new(generator::Generator::default()),
        Format::Rollout => Box::new(rollout::Rollout::default()),
        Format::RequestLog => Box::new(request_log::RequestLog::default()),
        Format::Batch => Box::new(batch::Batch),
        Format::Decisions => Box::new(decisions::Decisions),
        Format::Recording => Box::new(recording::Recording::default()),
    }
}
