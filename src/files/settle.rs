//! Decides when a file that is being changed has come to rest.

use std::time::Duration;

use tokio::time::Instant;

/// How long a file must have been left alone.
const QUIET: Duration = Duration::from_millis(50);

/// The same while a writer has the file open, and for a file without content: a writer may have just truncated it.
const QUIET_OPEN: Duration = Duration::from_millis(500);

/// For how long a file may change without a pause of [`QUIET`] before shorter pauses will do.
const PATIENCE: Duration = Duration::from_millis(500);

/// The pause that will do then: long enough to hear of a write that has begun.
const QUIET_AT_LAST: Duration = Duration::from_millis(10);

/// What an event says about the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sign {
    /// It may have changed somehow.
    Touched,
    /// Somebody writes it and has not closed it.
    Writing,
    /// Somebody who wrote it has closed it.
    Closed,
    /// A file, whole, took its place.
    Moved,
}

impl Sign {
    /// The sign that stands for both, `self` first.
    pub fn then(self, later: Sign) -> Sign {
        if later == Self::Touched { self } else { later }
    }
}

/// A file on its way to rest.
#[derive(Debug)]
pub struct Settle {
    since: Instant,
    last: Instant,
    state: Sign,
    /// Only whole files took its place so far.
    moves_only: bool,
    /// The last sign was such a file.
    moved: bool,
    empty: bool,
}

impl Settle {
    /// Starts at the first sign of a change.
    pub fn new(sign: Sign, now: Instant) -> Self {
        let moved = sign == Sign::Moved;
        Self { since: now, last: now, state: sign, moves_only: moved, moved, empty: false }
    }

    /// Notes one more sign.
    pub fn note(&mut self, sign: Sign, now: Instant) {
        self.last = now;
        self.state = self.state.then(sign);
        self.moved = sign == Sign::Moved;
        self.moves_only &= self.moved;
        self.empty = false;
    }

    /// When the file is to be read unless there are more signs.
    pub fn due(&self) -> Instant {
        let impatient = self.last.saturating_duration_since(self.since) >= PATIENCE;
        let quiet = match self.state {
            Sign::Writing => QUIET_OPEN,
            _ if self.empty => QUIET_OPEN,
            // What was renamed into place is whole: there is nothing to wait for.
            Sign::Moved if self.moves_only || (self.moved && impatient) => Duration::ZERO,
            Sign::Closed | Sign::Moved if impatient => QUIET_AT_LAST,
            Sign::Touched | Sign::Closed | Sign::Moved => QUIET,
        };
        self.last + quiet
    }

    /// Whether what was read counts; if not, [`Self::due`] says when to read again.
    pub fn accepts(&mut self, empty: bool, now: Instant) -> bool {
        self.empty = empty;
        !empty || now >= self.due()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Sign::{Closed, Moved, Touched, Writing};

    /// Plays signs at these milliseconds; gives how long after the last of them the file is due, in milliseconds.
    fn due_after(signs: &[(u64, Sign)]) -> u64 {
        let start = Instant::now();
        let at = |ms: u64| start + Duration::from_millis(ms);
        let (first, rest) = signs.split_first().expect("every case has a sign");
        let mut settle = Settle::new(first.1, at(first.0));
        for (ms, sign) in rest {
            settle.note(*sign, at(*ms));
        }
        (settle.due() - settle.last).as_millis() as u64
    }

    fn every_ten(sign: Sign) -> Vec<(u64, Sign)> {
        (0..60).map(|i| (i * 10, sign)).collect()
    }

    #[test]
    fn waits_by_what_the_last_sign_says() {
        assert_eq!(due_after(&[(0, Touched)]), 50);
        assert_eq!(due_after(&[(0, Moved)]), 0);
        assert_eq!(due_after(&[(0, Moved), (1, Touched)]), 50);
        assert_eq!(due_after(&[(0, Writing), (1, Closed)]), 50);
        assert_eq!(due_after(&[(0, Closed), (1, Writing)]), 500);
        assert_eq!(due_after(&[(0, Writing), (1, Touched)]), 500);
    }

    #[test]
    fn makes_do_with_less_once_changes_go_on_for_long() {
        assert_eq!(due_after(&every_ten(Moved)), 0);
        assert_eq!(due_after(&every_ten(Closed)), 10);
        assert_eq!(due_after(&every_ten(Touched)), 50);
        assert_eq!(due_after(&every_ten(Writing)), 500);
        let mut mixed = every_ten(Moved);
        mixed[0].1 = Touched;
        assert_eq!(due_after(&mixed), 0);
        mixed.push((600, Touched));
        assert_eq!(due_after(&mixed), 10);
    }

    #[test]
    fn an_empty_file_counts_only_after_the_long_wait() {
        let start = Instant::now();
        let mut settle = Settle::new(Closed, start);
        assert!(!settle.accepts(true, start + QUIET));
        assert_eq!(settle.due(), start + QUIET_OPEN);
        assert!(settle.accepts(false, start + QUIET));
        assert!(settle.accepts(true, start + QUIET_OPEN));
    }
}
