//! Runs an engine model on the real clock: time goes in, tokens come out to whoever waits for them.

use std::collections::HashMap;
use std::sync::Arc;

use foldhash::fast::FixedState;
use parking_lot::Mutex;
use tokio::sync::{Notify, mpsc};
use tokio::time::Instant;

use crate::kind::Kind;
use crate::metrics::{Tally, View, Visit, WebTally};
use crate::model::{Happening, Load, Model, Refusal, Report, Request, RequestId};

/// Pieces that a client can leave unread; more than any answer has.
const MOST_PIECES: usize = 1 << 32;

/// What comes out for one choice of one client's request.
#[derive(Debug)]
pub(super) enum Piece {
    Token { choice: usize, token: u32, cached_tokens: usize, last: bool },
    Done { choice: usize, report: Report },
}

/// One engine at work.
#[derive(Debug)]
pub(super) struct Live {
    pub(super) kind: Kind,
    pub(super) model_name: String,
    pub(super) port: u16,
    started: Instant,
    started_unix: f64,
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Debug)]
struct State {
    model: Model,
    tally: Tally,
    web: WebTally,
    waiters: HashMap<RequestId, Waiter, FixedState>,
    n_answers: u64,
}

#[derive(Debug)]
struct Waiter {
    choice: usize,
    cached_tokens: usize,
    to: mpsc::Sender<Piece>,
}

/// A client's requests in an engine. Those that are not finished are aborted when this is dropped.
#[derive(Debug)]
pub(super) struct Ticket {
    live: Arc<Live>,
    ids: Vec<RequestId>,
    /// Holds as many pieces as can ever come, so the engine never waits for a slow client.
    pub(super) pieces: mpsc::Receiver<Piece>,
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.live.abort(&self.ids);
    }
}

impl Live {
    /// Starts the clock of an engine; `started_unix` is the present in seconds since the epoch.
    pub(super) fn new(kind: Kind, model_name: String, port: u16, model: Model, started_unix: f64) -> Self {
        let state = State {
            model,
            tally: Tally::default(),
            web: WebTally::default(),
            waiters: HashMap::default(),
            n_answers: 0,
        };
        let (started, changed) = (Instant::now(), Notify::new());
        Self { kind, model_name, port, started, started_unix, state: Mutex::new(state), changed }
    }

    /// Takes requests in, all or none.
    ///
    /// # Errors
    /// If the engine refuses one.
    pub(super) fn submit(self: &Arc<Self>, requests: &[Request]) -> Result<Ticket, Refusal> {
        let now = self.started.elapsed();
        let mut state = self.state.lock();
        let window = state.model.settings().window();
        let most =
            requests.iter().fold(0_usize, |sum, r| sum.saturating_add(r.output_tokens.min(window)).saturating_add(1));
        let (to, pieces) = mpsc::channel(most.min(MOST_PIECES));
        let mut ids = Vec::with_capacity(requests.len());
        for (choice, request) in requests.iter().enumerate() {
            match state.model.arrive(now, request) {
                Ok(id) => {
                    ids.push(id);
                    state.waiters.insert(id, Waiter { choice, cached_tokens: 0, to: to.clone() });
                }
                Err(refusal) => {
                    if matches!(refusal, Refusal::QueueFull { .. }) {
                        state.tally.refused += 1;
                    }
                    drop(state);
                    self.abort(&ids);
                    return Err(refusal);
                }
            }
        }
        drop(state);
        self.changed.notify_one();
        Ok(Ticket { live: self.clone(), ids, pieces })
    }

    fn abort(&self, ids: &[RequestId]) {
        let now = self.started.elapsed();
        let mut state = self.state.lock();
        for id in ids {
            if state.waiters.remove(id).is_some() {
                state.model.abort(now, *id);
            }
        }
        drop(state);
        self.changed.notify_one();
    }

    /// Lets the model catch up with the clock, for ever.
    pub(super) async fn run(&self) {
        loop {
            match self.advance() {
                Some(next) => {
                    tokio::select! {
                        () = tokio::time::sleep_until(next) => {}
                        () = self.changed.notified() => {}
                    }
                }
                None => self.changed.notified().await,
            }
        }
    }

    fn advance(&self) -> Option<Instant> {
        let now = self.started.elapsed();
        let mut state = self.state.lock();
        for event in state.model.advance(now) {
            state.tally.observe(&event);
            state.tell(event.what);
        }
        state.model.next_event().map(|at| self.started + at)
    }

    /// Forgets the cached blocks; says no and does nothing while a request runs.
    pub(super) fn reset_prefix_cache(&self) -> bool {
        self.state.lock().model.reset_prefix_cache()
    }

    /// What the engine is busy with.
    pub(super) fn load(&self) -> Load {
        self.state.lock().model.load()
    }

    /// Tokens that prompt and answer can have together.
    pub(super) fn window(&self) -> usize {
        self.state.lock().model.settings().window()
    }

    /// Counts an answered HTTP request.
    pub(super) fn count_visit(&self, visit: &Visit) {
        self.state.lock().web.observe(visit);
    }

    /// A name for the next answer, different from all others of this engine and of engines on other ports.
    pub(super) fn answer_id(&self) -> String {
        let mut state = self.state.lock();
        state.n_answers += 1;
        format!("{:04x}{:012x}", self.port, state.n_answers)
    }

    /// The metrics page.
    pub(super) fn page(&self) -> String {
        let state = self.state.lock();
        let view = View {
            model_name: self.model_name.clone(),
            settings: state.model.settings().clone(),
            started_unix: self.started_unix,
            load: state.model.load(),
            tally: state.tally.clone(),
            web: state.web.clone(),
        };
        drop(state);
        view.page(self.kind)
    }
}

impl State {
    /// Passes on what a client waits for. A client that is gone is no news: its ticket aborts the request.
    fn tell(&mut self, what: Happening) {
        match what {
            Happening::Admitted { id, cached_tokens, .. } => {
                if let Some(waiter) = self.waiters.get_mut(&id) {
                    waiter.cached_tokens = cached_tokens;
                }
            }
            Happening::Token { id, token, last, .. } => {
                if let Some(Waiter { choice, cached_tokens, to }) = self.waiters.get(&id) {
                    let (choice, cached_tokens) = (*choice, *cached_tokens);
                    let _ = to.try_send(Piece::Token { choice, token, cached_tokens, last });
                }
            }
            Happening::Finished { id, report } => {
                if let Some(Waiter { choice, to, .. }) = self.waiters.remove(&id) {
                    let _ = to.try_send(Piece::Done { choice, report });
                }
            }
            Happening::Preempted { .. } | Happening::Aborted { .. } | Happening::Step { .. } => {}
        }
    }
}
