//! Who is in the burst now: members wait, are placed, go out, and leave.
//!
//! A member counts from its arrival to the end of its request, and at most one window. So what is known of a burst is
//! what is in flight of it; nothing is remembered of what is over.

use std::collections::{HashMap, VecDeque};
use std::task::Waker;
use std::time::Duration;

use epp_plugin_api::EndpointId;
use foldhash::fast::RandomState;
use tokio::time::Instant;

use super::assign::{GroupId, Plan, Replica, Rules};

/// The number of a member; never given twice.
pub type MemberId = u64;

/// When members go on and when they are forgotten.
#[derive(Clone, Copy, Debug)]
pub struct Times {
    /// The longest wait, and the longest time that a member counts.
    pub window: Duration,
    /// A burst is quiet when nobody has arrived for so long.
    pub gap: Duration,
}

#[derive(Debug)]
struct Member {
    group: GroupId,
    arrived: Instant,
    stage: Stage,
    /// The client will not tell when the request ends, so the member counts for one window.
    end_unknown: bool,
}

#[derive(Debug)]
enum Stage {
    Waiting(Waker),
    /// It goes with its group.
    Placed(EndpointId),
    /// It goes where it is picked.
    Alone,
}

/// Everybody in the burst.
#[derive(Debug)]
pub struct Crowd {
    times: Times,
    most: usize,
    plan: Plan,
    members: HashMap<MemberId, Member, RandomState>,
    /// In the order of arrival; some may have left.
    arrivals: VecDeque<MemberId>,
    /// Who has no place yet, by group; in the order of arrival.
    waiting: HashMap<GroupId, Vec<MemberId>, RandomState>,
    last_arrival: Option<Instant>,
    next: MemberId,
}

impl Crowd {
    /// A crowd of nobody. At most `most` members are in it at once.
    pub fn new(rules: Rules, times: Times, most: usize) -> Self {
        Self {
            times,
            most,
            plan: Plan::new(rules),
            members: HashMap::default(),
            arrivals: VecDeque::new(),
            waiting: HashMap::default(),
            last_arrival: None,
            next: 0,
        }
    }

