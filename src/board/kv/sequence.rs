//! Board, KV events: what the number of a message means after those that came before it. Pure: no I/O, and time comes in.
//!
//! Only the order of numbers counts, and tokio's clock for the pause after a failure: neither the timestamps inside of
//! messages nor the wall clock matter, so clocks that jump change nothing. What is kept survives a lost connection.

use std::time::Duration;

use tokio::time::Instant;

/// How long nothing is asked for again after a replay that failed.
pub const COOLDOWN: Duration = Duration::from_secs(30);

/// What is to be done with a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    Apply,
    /// The publisher has started again: what was known of it is lost, then the message is applied.
    Restarted,
    /// It was applied already.
    Known,
    /// Messages before it are missing and cannot be asked for now.
    Drop,
    /// Messages before it are to be asked for; then [`Replayed::follows`] says whether it is applied.
    Replay {
        from: u64,
        restarted: bool,
    },
}

/// Numbers where nothing can be asked for again: gaps are taken as they are.
///
/// A number below the last means that the engine has started again, and its cache is empty. One stray number far ahead
/// does not: the next message goes on where the numbers were before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Plain {
    last: Option<u64>,
    /// The number before the last jump ahead.
    before_jump: Option<u64>,
}

impl Plain {
    /// A message of this number has come.
    pub fn on_live(&mut self, seq: u64) -> Step {
        let Some(last) = self.last.replace(seq) else { return Step::Apply };
        if seq > last.saturating_add(1) {
            self.before_jump = Some(last);
        } else if seq < last {
            let before_jump = self.before_jump.take();
            if before_jump.and_then(|before| before.checked_add(1)) != Some(seq) {
                return Step::Restarted;
            }
        }
        Step::Apply
    }

    /// The number that came last.
    pub fn last(&self) -> Option<u64> {
        self.last
    }
}

/// Numbers where messages can be asked for again: each is applied once and in order, or what is known is given up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Replayed {
    applied: Option<u64>,
    live: Option<u64>,
    failed: Option<Instant>,
}

impl Replayed {
    /// The connection is there: where to begin with asking for what was missed, if nothing was ever applied.
    pub fn on_connect(&self, now: Instant) -> Option<u64> {
        (self.applied.is_none() && !self.is_cooling(now)).then_some(0)
    }

    /// A message of this number has come.
    pub fn on_live(&mut self, seq: u64, now: Instant) -> Step {
        let last = self.live.replace(seq);
        if last.is_some_and(|last| seq < last) {
            (self.applied, self.failed) = (None, None);
            return Step::Replay { from: 0, restarted: true };
        }
        if last == Some(seq) {
            return Step::Known;
        }
        let next = match self.applied {
            Some(applied) if seq <= applied => return Step::Known,
            Some(applied) => applied + 1,
            None => 0,
        };
        if seq == next {
            Step::Apply
        } else if self.is_cooling(now) {
            Step::Drop
        } else {
            Step::Replay { from: next, restarted: false }
        }
    }

    /// After a replay that went well: whether the message that was the reason for it is the next one. It is where
    /// nothing came, too: then the history begins with it.
    pub fn follows(&self, seq: u64) -> bool {
        self.applied.is_none_or(|applied| applied.checked_add(1) == Some(seq))
    }

    /// The message of this number is applied.
    pub fn applied(&mut self, seq: u64) {
        self.applied = Some(seq);
    }

    /// Messages are lost for good: what was applied counts no more.
    pub fn failed(&mut self, now: Instant) {
        (self.applied, self.failed) = (None, Some(now));
    }

    /// Whether nothing is asked for because a replay has failed lately.
    pub fn is_cooling(&self, now: Instant) -> bool {
        self.failed.is_some_and(|at| now.saturating_duration_since(at) < COOLDOWN)
    }

