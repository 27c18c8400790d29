//! What the rounds came to: whether they may be believed, each figure with its spread, and ratios.

use std::collections::BTreeMap;

use hdrhistogram::Histogram;
use serde::Serialize;

use crate::bench::load::Round;
use crate::bench::tally;

/// The rate at which requests went out may be so far from the one that was asked for, as a share of it.
const RATE_MAY_DIFFER: f64 = 0.01;
/// At least this share of the requests must have got an endpoint.
const MUST_BE_ANSWERED: f64 = 0.99;

/// All rounds of all pickers.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    pub trace: String,
    /// Requests of a round that count, and those before them that do not.
    pub requests: usize,
    pub warm_up: usize,
    pub mode: &'static str,
    pub load: String,
    /// Whether every round kept the rules.
    pub valid: bool,
    /// What was against the rules.
    pub problems: Vec<String>,
    pub pickers: Vec<Picker>,
    /// The first picker against each other one.
    pub ratios: Vec<Ratio>,
}

/// One picker.
#[derive(Clone, Debug, Serialize)]
pub struct Picker {
    pub name: String,
    pub address: String,
    pub rounds: Vec<Figures>,
    /// Each figure over the rounds.
    pub over_rounds: BTreeMap<&'static str, Spread>,
}

/// One round of one picker.
#[derive(Clone, Debug, Serialize)]
pub struct Figures {
    pub sent: usize,
    pub answered: u64,
    pub refused: u64,
    pub failed: u64,
    pub answers_per_second: f64,
    /// From the first request to the last end.
    pub seconds: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate: Option<Rate>,
    /// From when a request should have gone out: what the picker, and this program, kept waiting is in it.
    pub latency: Latency,
    /// From when it went out.
    pub service: Latency,
    /// Of engines' responses, if there were any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub responses: Option<Responses>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub process: Option<Use>,
    pub picks_per_endpoint: BTreeMap<String, u64>,
}

/// Requests a second.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Rate {
    pub asked: f64,
    pub issued: f64,
}

/// Until the endpoint was known, in milliseconds.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Latency {
    pub mean_ms: f64,
    pub p50_ms: f64,
    pub p90_ms: f64,
    pub p99_ms: f64,
    pub p999_ms: f64,
    pub max_ms: f64,
}

/// Whole responses; times count from when the request should have gone out.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Responses {
    pub headers: Latency,
    /// To the first token.
    pub ttft: Latency,
    /// From the first token to the last by the tokens between.
    pub tpot: Latency,
    /// To the end.
    pub e2e: Latency,
    pub prompt_tokens: u64,
    pub cached_tokens: u64,
    pub output_tokens: u64,
    /// Responses that did not say how many tokens there were.
    pub without_usage: u64,
}

/// What the picker's process used.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Use {
    pub cpu_seconds: f64,
    pub cpu_us_per_request: f64,
    pub resident_mb: f64,
    /// Since the process began.
    pub peak_mb: f64,
}

/// A figure over several rounds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Spread {
    pub median: f64,
    pub low: f64,
    pub high: f64,
}

/// A figure of one picker divided by that of another one in the same round.
#[derive(Clone, Debug, Serialize)]
pub struct Ratio {
    pub figure: &'static str,
    pub of: String,
    pub to: String,
    #[serde(flatten)]
    pub spread: Spread,
}

/// The names of the figures in the order of a table.
pub const FIGURES: [&str; 21] = [
    "answers_per_second",
    "seconds",
    "latency_p50_ms",
    "latency_p90_ms",
    "latency_p99_ms",
    "latency_max_ms",
    "service_p50_ms",
    "service_p99_ms",
    "ttft_mean_ms",
    "ttft_p50_ms",
    "ttft_p99_ms",
    "tpot_p50_ms",
    "tpot_p99_ms",
    "e2e_mean_ms",
    "e2e_p50_ms",
    "e2e_p99_ms",
    "cached_percent",
    "cpu_us_per_request",
    "cpu_seconds",
    "resident_mb",
    "peak_mb",
];

impl Report {
    /// Fills in what follows from the rounds of the pickers.
    pub fn conclude(&mut self) {
        for picker in &mut self.pickers {
            for figure in FIGURES {
                let values: Vec<f64> = picker.rounds.iter().filter_map(|round| round.figure(figure)).collect();
                if let Some(spread) = Spread::of(values) {
                    picker.over_rounds.insert(figure, spread);
                }
            }
            for (round, figures) in (1..).zip(&picker.rounds) {
                self.problems.extend(figures.problems().map(|what| format!("{}, round {round}: {what}", picker.name)));
            }
        }
        if let Some((first, others)) = self.pickers.split_first() {
            self.ratios = others.iter().flat_map(|other| ratios(first, other)).collect();
        }
        self.valid = self.problems.is_empty();
    }
}

