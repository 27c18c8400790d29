//! Counts how requests ended and how long they took.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

use crate::bench::target::Outcome;

/// Latencies are kept to three digits.
const DIGITS: u8 = 3;
/// A longer one counts as this.
const LONGEST: Duration = Duration::from_secs(3600);

/// How requests ended.
#[derive(Debug)]
pub struct Tally {
    /// From when a request should have been sent to when its endpoint was known, or the headers of its response were
    /// there, in nanoseconds.
    pub latency: Histogram<u64>,
    /// The same from when it was sent.
    pub service: Histogram<u64>,
    pub picks: BTreeMap<String, u64>,
    /// Requests that got what they asked for: an endpoint, or a whole response.
    pub answered: u64,
    pub refused: u64,
    pub failed: u64,
    pub responses: Responses,
    /// The first refusal or failure.
    pub complaint: Option<String>,
}

/// Whole responses.
#[derive(Debug)]
pub struct Responses {
    /// From when a request should have been sent, in nanoseconds: to the headers, the first token, the end.
    pub headers: Histogram<u64>,
    pub ttft: Histogram<u64>,
    pub e2e: Histogram<u64>,
    /// From the first token to the last by the tokens between, of responses with several.
    pub tpot: Histogram<u64>,
    pub prompt_tokens: u64,
    pub cached_tokens: u64,
    pub output_tokens: u64,
    /// Responses that did not say how many tokens there were.
    pub without_usage: u64,
}

impl Default for Tally {
    fn default() -> Self {
        Self {
            latency: histogram(),
            service: histogram(),
            picks: BTreeMap::new(),
            answered: 0,
            refused: 0,
            failed: 0,
            responses: Responses::default(),
            complaint: None,
        }
    }
}

impl Default for Responses {
    fn default() -> Self {
        Self {
            headers: histogram(),
            ttft: histogram(),
            e2e: histogram(),
            tpot: histogram(),
            prompt_tokens: 0,
            cached_tokens: 0,
            output_tokens: 0,
            without_usage: 0,
        }
    }
}

fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, nanos(LONGEST), DIGITS).expect("a histogram may have three digits and such bounds")
}

fn nanos(took: Duration) -> u64 {
    u64::try_from(took.as_nanos()).unwrap_or(u64::MAX)
}

impl Tally {
    /// Counts a request that should have been sent at `intended`, and was at `sent`. It counts as answered if an endpoint
    /// is known, or, where engines generate, if the response is complete.
    pub fn add(&mut self, outcome: Outcome, generates: bool, intended: Instant, sent: Instant) {
        if let Some((at, endpoint)) = &outcome.known {
            self.latency.saturating_record(nanos(*at - intended));
            self.service.saturating_record(nanos(*at - sent));
            if !endpoint.is_empty() {
                *self.picks.entry(endpoint.clone()).or_default() += 1;
            }
        }
        self.answered += u64::from(if generates { outcome.complete } else { outcome.known.is_some() });
        self.refused += u64::from(outcome.refused);
        self.failed += u64::from(!outcome.refused && !outcome.complete);
        if self.complaint.is_none() {
            self.complaint = outcome.complaint;
        }
        let Some(served) = outcome.served.filter(|_| outcome.complete) else { return };
        let responses = &mut self.responses;
        responses.headers.saturating_record(nanos(served.headers - intended));
        responses.ttft.saturating_record(nanos(served.first_token - intended));
        responses.e2e.saturating_record(nanos(served.ended - intended));
        if served.output_tokens > 1 {
            let each = (served.last_token - served.first_token) / (served.output_tokens - 1);
            responses.tpot.saturating_record(nanos(each));
        }
        responses.output_tokens += u64::from(served.output_tokens);
        match served.usage {
            Some(usage) => {
                responses.prompt_tokens += u64::from(usage.prompt);
                responses.cached_tokens += u64::from(usage.cached.unwrap_or_default());
            }
            None => responses.without_usage += 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::events::Counts;
    use crate::bench::served::Served;

    const MS: Duration = Duration::from_millis(1);

    fn near(found: u64, wanted: Duration) -> bool {
        found.abs_diff(nanos(wanted)) <= found / 500
    }

    #[test]
    fn what_had_to_wait_before_it_was_sent_shows_in_the_latency_alone() {
        let (mut tally, intended) = (Tally::default(), Instant::now());
        for (sent, known) in [(20 * MS - MS / 2, 20 * MS), (Duration::from_secs(100_000), Duration::from_secs(100_000))]
        {
            let known = Some((intended + known, "a:1".to_owned()));
            tally.add(Outcome { known, complete: true, ..Outcome::default() }, false, intended, intended + sent);
        }
        assert!(near(tally.latency.value_at_quantile(0.5), 20 * MS));
        assert!(near(tally.service.max(), MS / 2));
        assert!(near(tally.latency.max(), LONGEST));
        assert_eq!((tally.picks, tally.answered, tally.failed), ([("a:1".to_owned(), 2)].into(), 2, 0));
    }

    #[test]
    fn the_parts_of_a_response_count_from_when_it_should_have_been_asked_for() {
        let (mut tally, intended) = (Tally::default(), Instant::now());
        let served = Served {
            headers: intended + 10 * MS,
            first_token: intended + 50 * MS,
            last_token: intended + 80 * MS,
            ended: intended + 90 * MS,
            output_tokens: 4,
            usage: Some(Counts { prompt: 100, cached: Some(64), completion: 4 }),
        };
        let known = Some((served.headers, "8000".to_owned()));
        let whole = Outcome { known, served: Some(served), complete: true, ..Outcome::default() };
        tally.add(whole, true, intended, intended + 5 * MS);
        tally.add(Outcome { known: Some((intended, String::new())), ..Outcome::default() }, true, intended, intended);
        let responses = &tally.responses;
        for (histogram, wanted) in [
            (&responses.headers, 10 * MS),
            (&responses.ttft, 50 * MS),
            (&responses.e2e, 90 * MS),
            (&responses.tpot, 10 * MS),
        ] {
            assert!(near(histogram.max(), wanted) && histogram.len() == 1, "{wanted:?}");
        }
        assert_eq!((responses.prompt_tokens, responses.cached_tokens, responses.output_tokens), (100, 64, 4));
        assert_eq!((tally.answered, tally.failed, responses.without_usage), (1, 1, 0));
    }
}
