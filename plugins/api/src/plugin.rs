//! The roles that a plugin can play in rooms 4 to 6, and what it is handed there.
//!
//! All of it is synchronous; where a plugin wants to wait, the picker does it for it. A plugin is called once a request
//! with slices, never once an endpoint.

use std::fmt;
use std::task::Waker;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use tokio::time::Instant;

use crate::{Candidates, Columns, Departing, EndpointId, EndpointIdx, HeaderEdits, InferenceRequest, Snapshot, Usage};

/// Load by row as the scorers see it: the snapshot's, and for stale rows also what is in flight there.
#[derive(Clone, Copy, Debug)]
pub struct Load<'a> {
    /// Requests that wait for a place in the engine's batch.
    pub waiting: &'a [f64],
    /// Requests in the engine's batch.
    pub running: &'a [f64],
    /// Share of the KV cache in use, 0 to 1.
    pub kv_usage: &'a [f64],
}

/// What every plugin sees of one request's way through rooms 4 to 6.
#[derive(Clone, Copy, Debug)]
pub struct Cycle<'a> {
    pub snapshot: &'a Snapshot,
    pub request: &'a InferenceRequest,
    pub load: Load<'a>,
    /// The endpoint that another stage of this request was given to, while a profile runs that should keep near it.
    pub peer: Option<EndpointIdx>,
    /// The time of this cycle; plugins read no other clock.
    pub now: Instant,
}

/// Takes endpoints out of the question.
pub trait Filter: Send + Sync {
    /// Clears the bits of the endpoints that do not qualify. `keep` is never empty on entry.
    fn filter(&self, cx: &Cycle<'_>, columns: &Columns, keep: &mut Candidates);
}

/// Says how good each endpoint is.
pub trait Scorer: Send + Sync {
    /// Writes a score for each row of `among`; higher is better. `scores` has a value for each row of the snapshot, all
    /// 0 on entry. What is outside 0 to 1 is clamped, and what is no number counts as 0.
    fn score(&self, cx: &Cycle<'_>, columns: &Columns, among: &Candidates, scores: &mut [f64]);
}

/// Chooses by the totals.
pub trait Picker: Send + Sync {
    /// Pushes the chosen rows of `among`, best first, onto `picked`, which is empty. `among` is never empty.
    fn pick(&self, among: &Candidates, totals: &[f64], rng: &mut fastrand::Rng, picked: &mut Vec<EndpointIdx>);
}

/// The endpoints that a profile chose, best first; never empty.
pub type Targets = Vec<EndpointIdx>;

/// How far a profile has come in this request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ProfileRun {
    #[default]
    NotRun,
    /// The handler saw no need to run it.
    Skipped,
    /// Its filters left nobody.
    Exhausted,
    Chose(Targets),
}

impl ProfileRun {
    /// The chosen endpoints, if there are any.
    pub fn targets(&self) -> Option<&[EndpointIdx]> {
        match self {
            Self::Chose(targets) => Some(targets),
            Self::NotRun | Self::Skipped | Self::Exhausted => None,
        }
    }
}

/// Every profile of the config, in its order, and how far each has come.
#[derive(Clone, Debug, Default)]
pub struct Runs {
    pub names: Vec<String>,
    pub runs: Vec<ProfileRun>,
    /// Set by the handler: what [`Cycle::peer`] is while the next profile runs.
    pub peer: Option<EndpointIdx>,
}

impl Runs {
    /// The place of the profile of this name.
    pub fn position(&self, name: &str) -> Option<usize> {
        self.names.iter().position(|n| n == name)
    }
}

/// What a profile handler wants next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Run the profile at this place; it starts from all candidates.
    Run(usize),
    Done,
}

/// What the handler makes of the runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Decision {
    /// The place of the profile whose targets the request goes to.
    pub primary: usize,
    pub headers: HeaderEdits,
    /// The port that the request is sent to in place of the chosen endpoints' own. No scores are told then.
    pub port: Option<u16>,
}

/// Why no decision came about; becomes a 429 unless a profile's own refusal explains it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct HandlerError(pub String);

/// Says which profiles run, in which order, and what their results mean together.
pub trait ProfileHandler: Send + Sync {
    /// Called until it says done. May mark profiles as skipped.
    fn next(&self, cx: &Cycle<'_>, columns: &Columns, runs: &mut Runs) -> Next;

    /// Called once after that.
    ///
    /// # Errors
    /// If the runs give no endpoint to send the request to.
    fn decide(&self, cx: &Cycle<'_>, columns: &Columns, runs: &Runs) -> Result<Decision, HandlerError>;

    /// Checks at load time that it can work with profiles of these names.
    ///
    /// # Errors
    /// Says what is wrong with them.
    fn check(&self, profiles: &[&str]) -> Result<(), String>;
}

/// The profile whose first choice computes the prompt, if there is one of that name.
pub const PREFILL: &str = "prefill";

/// What was chosen, as producers are told.
#[derive(Clone, Copy, Debug)]
pub struct Picked<'a> {
    pub runs: &'a Runs,
    /// The place of the primary profile in `runs`.
    pub primary: usize,
}

impl<'a> Picked<'a> {
    /// The endpoint that the request goes to.
    pub fn target(&self) -> Option<EndpointIdx> {
        self.runs.runs[self.primary].targets().and_then(|t| t.first()).copied()
    }