fn ratios<'a>(first: &'a Picker, other: &'a Picker) -> impl Iterator<Item = Ratio> + use<'a> {
    FIGURES.into_iter().filter_map(move |figure| {
        let rounds = first.rounds.iter().zip(&other.rounds);
        let each = rounds.filter_map(|(a, b)| Some(a.figure(figure)? / b.figure(figure)?).filter(|r| r.is_finite()));
        let spread = Spread::of(each.collect())?;
        Some(Ratio { figure, of: first.name.clone(), to: other.name.clone(), spread })
    })
}

impl Spread {
    /// The median, the least and the greatest; nothing of nothing.
    fn of(mut values: Vec<f64>) -> Option<Self> {
        values.sort_by(f64::total_cmp);
        let (low, high) = (*values.first()?, *values.last()?);
        let middle = values.len() / 2;
        let median = if values.len() % 2 == 1 { values[middle] } else { (values[middle - 1] + values[middle]) / 2.0 };
        Some(Self { median, low, high })
    }
}

impl Figures {
    /// The figures of a round.
    pub fn of(round: &Round) -> Self {
        let Round { sent, tally, generates, issued, took, used } = round;
        let answered = tally.answered;
        let seconds = took.as_secs_f64();
        // Between n requests are n - 1 gaps; requests of one moment have no rate.
        let gaps = sent.saturating_sub(1) as f64;
        let rate = issued.filter(|issued| gaps > 0.0 && !issued.asked.is_zero()).map(|issued| Rate {
            asked: gaps / issued.asked.as_secs_f64(),
            issued: gaps / issued.took.as_secs_f64().max(f64::MIN_POSITIVE),
        });
        Self {
            sent: *sent,
            answered,
            refused: tally.refused,
            failed: tally.failed,
            answers_per_second: if seconds > 0.0 { answered as f64 / seconds } else { 0.0 },
            seconds,
            rate,
            latency: Latency::of(&tally.latency),
            service: Latency::of(&tally.service),
            responses: generates.then(|| Responses::of(&tally.responses)),
            process: used.map(|used| Use {
                cpu_seconds: used.on_cpu.as_secs_f64(),
                cpu_us_per_request: used.on_cpu.as_secs_f64() * 1e6 / (*sent).max(1) as f64,
                resident_mb: used.memory.resident as f64 / 1e6,
                peak_mb: used.memory.peak as f64 / 1e6,
            }),
            picks_per_endpoint: tally.picks.clone(),
        }
    }

    fn figure(&self, name: &str) -> Option<f64> {
        match name {
            "answers_per_second" => Some(self.answers_per_second),
            "seconds" => self.responses.map(|_| self.seconds),
            "latency_p50_ms" => Some(self.latency.p50_ms),
            "latency_p90_ms" => Some(self.latency.p90_ms),
            "latency_p99_ms" => Some(self.latency.p99_ms),
            "latency_max_ms" => Some(self.latency.max_ms),
            "service_p50_ms" => Some(self.service.p50_ms),
            "service_p99_ms" => Some(self.service.p99_ms),
            "ttft_mean_ms" => self.responses.map(|r| r.ttft.mean_ms),
            "ttft_p50_ms" => self.responses.map(|r| r.ttft.p50_ms),
            "ttft_p99_ms" => self.responses.map(|r| r.ttft.p99_ms),
            "tpot_p50_ms" => self.responses.map(|r| r.tpot.p50_ms),
            "tpot_p99_ms" => self.responses.map(|r| r.tpot.p99_ms),
            "e2e_mean_ms" => self.responses.map(|r| r.e2e.mean_ms),
            "e2e_p50_ms" => self.responses.map(|r| r.e2e.p50_ms),
            "e2e_p99_ms" => self.responses.map(|r| r.e2e.p99_ms),
            "cached_percent" => self.responses.and_then(|r| r.cached_percent()),
            "cpu_us_per_request" => self.process.map(|p| p.cpu_us_per_request),
            "cpu_seconds" => self.process.map(|p| p.cpu_seconds),
            "resident_mb" => self.process.map(|p| p.resident_mb),
            "peak_mb" => self.process.map(|p| p.peak_mb),
            _ => None,
        }
    }

    /// What makes the round one that proves nothing.
    fn problems(&self) -> impl Iterator<Item = String> {
        let rate = self
            .rate
            .filter(|rate| (rate.issued / rate.asked - 1.0).abs() > RATE_MAY_DIFFER)
            .map(|rate| format!("expected {:.3} requests a second within 1 %, sent {:.3}", rate.asked, rate.issued));
        let share = self.answered as f64 / self.sent.max(1) as f64;
        let answered = (share < MUST_BE_ANSWERED).then(|| {
            format!(
                "expected at least 99 % of the requests to get {}, {} of {} did ({} refused, {} failed)",
                if self.responses.is_some() { "a whole response" } else { "an endpoint" },
                self.answered,
                self.sent,
                self.refused,
                self.failed
            )
        });
        rate.into_iter().chain(answered)
    }
}

