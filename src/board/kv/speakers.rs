//! Board, KV events: the connections that speak for one endpoint, where engines connect by themselves.

use super::sequence::Plain;

/// The connections that speak for one endpoint.
#[derive(Debug, Default)]
pub struct Speakers {
    open: usize,
    /// The numbers of the one that went last.
    last: Plain,
}

impl Speakers {
    /// One more speaks: it goes on where the last one ended, unless others speak meanwhile.
    pub fn come(&mut self) -> Plain {
        self.open += 1;
        if self.open == 1 { self.last } else { Plain::default() }
    }

    /// One is gone; whether it was the only one.
    pub fn go(&mut self, numbers: Plain) -> bool {
        self.open = self.open.saturating_sub(1);
        self.last = numbers;
        self.open == 0
    }
}

#[cfg(test)]
mod tests {
    use super::super::sequence::Step;
    use super::*;

    #[test]
    fn a_speaker_goes_on_where_the_last_one_ended_unless_others_speak() {
        let mut speakers = Speakers::default();
        let mut first = speakers.come();
        first.on_live(50);
        assert!(speakers.go(first));
        let mut second = speakers.come();
        assert_eq!(second.on_live(0), Step::Restarted);
        let mut third = speakers.come();
        assert_eq!(third.on_live(7), Step::Apply);
        assert!(!speakers.go(third));
    }
}