    /// The first choice of the profile named [`PREFILL`].
    pub fn prefill(&self) -> Option<EndpointIdx> {
        self.firsts().find(|(name, _)| *name == PREFILL).map(|(_, idx)| idx)
    }

    /// Who will hold the prompt's blocks: the target, and the prefill profile's first choice if that is another one.
    pub fn holders(&self) -> impl Iterator<Item = EndpointIdx> + use<> {
        let target = self.target();
        target.into_iter().chain(self.prefill().filter(move |&idx| target.is_some_and(|target| target != idx)))
    }

    /// First target of every profile that chose one, with the profile's name.
    pub fn firsts(&self) -> impl Iterator<Item = (&'a str, EndpointIdx)> + use<'a> {
        let runs = self.runs;
        runs.names.iter().zip(&runs.runs).filter_map(|(name, run)| Some((name.as_str(), *run.targets()?.first()?)))
    }
}

/// What a plugin holds for a request from its pick to its end. Dropped when the stream ends, however that is.
pub trait Held: Send {
    /// The response's headers have come; pushes headers that the client gets, too.
    fn response_headers(&mut self, _served: &Served, _set: &mut Vec<(String, String)>) {}

    /// The client had said all before it was answered, so the end of its stream says nothing of the request's end.
    fn end_unknown(&mut self) {}

    /// The first bytes of the response's body have come.
    fn response_began(&mut self) {}

    /// Bytes of the response's body have come, the first ones included. Only called where bodies are seen.
    fn response_chunk(&mut self, _now: Instant) {}

    /// The response is complete. Not called for a request that is cut short.
    fn response_ended(&mut self, _end: &ResponseEnd) -> Parting {
        Parting::default()
    }
}

/// Which endpoint Envoy says has served the request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Served {
    /// Envoy sent no metadata of its load balancer.
    NoMetadata,
    /// It sent some, but this is not among it.
    NotSaid,
    By(String),
}

/// A complete response.
#[derive(Clone, Copy, Debug)]
pub struct ResponseEnd {
    pub usage: Usage,
    pub streaming: bool,
    pub now: Instant,
}

/// What a plugin leaves behind when its request is complete.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Parting {
    /// Values for the dynamic metadata of the last answer.
    pub reports: Vec<Report>,
    /// Calls whose answers nobody waits for.
    pub calls: Vec<Call>,
}

/// A value for Envoy's dynamic metadata.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    pub namespace: String,
    pub key: String,
    pub value: f64,
}

/// A call over HTTP that the picker makes for a plugin, which does no I/O itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    pub url: String,
    /// Headers beside the type of the content.
    pub headers: Vec<(&'static str, String)>,
    /// JSON to post. Empty: a GET.
    pub body: Bytes,
    /// After so long it has failed.
    pub timeout: Duration,
}

/// A computation that is too long for the threads that serve streams. It is done on one of its own.
pub struct Job {
    /// Gives the answer, or says why there is none. Is told what time it is when it begins.
    pub run: Box<dyn FnOnce(SystemTime) -> Result<Bytes, String> + Send>,
    /// After so long nobody waits for it any more.
    pub timeout: Duration,
}

impl fmt::Debug for Job {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Job({:?})", self.timeout)
    }
}

/// What a plugin wants to know before the pick, and from whom.
#[derive(Debug)]
pub enum Question {
    /// From a service. Equal questions that are under way at the same time are asked once.
    Call(Call),
    /// From a computation.
    Job(Job),
}

/// What came of the questions that were asked for a request, all at once.
#[derive(Clone, Copy, Debug)]
pub struct Answers<'a> {
    /// For each question, in their order: the answer, or why there is none.
    pub bodies: &'a [Result<&'a [u8], String>],
    /// How long it took until the last of them was there.
    pub took: Duration,
}

