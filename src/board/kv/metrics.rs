//! Board, KV events: counters by endpoint, as of when the page is written, so those of endpoints that left are gone.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Weak;
use std::sync::atomic::Ordering;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

use super::line::{Operation, Standing};
use super::{Inner, Kv};

/// Shows the subscriptions; nothing where there is none.
#[derive(Debug)]
pub struct KvPage(pub Weak<Kv>);

/// The sums over all subscriptions.
#[derive(Debug, Default)]
struct Sums {
    subscribers: usize,
    connected: usize,
    by_pod: BTreeMap<String, Pod>,
    unknown: u64,
    broken: u64,
}

#[derive(Debug, Default)]
struct Pod {
    messages: u64,
    reconnections: u64,
    lost: u64,
    errors: [u64; Operation::ALL.len()],
}

impl Sums {
    fn of(inner: &Inner) -> Self {
        let mut sums = Self::default();
        for subscription in &inner.subscriptions {
            if let Some(socket) = &subscription.socket {
                sums.subscribers += 1;
                sums.unknown += socket.bound.unknown.load(Ordering::Relaxed);
                sums.broken += socket.bound.broken.load(Ordering::Relaxed);
            }
            for heard in subscription.heard.values() {
                sums.subscribers += usize::from(heard.task.is_some());
                let standing = heard.line.told.lock().standing;
                sums.connected += usize::from(!matches!(standing, Standing::Disconnected | Standing::Silent));
                let counts = &heard.line.counts;
                let pod = sums.by_pod.entry(heard.line.meta.host_port.clone()).or_default();
                pod.messages += counts.messages.load(Ordering::Relaxed);
                pod.reconnections += counts.reconnections.load(Ordering::Relaxed);
                pod.lost += counts.lost.load(Ordering::Relaxed);
                for (sum, operation) in pod.errors.iter_mut().zip(Operation::ALL) {
                    *sum += counts.errors(operation);
                }
            }
        }
        sums
    }
}

impl Collector for KvPage {
    fn encode(&self, mut encoder: DescriptorEncoder) -> Result<(), fmt::Error> {
        let Some(kv) = self.0.upgrade() else { return Ok(()) };
        let sums = {
            let inner = kv.inner.lock();
            if inner.subscriptions.is_empty() {
                return Ok(());
            }
            Sums::of(&inner)
        };
        show(&mut encoder, &sums)
    }
}

/// Shows what [`KvPage`] does of one endpoint, to list the families.
#[derive(Debug)]
pub struct KvExample;

impl Collector for KvExample {
    fn encode(&self, mut encoder: DescriptorEncoder) -> Result<(), fmt::Error> {
        let pod = Pod { errors: [1; Operation::ALL.len()], ..Pod::default() };
        show(&mut encoder, &Sums { by_pod: [(String::new(), pod)].into(), ..Sums::default() })
    }
}

fn show(encoder: &mut DescriptorEncoder, sums: &Sums) -> Result<(), fmt::Error> {
    for (name, help, value) in [
        (
            "llm_d_epp_kv_cache_events_active_subscribers",
            "[ALPHA] Endpoints and bound sockets that are listened to for KV events",
            sums.subscribers,
        ),
        (
            "epp_board_kv_connected_endpoints",
            "Endpoints whose publisher of KV events is connected, by subscription",
            sums.connected,
        ),
    ] {
        let family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
        ConstGauge::new(i64::try_from(value).unwrap_or(i64::MAX)).encode(family)?;
    }
    counters(encoder, sums)?;
    errors(encoder, sums)
}

fn counters(encoder: &mut DescriptorEncoder, sums: &Sums) -> Result<(), fmt::Error> {
    type Value = fn(&Pod) -> u64;
    for (name, help, value) in [
        (
            "llm_d_epp_kv_cache_events_messages_received",
            "[ALPHA] Messages of KV events, by endpoint",
            (|pod| pod.messages) as Value,
        ),
        (
            "llm_d_epp_kv_cache_events_subscriber_reconnections",
            "[ALPHA] Attempts to connect to the publisher of KV events after the first, by endpoint",
            |pod| pod.reconnections,
        ),
        (
            "epp_board_kv_lost",
            "Times that what was known of an endpoint's KV cache was given up, because its engine has started again or \
             messages are lost",
            |pod| pod.lost,
        ),
    ] {
        let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
        for (pod, counts) in &sums.by_pod {
            let labels = [("pod_identifier", pod.as_str())];
            ConstCounter::new(value(counts)).encode(family.encode_family(&labels)?)?;
        }
    }
    Ok(())
}

fn errors(encoder: &mut DescriptorEncoder, sums: &Sums) -> Result<(), fmt::Error> {
    let name = "llm_d_epp_kv_cache_events_zmq_errors";
    let help = "[ALPHA] Errors of the connections for KV events, by endpoint and by what was tried; without an endpoint \
                those of bound sockets";
    let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
    let of_pods = sums.by_pod.iter().flat_map(|(pod, counts)| {
        Operation::ALL.iter().zip(counts.errors).map(|(operation, n)| (pod.as_str(), operation.label(), n))
    });
    let of_sockets = [("", Operation::UnknownEndpoint.label(), sums.unknown), ("", "socket", sums.broken)];
    for (pod, operation, n) in of_pods.chain(of_sockets).filter(|(_, _, n)| *n > 0) {
        let labels = [("pod_identifier", pod), ("operation", operation)];
        ConstCounter::new(n).encode(family.encode_family(&labels)?)?;
    }
    Ok(())
}
