//! What the tests of policies have in common: requests that wait, and flows of them.

use std::collections::BTreeMap;
use std::time::Duration;

use epp_plugin_api::{FlowId, Instance, PluginType, Waiting, WaitingFlows};
use serde_json::json;
use tokio::time::Instant;

use crate::testing::Rig;

/// A request that waits, with times in milliseconds of a common beginning.
#[derive(Clone, Copy, Debug, Default)]
pub struct Plain {
    pub received: u64,
    pub since: u64,
    pub deadline: Option<u64>,
    pub ttft_objective: Option<u64>,
}

impl Plain {
    /// The request as a policy sees it.
    pub fn at(self, zero: Instant) -> Waiting {
        let ms = |n| zero + Duration::from_millis(n);
        Waiting {
            received: ms(self.received),
            since: ms(self.since),
            deadline: self.deadline.map(ms),
            ttft_objective: self.ttft_objective.map(Duration::from_millis),
        }
    }
}

/// The places of the requests in the order in which an ordering policy lets them go.
pub fn order(kind: &PluginType, requests: &[Plain]) -> Vec<usize> {
    let (policy, zero) = (Rig::default().build(kind, json!(null)).ordering.unwrap(), Instant::now());
    let mut places: Vec<usize> = (0..requests.len()).collect();
    places.sort_by_key(|&at| policy.rank(&requests[at].at(zero)));
    places
}

/// Flows of a band: when those that wait in each began to, soonest first. The band goes first come, first served.
#[derive(Clone, Debug)]
pub struct Flows {
    pub zero: Instant,
    pub waiting: BTreeMap<FlowId, Vec<u64>>,
}

impl Flows {
    /// Makes the flows.
    pub fn new(flows: &[(&str, &[u64])]) -> Self {
        let waiting = flows.iter().map(|(name, since)| ((*name).into(), since.to_vec())).collect();
        Self { zero: Instant::now(), waiting }
    }

    /// Lets everyone go as a fairness policy says, at these times; returns the flows in that order.
    pub fn drained(mut self, instance: &Instance) -> Vec<String> {
        let mut turns = instance.fairness.as_ref().unwrap().turns();
        let mut gone = Vec::new();
        while !self.waiting.is_empty() {
            let next = turns.next(&self, self.zero);
            let queue = self.waiting.get_mut(&next).expect("a flow that waits");
            queue.remove(0);
            if queue.is_empty() {
                self.waiting.remove(&next);
            }
            gone.push(next.to_string());
        }
        gone
    }
}

impl WaitingFlows for Flows {
    fn first(&self) -> FlowId {
        self.waiting.iter().min_by_key(|(_, since)| since[0]).unwrap().0.clone()
    }

    fn after(&self, name: &str) -> FlowId {
        let mut names = self.waiting.keys();
        names.clone().find(|n| &***n > name).or(names.next()).unwrap().clone()
    }

    fn each(&self, seen: &mut dyn FnMut(&FlowId, &Waiting)) {
        for (name, since) in &self.waiting {
            seen(name, &Plain { since: since[0], ..Plain::default() }.at(self.zero));
        }
    }
}
