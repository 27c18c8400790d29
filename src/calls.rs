//! What plugins may not do themselves: JSON over HTTP, on kept connections, and computations that take long.

mod jobs;
mod sharing;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use epp_plugin_api::{Call, Job};
use http::{Request, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use tokio::sync::Semaphore;

use self::jobs::Jobs;
use self::sharing::Sharing;
use crate::sched::calls::{Answer, Calls};
use crate::tasks::Tasks;

/// A longer answer is an error.
const MOST_BYTES: usize = 16 << 20;
/// So much is told of the body of an answer that is an error.
const MOST_TOLD: usize = 1024;
/// Calls under way whose answers nobody waits for; one more is dropped.
const MOST_SENT: usize = 256;
/// Connections that are kept to one service while nothing is asked.
const MOST_IDLE: usize = 16;
const IDLE: Duration = Duration::from_secs(30);

type HttpClient = Client<HttpConnector, Full<Bytes>>;

/// Makes calls over HTTP, and has jobs done beside the threads that serve streams.
pub struct HttpCalls {
    client: HttpClient,
    sharing: Sharing,
    jobs: Jobs,
    tasks: Tasks,
    sent: Arc<Semaphore>,
}

impl HttpCalls {
    /// Makes ready; connects when the first call is made.
    pub fn new(tasks: Tasks) -> Self {
        let mut builder = Client::builder(TokioExecutor::new());
        let client = builder.pool_idle_timeout(IDLE).pool_max_idle_per_host(MOST_IDLE).build_http();
        let (sharing, jobs) = (Sharing::default(), Jobs::default());
        Self { client, sharing, jobs, tasks, sent: Arc::new(Semaphore::new(MOST_SENT)) }
    }
}

impl Calls for HttpCalls {
    fn call(&self, call: Call) -> Answer<'_> {
        let client = self.client.clone();
        Box::pin(self.sharing.share(call, |call| Box::pin(make(client, call))))
    }

    fn compute(&self, job: Job) -> Answer<'_> {
        Box::pin(self.jobs.run(job))
    }

    fn send(&self, call: Call) {
        let Ok(turn) = self.sent.clone().try_acquire_owned() else {
            tracing::debug!("a call is dropped: too many are under way");
            return;
        };
        let client = self.client.clone();
        self.tasks.spawn("call", async move {
            if let Err(why) = make(client, call).await {
                tracing::debug!(why, "a call failed");
            }
            drop(turn);
        });
    }
}

async fn make(client: HttpClient, call: Call) -> Result<Bytes, String> {
    let Call { url, headers, body, timeout } = call;
    let mut request = if body.is_empty() {
        Request::get(&url)
    } else {
        Request::post(&url).header(header::CONTENT_TYPE, "application/json")
    };
    for (name, value) in headers {
        request = request.header(name, value);
    }
    let request = request.body(Full::new(body)).map_err(|e| format!("cannot ask {url}: {e}"))?;
    let answer = async {
        let response = client.request(request).await.map_err(|e| e.to_string())?;
        let status = response.status();
        if !status.is_success() {
            let told = beginning(response.into_body()).await;
            return Err(format!("status {}: {:?}", status.as_u16(), String::from_utf8_lossy(&told)));
        }
        let body = Limited::new(response.into_body(), MOST_BYTES);
        Ok(body.collect().await.map_err(|e| e.to_string())?.to_bytes())
    };
    match tokio::time::timeout(timeout, answer).await {
        Ok(answer) => answer.map_err(|why| format!("{url}: {why}")),
        Err(_) => Err(format!("{url}: no answer within {timeout:?}")),
    }
}

/// The first bytes of a body; what has come if it breaks off.
async fn beginning(mut body: Incoming) -> Vec<u8> {
    let mut told = Vec::new();
    while told.len() < MOST_TOLD
        && let Some(Ok(frame)) = body.frame().await
    {
        told.extend_from_slice(
            frame.data_ref().map_or(&[][..], |data| &data[..data.len().min(MOST_TOLD - told.len())]),
        );
    }
    told
}
