//! What is counted of ext_proc streams as such, whatever goes over them. Only there if it was asked for.

use std::sync::Arc;

use epp_plugin_api::{MetricFamilies, MetricHub, MetricRegistry};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use tokio::time::Instant;

use crate::telemetry::families::{Counters, put};

static SECONDS: &[f64] = &[0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0];

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CodeLabels {
    code: &'static str,
}

/// The metrics of streams. One for the process.
#[derive(Debug)]
pub struct StreamMetrics {
    inflight: Gauge,
    duration: Histogram,
    total: Counters<CodeLabels>,
}

impl Default for StreamMetrics {
    fn default() -> Self {
        Self {
            inflight: Gauge::default(),
            duration: Histogram::new(SECONDS.iter().copied()),
            total: Counters::default(),
        }
    }
}

impl MetricFamilies for StreamMetrics {
    fn register(&self, registry: &mut MetricRegistry) {
        put(registry, "extproc_streams_inflight", "Open ext_proc streams", self.inflight.clone());
        put(registry, "extproc_stream_duration_seconds", "How long ext_proc streams were open", self.duration.clone());
        put(registry, "extproc_streams", "Ended ext_proc streams, by gRPC status", self.total.clone());
    }
}

impl StreamMetrics {
    /// Puts the families on the page of the hub.
    pub fn of(hub: &MetricHub) -> Arc<Self> {
        hub.families()
    }

    /// Counts a stream as open until what this returns is dropped.
    pub fn open(self: &Arc<Self>) -> OpenStream {
        self.inflight.inc();
        OpenStream { metrics: self.clone(), began: Instant::now(), code: "Canceled" }
    }
}

/// An open stream; counted as ended when dropped.
#[derive(Debug)]
pub struct OpenStream {
    metrics: Arc<StreamMetrics>,
    began: Instant,
    code: &'static str,
}

impl OpenStream {
    /// Says with which gRPC status the stream ends, such as `OK`; one that nobody ended counts as `Canceled`.
    pub fn ends_with(&mut self, code: &'static str) {
        self.code = code;
    }
}

impl Drop for OpenStream {
    fn drop(&mut self) {
        self.metrics.inflight.dec();
        self.metrics.duration.observe(self.began.elapsed().as_secs_f64());
        self.metrics.total.get_or_create_owned(&CodeLabels { code: self.code }).inc();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::telemetry::exposition::{Format, page};

    fn check(hub: &MetricHub, lines: &[&str]) {
        let page = page(hub, Format::Text).expect("no collector");
        for line in lines {
            assert!(page.contains(&format!("llm_d_epp_extproc_{line}\n")), "{line} is not in\n{page}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn streams_are_counted_by_their_end() {
        let hub = MetricHub::default();
        let metrics = StreamMetrics::of(&hub);
        let (mut first, second) = (metrics.open(), metrics.open());
        check(&hub, &["streams_inflight 2"]);
        tokio::time::advance(Duration::from_secs(3)).await;
        first.ends_with("OK");
        drop(first);
        drop(second);
        check(
            &hub,
            &[
                "streams_inflight 0",
                "streams_total{code=\"OK\"} 1",
                "streams_total{code=\"Canceled\"} 1",
                "stream_duration_seconds_sum 6.0",
                "stream_duration_seconds_count 2",
            ],
        );
    }
}
