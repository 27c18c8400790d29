//! Board, discovery: a file that is followed, and the addresses of the host names in it.

mod catalog;
pub mod file;
pub mod resolve;

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use epp_plugin_api::DiscoverySpec;
use tokio::sync::watch;

use self::catalog::Catalog;
pub use self::catalog::{Listing, Problem};
use self::file::{EndpointsFile, FileError};
use self::resolve::{Addresses, Lookup};
use crate::files;
use crate::tasks::Tasks;

/// As many bad entries are named in the log at each load; the debug page names more.
const MOST_LINES: usize = 20;

/// Why there is nothing to begin with.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("endpoints file {}: {error}", path.display())]
    Unreadable { path: PathBuf, error: io::Error },
    #[error("endpoints file {}: {error}", path.display())]
    Malformed { path: PathBuf, error: FileError },
}

/// The endpoints of a file, as they are now and as they change.
#[derive(Debug)]
pub struct Discovery {
    path: PathBuf,
    catalog: Catalog,
    listing: Listing,
    /// Why the newest content of the file is not in use.
    refused: Option<FileError>,
    refusals: u64,
    /// `None`: the file is read once.
    contents: Option<watch::Receiver<Arc<[u8]>>>,
    names: watch::Sender<BTreeSet<String>>,
    addresses: watch::Receiver<Addresses>,
}

impl Discovery {
    /// Reads the file and looks up its host names.
    ///
    /// # Errors
    /// If the file cannot be read or does not parse; mistakes of single entries are logged and listed.
    pub async fn open(spec: &DiscoverySpec, lookup: Lookup, tasks: &Tasks) -> Result<Self, OpenError> {
        let path = PathBuf::from(&spec.path);
        let unreadable = |error| OpenError::Unreadable { path: path.clone(), error };
        let content = files::read(&path).await.map_err(unreadable)?;
        let parsed = parse(content.clone(), spec.clusters).await.map_err(unreadable)?;
        let file = parsed.map_err(|error| OpenError::Malformed { path: path.clone(), error })?;
        let contents = spec.watch.then(|| files::follow(&path, content, tasks));
        let mut catalog = Catalog::new(spec.clusters);
        log_oddities(&path, &file, &EndpointsFile::default());
        catalog.take(file);
        let wanted = catalog.host_names();
        let known = resolve::resolve(wanted.clone(), &Addresses::new(), &lookup).await;
        let (names, wanted) = watch::channel(wanted);
        let addresses = resolve::follow(wanted, known, lookup, tasks);
        let mut this =
            Self { path, catalog, listing: Listing::default(), refused: None, refusals: 0, contents, names, addresses };
        this.list();
        tracing::info!(path = %this.path.display(), endpoints = this.listing.endpoints.len(), "endpoints file read");
        Ok(this)
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What there is now.
    pub fn listing(&self) -> &Listing {
        &self.listing
    }

    /// Why the newest content of the file is not in use; `None` if it is.
    pub fn refused(&self) -> Option<&FileError> {
        self.refused.as_ref()
    }

    /// How many contents of the file were refused so far.
    pub fn refusals(&self) -> u64 {
        self.refusals
    }

    /// Waits until there is something new. False: nothing will ever be.
    pub async fn changed(&mut self) -> bool {
        let content = tokio::select! {
            content = next(&mut self.contents) => match content {
                Some(content) => Some(content),
                None => return false,
            },
            changed = self.addresses.changed() => match changed {
                Ok(()) => None,
                Err(_) => return false,
            },
        };
        if let Some(content) = content {
            let Ok(parsed) = parse(content, self.catalog.clusters()).await else { return false };
            match parsed {
                Ok(file) => {
                    log_oddities(&self.path, &file, self.catalog.file());
                    self.refused = None;
                    self.catalog.take(file);
                    self.names.send_if_modified(|names| {
                        let wanted = self.catalog.host_names();
                        let changed = *names != wanted;
                        *names = wanted;
                        changed
                    });
                }
                Err(error) => {
                    tracing::warn!(path = %self.path.display(), %error, "endpoints file refused, the endpoints stay");
                    self.refused = Some(error);
                    self.refusals += 1;
                }
            }
        }
        self.list();
        true
    }

    fn list(&mut self) {
        let addresses = self.addresses.borrow_and_update().clone();
        let before = std::mem::replace(&mut self.listing, self.catalog.list(&addresses));
        // A mistake that only moved to another line is no news.
        let known: BTreeSet<_> = before.problems.iter().map(|p| (&p.name, &p.reason)).collect();
        let mut news = self.listing.problems.iter().filter(|p| !known.contains(&(&p.name, &p.reason)));
        for problem in news.by_ref().take(MOST_LINES) {
            let name = problem.name.as_ref().map(ToString::to_string).unwrap_or_default();
            let message = if problem.kept {
                "endpoint entry is bad, its last good version stays"
            } else {
                "endpoint entry left out"
            };
            let (place, reason) = (format_args!("line {}", problem.line), problem.reason.as_str());
            tracing::warn!(path = %self.path.display(), endpoint = name, %place, reason, "{message}");
        }
        let more = news.count();
        if more > 0 {
            tracing::warn!(path = %self.path.display(), more, "more endpoint entries are bad");
        }
    }
}

/// Waits for ever where nothing is followed.
async fn next(contents: &mut Option<watch::Receiver<Arc<[u8]>>>) -> Option<Arc<[u8]>> {
    match contents {
        Some(contents) => {
            contents.changed().await.ok()?;
            Some(contents.borrow_and_update().clone())
        }
        None => std::future::pending().await,
    }
}

/// Parses on a thread that may be busy for long.
async fn parse(content: Arc<[u8]>, clusters: bool) -> io::Result<Result<EndpointsFile, FileError>> {
    tokio::task::spawn_blocking(move || file::parse(&content, clusters)).await.map_err(io::Error::other)
}

/// Says what is strange in a file but costs nothing.
fn log_oddities(path: &Path, file: &EndpointsFile, before: &EndpointsFile) {
    if !file.unknown.is_empty() && file.unknown != before.unknown {
        tracing::debug!(path = %path.display(), keys = ?file.unknown, "keys of the endpoints file without a meaning");
    }
    let known: BTreeSet<_> = before.repeated.iter().collect();
    for name in file.repeated.iter().filter(|name| !known.contains(name)).take(MOST_LINES) {
        tracing::warn!(path = %path.display(), endpoint = %name, "several endpoint entries of one name, the last counts");
    }
}

#[cfg(test)]
mod tests;
