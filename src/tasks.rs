//! The one set of background tasks: every task has a name and ends when the set is told to stop.

use std::future::Future;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinSet};

/// The background tasks of the process. Clones share one set.
#[derive(Clone, Debug)]
pub struct Tasks {
    set: Arc<Mutex<JoinSet<()>>>,
    stop: Arc<watch::Sender<bool>>,
}

impl Default for Tasks {
    fn default() -> Self {
        Self { set: Arc::default(), stop: Arc::new(watch::Sender::new(false)) }
    }
}

impl Tasks {
    /// Runs `task` until it ends, [`Tasks::stop`] is called, or the returned handle aborts it.
    pub fn spawn(&self, name: &'static str, task: impl Future<Output = ()> + Send + 'static) -> AbortHandle {
        let mut stop = self.stop.subscribe();
        let mut set = self.set.lock();
        while set.try_join_next().is_some() {}
        set.spawn(async move {
            tokio::select! {
                () = task => {}
                _ = stop.wait_for(|stop| *stop) => {}
            }
            tracing::trace!(task = name, "task ended");
        })
    }

    /// Asks every task to end, those spawned later too.
    pub fn stop(&self) {
        self.stop.send_replace(true);
    }

    /// Ends once the set has been told to stop.
    pub async fn stopping(&self) {
        let mut stop = self.stop.subscribe();
        // The sender lives as long as `self`, so waiting ends only with the wish to stop.
        let _ = stop.wait_for(|stop| *stop).await;
    }
}
