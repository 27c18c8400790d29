//! Follows a file: hands out its content each time that it has changed and is whole.
//!
//! The directories on the way to the file are watched, through every symlink, and polling sees what the watch does not.
//! A content is taken once the file has been quiet for a moment, so a write that is half done is never seen; while the
//! file is gone or cannot be read, what it last held stays.

mod eye;
mod settle;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::tasks::Tasks;
use eye::{Eye, Look, Signs, Stamp};
use settle::{Settle, Sign};

/// The size over which a file is refused, in bytes.
pub const MAX_BYTES: u64 = 64 << 20;

/// How often the file is looked at when no event tells of a change.
const POLL: Duration = Duration::from_millis(500);

/// Reads the file once.
///
/// # Errors
/// If the file cannot be read or holds more than [`MAX_BYTES`].
pub async fn read(path: &Path) -> io::Result<Arc<[u8]>> {
    let path = path.to_owned();
    tokio::task::spawn_blocking(move || eye::read(&path)).await.map_err(io::Error::other)?
}

/// Follows the file from now on. The receiver starts with `known`, which counts as seen; a content that differs from
/// the one before it is sent once it is whole. Only the newest is kept for a receiver that is slow. Ends with the
/// receivers.
pub fn follow(path: &Path, known: Arc<[u8]>, tasks: &Tasks) -> watch::Receiver<Arc<[u8]>> {
    let (tx, rx) = watch::channel(known);
    let signs = Arc::<Signs>::default();
    let eye = Arc::new(Mutex::new(Eye::new(path.to_owned(), signs.clone())));
    let follower = Follower { path: path.to_owned(), eye, signs, taken: None };
    tasks.spawn("file", async move {
        tokio::select! {
            () = follower.run(&tx) => {}
            () = tx.closed() => {}
        }
    });
    rx
}

struct Follower {
    path: PathBuf,
    /// Locked only on threads that may block.
    eye: Arc<Mutex<Eye>>,
    signs: Arc<Signs>,
    /// What the file looked like when its content was last taken; `None`: it was gone, or nothing was taken yet.
    taken: Option<Stamp>,
}

/// A hint that the file may have changed.
enum Hint {
    Event(Sign),
    Poll(Option<Stamp>),
}

impl Follower {
    /// Runs until the runtime goes down.
    async fn run(mut self, tx: &watch::Sender<Arc<[u8]>>) {
        let mut troubled = false;
        // The file may have changed since `known` was read, so the first look waits for nothing.
        let mut hint = self.look(Eye::glance).await.map(Hint::Poll);
        while let Some(first) = hint {
            let Some(settled) = self.settle(first).await else { return };
            match settled {
                Ok(content) => {
                    if std::mem::take(&mut troubled) {
                        tracing::info!(path = %self.path.display(), "file can be read again");
                    }
                    let changed = *tx.borrow() != content;
                    if changed {
                        tx.send_replace(content);
                    }
                }
                Err(error) => {
                    if !std::mem::replace(&mut troubled, true) {
                        tracing::warn!(path = %self.path.display(), %error, "file cannot be read, what it last held stays");
                    }
                }
            }
            hint = self.rest().await;
        }
    }

    /// Waits until the file may have changed.
    async fn rest(&self) -> Option<Hint> {
        loop {
            tokio::select! {
                sign = self.signs.next() => return Some(Hint::Event(sign)),
                () = tokio::time::sleep(POLL) => {}
            }
            let stamp = self.look(Eye::glance).await?;
            if stamp != self.taken || stamp.as_ref().is_some_and(Stamp::is_young) {
                return Some(Hint::Poll(stamp));
            }
        }
    }

    /// Waits until the file is quiet, and reads it. A change that no event told of must look the same twice.
    async fn settle(&mut self, hint: Hint) -> Option<io::Result<Arc<[u8]>>> {
        let (sign, mut before, mut told) = match hint {
            Hint::Event(sign) => (sign, None, true),
            Hint::Poll(stamp) => (Sign::Touched, stamp, false),
        };
        let mut settle = Settle::new(sign, Instant::now());
        loop {
            tokio::select! {
                biased;
                sign = self.signs.next() => {
                    settle.note(sign, Instant::now());
                    told = true;
                    continue;
                }
                () = tokio::time::sleep_until(settle.due()) => {}
            }
            match self.look(Eye::look).await? {
                Look::Whole(stamp, content) => {
                    if !told && before.as_ref() != Some(&stamp) {
                        before = Some(stamp);
                        settle.note(Sign::Touched, Instant::now());
                    } else if settle.accepts(content.is_empty(), Instant::now()) {
                        self.taken = Some(stamp);
                        return Some(Ok(content));
                    }
                }
                Look::Moving => settle.note(Sign::Touched, Instant::now()),
                Look::Failed(error) => {
                    self.taken = None;
                    return Some(Err(error));
                }
            }
        }
    }

    /// Uses the eye on a thread that may block. `None`: the runtime goes down.
    async fn look<T: Send + 'static>(&self, look: fn(&mut Eye) -> T) -> Option<T> {
        let eye = self.eye.clone();
        tokio::task::spawn_blocking(move || look(&mut eye.lock())).await.ok()
    }
}

#[cfg(test)]
pub(crate) mod tests;