    /// The number that came last.
    pub fn last(&self) -> Option<u64> {
        self.live.max(self.applied)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_replay_port_only_going_back_means_something() {
        use Step::{Apply, Restarted};
        for (numbers, steps) in [
            (&[5, 6, 6, 9][..], &[Apply, Apply, Apply, Apply][..]),
            // An engine that is started again in place begins at 0.
            (&[0, 1, 50, 0, 1], &[Apply, Apply, Apply, Restarted, Apply]),
            (&[7, 3, 2], &[Apply, Restarted, Restarted]),
            // A stray number between good ones.
            (&[0, 1_000_000, 1, 2, 0], &[Apply, Apply, Apply, Apply, Restarted]),
            (&[u64::MAX, u64::MAX, 0], &[Apply, Apply, Restarted]),
        ] {
            let mut sequence = Plain::default();
            let got: Vec<Step> = numbers.iter().map(|seq| sequence.on_live(*seq)).collect();
            assert_eq!(got, steps, "{numbers:?}");
        }
    }

    /// What came of a replay.
    #[derive(Clone, Copy)]
    enum Replay {
        /// The numbers up to this one, all of them.
        UpTo(u64),
        Nothing,
        Fails,
    }

    use Replay::{Fails, Nothing, UpTo};

    /// Runs messages through, with what each replay gives in turn; tells what was applied, live or replayed, and from
    /// where was asked. `lost` stands for what is given up.
    fn story(live: &[u64], replays: &[Replay]) -> String {
        let (mut sequence, now, mut told) = (Replayed::default(), Instant::now(), Vec::new());
        let mut replays = replays.iter();
        let mut replay = |sequence: &mut Replayed, from: u64, told: &mut Vec<String>| {
            told.push(format!("ask {from}"));
            match replays.next() {
                Some(UpTo(last)) => (from..=*last).for_each(|seq| {
                    sequence.applied(seq);
                    told.push(format!("+{seq}"));
                }),
                Some(Nothing) => {}
                Some(Fails) | None => {
                    sequence.failed(now);
                    told.push("lost".to_owned());
                    return false;
                }
            }
            true
        };
        if let Some(from) = sequence.on_connect(now) {
            replay(&mut sequence, from, &mut told);
        }
        for seq in live {
            let apply = match sequence.on_live(*seq, now) {
                Step::Apply => true,
                Step::Known | Step::Drop => false,
                Step::Restarted => panic!("a replay comes with it"),
                Step::Replay { from, restarted } => {
                    if restarted {
                        told.push("lost".to_owned());
                    }
                    replay(&mut sequence, from, &mut told) && sequence.follows(*seq)
                }
            };
            if apply {
                sequence.applied(*seq);
                told.push(format!("{seq}"));
            }
        }
        told.join(" ")
    }

    #[test]
    fn with_a_replay_port_each_message_is_applied_once_and_in_order() {
        for (live, replays, told) in [
            (&[0, 1, 1, 2][..], &[Nothing][..], "ask 0 0 1 2"),
            (&[2, 3], &[UpTo(1)], "ask 0 +0 +1 2 3"),
            (&[1, 2, 3], &[UpTo(2)], "ask 0 +0 +1 +2 3"),
            // Joins in the middle.
            (&[7, 8], &[Nothing, Nothing], "ask 0 ask 0 7 8"),
            // A gap is filled, up to the message and beyond it.
            (&[0, 2, 3], &[Nothing, UpTo(1)], "ask 0 0 ask 1 +1 2 3"),
            (&[0, 2, 3], &[Nothing, UpTo(2)], "ask 0 0 ask 1 +1 +2 3"),
            // A replay that stops short of the message leaves a gap for the next one.
            (&[0, 5, 6], &[Nothing, UpTo(2), UpTo(5)], "ask 0 0 ask 1 +1 +2 ask 3 +3 +4 +5 6"),
            // A gap that cannot be filled.
            (&[0, 2, 3], &[Nothing, Fails], "ask 0 0 ask 1 lost"),
            (&[3, 4], &[Fails], "ask 0 lost"),
            (&[0, 1], &[Fails], "ask 0 lost 0 1"),
            // The publisher starts again, even while nothing may be asked for.
            (&[0, 1, 0, 1], &[Nothing, UpTo(0)], "ask 0 0 1 lost ask 0 +0 1"),
            (&[5, 0, 1], &[Fails, Nothing], "ask 0 lost lost ask 0 0 1"),
            (&[5, 3, 4], &[Fails, Nothing], "ask 0 lost lost ask 0 3 4"),
        ] {
            assert_eq!(story(live, replays), told, "{live:?}");
        }
    }

    #[test]
    fn after_a_failure_nothing_is_asked_for_a_while() {
        let (mut sequence, start) = (Replayed::default(), Instant::now());
        sequence.failed(start);
        let (before, after) = (start + COOLDOWN - Duration::from_millis(1), start + COOLDOWN);
        assert_eq!((sequence.on_connect(before), sequence.on_connect(after)), (None, Some(0)));
        assert_eq!(sequence.on_live(4, before), Step::Drop);
        assert_eq!(sequence.on_live(5, after), Step::Replay { from: 0, restarted: false });
    }

    #[test]
    fn the_last_number_there_is_needs_no_next_one() {
        let mut sequence = Replayed::default();
        sequence.applied(u64::MAX);
        assert_eq!(sequence.on_live(u64::MAX, Instant::now()), Step::Known);
        assert!(!sequence.follows(0));
    }
}
