//! Two copies of the trie: one is read while the other is written.

use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::{Mutex, MutexGuard, RwLock};

use crate::trie::Trie;

/// Two tries that are always told the same. Readers never wait for a writer's work, only for the moment in which it
/// takes the copy that they were about to read; then they read the other.
#[derive(Debug)]
pub(crate) struct Twin {
    copies: [RwLock<Trie>; 2],
    /// Which copy is read; it is not written to.
    read: AtomicUsize,
    writer: Mutex<()>,
}

impl Twin {
    /// Makes a pair of two that are equal.
    pub(crate) fn new(copies: [Trie; 2]) -> Self {
        Self { copies: copies.map(RwLock::new), read: AtomicUsize::new(0), writer: Mutex::new(()) }
    }

    /// Reads.
    pub(crate) fn read<R>(&self, f: impl FnOnce(&Trie) -> R) -> R {
        loop {
            if let Some(trie) = self.copies[self.read.load(Ordering::Acquire)].try_read() {
                return f(&trie);
            }
            std::hint::spin_loop();
        }
    }

    /// Writes: does the same to both, one after the other. Writers take turns in the order in which they came.
    pub(crate) fn write<R>(&self, f: impl Fn(&mut Trie) -> R) -> R {
        let turn = self.writer.lock();
        let idle = 1 - self.read.load(Ordering::Relaxed);
        f(&mut self.copies[idle].write());
        self.read.store(idle, Ordering::Release);
        let result = f(&mut self.copies[1 - idle].write());
        MutexGuard::unlock_fair(turn);
        result
    }

    /// Both copies while nobody writes, for tests.
    #[cfg(any(test, feature = "model"))]
    pub(crate) fn each(&self, f: impl Fn(&Trie)) {
        let _turn = self.writer.lock();
        self.copies.iter().for_each(|copy| f(&copy.read()));
    }
}
