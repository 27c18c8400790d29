//! One of the two ways in which a request waits in rooms 4 to 6: for what a plugin asks of a service, or has computed.

use std::future::Future;
use std::pin::Pin;

use bytes::Bytes;
use epp_plugin_api::{Call, Job, Question};
use tokio::time::Instant;

/// The answer to a call, or why there is none.
pub type Answer<'a> = Pin<Box<dyn Future<Output = Result<Bytes, String>> + Send + 'a>>;

/// Makes calls for plugins, which do no I/O, waits for them, and takes long computations off the threads that serve streams.
pub trait Calls: Send + Sync {
    /// Makes a call; the answer is the body of a reply of a status from 200 to 299.
    fn call(&self, call: Call) -> Answer<'_>;

    /// Does the job on a thread where it holds nobody up.
    fn compute(&self, job: Job) -> Answer<'_>;

    /// Asks whom the question is for.
    fn ask(&self, question: Question) -> Answer<'_> {
        match question {
            Question::Call(call) => self.call(call),
            Question::Job(job) => self.compute(job),
        }
    }

    /// Makes a call and forgets about it.
    fn send(&self, call: Call);

    /// Waits until then on behalf of a plugin that gathers.
    fn until(&self, then: Instant) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(tokio::time::sleep_until(then))
    }

    /// What time it is after a wait.
    fn now(&self) -> Instant {
        Instant::now()
    }
}

/// Refuses every call and job: for pipelines whose plugins ask nobody.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoCalls;

impl Calls for NoCalls {
    fn call(&self, call: Call) -> Answer<'_> {
        Box::pin(std::future::ready(Err(format!("{}: no calls are made here", call.url))))
    }

    fn compute(&self, _job: Job) -> Answer<'_> {
        Box::pin(std::future::ready(Err("no jobs are done here".into())))
    }

    fn send(&self, _call: Call) {}
}
