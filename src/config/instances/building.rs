//! In which order instances are built, so that each finds the others that it refers to, and which are taken over.

use epp_plugin_api::{BuildContext, BuildError, Instance, Node, NodeError, Place, PluginType, Value};

use super::{Built, Instances, Slot, State, same};
use crate::config::near::hint;
use crate::config::plan::{Keys, Planned};

/// What came of trying to build an instance.
enum Attempt {
    Built(Box<Built>),
    /// It refers to instances that are not built yet.
    Waits(Waiting),
    Failed(Vec<NodeError>),
}

/// For whom an instance waits.
struct Waiting {
    /// The place of the first of them.
    first: usize,
    /// What would be said if they never came.
    mistakes: Vec<NodeError>,
}

impl Instances<'_> {
    /// Builds every instance that is not built yet: in order, but each after the ones that it refers to.
    pub(super) fn build_pending(&mut self) {
        loop {
            let mut waiting = Vec::new();
            let mut moved = false;
            for at in 0..self.slots.len() {
                if !matches!(self.slots[at].state, State::Pending) {
                    continue;
                }
                let state = match self.slots[at].kind.map(|kind| self.attempt(kind, &self.slots[at])) {
                    Some(Attempt::Waits(whom)) => {
                        waiting.push((at, whom));
                        continue;
                    }
                    Some(Attempt::Built(built)) => State::Built(built),
                    Some(Attempt::Failed(mistakes)) => {
                        self.report(&self.slots[at], mistakes);
                        State::Failed
                    }
                    None => State::Failed,
                };
                self.slots[at].state = state;
                moved = true;
            }
            if waiting.is_empty() {
                return;
            }
            if !moved {
                self.break_cycle(&waiting);
            }
        }
    }

    /// Reports a cycle among the instances that wait for each other, and gives its members up.
    fn break_cycle(&mut self, waiting: &[(usize, Waiting)]) {
        let whom = |at: usize| waiting.iter().find(|(waiter, _)| *waiter == at).map(|(_, whom)| whom);
        let mut way: Vec<usize> = waiting.first().map(|(at, _)| *at).into_iter().collect();
        while let Some(next) = way.last().and_then(|at| whom(*at)).map(|whom| whom.first) {
            if let Some(start) = way.iter().position(|at| *at == next) {
                way.drain(..start);
                break;
            }
            way.push(next);
        }
        way.sort_unstable();
        let names: Vec<String> = way.iter().map(|at| format!("{:?}", self.slots[*at].name)).collect();
        let message = format!("plugins refer to each other in a cycle: {}", names.join(", "));
        if let Some((first, why)) = way.first().and_then(|at| Some((*at, whom(*at)?.mistakes.first()?))) {
            self.report(&self.slots[first], vec![NodeError { message, ..why.clone() }]);
        }
        for at in way {
            self.slots[at].state = State::Failed;
        }
    }

    fn attempt(&self, kind: &PluginType, slot: &Slot) -> Attempt {
        let Some(old) = self.unchanged(kind, slot) else { return self.build_one(kind, slot) };
        let referred = || old.keys.refers_to.iter().map(|name| self.find(name));
        if let Some(first) = referred().flatten().find(|at| matches!(self.slots[*at].state, State::Pending)) {
            let mistakes = BuildError::new("refers to a plugin that is not there").0;
            return Attempt::Waits(Waiting { first, mistakes });
        }
        let taken = |at: Option<usize>| at.and_then(|at| self.slots[at].built()).is_some_and(|built| built.taken_over);
        if !referred().all(taken) {
            return self.build_one(kind, slot);
        }
        Attempt::Built(Box::new(Built { instance: old.instance.clone(), keys: old.keys.clone(), taken_over: true }))
    }

    /// The instance of the plan before, if nothing about it has changed but perhaps what it refers to.
    fn unchanged(&self, kind: &PluginType, slot: &Slot) -> Option<&Planned> {
        let unchanged = |old: &&Planned| {
            old.kind.name == kind.name
                && old.name == slot.name
                && same_parameters(old.parameters.as_ref(), slot.parameters.as_ref())
        };
        self.env.previous?.plugins.iter().find(unchanged)
    }

    fn build_one(&self, kind: &PluginType, slot: &Slot) -> Attempt {
        let env = self.env;
        let others = |name: &str| -> Option<Instance> { self.slots[self.find(name)?].instance().cloned() };
        let listed: Vec<_> = self.slots.iter().filter_map(|s| Some((s.kind?.name, s.name.as_str()))).collect();
        let parameters = slot.parameters.as_ref();
        let near = |name: &str| hint(name, self.slots.iter().map(|slot| slot.name.as_str()));
        let cx = BuildContext::new(&slot.name, parameters, env.slots, env.metrics, env.staleness);
        let mut cx = cx.with_others(&others).with_hint(&near).with_listed(&listed);
        let mut mistakes = match (kind.build)(&mut cx) {
            Ok(instance) => {
                let (refers_to, headers) = (cx.refers_to().to_vec(), cx.headers().to_vec());
                let (reads, optional_reads, writes) = cx.into_keys();
                let keys = Keys { reads, optional_reads, writes, refers_to, headers };
                return Attempt::Built(Box::new(Built { instance, keys, taken_over: false }));
            }
            Err(BuildError(mistakes)) => mistakes,
        };
        if mistakes.is_empty() {
            mistakes = BuildError::new("cannot be built, for a reason it does not give").0;
        }
        let mut known = cx.waits_for().iter().filter_map(|name| self.find(name));
        if let Some(first) = known.clone().find(|at| matches!(self.slots[*at].state, State::Pending)) {
            return Attempt::Waits(Waiting { first, mistakes });
        }
        // That what it refers to could not be built is reported there.
        if known.next().is_some() {
            mistakes.clear();
        }
        Attempt::Failed(mistakes)
    }

    fn report(&self, slot: &Slot, mistakes: Vec<NodeError>) {
        let parameters = slot.parameters.as_ref();
        for mistake in mistakes {
            let within = parameters.and_then(|node| locate(node, &mistake.path));
            let place = mistake.place.or(within).or(parameters.map(|node| node.place)).or(slot.place());
            let mut path = slot.path.clone();
            if !path.is_empty() {
                path.push_str(".parameters");
                if !mistake.path.is_empty() && !mistake.path.starts_with('[') {
                    path.push('.');
                }
                path.push_str(&mistake.path);
            }
            self.sink.add(place, path, format!("{}: {}", slot.label(), mistake.message));
        }
    }
}

/// Where the part of this path stands, as `conditions[0].maxValue`; keys match in any case.
fn locate(node: &Node, path: &str) -> Option<Place> {
    let mut node = node;
    for step in path.split(['.', '[']).filter(|step| !step.is_empty()) {
        node = match (&node.value, step.strip_suffix(']')) {
            (Value::List(items), Some(index)) => items.get(index.parse::<usize>().ok()?)?,
            (Value::Map(entries), None) => {
                entries.iter().find(|(key, ..)| key.eq_ignore_ascii_case(step)).map(|(.., value)| value)?
            }
            _ => return None,
        };
    }
    Some(node.place)
}

fn same_parameters(a: Option<&Node>, b: Option<&Node>) -> bool {
    match (a, b) {
        (None, None) => true,
        (Some(a), Some(b)) => same(a, b),
        (Some(node), None) | (None, Some(node)) => node.is_null(),
    }
}
