//! Counts HTTP requests by handler, and writes the `http_` families of a Python server.

use std::collections::BTreeMap;
use std::time::Duration;

use super::View;
use super::histogram::Histogram;
use super::page::Page;

const FINE: &[f64] = &[
    0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0, 7.5, 10.0, 30.0, 60.0,
];
const COARSE: &[f64] = &[0.1, 0.5, 1.0];

/// One request that has been answered to its end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Visit {
    /// The path of the route, one of a fixed set.
    pub(crate) handler: &'static str,
    pub(crate) method: &'static str,
    /// The class of the status: `2xx` and so on.
    pub(crate) status: &'static str,
    /// Bytes of the request and of the reply, 0 where no length was told.
    pub(crate) request_bytes: u64,
    pub(crate) response_bytes: u64,
    pub(crate) took: Duration,
}

/// HTTP requests since the start. Its size is bounded by the fixed set of handlers.
#[derive(Clone, Debug)]
pub(crate) struct WebTally {
    by_status: BTreeMap<(&'static str, &'static str, &'static str), u64>,
    by_handler: BTreeMap<&'static str, Sizes>,
    by_method: BTreeMap<(&'static str, &'static str), Histogram>,
    all: Histogram,
}

#[derive(Clone, Copy, Debug, Default)]
struct Sizes {
    n_requests: u64,
    request_bytes: u64,
    response_bytes: u64,
}

impl Default for WebTally {
    fn default() -> Self {
        Self {
            by_status: BTreeMap::new(),
            by_handler: BTreeMap::new(),
            by_method: BTreeMap::new(),
            all: Histogram::new(FINE),
        }
    }
}

impl WebTally {
    /// Counts one request.
    pub(crate) fn observe(&mut self, visit: &Visit) {
        let &Visit { handler, method, status, request_bytes, response_bytes, took } = visit;
        *self.by_status.entry((handler, method, status)).or_default() += 1;
        let sizes = self.by_handler.entry(handler).or_default();
        sizes.n_requests += 1;
        sizes.request_bytes += request_bytes;
        sizes.response_bytes += response_bytes;
        let seconds = took.as_secs_f64();
        self.by_method.entry((handler, method)).or_insert_with(|| Histogram::new(COARSE)).observe(seconds);
        self.all.observe(seconds);
    }
}

/// Writes the `http_` families. As in the original, one without a request yet has no series and no `_created`.
pub(super) fn write(page: &mut Page, view: &View) {
    let web = &view.web;
    by_status(page, web, view.started_unix);
    let size_help = |of| {
        format!(
            "Content length of {of} by handler. Only value of header is respected. Otherwise ignored. No percentile \
             calculated. "
        )
    };
    let requests = ("http_request_size_bytes", size_help("incoming requests"));
    sizes(page, web, view.started_unix, (requests.0, &requests.1), |s| s.request_bytes);
    let responses = ("http_response_size_bytes", size_help("outgoing responses"));
    sizes(page, web, view.started_unix, (responses.0, &responses.1), |s| s.response_bytes);
    let (name, help) = (
        "http_request_duration_highr_seconds",
        "Latency with many buckets but no API specific labels. Made for more accurate percentile calculations. ",
    );
    page.family(name, help, "histogram");
    page.histogram(name, &[], &web.all);
    page.family("http_request_duration_highr_seconds_created", help, "gauge");
    page.sample("http_request_duration_highr_seconds_created", &[], view.started_unix);
    durations(page, web, view.started_unix);
}

fn by_status(page: &mut Page, web: &WebTally, created: f64) {
    let help = "Total number of requests by method, status and handler.";
    page.family("http_requests_total", help, "counter");
    for (&(handler, method, status), &n) in &web.by_status {
        page.sample("http_requests_total", &[("handler", handler), ("method", method), ("status", status)], n as f64);
    }
    if web.by_status.is_empty() {
        return;
    }
    page.family("http_requests_created", help, "gauge");
    for &(handler, method, status) in web.by_status.keys() {
        page.sample("http_requests_created", &[("handler", handler), ("method", method), ("status", status)], created);
    }
}

fn sizes(page: &mut Page, web: &WebTally, created: f64, (name, help): (&str, &str), bytes: fn(&Sizes) -> u64) {
    page.family(name, help, "summary");
    let (count, sum, created_name) = (format!("{name}_count"), format!("{name}_sum"), format!("{name}_created"));
    for (handler, sizes) in &web.by_handler {
        page.sample(&count, &[("handler", handler)], sizes.n_requests as f64);
        page.sample(&sum, &[("handler", handler)], bytes(sizes) as f64);
    }
    if web.by_handler.is_empty() {
        return;
    }
    page.family(&created_name, help, "gauge");
    for handler in web.by_handler.keys() {
        page.sample(&created_name, &[("handler", handler)], created);
    }
}

fn durations(page: &mut Page, web: &WebTally, created: f64) {
    let (name, help) = (
        "http_request_duration_seconds",
        "Latency with only few buckets by handler. Made to be only used if aggregation by handler is important. ",
    );
    page.family(name, help, "histogram");
    for (&(handler, method), histogram) in &web.by_method {
        page.histogram(name, &[("handler", handler), ("method", method)], histogram);
    }
    if web.by_method.is_empty() {
        return;
    }
    page.family("http_request_duration_seconds_created", help, "gauge");
    for &(handler, method) in web.by_method.keys() {
        let labels = [("handler", handler), ("method", method)];
        page.sample("http_request_duration_seconds_created", &labels, created);
    }
}
