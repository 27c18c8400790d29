//! The last decisions, for whoever asks; and the tape that every one goes to, if there is one.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::sched::record::DecisionRecord;
use crate::sched::tape::Tape;

/// Records that are kept.
const MOST_RECORDS: usize = 256;

/// The last decisions; when full, the oldest one goes.
#[derive(Debug, Default)]
pub struct Decisions {
    kept: Mutex<VecDeque<Arc<DecisionRecord>>>,
    tape: Option<Arc<dyn Tape>>,
}

impl Decisions {
    /// Hands every cycle to this tape, too.
    pub fn taped(tape: Arc<dyn Tape>) -> Self {
        Self { kept: Mutex::default(), tape: Some(tape) }
    }

    /// Where cycles are recorded, if they are.
    pub fn tape(&self) -> Option<&dyn Tape> {
        self.tape.as_deref()
    }

    /// Keeps one more.
    pub fn push(&self, record: Arc<DecisionRecord>) {
        let mut kept = self.kept.lock();
        if kept.len() == MOST_RECORDS {
            kept.pop_front();
        }
        kept.push_back(record);
    }

    /// The last `n`, newest first.
    pub fn last(&self, n: usize) -> Vec<Arc<DecisionRecord>> {
        self.kept.lock().iter().rev().take(n).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use epp_plugin_api::Parsed;
    use epp_plugin_api::testing::request;

    use super::*;

    #[test]
    fn the_oldest_record_goes_when_the_ring_is_full() {
        let decisions = Decisions::default();
        let request = request(b"", Parsed::default());
        let record = |seed| Arc::new(DecisionRecord::new(&request, 1, seed));
        (0..MOST_RECORDS as u64 + 5).for_each(|seed| decisions.push(record(seed)));
        let seeds: Vec<u64> = decisions.last(2).iter().map(|r| r.seed).collect();
        assert_eq!(seeds, [MOST_RECORDS as u64 + 4, MOST_RECORDS as u64 + 3]);
        assert_eq!(decisions.last(usize::MAX).len(), MOST_RECORDS);
    }
}
