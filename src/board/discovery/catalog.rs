//! Board, discovery: which endpoints there are by the file, the addresses of its names, and what was known before.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use epp_plugin_api::{EndpointMeta, EndpointName};

use super::file::{EndpointsFile, Entry, Host};
use super::resolve::Addresses;

/// An entry of the file that is not used as it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// `None`: the name itself cannot be read.
    pub name: Option<EndpointName>,
    pub line: u32,
    pub reason: String,
    /// The last good version of the entry is in use.
    pub kept: bool,
}

/// The endpoints that there are, in the order of the file, and what is wrong with the others.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listing {
    pub endpoints: Vec<Arc<EndpointMeta>>,
    pub problems: Vec<Problem>,
}

/// What was read so far.
#[derive(Debug, Default)]
pub struct Catalog {
    /// Host names are passed on, and labels say where metrics are.
    clusters: bool,
    file: EndpointsFile,
    /// The last good version of every entry that the file has.
    good: HashMap<EndpointName, Entry>,
    /// What was listed last.
    listed: HashMap<EndpointName, Arc<EndpointMeta>>,
}

impl Catalog {
    /// A catalog of nothing. With `clusters` host names are passed on and labels say where metrics are.
    pub fn new(clusters: bool) -> Self {
        Self { clusters, ..Self::default() }
    }

    /// Whether host names are passed on.
    pub fn clusters(&self) -> bool {
        self.clusters
    }

    /// Takes a new version of the file.
    pub fn take(&mut self, file: EndpointsFile) {
        let mut before = std::mem::take(&mut self.good);
        for bad in &file.bad {
            if let Some((name, mut entry)) = bad.name.as_ref().and_then(|n| before.remove_entry(n)) {
                entry.line = bad.line;
                self.good.insert(name, entry);
            }
        }
        self.good.extend(file.entries.iter().map(|e| (e.name.clone(), e.clone())));
        self.file = file;
    }

    /// The version of the file that was taken last.
    pub fn file(&self) -> &EndpointsFile {
        &self.file
    }

    /// The host names that need an address.
    pub fn host_names(&self) -> BTreeSet<String> {
        if self.clusters {
            return BTreeSet::new();
        }
        let name = |entry: &Entry| match &entry.host {
            Host::Name(name) => Some(name.clone()),
            Host::Address(_) => None,
        };
        self.good.values().filter_map(name).collect()
    }

    /// Lists the endpoints. One whose host name has no address, or none yet, stays what it was, if it was there.
    pub fn list(&mut self, addresses: &Addresses) -> Listing {
        let mut listing = Listing::default();
        for bad in &self.file.bad {
            let kept = bad.name.as_ref().is_some_and(|name| self.good.contains_key(name));
            let (name, reason) = (bad.name.clone(), bad.reason.clone());
            listing.problems.push(Problem { name, line: bad.line, reason, kept });
        }
        let mut entries: Vec<&Entry> = self.good.values().collect();
        entries.sort_by(|a, b| (a.line, &a.name).cmp(&(b.line, &b.name)));
        for entry in entries {
            let before = self.listed.get(&entry.name);
            let address = match &entry.host {
                Host::Address(address) => Some(address.to_string()),
                Host::Name(host) if self.clusters => Some(host.clone()),
                Host::Name(host) => match addresses.get(host) {
                    Some(Ok(address)) => Some(address.to_string()),
                    Some(Err(error)) => {
                        let reason = format!("address: the host name {host:?} cannot be resolved: {error}");
                        let (name, kept) = (Some(entry.name.clone()), before.is_some());
                        listing.problems.push(Problem { name, line: entry.line, reason, kept });
                        None
                    }
                    None => None,
                },
            };
            let meta = match address {
                Some(address) => Some(self.meta(entry, address)),
                None => before.cloned(),
            };
            listing.endpoints.extend(meta);
        }
        listing.problems.sort_by_key(|p| p.line);
        self.listed = listing.endpoints.iter().map(|meta| (meta.name.clone(), meta.clone())).collect();
        listing
    }

    /// The same value as before if nothing changed.
    fn meta(&self, entry: &Entry, host: String) -> Arc<EndpointMeta> {
        let mut meta = EndpointMeta::new(entry.name.clone(), host, entry.port, entry.labels.clone(), entry.rank);
        if self.clusters {
            meta.metrics_at = metrics_at(&meta);
        }
        match self.listed.get(&entry.name) {
            Some(before) if **before == meta => before.clone(),
            _ => Arc::new(meta),
        }
    }
}

