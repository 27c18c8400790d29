//! The other way in which a request waits in rooms 4 to 6: it is kept back until a plugin that gathers lets it go on.
//!
//! A wait takes as long as it takes, so the snapshot is a newer one afterwards. If endpoints have come or gone meanwhile,
//! rows stand for others than before, and what was produced is produced again. So none is picked that is gone.

use std::pin::pin;
use std::sync::Arc;
use std::task::{Wake, Waker};
use std::time::Duration;

use epp_plugin_api::{Cycle, Gather, Gathered, Held, InferenceRequest, Picked, Snapshot};
use futures_util::future::select;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::sched::calls::Calls;
use crate::sched::inputs::{Inputs, load_of};
use crate::sched::laps::Laps;
use crate::sched::scratch::Work;

/// The endpoints and the time as one request sees them.
pub struct View {
    pub snapshot: Arc<Snapshot>,
    pub now: Instant,
}

impl View {
    /// What plugins see, with the snapshot's own loads.
    pub fn cycle<'a>(&'a self, request: &'a InferenceRequest) -> Cycle<'a> {
        Cycle { snapshot: &self.snapshot, request, load: load_of(&self.snapshot), peer: None, now: self.now }
    }
}

/// How far producing came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Produced {
    All,
    /// The endpoints have changed while the request waited.
    OutOfDate,
}

/// Wakes the one request that waits for it. A ring before the wait counts, too.
#[derive(Debug, Default)]
struct Bell(Notify);

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.0.notify_one();
    }
}

/// Whom a request waits with; one a gathering plugin. Dropping it takes the request out.
#[derive(Default)]
pub struct Company {
    joined: Vec<(usize, Result<Joined, String>)>,
    /// The time that was spent waiting.
    pub waited: Duration,
}

struct Joined {
    gathered: Box<dyn Gathered>,
    bell: Arc<Bell>,
}

impl Company {
    /// Whether no plugin has been asked.
    pub fn is_empty(&self) -> bool {
        self.joined.is_empty()
    }

    /// Joins what the plugin at `at` gathers, once a request, waits, and lets it fill its columns.
    ///
    /// # Errors
    /// Says why the plugin does not take the request in.
    pub async fn join(
        &mut self,
        at: usize,
        gather: &dyn Gather,
        (inputs, calls): (&Inputs<'_>, &dyn Calls),
        view: &mut View,
        work: &mut Work,
        laps: &mut Laps,
    ) -> Result<Produced, String> {
        let known = self.joined.iter().position(|(of, _)| *of == at);
        let place = known.unwrap_or_else(|| {
            let bell = Arc::new(Bell::default());
            let cx = view.cycle(inputs.request);
            let gathered = gather.join(&cx, &work.columns, &work.candidates, Waker::from(bell.clone()));
            self.joined.push((at, gathered.map(|gathered| Joined { gathered, bell })));
            self.joined.len() - 1
        });
        let joined = self.joined[place].1.as_mut().map_err(|why| why.clone())?;
        while let Some(until) = joined.gathered.wait(&view.cycle(inputs.request), &work.candidates) {
            laps.lap();
            // Woken or not, the plugin is asked again.
            select(pin!(joined.bell.0.notified()), calls.until(until)).await;
            self.waited += laps.lap();
            let before = view.snapshot.membership();
            *view = View { snapshot: (inputs.board)(), now: calls.now() };
            if view.snapshot.membership() != before {
                return Ok(Produced::OutOfDate);
            }
        }
        joined.gathered.produce(&view.cycle(inputs.request), &mut work.columns);
        Ok(Produced::All)
    }

    /// Tells every plugin what was picked; returns what they hold until the stream ends.
    pub fn picked(self, cx: &Cycle<'_>, picked: &Picked<'_>) -> Vec<Box<dyn Held>> {
        let joined = self.joined.into_iter().filter_map(|(_, joined)| joined.ok());
        joined.filter_map(|joined| joined.gathered.picked(cx, picked)).collect()
    }
}
