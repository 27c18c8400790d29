//! The endpoints of a recording, and what their engines last said, put together as the snapshot that plugins saw.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, anyhow, bail};
use epp_plugin_api::{Adapters, EndpointId, EndpointMeta, EndpointName, Observed, Snapshot, SnapshotRow};
use tokio::time::Instant;

use super::line::{EndpointsLine, ObservedLine, ObservedRow};

/// Snapshots are of a moment so long after what is stale was heard, and fresh engines were heard just then.
const AGE: Duration = Duration::from_secs(3600);

/// What is known of the endpoints at one place of a recording.
pub struct Board {
    /// When stale engines were heard.
    long_ago: Instant,
    membership: u64,
    metas: Vec<Arc<EndpointMeta>>,
    observed: Vec<Observed>,
    /// `None`: something has changed since the last one.
    snapshot: Option<Arc<Snapshot>>,
}

impl Board {
    /// Nobody is there.
    pub fn new() -> Self {
        let (metas, observed) = (Vec::new(), Vec::new());
        Self { long_ago: Instant::now(), membership: 0, metas, observed, snapshot: None }
    }

    /// The moment that cycles take place at.
    pub fn now(&self) -> Instant {
        self.long_ago + AGE
    }

    /// These are the endpoints from now on, and nothing is known of their engines.
    ///
    /// # Errors
    /// If one of them is none.
    pub fn become_these(&mut self, line: &EndpointsLine) -> anyhow::Result<()> {
        let rows = line.endpoints.len();
        for (what, n) in [("names", line.names.len()), ("labels", line.labels.len()), ("ranks", line.ranks.len())] {
            if n != rows && (n != 0 || what == "names") {
                bail!("expected {what} of {rows} endpoints, found {n}");
            }
        }
        let entries = line.endpoints.iter().zip(&line.names).enumerate();
        let metas: Vec<_> = entries.map(|(row, (at, name))| meta(line, row, at, name)).collect::<Result<_, _>>()?;
        self.membership += 1;
        self.observed.clear();
        self.observed.resize_with(metas.len(), Observed::default);
        (self.metas, self.snapshot) = (metas, None);
        Ok(())
    }

    /// Some engines say something else.
    ///
    /// # Errors
    /// If there is no such row, or it is not readable.
    pub fn hear(&mut self, line: ObservedLine) -> anyhow::Result<()> {
        let rows = self.observed.len();
        for row in line.observed {
            let place = self.observed.get_mut(row.row);
            let place = place.with_context(|| format!("expected rows below {rows}, found {}", row.row))?;
            *place = observed(row, self.long_ago)?;
        }
        self.snapshot = None;
        Ok(())
    }

    /// What plugins saw here.
    pub fn snapshot(&mut self) -> Arc<Snapshot> {
        if let Some(snapshot) = &self.snapshot {
            return snapshot.clone();
        }
        let rows = self.metas.iter().zip(&self.observed).enumerate().map(|(row, (meta, observed))| {
            let id = EndpointId::new(row as u32, self.membership as u32);
            SnapshotRow { id, meta: meta.clone(), observed: observed.clone() }
        });
        let snapshot = Arc::new(Snapshot::new(self.membership, rows, self.now(), AGE / 2));
        self.snapshot.insert(snapshot).clone()
    }
}

fn meta(line: &EndpointsLine, row: usize, at: &str, name: &str) -> anyhow::Result<Arc<EndpointMeta>> {
    let wrong = || anyhow!("expected host:port, found {at:.60?}");
    let (host, port) = at.rsplit_once(':').ok_or_else(wrong)?;
    let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    let (namespace, name) = name.split_once('/').unwrap_or(("", name));
    let name = EndpointName { namespace: namespace.to_owned(), name: name.to_owned() };
    let labels: BTreeMap<_, _> = line.labels.get(row).cloned().unwrap_or_default();
    let rank = line.ranks.get(row).copied().unwrap_or_default();
    let port = port.parse().map_err(|_| wrong())?;
    Ok(Arc::new(EndpointMeta::new(name, host.to_owned(), port, labels, rank)))
}

fn observed(row: ObservedRow, long_ago: Instant) -> anyhow::Result<Observed> {
    let ObservedRow { row: _, stale, load, block_tokens, blocks, adapters, custom } = row;
    let mut words = load.split(' ');
    let mut next = || match words.next() {
        Some("-") => Ok(None),
        Some(word) => word.parse().map(Some).map_err(|_| anyhow!("expected a load, found {word:.40?}")),
        None => Err(anyhow!("expected three loads, found {load:.40?}")),
    };
    let [waiting, running, kv_usage] = [next()?, next()?, next()?];
    let adapters = adapters.map(|line| Adapters {
        running: line.running.into_iter().collect(),
        waiting: line.waiting.into_iter().collect(),
        most: line.most,
    });
    let number = |(key, text): (String, String)| match text.parse() {
        Ok(number) => Ok((key, number)),
        Err(_) => Err(anyhow!("expected a number for {key:.40?}, found {text:.40?}")),
    };
    let custom = custom.into_iter().map(number).collect::<Result<Vec<(String, f64)>, _>>()?;
    let at = if stale { long_ago } else { long_ago + AGE };
    let (adapters, custom, at) = (adapters.map(Arc::new), custom.into(), Some(at));
    Ok(Observed { waiting, running, kv_usage, block_tokens, blocks, adapters, custom, at })
}
