//! Calls to services on behalf of plugins: JSON over HTTP, on kept connections.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use epp_plugin_api::Call;
use http::{Request, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use tokio::sync::Semaphore;

use crate::sched::calls::{Answer, Calls};
use crate::tasks::Tasks;

/// A longer answer is an error.
const MOST_BYTES: usize = 16 << 20;
/// Calls under way whose answers nobody waits for; one more is dropped.
const MOST_SENT: usize = 256;
const IDLE: Duration = Duration::from_secs(30);

/// Makes calls over HTTP.
pub struct HttpCalls {
    client: Client<HttpConnector, Full<Bytes>>,
    tasks: Tasks,
    sent: Arc<Semaphore>,
}

impl HttpCalls {
    /// Makes ready; connects when the first call is made.
    pub fn new(tasks: Tasks) -> Self {
        let client = Client::builder(TokioExecutor::new()).pool_idle_timeout(IDLE).build_http();
        Self { client, tasks, sent: Arc::new(Semaphore::new(MOST_SENT)) }
    }
}

impl Calls for HttpCalls {
    fn ask(&self, call: Call) -> Answer<'_> {
        Box::pin(ask(self.client.clone(), call))
    }

    fn send(&self, call: Call) {
        let Ok(turn) = self.sent.clone().try_acquire_owned() else {
            tracing::debug!("a call is dropped: too many are under way");
            return;
        };
        let client = self.client.clone();
        self.tasks.spawn("call", async move {
            if let Err(why) = ask(client, call).await {
                tracing::debug!(why, "a call failed");
            }
            drop(turn);
        });
    }
}

async fn ask(client: Client<HttpConnector, Full<Bytes>>, call: Call) -> Result<Bytes, String> {
    let request = if call.body.is_empty() {
        Request::get(&call.url)
    } else {
        Request::post(&call.url).header(header::CONTENT_TYPE, "application/json")
    };
    let request =
        request.body(Full::new(Bytes::from(call.body))).map_err(|e| format!("cannot ask {}: {e}", call.url))?;
    let answer = async {
        let response = client.request(request).await.map_err(|e| e.to_string())?;
        if !response.status().is_success() {
            return Err(format!("status {}", response.status().as_u16()));
        }
        let body = Limited::new(response.into_body(), MOST_BYTES);
        Ok(body.collect().await.map_err(|e| e.to_string())?.to_bytes())
    };
    match tokio::time::timeout(call.timeout, answer).await {
        Ok(answer) => answer.map_err(|why| format!("{}: {why}", call.url)),
        Err(_) => Err(format!("{}: no answer within {:?}", call.url, call.timeout)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    /// What is made of a reply to a call with this body; `asked` is how the call must begin.
    async fn answer(body: &str, asked: &str, reply: &str) -> Result<Bytes, String> {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/ask", listener.local_addr().unwrap());
        let serve = async {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut read = [0; 1024];
            let n = stream.read(&mut read).await.unwrap();
            assert!(read[..n].starts_with(asked.as_bytes()));
            stream.write_all(reply.as_bytes()).await.unwrap();
        };
        let calls = HttpCalls::new(Tasks::default());
        let call = Call { url, body: body.into(), timeout: Duration::from_secs(5) };
        tokio::join!(calls.ask(call), serve).0
    }

    #[tokio::test]
    async fn the_body_of_a_good_answer_is_returned() {
        for (body, asked) in [("{}", "POST /ask "), ("", "GET /ask ")] {
            let got = answer(body, asked, "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi").await;
            assert_eq!(got, Ok(Bytes::from_static(b"hi")));
        }
    }

    #[tokio::test]
    async fn another_status_is_an_error() {
        let got = answer("{}", "POST ", "HTTP/1.1 503 Busy\r\ncontent-length: 0\r\n\r\n").await;
        assert!(got.unwrap_err().ends_with("status 503"));
    }

    #[tokio::test]
    async fn a_call_to_nobody_is_an_error() {
        let calls = HttpCalls::new(Tasks::default());
        let call = Call { url: "http://127.0.0.1:1/x".into(), body: Vec::new(), timeout: Duration::from_secs(5) };
        assert!(calls.ask(call).await.is_err());
    }
}
