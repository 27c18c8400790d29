//! Looks at a file and listens for its changes. Everything here may block.

use std::collections::{HashMap, HashSet};
use std::ffi::OsString;
use std::fs::{self, File, Metadata};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use notify::event::{AccessKind, AccessMode, ModifyKind, RenameMode};
use notify::{Event, EventKind, RecommendedWatcher, RecursiveMode, Watcher};
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::MAX_BYTES;
use super::settle::Sign;

/// A file changed more recently than this may change again without looking different, for times are kept coarsely.
const YOUNG: Duration = Duration::from_secs(2);

/// As many symlinks are followed on the way to the file.
const MAX_LINKS: usize = 40;

/// What a file looks like from outside; another one means that it may have changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stamp {
    device: u64,
    inode: u64,
    length: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Stamp {
    fn of(meta: &Metadata) -> Self {
        Self {
            device: meta.dev(),
            inode: meta.ino(),
            length: meta.len(),
            modified: (meta.mtime(), meta.mtime_nsec()),
            changed: (meta.ctime(), meta.ctime_nsec()),
        }
    }

    /// Whether one open file held the same both times. That it was replaced or renamed meanwhile changes nothing in it.
    fn holds_the_same(&self, later: &Self) -> bool {
        (self.length, self.modified) == (later.length, later.modified)
    }

    /// Whether the file may since have changed and still look the same.
    pub fn is_young(&self) -> bool {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let changed = Duration::from_secs(u64::try_from(self.changed.0).unwrap_or_default());
        now.abs_diff(changed) < YOUNG
    }
}

/// What a look at the file showed.
#[derive(Debug)]
pub enum Look {
    Whole(Stamp, Arc<[u8]>),
    /// It changed while it was read.
    Moving,
    Failed(io::Error),
}

/// The signs that nobody has taken yet, added up, and the paths that they are about.
#[derive(Debug, Default)]
pub struct Signs {
    pending: Mutex<Option<Sign>>,
    paths: Mutex<HashSet<PathBuf>>,
    arrived: Notify,
}

impl Signs {
    /// Waits for the next sign.
    pub async fn next(&self) -> Sign {
        loop {
            if let Some(sign) = self.pending.lock().take() {
                return sign;
            }
            self.arrived.notified().await;
        }
    }

    fn hear(&self, event: &Event) {
        let Some(sign) = sign_of(event) else { return };
        let ours = event.need_rescan() || {
            let paths = self.paths.lock();
            event.paths.iter().any(|p| paths.contains(p))
        };
        if ours {
            let mut pending = self.pending.lock();
            *pending = Some(pending.map_or(sign, |before| before.then(sign)));
            self.arrived.notify_one();
        }
    }
}

fn sign_of(event: &Event) -> Option<Sign> {
    match event.kind {
        EventKind::Access(AccessKind::Close(AccessMode::Write)) => Some(Sign::Closed),
        EventKind::Access(_) => None,
        EventKind::Modify(ModifyKind::Name(RenameMode::From) | ModifyKind::Metadata(_)) => Some(Sign::Touched),
        EventKind::Modify(ModifyKind::Name(_)) => Some(Sign::Moved),
        EventKind::Modify(_) => Some(Sign::Writing),
        EventKind::Any | EventKind::Create(_) | EventKind::Remove(_) | EventKind::Other => Some(Sign::Touched),
    }
}

/// Watches the way to one file and reads it.
#[derive(Debug)]
pub struct Eye {
    path: PathBuf,
    signs: Arc<Signs>,
    /// `None`: not started yet, or events cannot be had.
    watcher: Option<RecommendedWatcher>,
    started: bool,
    /// The directories that are watched, with the inode that each had then.
    watched: HashMap<PathBuf, u64>,
}

impl Eye {
    /// Makes an eye that starts to listen at its first look.
    pub fn new(path: PathBuf, signs: Arc<Signs>) -> Self {
        let path = std::path::absolute(&path).unwrap_or(path);
        Self { path, signs, watcher: None, started: false, watched: HashMap::new() }
    }

    /// Says what the file looks like from outside; `None` if it cannot be found.
    pub fn glance(&mut self) -> Option<Stamp> {
        self.aim();
        fs::metadata(&self.path).ok().map(|m| Stamp::of(&m))
    }

