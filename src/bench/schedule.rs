//! When the requests of an open loop are due: at their times, or some time after the requests that they wait for.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use epp_trace::record::Since;

/// What one request waits for.
#[derive(Clone, Debug, PartialEq)]
pub struct Wait {
    /// Since the beginning; counts if it waits for nobody.
    pub start: Duration,
    /// The requests that it waits for, each before it.
    pub after: Vec<u32>,
    /// How long after the last of them it is due.
    pub gap: Duration,
    pub since: Since,
}

/// Who is due when.
#[derive(Debug)]
pub struct Schedule {
    waits: Vec<Wait>,
    /// By request: how many it still waits for, and who waits for it.
    n_left: Vec<usize>,
    followers: Vec<Vec<u32>>,
    due: BinaryHeap<Reverse<(Duration, usize)>>,
    n_taken: usize,
}

impl Schedule {
    /// Begins with those who wait for nobody.
    pub fn new(waits: Vec<Wait>) -> Self {
        let mut followers = vec![Vec::new(); waits.len()];
        for (at, wait) in waits.iter().enumerate() {
            wait.after.iter().for_each(|of| followers[*of as usize].push(at as u32));
        }
        let free = waits.iter().enumerate().filter(|(_, wait)| wait.after.is_empty());
        let due = free.map(|(at, wait)| Reverse((wait.start, at))).collect();
        let n_left = waits.iter().map(|wait| wait.after.len()).collect();
        Self { waits, n_left, followers, due, n_taken: 0 }
    }

    /// Who is due next, and when; nobody if all who are left wait for others.
    pub fn next(&self) -> Option<(Duration, usize)> {
        self.due.peek().map(|Reverse(next)| *next)
    }

    /// Whether all have been taken.
    pub fn is_over(&self) -> bool {
        self.n_taken == self.waits.len()
    }

    /// Takes who is due next; it is sent at this time.
    pub fn take(&mut self, now: Duration) {
        if let Some(Reverse((_, at))) = self.due.pop() {
            self.n_taken += 1;
            self.happened(at, Since::Start, now);
        }
    }

    /// A request has ended, in whatever way.
    pub fn ended(&mut self, at: usize, now: Duration) {
        self.happened(at, Since::End, now);
    }

    fn happened(&mut self, at: usize, what: Since, now: Duration) {
        for follower in std::mem::take(&mut self.followers[at]) {
            let wait = &self.waits[follower as usize];
            if wait.since != what {
                self.followers[at].push(follower);
                continue;
            }
            let left = &mut self.n_left[follower as usize];
            *left -= 1;
            if *left == 0 {
                self.due.push(Reverse((now + wait.gap, follower as usize)));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: Duration = Duration::from_secs(1);

    fn wait(start: u32, after: &[u32], gap: u32, since: Since) -> Wait {
        Wait { start: start * S, after: after.to_vec(), gap: gap * S, since }
    }

    #[test]
    fn a_turn_comes_a_gap_after_the_answer_of_the_one_before() {
        let waits = vec![wait(0, &[], 0, Since::End), wait(5, &[0], 2, Since::End), wait(3, &[], 0, Since::End)];
        let mut schedule = Schedule::new(waits);
        assert_eq!(schedule.next(), Some((Duration::ZERO, 0)));
        schedule.take(Duration::ZERO);
        assert_eq!(schedule.next(), Some((3 * S, 2)));
        schedule.take(3 * S);
        assert_eq!((schedule.next(), schedule.is_over()), (None, false));
        schedule.ended(0, 9 * S);
        assert_eq!(schedule.next(), Some((11 * S, 1)));
        schedule.take(11 * S);
        assert!(schedule.is_over());
    }

    #[test]
    fn a_gap_may_count_from_when_the_one_before_was_sent() {
        let mut schedule = Schedule::new(vec![wait(1, &[], 0, Since::End), wait(5, &[0], 2, Since::Start)]);
        schedule.take(S);
        assert_eq!(schedule.next(), Some((3 * S, 1)));
        schedule.ended(0, 2 * S);
        assert_eq!(schedule.next(), Some((3 * S, 1)));
    }

    #[test]
    fn who_waits_for_several_waits_for_the_last() {
        let waits = vec![wait(0, &[], 0, Since::End), wait(0, &[], 0, Since::End), wait(0, &[0, 1], 1, Since::End)];
        let mut schedule = Schedule::new(waits);
        schedule.take(Duration::ZERO);
        schedule.take(Duration::ZERO);
        schedule.ended(1, S);
        assert_eq!(schedule.next(), None);
        schedule.ended(0, 4 * S);
        assert_eq!(schedule.next(), Some((5 * S, 2)));
    }
}