/// Asks services, or for long computations, before the pick, in the place of a producer.
pub trait Remote: Send + Sync {
    /// What to ask for this request, all of it at once. Nothing: [`Self::answered`] is not called.
    fn ask(&self, cx: &Cycle<'_>, columns: &Columns, among: &Candidates) -> Vec<Question>;

    /// Fills columns from the answers, or from why there are none.
    ///
    /// # Errors
    /// Says why nothing could be produced; the columns it owns then read as missing and the request goes on.
    fn answered(
        &self,
        cx: &Cycle<'_>,
        columns: &mut Columns,
        among: &Candidates,
        answers: Answers<'_>,
    ) -> Result<(), String>;
}

/// Keeps requests back for a moment, so that those that belong together can be placed together. In the place of a
/// producer.
pub trait Gather: Send + Sync {
    /// Takes a request in. `waker` is to be woken when its [`Gathered::wait`] should be asked again.
    ///
    /// # Errors
    /// Says why the request is not taken in; the columns that the plugin owns then read as missing and the request goes
    /// on.
    fn join(
        &self,
        cx: &Cycle<'_>,
        columns: &Columns,
        among: &Candidates,
        waker: Waker,
    ) -> Result<Box<dyn Gathered>, String>;
}

/// A request that was taken in. Dropped when it is cut short or refused.
pub trait Gathered: Send {
    /// Until when the request waits, unless it is woken before; `None`: it goes on now. Asked with the newest snapshot.
    fn wait(&mut self, cx: &Cycle<'_>, among: &Candidates) -> Option<Instant>;

    /// Fills columns; the request has waited.
    fn produce(&self, cx: &Cycle<'_>, columns: &mut Columns);

    /// The pick is made; still under the judging lock. What it returns is kept until the stream ends.
    fn picked(self: Box<Self>, cx: &Cycle<'_>, picked: &Picked<'_>) -> Option<Box<dyn Held>>;
}

/// Takes endpoints out of the question before anything is produced for them.
pub trait Screener: Send + Sync {
    /// Clears the bits of the endpoints that do not qualify.
    fn screen(&self, cx: &Cycle<'_>, keep: &mut Candidates);
}

/// Turns requests away before they are judged.
pub trait Admitter: Send + Sync {
    /// Lets the request go on to `among`, or turns it away.
    ///
    /// # Errors
    /// Says with which status and why.
    fn admit(
        &self,
        cx: &Cycle<'_>,
        columns: &Columns,
        among: &Candidates,
        rng: &mut fastrand::Rng,
    ) -> Result<(), Denial>;
}

/// Why an admitter turns a request away.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Denial {
    /// The HTTP status: 403, 429 or 503.
    pub status: u16,
    pub message: String,
}

/// Says whether a stage of a disaggregated request is worth it.
pub trait Decider: Send + Sync {
    /// Decides for a request of which `chosen` is to do the decoding; `None` while nobody is chosen.
    fn wanted(&self, cx: &Cycle<'_>, columns: &Columns, chosen: Option<EndpointIdx>) -> bool;
}

/// Is told of a request's life, for plugins that are no producers.
pub trait Hooks: Send + Sync {
    /// The request is read; may set what follows from its headers, before anything else looks at it.
    fn read(&self, _request: &mut InferenceRequest) {}

    /// The pick is made; still under the judging lock. May change headers of the request. What it returns is kept until
    /// the stream ends.
    fn picked(
        &self,
        _cx: &Cycle<'_>,
        _columns: &Columns,
        _picked: &Picked<'_>,
        _headers: &mut HeaderEdits,
    ) -> Option<Box<dyn Held>> {
        None
    }

    /// The endpoint is gone for good.
    fn forget(&self, _id: EndpointId) {}
}

/// Fills columns that filters and scorers read.
pub trait Producer: Send + Sync {
    /// Fills columns for this request. Runs before the judging lock, side by side with other requests.
    ///
    /// # Errors
    /// Says why nothing could be produced; the columns it owns then read as missing and the request goes on.
    fn produce(&self, _cx: &Cycle<'_>, _columns: &mut Columns) -> Result<(), String> {
        Ok(())
    }

    /// Fills columns from state that picks change. Runs under the judging lock, so must be quick.
    fn refresh(&self, _cx: &Cycle<'_>, _columns: &mut Columns) {}

    /// The pick is made; still under the judging lock. What it returns is kept until the stream ends.
    fn picked(&self, _cx: &Cycle<'_>, _columns: &Columns, _picked: &Picked<'_>) -> Option<Box<dyn Held>> {
        None
    }

    /// Whether the endpoint is believed to hold any of the prompt; `None` if that is not this producer's business.
    fn has_cached(&self, _columns: &Columns, _idx: EndpointIdx) -> Option<bool> {
        None
    }

    /// How many tokens of the prompt the endpoint is believed to hold; `None` if that is not this producer's business, or
    /// it does not know. Held against what the engine reports.
    fn cached_tokens(&self, _columns: &Columns, _idx: EndpointIdx) -> Option<u64> {
        None
    }

    /// The pick is made; outside the lock, before the answer goes out. For what takes longer.
    fn learn(&self, _cx: &Cycle<'_>, _columns: &Columns, _picked: &Picked<'_>) {}

    /// The endpoint is gone for good.
    fn forget(&self, _id: EndpointId) {}
}

/// Says how full the pool is.
pub trait Saturation: Send + Sync {
    /// 1 or more: full. An empty set is full.
    fn saturation(&self, snapshot: &Snapshot, among: &Candidates, now: Instant) -> f64;

    /// As [`Self::saturation`], with requests that were let go to `among` but are not in flight yet. What looks at
    /// engines alone does not know of them.
    fn saturation_with(&self, snapshot: &Snapshot, among: &Candidates, _departing: Departing, now: Instant) -> f64 {
        self.saturation(snapshot, among, now)
    }

    /// Whether it counts requests itself, and so changes as soon as one goes or ends, not when its engine says so.
    fn counts_requests(&self) -> bool {
        false
    }
}
