//! The number of a request that waits or is under way; no two are ever equal, and later ones are greater.

/// A request's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Ticket(u64);

/// Gives tickets out.
#[derive(Debug, Default)]
pub struct Tickets(u64);

impl Tickets {
    /// The next one.
    pub fn next(&mut self) -> Ticket {
        self.0 += 1;
        Ticket(self.0)
    }
}
