//! Room 8: the response is seen as it goes by: usage and times are read off it, and the client's model name is put back.

use std::borrow::Cow;

use bytes::Bytes;
use epp_plugin_api::{Call, ModelRestorer, Parting, Report, ResponseEnd, ResponseKind, ResponseParser, Usage};
use tokio::time::Instant;

use crate::ext_proc::exchange::Exchange;
use crate::ext_proc::metrics::Finished;
use crate::ext_proc::wire::HttpHeaders;

/// A response on its way to the client.
pub struct Response {
    began: Instant,
    streaming: bool,
    failed: bool,
    parser: Option<Box<dyn ResponseParser>>,
    restorer: Option<ModelRestorer>,
    bytes: u64,
    first_chunk: Option<Instant>,
    last_chunk: Option<Instant>,
    usage: Usage,
    complete: bool,
    reports: Vec<Report>,
    calls: Vec<Call>,
}

impl Response {
    /// Reads the response's headers. `bodies_are_seen`: Envoy will show the response's body.
    pub fn new(message: &HttpHeaders, exchange: Option<&Exchange>, bodies_are_seen: bool, now: Instant) -> Self {
        let mut failed = false;
        let mut events = false;
        let mut encoded = false;
        for header in message.headers.iter().flat_map(|map| &map.headers) {
            let value = String::from_utf8_lossy(header.bytes());
            if header.key == ":status" || header.key == "status" {
                // A status that is no number is unknown, which is no failure.
                failed |= value.trim().parse().is_ok_and(|code: u16| !(200..300).contains(&code));
            } else if header.key.eq_ignore_ascii_case("content-type") {
                events |= value.to_ascii_lowercase().contains("text/event-stream");
            } else if header.key.eq_ignore_ascii_case("content-encoding") {
                encoded |= !matches!(value.trim(), "" | "identity");
            }
        }
        let kind = if events { ResponseKind::Events } else { ResponseKind::Whole };
        let readable = bodies_are_seen && !encoded;
        let reader = exchange.and_then(|e| e.reader.as_ref()).filter(|_| readable);
        let renamed = exchange.and_then(|e| e.renamed.as_ref()).filter(|_| readable);
        Self {
            began: now,
            streaming: events || exchange.is_some_and(|e| e.stream),
            failed,
            parser: reader.map(|r| r.parser.parser.response(&r.path, kind)),
            restorer: renamed.and_then(|r| ModelRestorer::new(&r.target, &r.client)),
            bytes: 0,
            first_chunk: None,
            last_chunk: None,
            usage: Usage::default(),
            complete: false,
            reports: Vec::new(),
            calls: Vec::new(),
        }
    }

    /// Whether the body may be changed on its way.
    pub fn rewrites(&self) -> bool {
        self.restorer.is_some()
    }

    /// Whether the end has been seen.
    pub fn is_complete(&self) -> bool {
        self.complete
    }

    /// Takes the next chunk; returns what goes on to the client.
    pub fn chunk(&mut self, chunk: Bytes, end: bool, exchange: &mut Exchange, now: Instant) -> Bytes {
        self.bytes += chunk.len() as u64;
        if !chunk.is_empty() {
            if self.first_chunk.is_none() {
                self.first_chunk = Some(now);
                exchange.each(|held| held.response_began());
                exchange.load.iter().for_each(|load| load.slot.lightened());
            } else if let Some(last) = self.last_chunk.filter(|_| self.streaming) {
                exchange.series.inter_token(now - last);
            }
            self.last_chunk = Some(now);
            exchange.each(|held| held.response_chunk(now));
        }
        self.read(&chunk, end, exchange);
        let Some(restorer) = &mut self.restorer else { return chunk };
        let mut out = match restorer.push(&chunk) {
            Cow::Borrowed(part) => chunk.slice_ref(part),
            Cow::Owned(changed) => Bytes::from(changed),
        };
        if end {
            let rest = restorer.finish();
            if !rest.is_empty() {
                out = [&out[..], &rest[..]].concat().into();
            }
        }
        out
    }

    fn read(&mut self, chunk: &[u8], end: bool, exchange: &Exchange) {
        let (Some(parser), Some(reader)) = (&mut self.parser, &exchange.reader) else { return };
        let began = Instant::now();
        let mut reports = [parser.feed(chunk), None];
        if end {
            reports[1] = parser.finish();
        }
        reader.parser.response.observe(began.elapsed());
        for usage in reports.into_iter().flatten() {
            exchange.series.usage(&usage);
            self.usage = usage;
        }
    }