impl Responses {
    fn of(of: &tally::Responses) -> Self {
        Self {
            headers: Latency::of(&of.headers),
            ttft: Latency::of(&of.ttft),
            tpot: Latency::of(&of.tpot),
            e2e: Latency::of(&of.e2e),
            prompt_tokens: of.prompt_tokens,
            cached_tokens: of.cached_tokens,
            output_tokens: of.output_tokens,
            without_usage: of.without_usage,
        }
    }

    /// The share of the prompt tokens that were cached; nothing if no response told of any.
    fn cached_percent(&self) -> Option<f64> {
        (self.prompt_tokens > 0).then(|| self.cached_tokens as f64 / self.prompt_tokens as f64 * 100.0)
    }
}

impl Latency {
    fn of(nanos: &Histogram<u64>) -> Self {
        let ms = |nanos: u64| nanos as f64 / 1e6;
        let at = |quantile| ms(nanos.value_at_quantile(quantile));
        Self {
            mean_ms: nanos.mean() / 1e6,
            p50_ms: at(0.5),
            p90_ms: at(0.9),
            p99_ms: at(0.99),
            p999_ms: at(0.999),
            max_ms: ms(nanos.max()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::bench::load::Issued;
    use crate::bench::tally::Tally;

    fn round(sent: usize, n_answered: u64, millis: u64, asked: u64, took: u64) -> Figures {
        let mut tally = Tally::default();
        (0..n_answered).for_each(|_| tally.latency.record(millis * 1_000_000).unwrap());
        tally.answered = n_answered;
        let issued = Some(Issued { asked: Duration::from_millis(asked), took: Duration::from_millis(took) });
        Figures::of(&Round { sent, tally, generates: false, issued, took: Duration::from_secs(1), used: None })
    }

    fn report(of: [Vec<Figures>; 2]) -> Report {
        let pickers = ["a", "b"].into_iter().zip(of).map(|(name, rounds)| Picker {
            name: name.into(),
            address: String::new(),
            rounds,
            over_rounds: BTreeMap::new(),
        });
        let mut report = Report {
            trace: String::new(),
            requests: 0,
            warm_up: 0,
            mode: "direct",
            load: String::new(),
            valid: false,
            problems: Vec::new(),
            pickers: pickers.collect(),
            ratios: Vec::new(),
        };
        report.conclude();
        report
    }

    #[test]
    fn a_round_that_was_sent_too_slowly_or_not_answered_proves_nothing() {
        for (sent, answered, took, problems) in [
            (100, 100, 1000, vec![]),
            (100, 99, 1009, vec![]),
            (101, 101, 1012, vec!["a, round 1: expected 100.000 requests a second within 1 %, sent 98.814"]),
            (101, 101, 985, vec!["a, round 1: expected 100.000 requests a second within 1 %, sent 101.523"]),
            (
                100,
                98,
                1000,
                vec![
                    "a, round 1: expected at least 99 % of the requests to get an endpoint, 98 of 100 did (0 refused, 0 failed)",
                ],
            ),
        ] {
            let report = report([vec![round(sent, answered, 1, 1000, took)], Vec::new()]);
            assert_eq!(
                (report.valid, report.problems),
                (problems.is_empty(), problems.iter().map(|p| (*p).to_owned()).collect())
            );
        }
    }

    #[test]
    fn requests_of_one_moment_have_no_rate_to_keep() {
        let figures = round(10, 10, 1, 0, 5);
        assert!(figures.rate.is_none() && figures.problems().next().is_none());
    }

    #[test]
    fn ratios_are_of_the_same_round_with_their_spread() {
        let rounds = |millis: [u64; 3]| millis.map(|ms| round(10, 10, ms, 0, 0)).to_vec();
        let report = report([rounds([10, 30, 20]), rounds([20, 20, 20])]);
        let ratio = report.ratios.iter().find(|ratio| ratio.figure == "latency_p50_ms").unwrap();
        let rounded = [ratio.spread.median, ratio.spread.low, ratio.spread.high].map(|r| (r * 100.0).round() / 100.0);
        assert_eq!((rounded, ratio.of.as_str(), ratio.to.as_str()), ([1.0, 0.5, 1.5], "a", "b"));
        let p50 = report.pickers[0].over_rounds["latency_p50_ms"];
        assert!((p50.median - 20.0).abs() < 0.1 && p50.low < 10.1 && p50.high > 29.9, "{p50:?}");
    }
}
