//! Who is in the burst now: members wait, are placed, go out, and leave.
//!
//! A member draws others for as long as its request is in flight, and its load counts for one window. A lone one that
//! comes when all others of its group are over is alone; two of them go where their group went before.

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
    /// Groups are placed together, longer ones first, once nobody has arrived for so long, and at the latest after twice
    /// as long. Zero: each at once.
    pub turn: Duration,
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
    /// It was alone and has gone here.
    Went(EndpointId),
    /// It went with its group, and its request is over.
    Faded(EndpointId),
}

impl Stage {
    fn place(&self) -> Option<EndpointId> {
        match self {
            Self::Placed(on) | Self::Went(on) | Self::Faded(on) => Some(*on),
            Self::Waiting(_) | Self::Alone => None,
        }
    }
}

/// Members by group; in the order of arrival.
type Waiting = HashMap<GroupId, Vec<MemberId>, RandomState>;

/// Everybody in the burst.
#[derive(Debug)]
pub struct Crowd {
    times: Times,
    most: usize,
    plan: Plan,
    members: HashMap<MemberId, Member, RandomState>,
    /// In the order of arrival; some may have left.
    arrivals: VecDeque<MemberId>,
    /// Who has no place yet.
    waiting: Waiting,
    last_arrival: Option<Instant>,
    /// Since when there is a group that has not been placed.
    formed: Option<Instant>,
    next: MemberId,
}

impl Crowd {
    /// A crowd of nobody. At most `most` members are in it at once.
    pub fn new(rules: Rules, times: Times, most: usize) -> Self {
        Self {
            times,
            most,
            formed: None,
            plan: Plan::new(rules),
            members: HashMap::default(),
            arrivals: VecDeque::new(),
            waiting: HashMap::default(),
            last_arrival: None,
            next: 0,
        }
    }

    /// Takes a member in whose prompt has these keys, of which there must be one at least. If its group has a place it
    /// goes there at once. With one other member, who waits, it makes a group, which is placed soon.
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
        let twins = self.waiting.get(&group).is_some_and(|theirs| theirs.len() > 1);
        if self.plan.is_placed(group) || (twins && self.times.turn.is_zero()) {
            self.place_waiting_of(group, replicas);
        } else if twins {
            self.formed.get_or_insert(now);
            // The first one waits no longer for the burst to end.
            self.waiting[&group].iter().for_each(|other| self.wake(*other));
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

    fn wake(&self, id: MemberId) {
        if let Some(Member { stage: Stage::Waiting(waker), .. }) = self.members.get(&id) {
            waker.wake_by_ref();
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
        let (group, longest) = (member.group, member.arrived + self.times.window);
        let last = self.last_arrival.unwrap_or(now);
        let quiet = last + self.times.gap;
        let turn = self.formed.map(|since| (last + self.times.turn).min(since + 2 * self.times.turn));
        let turn = turn.filter(|_| self.waiting.get(&group).is_some_and(|theirs| theirs.len() > 1));
        if now >= quiet {
            let all = std::mem::take(&mut self.waiting);
            self.settle(all, replicas);
        } else if turn.is_some_and(|turn| now >= turn) {
            let groups = self.waiting.extract_if(|_, theirs| theirs.len() > 1).collect();
            self.settle(groups, replicas);
        } else if now >= longest {
            self.stop_waiting(id, group);
            self.settle([(group, vec![id])].into_iter().collect(), replicas);
        } else {
            let until = quiet.min(longest);
            return Some(turn.map_or(until, |turn| turn.min(until)));
        }
        None
    }

    /// Sends these on, who wait no more.
    fn settle(&mut self, who: Waiting, replicas: &[Replica<'_>]) {
        let mut who: Vec<(MemberId, GroupId)> =
            who.into_iter().flat_map(|(group, ids)| ids.into_iter().map(move |id| (id, group))).collect();
        who.sort_unstable();
        let groups: Vec<GroupId> = who.iter().map(|(_, group)| *group).collect();
        let places = self.plan.settle(&groups, replicas);
        who.into_iter().zip(places).for_each(|((id, _), place)| self.go(id, place));
        if self.waiting.values().all(|theirs| theirs.len() < 2) {
            self.formed = None;
        }
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
        self.members.get(&id)?.stage.place()
    }

    /// The member goes here, whatever was planned; who comes or waits with the same prompt follows.
    pub fn picked(&mut self, id: MemberId, on: EndpointId, replicas: &[Replica<'_>]) {
        let Some(member) = self.members.get_mut(&id) else { return };
        let group = member.group;
        let planned = member.stage.place();
        member.stage = if planned.is_some() { Stage::Placed(on) } else { Stage::Went(on) };
        self.stop_waiting(id, group);
        if planned == Some(on) {
            return;
        }
        if let Some(planned) = planned {
            self.plan.lift(group, planned);
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

    /// The member's request ends before it has gone anywhere.
    pub fn cut_short(&mut self, id: MemberId) {
        self.remove(id);
    }

    /// The member's request is over.
    pub fn over(&mut self, id: MemberId) {
        let Some(member) = self.members.get_mut(&id).filter(|member| !member.end_unknown) else { return };
        match member.stage {
            Stage::Placed(on) => {
                member.stage = Stage::Faded(on);
                self.plan.fade(member.group);
            }
            Stage::Waiting(_) | Stage::Alone | Stage::Went(_) | Stage::Faded(_) => self.remove(id),
        }
    }

    fn remove(&mut self, id: MemberId) {
        let Some(member) = self.members.remove(&id) else { return };
        match member.stage {
            Stage::Faded(on) => self.plan.vanish(member.group, on),
            Stage::Waiting(_) | Stage::Placed(_) | Stage::Alone | Stage::Went(_) => {
                self.stop_waiting(id, member.group);
                self.plan.leave(member.group, member.stage.place());
            }
        }
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