/// Where the labels of a cluster's gateway say that its metrics are; a port that is none counts as its own.
fn metrics_at(meta: &EndpointMeta) -> Option<(String, u16)> {
    let host = meta.label("metricsAddress").filter(|host| !host.is_empty())?;
    let port = meta.label("metricsPort").and_then(|port| port.parse().ok()).filter(|port| *port > 0);
    Some((host.to_owned(), port.unwrap_or(meta.port)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::board::discovery::file;

    fn take(catalog: &mut Catalog, entries: &[&str]) {
        let text = entries.iter().fold("endpoints:\n".to_owned(), |text, e| format!("{text}- {{{e}}}\n"));
        catalog.take(file::parse(text.as_bytes(), false).unwrap());
    }

    fn list(catalog: &mut Catalog, addresses: &[(&str, Result<&str, &str>)]) -> (Vec<String>, Vec<(u32, bool)>) {
        let address = |a: &Result<&str, &str>| a.map(|a| a.parse().unwrap()).map_err(str::to_owned);
        let addresses = addresses.iter().map(|(name, a)| ((*name).to_owned(), address(a))).collect();
        let listing = catalog.list(&addresses);
        (
            listing.endpoints.iter().map(|m| format!("{}@{}", m.name.name, m.host_port)).collect(),
            listing.problems.iter().map(|p| (p.line, p.kept)).collect(),
        )
    }

    const A: &str = "name: a, address: 10.0.0.1, port: 1";
    const B: &str = "name: b, address: 10.0.0.2, port: 2";
    const BAD_B: &str = "name: b, address: 10.0.0.2, port: 99999";

    #[test]
    fn the_last_good_version_of_a_bad_entry_stays_as_long_as_the_entry() {
        let mut catalog = Catalog::default();
        take(&mut catalog, &[A, B]);
        assert_eq!(list(&mut catalog, &[]), (vec!["a@10.0.0.1:1".into(), "b@10.0.0.2:2".into()], vec![]));
        for _ in 0..2 {
            take(&mut catalog, &[BAD_B, A]);
            let expected = (vec!["b@10.0.0.2:2".into(), "a@10.0.0.1:1".into()], vec![(2, true)]);
            assert_eq!(list(&mut catalog, &[]), expected);
        }
        take(&mut catalog, &[A]);
        assert_eq!(list(&mut catalog, &[]), (vec!["a@10.0.0.1:1".into()], vec![]));
        take(&mut catalog, &[A, BAD_B]);
        assert_eq!(list(&mut catalog, &[]), (vec!["a@10.0.0.1:1".into()], vec![(3, false)]));
    }

    #[test]
    fn a_host_name_is_left_out_until_it_has_an_address() {
        let mut catalog = Catalog::default();
        take(&mut catalog, &[A, "name: b, address: h, port: 2"]);
        assert_eq!(catalog.host_names(), BTreeSet::from(["h".to_owned()]));
        let a = "a@10.0.0.1:1".to_owned();
        assert_eq!(list(&mut catalog, &[]), (vec![a.clone()], vec![]));
        assert_eq!(list(&mut catalog, &[("h", Err("gone"))]), (vec![a.clone()], vec![(3, false)]));
        assert_eq!(list(&mut catalog, &[("h", Ok("::1"))]), (vec![a, "b@[::1]:2".into()], vec![]));
    }

    #[test]
    fn an_endpoint_stays_while_its_new_host_name_has_no_address() {
        let mut catalog = Catalog::default();
        take(&mut catalog, &[B]);
        list(&mut catalog, &[]);
        take(&mut catalog, &["name: b, address: h, port: 7"]);
        assert_eq!(list(&mut catalog, &[]), (vec!["b@10.0.0.2:2".into()], vec![]));
        assert_eq!(list(&mut catalog, &[("h", Err("gone"))]), (vec!["b@10.0.0.2:2".into()], vec![(2, true)]));
        assert_eq!(list(&mut catalog, &[("h", Ok("10.0.0.9"))]), (vec!["b@10.0.0.9:7".into()], vec![]));
    }

    #[test]
    fn an_unchanged_entry_is_the_same_value() {
        let mut catalog = Catalog::default();
        take(&mut catalog, &[A]);
        let first = catalog.list(&Addresses::new());
        take(&mut catalog, &[A, B]);
        assert!(Arc::ptr_eq(&first.endpoints[0], &catalog.list(&Addresses::new()).endpoints[0]));
    }
}
