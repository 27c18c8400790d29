//! Remembers what was made of every endpoint's entry, for as long as the membership stays the same.

use std::fmt;
use std::sync::Arc;

use epp_plugin_api::{EndpointMeta, Snapshot};
use parking_lot::RwLock;

/// A value for each row of one membership. Labels are read once a membership, not once a request.
pub struct PerRow<T>(RwLock<Option<Known<T>>>);

#[derive(Clone)]
struct Known<T> {
    membership: u64,
    values: Arc<[T]>,
}

impl<T> Default for PerRow<T> {
    fn default() -> Self {
        Self(RwLock::new(None))
    }
}

impl<T> fmt::Debug for PerRow<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PerRow")
    }
}

impl<T> PerRow<T> {
    /// The values by row; `make` is asked about every endpoint, in row order, if the membership has changed.
    pub fn of(&self, snapshot: &Snapshot, make: impl FnMut(&EndpointMeta) -> T) -> Arc<[T]> {
        let membership = snapshot.membership();
        if let Some(known) = self.0.read().as_ref().filter(|known| known.membership == membership) {
            return known.values.clone();
        }
        let mut make = make;
        let values: Arc<[T]> = snapshot.indices().map(|idx| make(snapshot.meta(idx))).collect();
        *self.0.write() = Some(Known { membership, values: values.clone() });
        values
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use crate::testing::{Row, snapshot};

    use super::*;

    #[test]
    fn asks_once_a_membership() {
        let (known, asked) = (PerRow::default(), Cell::new(0));
        let labels = |membership, values: [&str; 2]| {
            let board = snapshot(membership, values.map(|v| Row::labelled(&[("t", v)])));
            let of = known.of(&board, |meta| {
                asked.set(asked.get() + 1);
                meta.label("t").map(str::to_owned)
            });
            (of.iter().flatten().cloned().collect::<String>(), asked.get())
        };
        assert_eq!(labels(1, ["a", "b"]), ("ab".into(), 2));
        assert_eq!(labels(1, ["a", "b"]), ("ab".into(), 2));
        assert_eq!(labels(2, ["c", "d"]), ("cd".into(), 4));
    }
}