    /// Takes a member in whose prompt has these keys, of which there must be one at least. With somebody else of its
    /// group it is placed at once, and so is that one.
    ///
    /// # Errors
    /// If the crowd is full.
    pub fn join(
        &mut self,
        keys: &[u64],
        now: Instant,
        waker: Waker,
        replicas: &[Replica<'_>],
    ) -> Result<MemberId, String> {
        self.forget_old(now);
        if self.members.len() >= self.most {
            return Err(format!("expected at most {} requests in a burst, found one more", self.most));
        }
        self.last_arrival = Some(now);
        let (id, group) = (self.next, self.plan.join(keys));
        self.next += 1;
        self.members.insert(id, Member { group, arrived: now, stage: Stage::Waiting(waker), end_unknown: false });
        self.arrivals.push_back(id);
        self.waiting.entry(group).or_default().push(id);
        if self.plan.is_placed(group) || self.waiting.get(&group).is_some_and(|theirs| theirs.len() > 1) {
            self.place_waiting_of(group, replicas);
        }
        Ok(id)
    }

    /// Places everybody of the group who waits, and wakes them.
    fn place_waiting_of(&mut self, group: GroupId, replicas: &[Replica<'_>]) {
        for id in self.waiting.remove(&group).unwrap_or_default() {
            let place = self.plan.place(group, replicas);
            self.go(id, place);
        }
    }

    fn go(&mut self, id: MemberId, place: Option<EndpointId>) {
        let Some(member) = self.members.get_mut(&id) else { return };
        let stage = place.map_or(Stage::Alone, Stage::Placed);
        if let Stage::Waiting(waker) = std::mem::replace(&mut member.stage, stage) {
            waker.wake();
        }
    }

    /// Until when the member waits. Once it is quiet all who wait go on: with their family if they have one, else alone.
    pub fn wait(&mut self, id: MemberId, now: Instant, replicas: &[Replica<'_>]) -> Option<Instant> {
        let member = self.members.get(&id)?;
        let Stage::Waiting(_) = member.stage else { return None };
        let longest = member.arrived + self.times.window;
        let quiet = self.last_arrival.map_or(now, |last| last + self.times.gap);
        let mut settled: Vec<(MemberId, GroupId)> = if now >= quiet {
            let all = std::mem::take(&mut self.waiting);
            all.into_iter().flat_map(|(group, ids)| ids.into_iter().map(move |id| (id, group))).collect()
        } else if now >= longest {
            let group = member.group;
            self.stop_waiting(id, group);
            vec![(id, group)]
        } else {
            return Some(quiet.min(longest));
        };
        settled.sort_unstable();
        let groups: Vec<GroupId> = settled.iter().map(|(_, group)| *group).collect();
        let places = self.plan.settle(&groups, replicas);
        settled.into_iter().zip(places).for_each(|((id, _), place)| self.go(id, place));
        None
    }

    fn stop_waiting(&mut self, id: MemberId, group: GroupId) {
        if let Some(theirs) = self.waiting.get_mut(&group) {
            theirs.retain(|other| *other != id);
            if theirs.is_empty() {
                self.waiting.remove(&group);
            }
        }
    }

    /// Where the member was placed.
    pub fn place_of(&self, id: MemberId) -> Option<EndpointId> {
        match self.members.get(&id)?.stage {
            Stage::Placed(on) => Some(on),
            Stage::Waiting(_) | Stage::Alone => None,
        }
    }

    /// The member goes here, whatever was planned; who comes or waits with the same prompt follows.
    pub fn picked(&mut self, id: MemberId, on: EndpointId, replicas: &[Replica<'_>]) {
        let Some(member) = self.members.get_mut(&id) else { return };
        let group = member.group;
        let planned = std::mem::replace(&mut member.stage, Stage::Placed(on));
        match planned {
            Stage::Placed(planned) if planned == on => return,
            Stage::Placed(planned) => self.plan.lift(group, planned),
            Stage::Alone | Stage::Waiting(_) => {}
        }
        self.plan.put(group, on);
        self.place_waiting_of(group, replicas);
    }

    /// What the client does until the request ends is not seen.
    pub fn end_unknown(&mut self, id: MemberId) {
        if let Some(member) = self.members.get_mut(&id) {
            member.end_unknown = true;
        }
    }

    /// The member's request is over, or was cut short.
    pub fn over(&mut self, id: MemberId) {
        if self.members.get(&id).is_some_and(|member| !member.end_unknown) {
            self.remove(id);
        }
    }

    fn remove(&mut self, id: MemberId) {
        let Some(member) = self.members.remove(&id) else { return };
        self.stop_waiting(id, member.group);
        let place = match member.stage {
            Stage::Placed(on) => Some(on),
            Stage::Waiting(_) | Stage::Alone => None,
        };
        self.plan.leave(member.group, place);
        // Those who have left do not pile up behind one who stays.
        if self.arrivals.len() > 2 * self.members.len() + 64 {
            self.arrivals.retain(|id| self.members.contains_key(id));
        }
    }

    /// Forgets who arrived more than a window ago, unless it still waits.
    fn forget_old(&mut self, now: Instant) {
        while let Some(&id) = self.arrivals.front() {
            if let Some(member) = self.members.get(&id) {
                let waits = matches!(member.stage, Stage::Waiting(_));
                if waits || now < member.arrived + self.times.window {
                    return;
                }
                self.remove(id);
            }
            self.arrivals.pop_front();
        }
    }

    /// Members, those of them who wait, and groups.
    pub fn counts(&self) -> (usize, usize, usize) {
        (self.members.len(), self.waiting.values().map(Vec::len).sum(), self.plan.groups())
    }
}

#[cfg(test)]
#[path = "crowd_tests.rs"]
mod tests;