    /// Reads the file.
    pub fn look(&mut self) -> Look {
        self.aim();
        let seen = open(&self.path).and_then(|mut file| {
            let before = Stamp::of(&file.metadata()?);
            let content = read_open(&mut file)?;
            Ok((before, content, Stamp::of(&file.metadata()?)))
        });
        match seen {
            Ok((before, content, after)) if before.holds_the_same(&after) => Look::Whole(before, content),
            Ok(_) => Look::Moving,
            Err(e) => Look::Failed(e),
        }
    }

    /// Watches the directories that are now on the way to the file, and no others.
    fn aim(&mut self) {
        if !std::mem::replace(&mut self.started, true) {
            let signs = self.signs.clone();
            let heard = move |event: notify::Result<Event>| {
                if let Ok(event) = event {
                    signs.hear(&event);
                }
            };
            match notify::recommended_watcher(heard) {
                Ok(watcher) => self.watcher = Some(watcher),
                Err(e) => {
                    tracing::warn!(path = %self.path.display(), error = %e, "no file events to be had, polling instead");
                }
            }
        }
        let Some(watcher) = &mut self.watcher else { return };
        let route = Route::to(&self.path);
        let wanted: HashMap<PathBuf, u64> =
            route.directories.iter().filter_map(|d| Some((d.clone(), fs::metadata(d).ok()?.ino()))).collect();
        if wanted != self.watched {
            for (directory, inode) in &self.watched {
                if wanted.get(directory) != Some(inode) {
                    // It fails for a directory that is gone, whose watch is gone with it.
                    let _ = watcher.unwatch(directory);
                }
            }
            let mut watched = HashMap::new();
            for (directory, inode) in wanted {
                let already = self.watched.get(&directory) == Some(&inode);
                // One that cannot be watched is tried again at the next look; until then polling has to do.
                if already || watcher.watch(&directory, RecursiveMode::NonRecursive).is_ok() {
                    watched.insert(directory, inode);
                }
            }
            self.watched = watched;
        }
        *self.signs.paths.lock() = route.paths;
    }
}

/// The way to a file through its symlinks.
#[derive(Debug, Default, PartialEq, Eq)]
struct Route {
    /// Where something may change that matters; none of them leads through a symlink.
    directories: HashSet<PathBuf>,
    /// What matters in them: the file, every symlink on the way, and the directories themselves.
    paths: HashSet<PathBuf>,
}

impl Route {
    /// Walks to an absolute path as far as there is something.
    fn to(path: &Path) -> Self {
        let mut route = Self::default();
        let mut at = PathBuf::new();
        let mut links = 0;
        let mut ahead = steps(path);
        while let Some(step) = ahead.pop() {
            let next = match Path::new(&step).components().next() {
                Some(Component::Normal(_)) => at.join(&step),
                Some(Component::ParentDir) => {
                    at.pop();
                    continue;
                }
                Some(Component::RootDir | Component::Prefix(_)) => {
                    at.push(&step);
                    continue;
                }
                Some(Component::CurDir) | None => continue,
            };
            let target = fs::read_link(&next).ok();
            if ahead.is_empty() || target.is_some() || !next.exists() {
                route.paths.extend([at.clone(), next.clone()]);
                route.directories.insert(at.clone());
            }
            match target {
                Some(target) => {
                    links += 1;
                    if links > MAX_LINKS {
                        break;
                    }
                    ahead.extend(steps(&target));
                }
                None if next.exists() => at = next,
                None => break,
            }
        }
        route
    }
}

/// The components of a path, the first one last.
fn steps(path: &Path) -> Vec<OsString> {
    path.components().rev().map(|c| c.as_os_str().to_owned()).collect()
}

/// Reads a file of at most [`MAX_BYTES`].
pub fn read(path: &Path) -> io::Result<Arc<[u8]>> {
    read_open(&mut open(path)?)
}

/// Opens a file, and nothing else: to open a pipe could take for ever.
fn open(path: &Path) -> io::Result<File> {
    if !fs::metadata(path)?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "expected a file, found something else"));
    }
    File::open(path)
}

fn read_open(file: &mut File) -> io::Result<Arc<[u8]>> {
    let length = file.metadata()?.len();
    let mut content = Vec::with_capacity(usize::try_from(length.min(MAX_BYTES)).unwrap_or_default());
    file.take(MAX_BYTES + 1).read_to_end(&mut content)?;
    if content.len() as u64 > MAX_BYTES {
        let message = format!("expected at most {MAX_BYTES} bytes, found more");
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, message));
    }
    Ok(content.into())
}
