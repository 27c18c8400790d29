//! What the process says of itself: its build, its memory, its time on the processor, its open files.

use std::fs;
use std::sync::Arc;

use epp_plugin_api::{MetricFamilies, MetricHub, MetricRegistry};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

use crate::telemetry::families::{Gauges, put, put_deprecated};

/// Ticks a second of the times in `/proc`; Linux gives them to programs in this unit on every machine.
const TICKS: f64 = 100.0;

/// The commit that the binary was built from, as the build said.
pub const COMMIT: &str = match option_env!("EPP_COMMIT") {
    Some(commit) => commit,
    None => "unknown",
};

/// The name of the build: a tag or a branch, as the build said, else the version.
pub const BUILD_REF: &str = match option_env!("EPP_BUILD_REF") {
    Some(name) => name,
    None => env!("CARGO_PKG_VERSION"),
};

/// Puts the process on the page; once, however often it is called.
pub fn register(hub: &MetricHub) -> Arc<ProcessFamilies> {
    hub.families()
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, EncodeLabelSet)]
struct BuildLabels {
    commit: &'static str,
    build_ref: &'static str,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, EncodeLabelSet)]
struct VersionLabels {
    version: &'static str,
    commit: &'static str,
}

/// The build and what `/proc` tells.
#[derive(Debug, Default)]
pub struct ProcessFamilies(());

impl MetricFamilies for ProcessFamilies {
    fn register(&self, registry: &mut MetricRegistry) {
        let info = Gauges::default();
        info.get_or_create(&BuildLabels { commit: COMMIT, build_ref: BUILD_REF }).set(1);
        put(registry, "info", "The build that is running; always 1", info.clone());
        put_deprecated(registry, "inference_extension_info", "info", info);
        let build = Gauges::default();
        build.get_or_create(&VersionLabels { version: env!("CARGO_PKG_VERSION"), commit: COMMIT }).set(1);
        registry.register("epp_build_info", "[ALPHA] The version that is running; always 1", build);
        registry.register_collector(Box::new(Proc));
    }
}

/// Reads `/proc` anew for each page. What cannot be read is left out.
#[derive(Debug)]
struct Proc;

impl Collector for Proc {
    fn encode(&self, mut to: DescriptorEncoder) -> Result<(), std::fmt::Error> {
        let stat = fs::read_to_string("/proc/self/stat").ok();
        let status = fs::read_to_string("/proc/self/status").ok();
        let boot = fs::read_to_string("/proc/stat").ok();
        let mut gauge = |name: &str, help: &str, value: Option<f64>| {
            let Some(gauge) = value.map(ConstGauge::new) else { return Ok(()) };
            gauge.encode(to.encode_descriptor(name, help, None, gauge.metric_type())?)
        };
        gauge(
            "process_resident_memory_bytes",
            "Resident memory size in bytes.",
            status.as_deref().and_then(resident_bytes),
        )?;
        gauge("process_open_fds", "Number of open file descriptors.", open_files())?;
        let times = stat.as_deref().and_then(times);
        gauge(
            "process_start_time_seconds",
            "Start time of the process since unix epoch in seconds.",
            times.and_then(|t| Some(boot.as_deref().and_then(boot_time)? + t.started)),
        )?;
        if let Some(times) = times {
            let cpu = ConstCounter::new(times.cpu);
            let help = "Total user and system CPU time spent in seconds.";
            cpu.encode(to.encode_descriptor("process_cpu_seconds", help, None, cpu.metric_type())?)?;
        }
        Ok(())
    }
}

/// In seconds; `started` counts from when the machine came up.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Times {
    cpu: f64,
    started: f64,
}

/// Reads `/proc/self/stat`. The name of the process comes second, in parentheses, and may hold anything.
fn times(stat: &str) -> Option<Times> {
    let (_, rest) = stat.rsplit_once(')')?;
    // The first field of the rest is the third of the line.
    let field = |nth: usize| rest.split_ascii_whitespace().nth(nth - 3)?.parse::<f64>().ok();
    Some(Times { cpu: (field(14)? + field(15)?) / TICKS, started: field(22)? / TICKS })
}

fn resident_bytes(status: &str) -> Option<f64> {
    let line = status.lines().find_map(|l| l.strip_prefix("VmRSS:"))?;
    Some(line.trim().strip_suffix("kB")?.trim().parse::<f64>().ok()? * 1024.0)
}

fn boot_time(stat: &str) -> Option<f64> {
    stat.lines().find_map(|l| l.strip_prefix("btime "))?.trim().parse().ok()
}

fn open_files() -> Option<f64> {
    Some(fs::read_dir("/proc/self/fd").ok()?.count() as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::exposition::{Format, page};

    #[test]
    fn reads_times_behind_a_name_that_looks_like_fields() {
        let line =
            "7 (a) S 1 (b)) S 1 7 7 0 -1 4194560 100 0 0 0 250 50 0 0 20 0 4 0 1234 1000 200 18446744073709551615";
        assert_eq!(times(line), Some(Times { cpu: 3.0, started: 12.34 }));
        assert_eq!(times("7 (epp) S 1"), None);
        assert_eq!(times(""), None);
    }

    #[test]
    fn reads_memory_and_boot_time() {
        assert_eq!(resident_bytes("Name:\tepp\nVmRSS:\t    2048 kB\nThreads: 1\n"), Some(2_097_152.0));
        assert_eq!(resident_bytes("Name:\tepp\n"), None);
        assert_eq!(boot_time("cpu 1 2\nbtime 1700000000\n"), Some(1_700_000_000.0));
    }

    #[test]
    fn the_build_is_on_the_page_once_under_both_names() {
        let hub = MetricHub::default();
        register(&hub);
        register(&hub);
        let page = page(&hub, Format::Text).expect("the collector leaves out what it cannot read");
        for name in ["llm_d_epp_info", "inference_extension_info"] {
            let line = format!("\n{name}{{commit=\"{COMMIT}\",build_ref=\"{BUILD_REF}\"}} 1\n");
            assert_eq!(page.matches(&line).count(), 1, "{page}");
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn the_process_is_on_the_page() {
        let hub = MetricHub::default();
        register(&hub);
        let page = page(&hub, Format::Text).expect("the collector leaves out what it cannot read");
        for name in [
            "process_resident_memory_bytes",
            "process_cpu_seconds_total",
            "process_open_fds",
            "process_start_time_seconds",
        ] {
            assert!(page.contains(&format!("\n{name} ")), "{name} is not in\n{page}");
        }
    }
}
