//! Which replica each member of a burst goes to. Pure: members in, replicas out.
//!
//! Members with equal prompts make a group, which stays together as long as its replica has room. A group that begins
//! with the blocks of another one goes to that one's replica while that carries less than its share; else to the
//! replica with the least load of this burst, then with the fewest running requests, then with the first name.

use std::collections::HashMap;
use std::sync::Arc;

use epp_plugin_api::{EndpointId, EndpointName};
use foldhash::fast::RandomState;

type Map<K, V> = HashMap<K, V, RandomState>;

/// How members are placed.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// So many members of one group go to one replica; more only when all replicas have as many.
    pub most_per_replica: usize,
    /// Groups that share so many leading blocks go together; 0: none do.
    pub least_shared: usize,
    /// Whether blocks are balanced and not members.
    pub by_tokens: bool,
}

/// An endpoint that members may go to.
#[derive(Clone, Copy, Debug)]
pub struct Replica<'a> {
    pub id: EndpointId,
    pub running: f64,
    pub name: &'a EndpointName,
}

/// A group, as long as it has members.
pub type GroupId = u64;

#[derive(Debug)]
struct Group {
    /// Chained block keys: equal keys stand for equal blocks up to there. Never empty.
    keys: Arc<[u64]>,
    /// Whose requests are in flight, or wait.
    members: u64,
    /// Those of them who have a place.
    with_place: u64,
    /// Whose requests are over, but still count.
    ghosts: u64,
    /// Whether it counts for the total: a lone member that was let go does not.
    counts: bool,
    placed: Vec<Share>,
    /// Where the next member goes if there is room.
    current: Option<EndpointId>,
}

/// A group's members on one replica, and the load that they are there.
#[derive(Debug)]
struct Share {
    on: EndpointId,
    members: usize,
    load: u64,
}

impl Group {
    fn placed_on(&self, id: EndpointId) -> usize {
        self.placed.iter().find(|share| share.on == id).map_or(0, |share| share.members)
    }
}

/// The groups of a burst and what is placed where.
#[derive(Debug)]
pub struct Plan {
    rules: Rules,
    groups: Map<GroupId, Group>,
    by_keys: Map<Arc<[u64]>, GroupId>,
    /// Groups by their first key: only those can share blocks.
    by_first: Map<u64, Vec<GroupId>>,
    /// Members by the key of the last block that a family shares.
    families: Map<u64, u64>,
    loads: Map<EndpointId, u64>,
    total: u64,
    next: GroupId,
}

impl Plan {
    /// A plan of nobody.
    pub fn new(rules: Rules) -> Self {
        Self {
            rules,
            groups: Map::default(),
            by_keys: Map::default(),
            by_first: Map::default(),
            families: Map::default(),
            loads: Map::default(),
            total: 0,
            next: 0,
        }
    }

    /// How many groups there are.
    pub fn groups(&self) -> usize {
        self.groups.len()
    }

    /// Whether a member of the group has a place, and its request is not over.
    pub fn is_placed(&self, group: GroupId) -> bool {
        self.groups.get(&group).is_some_and(|group| group.with_place > 0)
    }

    /// Adds a member with these keys, of which there must be one at least; returns its group.
    pub fn join(&mut self, keys: &[u64]) -> GroupId {
        let at = match self.by_keys.get(keys) {
            Some(&at) => at,
            None => self.found(keys.into()),
        };
        if let Some(key) = self.family(keys) {
            *self.families.entry(key).or_default() += 1;
        }
        let by_tokens = self.rules.by_tokens;
        let Some(group) = self.groups.get_mut(&at) else { return at };
        group.members += 1;
        self.total += match (group.counts, by_tokens) {
            (true, true) => 0,
            (true, false) => 1,
            (false, _) => weight(group, by_tokens),
        };
        group.counts = true;
        at
    }

    fn found(&mut self, keys: Arc<[u64]>) -> GroupId {
        let at = self.next;
        self.next += 1;
        self.by_first.entry(keys[0]).or_default().push(at);
        self.by_keys.insert(keys.clone(), at);
        let nobody =
            Group { keys, members: 0, with_place: 0, ghosts: 0, counts: false, placed: Vec::new(), current: None };
        self.groups.insert(at, nobody);
        at
    }

    /// What all members of the family of these keys have in common.
    fn family(&self, keys: &[u64]) -> Option<u64> {
        self.rules.least_shared.checked_sub(1).and_then(|last| keys.get(last)).copied()
    }

    /// Whether somebody else is in the group, or shares enough of its beginning.
    fn has_company(&self, group: &Group) -> bool {
        let family = self.family(&group.keys).and_then(|key| self.families.get(&key));
        group.members >= 2 || family.is_some_and(|&members| members >= 2)
    }

