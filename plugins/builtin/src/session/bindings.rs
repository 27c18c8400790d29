//! Which endpoint each session is bound to, until it has been idle for too long.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use epp_plugin_api::{EndpointId, EndpointMeta};
use parking_lot::Mutex;
use tokio::time::Instant;
use xxhash_rust::xxh3::xxh3_128;

/// So many sessions are remembered; more are not bound until others are forgotten.
const MOST_SESSIONS: usize = 1 << 18;

/// Stands for the id of a session; what the client sent is not kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SessionKey(u128);

impl SessionKey {
    /// The key of this id.
    pub fn of(id: &str) -> Self {
        Self(xxh3_128(id.as_bytes()))
    }
}

/// Where a session belongs.
#[derive(Clone, Debug)]
pub struct Binding {
    pub id: EndpointId,
    pub meta: Arc<EndpointMeta>,
    last_seen: Instant,
}

/// The sessions of one instance.
pub struct Bindings {
    ttl: Duration,
    sweep: Duration,
    most: usize,
    table: Mutex<Table>,
}

#[derive(Default)]
struct Table {
    by_key: HashMap<SessionKey, Binding, foldhash::fast::RandomState>,
    swept: Option<Instant>,
}

impl Bindings {
    /// Remembers sessions until they have been idle for `ttl`; looks for those at most every `sweep`.
    pub fn new(ttl: Duration, sweep: Duration) -> Self {
        Self { ttl, sweep, most: MOST_SESSIONS, table: Mutex::default() }
    }

    /// Where the session belongs.
    pub fn find(&self, key: SessionKey, now: Instant) -> Option<Binding> {
        let mut table = self.table.lock();
        self.sweep(&mut table, now);
        table.by_key.get(&key).cloned()
    }

    /// Notes that a request of the session went to an endpoint. A session that is bound to another one moves only if that
    /// one could not be chosen.
    pub fn picked(&self, key: SessionKey, id: EndpointId, meta: &Arc<EndpointMeta>, was_absent: bool, now: Instant) {
        let mut table = self.table.lock();
        self.sweep(&mut table, now);
        let is_full = table.by_key.len() >= self.most;
        let binding = || Binding { id, meta: meta.clone(), last_seen: now };
        match table.by_key.get_mut(&key) {
            None if is_full => {}
            None => {
                table.by_key.insert(key, binding());
            }
            Some(bound) if was_absent || bound.meta.name == meta.name => *bound = binding(),
            Some(_) => {}
        }
    }

    fn sweep(&self, table: &mut Table, now: Instant) {
        let swept = *table.swept.get_or_insert(now);
        if now.saturating_duration_since(swept) >= self.sweep {
            table.by_key.retain(|_, bound| now.saturating_duration_since(bound.last_seen) <= self.ttl);
            table.swept = Some(now);
        }
    }
}

#[cfg(test)]
mod tests {
    use epp_plugin_api::EndpointName;

    use super::*;

    fn meta(name: &str) -> Arc<EndpointMeta> {
        let name = EndpointName { namespace: "default".into(), name: name.into() };
        Arc::new(EndpointMeta::new(name, "10.0.0.1".into(), 1, Default::default(), 0))
    }

    fn bound(bindings: &Bindings, session: &str, now: Instant) -> Option<String> {
        bindings.find(SessionKey::of(session), now).map(|binding| binding.meta.name.name.clone())
    }

    fn pick(bindings: &Bindings, session: &str, endpoint: &str, was_absent: bool, now: Instant) {
        bindings.picked(SessionKey::of(session), EndpointId::new(0, 1), &meta(endpoint), was_absent, now);
    }

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_session_moves_only_when_its_endpoint_could_not_be_chosen() {
        let (bindings, now) = (Bindings::new(9 * SECOND, SECOND), Instant::now());
        pick(&bindings, "s", "a", false, now);
        pick(&bindings, "s", "b", false, now);
        assert_eq!(bound(&bindings, "s", now).as_deref(), Some("a"));
        pick(&bindings, "s", "b", true, now);
        assert_eq!(bound(&bindings, "s", now).as_deref(), Some("b"));
        assert_eq!(bound(&bindings, "t", now), None);
    }

    #[test]
    fn an_idle_session_is_forgotten_at_the_next_sweep() {
        let (bindings, start) = (Bindings::new(3 * SECOND, 2 * SECOND), Instant::now());
        pick(&bindings, "s", "a", false, start);
        assert!(bound(&bindings, "s", start + 3 * SECOND).is_some());
        assert!(bound(&bindings, "s", start + 4 * SECOND).is_some(), "there was a sweep a second before");
        assert!(bound(&bindings, "s", start + 5 * SECOND).is_none());
    }

    #[test]
    fn only_a_pick_of_the_bound_endpoint_keeps_a_session_alive() {
        let (bindings, start) = (Bindings::new(3 * SECOND, SECOND), Instant::now());
        pick(&bindings, "used", "a", false, start);
        pick(&bindings, "outvoted", "a", false, start);
        pick(&bindings, "used", "a", false, start + 2 * SECOND);
        pick(&bindings, "outvoted", "b", false, start + 2 * SECOND);
        assert!(bound(&bindings, "used", start + 5 * SECOND).is_some());
        assert!(bound(&bindings, "outvoted", start + 5 * SECOND).is_none());
    }

    #[test]
    fn a_full_table_binds_nobody_new() {
        let (bindings, now) = (Bindings { most: 1, ..Bindings::new(SECOND, SECOND) }, Instant::now());
        pick(&bindings, "s", "a", false, now);
        pick(&bindings, "t", "a", false, now);
        assert_eq!(bound(&bindings, "t", now), None);
        pick(&bindings, "t", "a", false, now + 2 * SECOND);
        assert!(bound(&bindings, "t", now + 2 * SECOND).is_some());
    }
}
