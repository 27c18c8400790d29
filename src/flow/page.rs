//! Gauges that are read off the state when the page of metrics is written: how full the pool and the queue are.

use std::fmt;
use std::sync::Arc;

use epp_plugin_api::MetricHub;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::gauge::ConstGauge;

use crate::flow::control::Control;
use crate::flow::metrics::OLD_PREFIX;
use crate::flow::report::BandReport;
use crate::telemetry::families::PREFIX;

/// Shows the state of a control. Nothing while the gate is off.
struct Page {
    pool: String,
    control: Arc<Control>,
}

/// Shows the state of a control on the page of metrics.
pub fn show(control: &Arc<Control>, pool: &str, hub: &MetricHub) {
    let page = Page { pool: pool.to_owned(), control: control.clone() };
    hub.with_registry(|registry| registry.register_collector(Box::new(page)));
}

impl fmt::Debug for Page {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Page({})", self.pool)
    }
}

impl Collector for Page {
    fn encode(&self, mut encoder: DescriptorEncoder) -> Result<(), fmt::Error> {
        let Some(report) = self.control.report(false) else { return Ok(()) };
        let pool = ("inference_pool", self.pool.as_str());
        let mut family = |name: &str, help: &str, series: Vec<(Vec<(&str, String)>, f64)>| {
            if series.is_empty() {
                return Ok(());
            }
            let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            for (labels, value) in series {
                let labels: Vec<(&str, &str)> =
                    labels.iter().map(|(key, v)| (*key, v.as_str())).chain([pool]).collect();
                ConstGauge::new(value).encode(family.encode_family(&labels)?)?;
            }
            Ok::<(), fmt::Error>(())
        };
        let name = |name: &str| format!("{PREFIX}flow_control_{name}");
        let saturation = report.saturation;
        let stages = [("prefill", saturation.prefill), ("decode", saturation.decode)];
        let stages = stages.into_iter().chain([("effective", Some(saturation.effective))]);
        let stages = stages.filter_map(|(stage, value)| Some((vec![("stage", stage.to_owned())], value?)));
        let stages: Vec<_> = stages.collect();
        let (saturation, help) = (name("pool_saturation"), "[ALPHA] How full the pool is by stage, 1 being full.");
        family(&saturation, help, stages.clone())?;
        let help = format!("[ALPHA] [Deprecated: Use {saturation}] The same under an older name.");
        family(&format!("{OLD_PREFIX}pool_saturation"), &help, stages)?;
        let by_band = |share: fn(&BandReport) -> (u64, u64)| {
            let band = |band: &BandReport| {
                let (used, most) = share(band);
                (vec![("priority", band.priority.to_string())], used as f64 / most as f64)
            };
            report.bands.iter().map(band).collect()
        };
        let help = "[ALPHA] Requests that wait, as a share of how many may in a band.";
        family(&name("capacity_utilization_requests"), help, by_band(|band| (band.requests, band.max_requests)))?;
        let help = "[ALPHA] Bytes that wait, as a share of how many may in a band.";
        family(&name("capacity_utilization_bytes"), help, by_band(|band| (band.bytes, band.max_bytes)))?;
        let of_all = |used: u64, most: Option<u64>| most.map(|most| (Vec::new(), used as f64 / most as f64));
        let requests = of_all(report.requests, report.max_requests).into_iter().collect();
        let help = "[ALPHA] Requests that wait, as a share of how many may in all.";
        family(&name("global_capacity_utilization_requests"), help, requests)?;
        let bytes = of_all(report.bytes, report.max_bytes).into_iter().collect();
        let help = "[ALPHA] Bytes that wait, as a share of how many may in all.";
        family(&name("global_capacity_utilization_bytes"), help, bytes)
    }
}
