//! Flow control in counted time: requests wait in the picker until the pool has room for them.

use std::collections::VecDeque;
use std::time::Duration;

use super::run::{Run, What};
use super::waiters::{Door, Waiter};
use crate::flow::core::{Core, Effects, Entered, World};
use crate::flow::outcome::Outcome;
use crate::flow::queue::Arrival;
use crate::flow::refusal::Refusal;

/// A body is taken to have so many bytes for each token of the prompt.
const BYTES_A_TOKEN: u64 = 4;
/// If nothing at all has been under way for so long, and nothing will come, who waits will never go.
const LONGEST_LULL: Duration = Duration::from_secs(60);

impl Run<'_, '_> {
    /// Lets requests wait, if the config says so.
    pub(super) fn open_door(&mut self) {
        let Some(picker) = self.chooser.picker() else { return };
        let Some(settings) = picker.flow() else { return };
        let world = World { snapshot: &picker.board.load_full(), now: picker.clock.instant(self.now) };
        let lag = self.stage.scrape_interval + self.stage.scrape_delay + self.stage.staleness;
        let core = Core::new(settings, lag, world);
        self.door = Some(Door { core, left: VecDeque::new(), looks: None, quiet_since: None });
    }

    /// A request comes to a pipeline: it goes on, waits, or is turned away.
    pub(super) fn come(&mut self, number: u32, arrived: Duration) {
        let Some(picker) = self.chooser.picker() else { return };
        let arrival = Arrival {
            priority: 0,
            flow: "default-flow",
            bytes: self.bytes(number),
            received: picker.clock.instant(arrived),
            ttft_objective: None,
            patience: None,
        };
        let payload = || (number, arrived);
        match self.at_door(|core, world, effects| core.arrive(&arrival, payload, world, effects)) {
            None | Some(Entered::Goes) => self.pick(number, arrived),
            Some(Entered::Refused(outcome)) => self.turn_away(number, outcome.refusal()),
            Some(Entered::Waits(_)) => {}
        }
        self.let_go();
    }

    /// A request that was let go is counted where it went, or went nowhere.
    pub(super) fn departed(&mut self, number: u32) {
        let bytes = self.bytes(number);
        self.at_door(|core, world, effects| core.departed(bytes, world, effects));
    }

    /// Something may have changed for those who wait.
    pub(super) fn look(&mut self) {
        if self.door.as_ref().is_some_and(|door| !door.core.queue.is_empty()) {
            self.at_door(|core, world, effects| core.look(world, effects));
            self.let_go();
        }
    }

    /// The time has come for which a look was asked.
    pub(super) fn look_at_time(&mut self) {
        if let Some(door) = self.door.as_mut().filter(|door| door.looks == Some(self.now)) {
            door.looks = None;
            self.look();
        }
    }

    /// Turns away those who would wait for ever.
    pub(super) fn end_lull(&mut self, is_quiet: bool) {
        let now = self.now;
        let Some(door) = &mut self.door else { return };
        if !is_quiet || door.core.queue.is_empty() {
            door.quiet_since = None;
        } else if now - *door.quiet_since.get_or_insert(now) > LONGEST_LULL {
            self.at_door(|core, _, effects| core.close(effects));
            self.let_go();
        }
    }

    /// Picks for those who may go, until nobody may.
    pub(super) fn let_go(&mut self) {
        while let Some(((number, arrived), outcome)) = self.door.as_mut().and_then(|door| door.left.pop_front()) {
            match outcome {
                Outcome::Dispatched => self.pick(number, arrived),
                _ => self.turn_away(number, outcome.refusal()),
            }
        }
    }

    /// Counts a request that the picker refused under the reason.
    pub(super) fn turn_away(&mut self, number: u32, refusal: Option<Refusal>) {
        let told = refusal.map(|refusal| (refusal.status(), refusal.reason().unwrap_or("refused").to_owned()));
        let (status, reason) = told.unwrap_or((500, "refused".into()));
        self.fail(number, format!("picker: {status} {reason}"));
    }

    fn bytes(&self, number: u32) -> u64 {
        u64::from(self.job(number).prompt_tokens) * BYTES_A_TOKEN
    }

    /// Lets the state of waiting take a step, and asks to be told the time that it wants; `None` if nobody ever waits.
    fn at_door<T>(
        &mut self,
        step: impl FnOnce(&mut Core<Waiter, ()>, World<'_>, &mut Effects<Waiter, ()>) -> T,
    ) -> Option<T> {
        let (door, picker) = (self.door.as_mut()?, self.chooser.picker()?);
        let snapshot = picker.board.load_full();
        let mut effects = Effects::default();
        let world = World { snapshot: &snapshot, now: picker.clock.instant(self.now) };
        let result = step(&mut door.core, world, &mut effects);
        door.left.extend(effects.left.into_iter().map(|(gone, outcome)| (gone.payload, outcome)));
        let next = door.core.next_look().map(|at| picker.clock.since_zero(at).max(self.now));
        if next != door.looks {
            door.looks = next;
            if let Some(at) = next {
                self.at(at, What::Look);
            }
        }
        Some(result)
    }
}
