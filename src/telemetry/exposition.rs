//! The page of metrics as text, in the format that the reader asks for.

use epp_plugin_api::MetricHub;
use prometheus_client::encoding::{prometheus_text, text};

/// How the page is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Prometheus text 0.0.4, which every reader knows.
    Text,
    /// OpenMetrics 1.0.0.
    OpenMetrics,
}

impl Format {
    /// Chooses by the values of the `Accept` headers: OpenMetrics 1.0.0 if it is named and nothing else is preferred.
    pub fn accepted<'a>(accept: impl Iterator<Item = &'a str>) -> Self {
        let (mut text, mut open) = (0.0_f64, 0.0_f64);
        for range in accept.flat_map(|header| header.split(',')) {
            let mut parts = range.split(';').map(str::trim);
            let media = parts.next().unwrap_or_default().to_ascii_lowercase();
            let (mut q, mut version) = (1.0, "");
            for (key, value) in parts.filter_map(|p| p.split_once('=')) {
                match key.trim() {
                    "q" => q = value.trim().parse().unwrap_or(0.0),
                    "version" => version = value.trim().trim_matches('"'),
                    _ => {}
                }
            }
            match media.as_str() {
                "application/openmetrics-text" if matches!(version, "" | "1.0.0") => open = open.max(q),
                "text/plain" | "text/*" | "*/*" => text = text.max(q),
                _ => {}
            }
        }
        if open > 0.0 && open >= text { Self::OpenMetrics } else { Self::Text }
    }

    /// The `Content-Type` of a page in this format.
    pub fn content_type(self) -> &'static str {
        match self {
            Self::Text => prometheus_text::CONTENT_TYPE,
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }
}

/// Writes every family that has a series.
///
/// # Errors
/// If a collector refuses to tell its values; the page is then worthless.
pub fn page(hub: &MetricHub, format: Format) -> Result<String, std::fmt::Error> {
    let mut page = String::new();
    hub.with_registry(|registry| match format {
        Format::Text => prometheus_text::encode(&mut page, registry),
        Format::OpenMetrics => text::encode(&mut page, registry),
    })?;
    Ok(page)
}

#[cfg(test)]
mod tests {
    use prometheus_client::metrics::counter::Counter;
    use prometheus_client::metrics::gauge::Gauge;
    use prometheus_client::metrics::histogram::Histogram;

    use super::*;
    use crate::telemetry::families::put;

    fn accepted(accept: &[&str]) -> Format {
        Format::accepted(accept.iter().copied())
    }

    #[test]
    fn openmetrics_is_served_to_who_asks_for_it() {
        for (accept, format) in [
            (&[][..], Format::Text),
            (&["*/*"], Format::Text),
            (&["text/plain; version=0.0.4"], Format::Text),
            (&["application/openmetrics-text; version=1.0.0"], Format::OpenMetrics),
            (&["application/openmetrics-text"], Format::OpenMetrics),
            (&["application/openmetrics-text; version=0.0.1"], Format::Text),
            (&["application/openmetrics-text; version=1.0.0; q=0"], Format::Text),
            (&["text/plain;q=0.9, application/openmetrics-text;q=0.1"], Format::Text),
            (&["text/plain;q=0.1", "application/openmetrics-text;q=0.9"], Format::OpenMetrics),
            (
                &["application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,\
                   application/openmetrics-text;version=0.0.1;q=0.5,text/plain;version=0.0.4;q=0.2,*/*;q=0.1"],
                Format::OpenMetrics,
            ),
            (&["application/json, q=, ;;=,"], Format::Text),
        ] {
            assert_eq!(accepted(accept), format, "{accept:?}");
        }
    }

    fn hub() -> MetricHub {
        let hub = MetricHub::default();
        hub.with_registry(|registry| {
            let (counter, gauge, histogram) =
                (Counter::<u64>::default(), Gauge::<i64>::default(), Histogram::new([0.5]));
            counter.inc();
            gauge.set(-3);
            histogram.observe(0.25);
            put(registry, "things", "Things", counter);
            put(registry, "depth", "How deep", gauge);
            put(registry, "wait_seconds", "Waiting", histogram);
        });
        hub
    }

    #[test]
    fn text_has_the_full_name_of_a_counter_in_its_descriptor_and_no_end_mark() {
        let page = page(&hub(), Format::Text).expect("no collector");
        assert_eq!(
            page,
            "# HELP llm_d_epp_things_total [ALPHA] Things.\n# TYPE llm_d_epp_things_total counter\n\
             llm_d_epp_things_total 1\n\
             # HELP llm_d_epp_depth [ALPHA] How deep.\n# TYPE llm_d_epp_depth gauge\nllm_d_epp_depth -3\n\
             # HELP llm_d_epp_wait_seconds [ALPHA] Waiting.\n# TYPE llm_d_epp_wait_seconds histogram\n\
             llm_d_epp_wait_seconds_bucket{le=\"0.5\"} 1\nllm_d_epp_wait_seconds_bucket{le=\"+Inf\"} 1\n\
             llm_d_epp_wait_seconds_sum 0.25\nllm_d_epp_wait_seconds_count 1\n"
        );
    }

    #[test]
    fn openmetrics_ends_with_its_mark() {
        let page = page(&hub(), Format::OpenMetrics).expect("no collector");
        assert!(page.contains("# TYPE llm_d_epp_things counter\nllm_d_epp_things_total 1\n"), "{page}");
        assert!(page.ends_with("\n# EOF\n"), "{page}");
    }
}
