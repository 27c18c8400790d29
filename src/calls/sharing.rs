//! Lets equal questions that are asked at the same time share one call.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use bytes::Bytes;
use epp_plugin_api::Call;
use foldhash::HashMap;
use futures_util::FutureExt;
use futures_util::future::{Shared, WeakShared};
use parking_lot::Mutex;

/// A call under way.
pub type Asking = Pin<Box<dyn Future<Output = Result<Bytes, String>> + Send>>;

/// What is asked of whom. Headers do not change an answer.
type Key = (String, Bytes);

/// A call under way and its number, which no other call has.
type UnderWay = HashMap<Key, (u64, WeakShared<Asking>)>;

/// The calls under way. Holds no more of them than there are requests that wait.
#[derive(Default)]
pub struct Sharing {
    under_way: Arc<Mutex<UnderWay>>,
    n_calls: AtomicU64,
}

impl Sharing {
    /// Waits for the call that is under way for the same question, or else for the one that `start` makes. It goes on as
    /// long as anybody waits for it.
    pub fn share(&self, call: Call, start: impl FnOnce(Call) -> Asking) -> Shared<Asking> {
        let key = (call.url.clone(), call.body.clone());
        let mut under_way = self.under_way.lock();
        if let Some(shared) = under_way.get(&key).and_then(|(_, call)| call.upgrade()) {
            return shared;
        }
        let number = self.n_calls.fetch_add(1, Relaxed);
        let leaving = Leaving { key: key.clone(), number, from: self.under_way.clone() };
        let asking = start(call);
        let asking: Asking = Box::pin(async move {
            let answer = asking.await;
            drop(leaving);
            answer
        });
        let shared = asking.shared();
        if let Some(weak) = shared.downgrade() {
            under_way.insert(key, (number, weak));
        }
        shared
    }
}

/// Forgets a call when it has ended or nobody waits for it any more.
struct Leaving {
    key: Key,
    number: u64,
    from: Arc<Mutex<UnderWay>>,
}

impl Drop for Leaving {
    fn drop(&mut self) {
        let mut under_way = self.from.lock();
        // After a call that nobody waited for, the same question may have been asked anew.
        if under_way.get(&self.key).is_some_and(|(number, _)| *number == self.number) {
            under_way.remove(&self.key);
        }
    }
}
