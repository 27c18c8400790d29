//! Does long computations on threads that may be held up, as many at a time as there are cores.

use std::future::Future;
use std::sync::Arc;
use std::thread::available_parallelism;
use std::time::SystemTime;

use bytes::Bytes;
use epp_plugin_api::Job;
use tokio::sync::Semaphore;

/// The jobs under way. What waits for its turn is a request each, so there are no more of them than streams.
pub struct Jobs(Arc<Semaphore>);

impl Default for Jobs {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(available_parallelism().map_or(1, usize::from))))
    }
}

impl Jobs {
    /// Does the job when it is its turn. One that is too late still goes on to its end, and keeps its turn until then.
    pub fn run(&self, job: Job) -> impl Future<Output = Result<Bytes, String>> + Send + use<> {
        let turns = self.0.clone();
        async move {
            let Job { run, timeout } = job;
            let work = async {
                let turn = turns.acquire_owned().await.map_err(|e| e.to_string())?;
                let done = tokio::task::spawn_blocking(move || {
                    let answer = run(SystemTime::now());
                    drop(turn);
                    answer
                });
                done.await.unwrap_or_else(|_| Err("the computation broke off".into()))
            };
            tokio::time::timeout(timeout, work).await.unwrap_or_else(|_| Err(format!("no result within {timeout:?}")))
        }
    }
}