    /// Places one more member of the group on one of the replicas. `None` if there is none.
    pub fn place(&mut self, at: GroupId, replicas: &[Replica<'_>]) -> Option<EndpointId> {
        let group = self.groups.get(&at)?;
        let room = |id: EndpointId| group.placed_on(id) < self.rules.most_per_replica;
        let stays = group.current.filter(|&id| room(id) && replicas.iter().any(|r| r.id == id));
        let on = stays.or_else(|| {
            let near = if group.placed.is_empty() { self.near(at, group, replicas) } else { None };
            let free = || self.least(replicas.iter().filter(|r| room(r.id)));
            near.or_else(free).or_else(|| self.least(replicas.iter()))
        })?;
        self.put(at, on);
        Some(on)
    }

    /// Places one more member of the group here.
    pub fn put(&mut self, at: GroupId, on: EndpointId) {
        let shared = if self.rules.by_tokens { self.shared(at, on) } else { 0 };
        let by_tokens = self.rules.by_tokens;
        let Some(group) = self.groups.get_mut(&at) else { return };
        if !std::mem::replace(&mut group.counts, true) {
            self.total += weight(group, by_tokens);
        }
        group.current = Some(on);
        group.with_place += 1;
        let load = match group.placed.iter_mut().find(|share| share.on == on) {
            Some(share) => {
                let load = u64::from(!by_tokens);
                share.members += 1;
                share.load += load;
                load
            }
            None => {
                let load = if by_tokens { (group.keys.len() - shared) as u64 } else { 1 };
                group.placed.push(Share { on, members: 1, load });
                load
            }
        };
        *self.loads.entry(on).or_default() += load;
    }

    /// The replica that shares most of the group's beginning, if it is enough, of those that carry less than their share.
    fn near(&self, at: GroupId, group: &Group, replicas: &[Replica<'_>]) -> Option<EndpointId> {
        if self.rules.least_shared == 0 {
            return None;
        }
        let share = self.total.div_ceil(replicas.len().max(1) as u64);
        let mut shared: Map<EndpointId, usize> = Map::default();
        for (other, blocks) in self.related(at, group) {
            for share in &other.placed {
                let most = shared.entry(share.on).or_default();
                *most = blocks.max(*most);
            }
        }
        let of = |r: &Replica<'_>| shared.get(&r.id).copied().unwrap_or(0);
        let light = replicas.iter().filter(|r| of(r) >= self.rules.least_shared && self.load(r.id) < share);
        let most = light.clone().map(of).max()?;
        self.least(light.filter(|r| of(r) == most))
    }

    /// How many leading blocks of the group other groups have on the replica.
    fn shared(&self, at: GroupId, on: EndpointId) -> usize {
        let Some(group) = self.groups.get(&at) else { return 0 };
        let there = self.related(at, group).filter(|(other, _)| other.placed_on(on) > 0);
        there.map(|(_, blocks)| blocks).max().unwrap_or(0)
    }

    /// The other groups that begin with the same block, and how many they share.
    fn related<'a>(&'a self, at: GroupId, group: &'a Group) -> impl Iterator<Item = (&'a Group, usize)> {
        let ids = self.by_first.get(&group.keys[0]).map_or(&[][..], Vec::as_slice);
        let others = ids.iter().filter(move |&&id| id != at).filter_map(|id| self.groups.get(id));
        others.filter(|other| !other.placed.is_empty()).map(|other| (other, common(&group.keys, &other.keys)))
    }

    fn load(&self, id: EndpointId) -> u64 {
        self.loads.get(&id).copied().unwrap_or(0)
    }

    fn least<'a>(&self, replicas: impl Iterator<Item = &'a Replica<'a>>) -> Option<EndpointId> {
        let least = replicas.min_by(|a, b| {
            let by_load = self.load(a.id).cmp(&self.load(b.id));
            by_load.then_with(|| a.running.total_cmp(&b.running)).then_with(|| a.name.cmp(b.name))
        });
        least.map(|replica| replica.id)
    }

