//! Board, KV events, report: how it stands with every subscription, for the debug page.

use std::sync::atomic::Ordering;

use serde::Serialize;
use tokio::time::Instant;

use super::line::{Line, Operation, Standing};
use super::{Kv, Subscription};
use crate::board::report::MOST;

/// One subscription of a plugin.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SubscriptionReport {
    pub plugin: String,
    /// What topics begin with.
    pub topic: String,
    /// The socket that engines connect to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub socket: Option<SocketReport>,
    /// How many endpoints are heard, shown or not.
    pub total: usize,
    /// The first [`MOST`], by name.
    pub endpoints: Vec<LineReport>,
}

/// A bound socket.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SocketReport {
    pub address: String,
    /// Engines that are connected.
    pub publishers: usize,
    /// Messages whose topic names no known endpoint.
    pub unknown_endpoint: u64,
    pub errors: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
}

/// One endpoint.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LineReport {
    pub endpoint: String,
    /// Where its events are, or how its topic names it if it connects by itself.
    pub address: String,
    pub state: Standing,
    /// For how long it has been in this state.
    pub seconds: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_sequence: Option<u64>,
    pub messages: u64,
    pub reconnections: u64,
    /// Times that what was known of it was given up.
    pub lost: u64,
    pub replays: u64,
    pub replayed_messages: u64,
    pub errors: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
}

impl Kv {
    /// Reports on every subscription.
    pub fn report(&self) -> Vec<SubscriptionReport> {
        let now = Instant::now();
        self.inner.lock().subscriptions.iter().map(|s| SubscriptionReport::of(s, now)).collect()
    }
}

impl SubscriptionReport {
    fn of(subscription: &Subscription, now: Instant) -> Self {
        let wanted = &subscription.wanted;
        let mut lines: Vec<&Line> = subscription.heard.values().map(|heard| &*heard.line).collect();
        lines.sort_by_key(|line| &line.meta.name);
        let ports = wanted.subscription.connect;
        let address = |line: &Line| match ports {
            Some(ports) => {
                let (host, port) = (&line.meta.host, u32::from(ports.events).saturating_add(line.meta.rank));
                if host.contains(':') { format!("tcp://[{host}]:{port}") } else { format!("tcp://{host}:{port}") }
            }
            None => line.meta.host_port.clone(),
        };
        let socket = subscription.socket.as_ref().map(|socket| SocketReport {
            address: socket.bound.address.clone(),
            publishers: socket.bound.publishers.load(Ordering::Relaxed),
            unknown_endpoint: socket.bound.unknown.load(Ordering::Relaxed),
            errors: socket.bound.broken.load(Ordering::Relaxed),
            last_error: socket.bound.last_error.lock().clone(),
        });
        Self {
            plugin: wanted.plugin.clone(),
            topic: wanted.subscription.topic.clone(),
            socket,
            total: lines.len(),
            endpoints: lines.iter().take(MOST).map(|line| LineReport::of(line, address(line), now)).collect(),
        }
    }
}

impl LineReport {
    fn of(line: &Line, address: String, now: Instant) -> Self {
        let (told, counts) = (line.told.lock().clone(), &line.counts);
        Self {
            endpoint: line.meta.name.to_string(),
            address,
            state: told.standing,
            seconds: now.saturating_duration_since(told.since).as_secs_f64(),
            last_sequence: told.last_sequence,
            messages: counts.messages.load(Ordering::Relaxed),
            reconnections: counts.reconnections.load(Ordering::Relaxed),
            lost: counts.lost.load(Ordering::Relaxed),
            replays: told.replays,
            replayed_messages: told.replayed_messages,
            errors: Operation::ALL.iter().map(|operation| counts.errors(*operation)).sum(),
            last_error: told.last_error,
        }
    }
}