    /// The response is complete: tells the metrics and gives back what the request held.
    pub fn finish(&mut self, exchange: &mut Exchange, now: Instant) {
        if std::mem::replace(&mut self.complete, true) {
            return;
        }
        exchange.series.finished(&Finished {
            duration: now - exchange.received,
            response_bytes: self.bytes,
            first_chunk: self.first_chunk.map(|at| at - exchange.received),
            streaming: self.streaming,
            output_tokens: self.usage.completion,
        });
        if let Some((expected, record)) = exchange.expected.take().filter(|_| !self.failed) {
            expected.ended(&self.usage, &record);
        }
        let end = ResponseEnd { usage: self.usage, streaming: self.streaming, now };
        exchange.each(|held| {
            let Parting { reports, calls } = held.response_ended(&end);
            self.reports.extend(reports);
            self.calls.extend(calls);
        });
        exchange.load = None;
    }

    /// What plugins have reported at the end, once.
    pub fn take_reports(&mut self) -> Vec<Report> {
        std::mem::take(&mut self.reports)
    }

    /// The calls that plugins have asked for at the end, once.
    pub fn take_calls(&mut self) -> Vec<Call> {
        std::mem::take(&mut self.calls)
    }

    /// How long the response has been under way.
    pub fn age(&self, now: Instant) -> std::time::Duration {
        now - self.began
    }

    /// Whether the engine answered with an error.
    pub fn failed(&self) -> bool {
        self.failed
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use epp_plugin_api::MetricHub;

    use super::*;
    use crate::ext_proc::metrics::RequestMetrics;
    use crate::ext_proc::wire::{HeaderMap, HeaderValue};
    use crate::telemetry::exposition::{Format, page};

    /// Lets a streamed response go by whose chunks come so long after the request, and returns the page.
    fn streamed(chunks: &[Duration]) -> String {
        let hub = MetricHub::default();
        let received = Instant::now();
        let series = RequestMetrics::new(&hub).series("m", "m", "f", 0);
        let mut exchange = Exchange {
            received,
            reader: None,
            stream: true,
            renamed: None,
            explanation: None,
            load: None,
            expected: None,
            _running: None,
            series,
        };
        let mut response = Response::new(&HttpHeaders::default(), Some(&exchange), true, received);
        for (i, after) in chunks.iter().enumerate() {
            response.chunk(Bytes::from_static(b"x"), i + 1 == chunks.len(), &mut exchange, received + *after);
        }
        response.finish(&mut exchange, received + chunks[chunks.len() - 1]);
        page(&hub, Format::Text).expect("no collector")
    }

    fn sample(page: &str, family: &str, label: &str) -> f64 {
        let line = page.lines().find(|l| l.starts_with(family) && l.contains(label));
        line.and_then(|l| l.rsplit(' ').next()?.parse().ok()).unwrap_or_else(|| panic!("no {family} in {page}"))
    }

    #[test]
    fn the_time_to_the_first_chunk_is_that_of_the_first() {
        let chunks: Vec<_> = (0..11).map(|i| Duration::from_millis(200 + i * 280)).collect();
        let page = streamed(&chunks);
        assert_eq!(sample(&page, "llm_d_epp_request_ttft_seconds_sum", ""), 0.2);
        assert_eq!(sample(&page, "llm_d_epp_request_ttft_seconds_count", ""), 1.0);
        assert_eq!(sample(&page, "llm_d_epp_request_streaming_itl_seconds_count", ""), 10.0);
    }

    #[test]
    fn a_request_of_forty_minutes_falls_in_a_finite_bucket() {
        let page = streamed(&[Duration::from_secs(40 * 60)]);
        assert_eq!(sample(&page, "llm_d_epp_request_duration_seconds_bucket", "le=\"1800\""), 0.0);
        assert_eq!(sample(&page, "llm_d_epp_request_duration_seconds_bucket", "le=\"2700\""), 1.0);
    }

    #[test]
    fn only_a_status_that_is_known_to_be_bad_is_a_failure() {
        let failed = |status: &'static str| {
            let header = HeaderValue {
                key: ":status".into(),
                value: Bytes::new(),
                raw_value: Bytes::from_static(status.as_bytes()),
            };
            let message = HttpHeaders { headers: Some(HeaderMap { headers: vec![header] }), end_of_stream: false };
            Response::new(&message, None, true, Instant::now()).failed()
        };
        let got = ["200", "204", "abc", "", "404", "503"].map(failed);
        assert_eq!(got, [false, false, false, false, true, true]);
    }
}
