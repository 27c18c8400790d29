//! How near two endpoints stand to each other.

use epp_plugin_api::{ColumnKey, Columns, Cycle};

use crate::attributes;

/// The instance that reads labels unless a config names another.
pub const DEFAULT_PRODUCER: &str = "topology-extractor";

/// What two endpoints share, the nearest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    Host,
    Rack,
    Zone,
    Region,
    Nothing,
}

/// The nearest level of which both name the same; a level that is not known is not shared.
pub fn level(a: attributes::Topology, b: attributes::Topology) -> Level {
    let shared = |a: u32, b: u32| a != 0 && a == b;
    if shared(a.host, b.host) {
        Level::Host
    } else if shared(a.rack, b.rack) {
        Level::Rack
    } else if shared(a.zone, b.zone) {
        Level::Zone
    } else if shared(a.region, b.region) {
        Level::Region
    } else {
        Level::Nothing
    }
}

/// What every row shares with the peer of this cycle; `None` if there is no peer, or nobody knows where anything is.
pub fn levels<'a>(
    cx: &Cycle<'_>,
    columns: &'a Columns,
    key: ColumnKey<attributes::Topology>,
) -> Option<impl Fn(usize) -> Level + use<'a>> {
    let (peer, column) = (cx.peer?, columns.read(key)?);
    let peer = column[peer.row()];
    Some(move |row: usize| level(peer, column[row]))
}

/// The producer that a config names, or the default one.
pub fn producer(name: &str) -> &str {
    if name.trim().is_empty() { DEFAULT_PRODUCER } else { name }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_shared_level_counts_whatever_the_others_say() {
        let at = |host, rack, zone, region| attributes::Topology { host, rack, zone, region };
        let peer = at(1, 1, 1, 1);
        for (other, expected) in [
            (at(1, 9, 9, 9), Level::Host),
            (at(2, 1, 1, 1), Level::Rack),
            (at(0, 1, 0, 0), Level::Rack),
            (at(2, 2, 1, 2), Level::Zone),
            (at(2, 2, 2, 1), Level::Region),
            (at(2, 2, 2, 2), Level::Nothing),
            (at(0, 0, 0, 0), Level::Nothing),
        ] {
            assert_eq!(level(peer, other), expected);
        }
        assert_eq!(level(at(0, 0, 0, 0), at(0, 0, 0, 0)), Level::Nothing);
    }
}
