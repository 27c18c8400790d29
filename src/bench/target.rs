//! Whom requests are sent to, and how one is seen through to its end.

use std::future::Future;
use std::time::{Duration, Instant};

use anyhow::anyhow;
use http::StatusCode;

use crate::bench::client::{Answer, Client, Question, Usage};
use crate::bench::served::{Reply, Served, Servers};

/// Whom requests are sent to.
pub enum Target {
    /// A picker that is asked for endpoints; nobody generates.
    Picker(Client),
    /// A picker that is asked for endpoints, and the engines there, which are sent the requests.
    Dispatch(Client, Servers),
    /// Whoever answers at this address over HTTP.
    Server(Servers, String),
}

/// How long things may take, and do.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// Until the endpoint is known or the headers of a response are there.
    pub answer: Duration,
    /// Until a response is complete.
    pub response: Duration,
    /// For each token of a response, where nobody generates.
    pub token_time: Duration,
}

/// What came of a request.
#[derive(Debug, Default)]
pub struct Outcome {
    /// When the endpoint was known, or the headers of the response were there; and the endpoint, if it has a name.
    pub known: Option<(Instant, String)>,
    pub served: Option<Served>,
    /// Whether it was seen through to its end.
    pub complete: bool,
    pub refused: bool,
    pub complaint: Option<String>,
}

impl Target {
    /// Whether engines generate.
    pub fn generates(&self) -> bool {
        match self {
            Self::Picker(_) => false,
            Self::Dispatch(..) | Self::Server(..) => true,
        }
    }

    /// Sends a request and sees it through. `expects` is what the response will say if nobody generates one.
    pub async fn see_through(&self, question: Question, expects: Usage, patience: Patience) -> Outcome {
        let mut outcome = Outcome::default();
        let ended = match self {
            Self::Picker(client) => picked(client, question, expects, patience, &mut outcome).await,
            Self::Dispatch(client, engines) => {
                let all = dispatched(client, engines, question, patience, &mut outcome);
                in_time(patience.response, "complete response", all).await.and_then(|done| done)
            }
            Self::Server(servers, address) => {
                let all = served(servers, address, question, patience, &mut outcome);
                in_time(patience.response, "complete response", all).await.and_then(|done| done)
            }
        };
        match ended {
            Ok(()) => outcome.complete = !outcome.refused,
            Err(why) => outcome.complaint = Some(format!("{why:#}")),
        }
        outcome
    }
}

impl Outcome {
    fn refuse(&mut self, why: String) {
        self.refused = true;
        self.complaint = Some(why);
    }
}

async fn in_time<T>(patience: Duration, what: &str, of: impl Future<Output = T>) -> anyhow::Result<T> {
    tokio::time::timeout(patience, of).await.map_err(|_| anyhow!("no {what} within {patience:?}"))
}

async fn picked(
    client: &Client,
    question: Question,
    expects: Usage,
    patience: Patience,
    outcome: &mut Outcome,
) -> anyhow::Result<()> {
    let mut open = match in_time(patience.answer, "answer", client.ask(question)).await?? {
        Answer::Picked(open) => open,
        Answer::Refused(status) => {
            outcome.refuse(format!("the picker refused a request with {status}"));
            return Ok(());
        }
    };
    outcome.known = Some((Instant::now(), first(&open.destination)));
    let holds = patience.token_time.saturating_mul(expects.completion_tokens);
    // Even no time at all would be a millisecond.
    if !holds.is_zero() {
        open.until(tokio::time::sleep(holds)).await?;
    }
    let told = async {
        open.began().await?;
        open.ended(expects).await
    };
    in_time(patience.answer, "end of the stream", told).await?
}

async fn dispatched(
    client: &Client,
    engines: &Servers,
    question: Question,
    patience: Patience,
    outcome: &mut Outcome,
) -> anyhow::Result<()> {
    let mut open = match in_time(patience.answer, "answer", client.ask(question.clone())).await?? {
        Answer::Picked(open) => open,
        Answer::Refused(status) => {
            outcome.refuse(format!("the picker refused a request with {status}"));
            return Ok(());
        }
    };
    let endpoint = first(&open.destination);
    outcome.known = Some((Instant::now(), endpoint.clone()));
    let mut coming = match open.until(engines.send(&endpoint, &question)).await?? {
        Reply::Begun(coming) => coming,
        Reply::Refused(status, reason) => {
            outcome.refuse(refusal(&endpoint, status, reason));
            return Ok(());
        }
    };
    open.began().await?;
    open.until(coming.first()).await??;
    open.spoke().await?;
    let served = open.until(coming.rest()).await??;
    outcome.served = Some(served);
    let usage = Usage {
        prompt_tokens: served.usage.map_or(0, |usage| usage.prompt),
        completion_tokens: served.output_tokens,
        cached_tokens: served.usage.and_then(|usage| usage.cached),
    };
    open.ended(usage).await
}

async fn served(
    servers: &Servers,
    address: &str,
    question: Question,
    patience: Patience,
    outcome: &mut Outcome,
) -> anyhow::Result<()> {
    let coming = match in_time(patience.answer, "answer", servers.send(address, &question)).await?? {
        Reply::Begun(coming) => coming,
        Reply::Refused(status, reason) => {
            outcome.refuse(refusal(address, status, reason));
            return Ok(());
        }
    };
    outcome.known = Some((coming.headers, coming.endpoint.clone().unwrap_or_default()));
    outcome.served = Some(coming.rest().await?);
    Ok(())
}

fn refusal(address: &str, status: StatusCode, reason: Option<String>) -> String {
    let reason = reason.map(|reason| format!(", {reason}")).unwrap_or_default();
    format!("{address} answered with {}{reason}", status.as_u16())
}

/// The endpoint that is to be tried first.
fn first(destination: &str) -> String {
    destination.split(',').next().unwrap_or_default().to_owned()
}
