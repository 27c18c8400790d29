//! The subset hint: which hosts Envoy allows for a request.

use epp_plugin_api::{Candidates, Snapshot};

/// Hosts that a request may go to. Ports in the hint do not count: every endpoint on a host is allowed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subset(Vec<String>);

impl Subset {
    /// Reads the items of the hint: each a host, or a host and a port.
    pub fn new<'a>(items: impl IntoIterator<Item = &'a str>) -> Self {
        Self(items.into_iter().map(|item| host_of(item).to_owned()).collect())
    }

    /// Takes out every candidate on another host.
    pub fn restrict(&self, snapshot: &Snapshot, candidates: &mut Candidates) {
        candidates.retain(|idx| self.0.contains(&snapshot.meta(idx).host));
    }
}

fn host_of(item: &str) -> &str {
    if let Some(rest) = item.strip_prefix('[') {
        return rest.split_once(']').map_or(rest, |(host, _)| host);
    }
    item.rsplit_once(':').map_or(item, |(host, _)| host)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_port_of_an_item_does_not_count() {
        for (item, host) in [
            ("10.0.0.1:8000", "10.0.0.1"),
            ("10.0.0.1", "10.0.0.1"),
            ("[fd00::1]:80", "fd00::1"),
            ("[fd00::1]", "fd00::1"),
            ("", ""),
        ] {
            assert_eq!(host_of(item), host, "{item}");
        }
    }
}