    /// Places who waits, one item a member in the order of arrival: groups first, then members without a twin whose
    /// beginning others share, the longer before the shorter. All others get nothing.
    pub fn settle(&mut self, waiting: &[GroupId], replicas: &[Replica<'_>]) -> Vec<Option<EndpointId>> {
        let mut places = vec![None; waiting.len()];
        let mut turns: Vec<usize> = Vec::with_capacity(waiting.len());
        for (i, at) in waiting.iter().enumerate() {
            match self.groups.get(at) {
                Some(group) if self.has_company(group) => turns.push(i),
                Some(_) | None => self.let_go(*at),
            }
        }
        let rank = |i: &usize| {
            let group = &self.groups[&waiting[*i]];
            (group.members < 2, usize::MAX - group.keys.len(), waiting[*i])
        };
        turns.sort_by_cached_key(rank);
        for i in turns {
            places[i] = self.place(waiting[i], replicas);
        }
        places
    }

    fn let_go(&mut self, at: GroupId) {
        let by_tokens = self.rules.by_tokens;
        if let Some(group) = self.groups.get_mut(&at).filter(|group| group.counts) {
            group.counts = false;
            self.total -= weight(group, by_tokens);
        }
    }

    /// A member has left, and with it its load.
    pub fn leave(&mut self, at: GroupId, placed: Option<EndpointId>) {
        if let Some(on) = placed {
            self.lift(at, on);
        }
        self.part(at);
        self.uncount(at, |group| &mut group.members);
    }

    /// The request of a member that has a place is over. It draws nobody any more, but its load counts, and the group
    /// keeps its replica if there are others again.
    pub fn fade(&mut self, at: GroupId) {
        self.part(at);
        if let Some(group) = self.groups.get_mut(&at) {
            group.members -= 1;
            group.with_place -= 1;
            group.ghosts += 1;
        }
    }

    /// A member that has faded counts no more.
    pub fn vanish(&mut self, at: GroupId, on: EndpointId) {
        self.unload(at, on);
        self.uncount(at, |group| &mut group.ghosts);
    }

    /// Takes a placed member off its replica; it stays in its group.
    pub fn lift(&mut self, at: GroupId, on: EndpointId) {
        if let Some(group) = self.groups.get_mut(&at) {
            group.with_place -= 1;
        }
        self.unload(at, on);
    }

    /// One member less in the family.
    fn part(&mut self, at: GroupId) {
        let family = self.groups.get(&at).and_then(|group| self.family(&group.keys));
        if let Some(key) = family {
            lower(&mut self.families, key, 1);
        }
    }

    /// One less of a kind of members; the group goes with the last of all.
    fn uncount(&mut self, at: GroupId, of: impl Fn(&mut Group) -> &mut u64) {
        let by_tokens = self.rules.by_tokens;
        let Some(group) = self.groups.get_mut(&at) else { return };
        *of(group) -= 1;
        let last = group.members + group.ghosts == 0;
        if group.counts && (last || !by_tokens) {
            self.total -= if by_tokens { group.keys.len() as u64 } else { 1 };
        }
        if last {
            let keys = group.keys.clone();
            self.groups.remove(&at);
            self.by_keys.remove(&keys);
            if let Some(ids) = self.by_first.get_mut(&keys[0]) {
                ids.retain(|&id| id != at);
                if ids.is_empty() {
                    self.by_first.remove(&keys[0]);
                }
            }
        }
    }

    fn unload(&mut self, at: GroupId, on: EndpointId) {
        let by_tokens = self.rules.by_tokens;
        let Some(group) = self.groups.get_mut(&at) else { return };
        let Some(i) = group.placed.iter().position(|share| share.on == on) else { return };
        let share = &mut group.placed[i];
        share.members -= 1;
        // Tokens are computed once for all members, so they are there until the last one leaves.
        let load = match (by_tokens, share.members) {
            (false, _) => 1,
            (true, 0) => share.load,
            (true, _) => 0,
        };
        share.load -= load;
        if share.members == 0 {
            group.placed.swap_remove(i);
            group.current = group.current.filter(|&current| current != on);
        }
        lower(&mut self.loads, on, load);
    }
}

/// What all members of a group count for the total.
fn weight(group: &Group, by_tokens: bool) -> u64 {
    if by_tokens { group.keys.len() as u64 } else { group.members + group.ghosts }
}

/// Lowers a count, and forgets it at 0.
fn lower<K: std::hash::Hash + Eq>(counts: &mut Map<K, u64>, key: K, by: u64) {
    if let Some(count) = counts.get_mut(&key) {
        *count = count.saturating_sub(by);
        if *count == 0 {
            counts.remove(&key);
        }
    }
}

/// How many leading keys are equal. Chained keys that differ once differ ever after.
fn common(a: &[u64], b: &[u64]) -> usize {
    let (mut low, mut high) = (0, a.len().min(b.len()));
    while low < high {
        let middle = low + (high - low) / 2;
        if a[middle] == b[middle] {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    low
}

#[cfg(test)]
#[path = "assign_tests.rs"]
mod tests;
