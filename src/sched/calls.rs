//! The one way in which a request waits in rooms 4 to 6: for a service that a plugin asks.

use std::future::Future;
use std::pin::Pin;

use bytes::Bytes;
use epp_plugin_api::Call;

/// The answer to a call, or why there is none.
pub type Answer<'a> = Pin<Box<dyn Future<Output = Result<Bytes, String>> + Send + 'a>>;

/// Makes calls for plugins, which do no I/O.
pub trait Calls: Send + Sync {
    /// Makes a call; the answer is the body of a reply of status 2xx.
    fn ask(&self, call: Call) -> Answer<'_>;

    /// Makes a call and forgets about it.
    fn send(&self, call: Call);
}

/// Refuses every call: for pipelines whose plugins ask nobody.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoCalls;

impl Calls for NoCalls {
    fn ask(&self, call: Call) -> Answer<'_> {
        Box::pin(std::future::ready(Err(format!("{}: no calls are made here", call.url))))
    }

    fn send(&self, _call: Call) {}
}
