//! Rollouts of reinforcement learning, made of a few numbers: all samples of a step at once, then new weights.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// The parameters of a set of rollouts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rollouts {
    /// Prompts of a step.
    pub groups: u32,
    /// Answers to each prompt.
    pub samples: u32,
    /// Median tokens of a prompt.
    pub prompt: u32,
    /// Median tokens of an answer. Lengths have a log-normal distribution.
    pub output: u32,
    /// How wide that is: the deviation of the logarithm, of prompts half as much.
    pub sigma: f64,
    /// No answer is longer.
    pub most: u32,
    /// Turns of a trajectory.
    pub turns: u32,
    /// Median seconds that tools take between two turns.
    pub gap: f64,
    /// Tokens that tools say between two turns.
    pub tool: u32,
    /// How many times all of that happens.
    pub steps: u32,
    /// Seconds between two steps, in which the weights change and caches become worthless.
    pub pause: f64,
}

impl Default for Rollouts {
    fn default() -> Self {
        Self {
            groups: 64,
            samples: 8,
            prompt: 1024,
            output: 512,
            sigma: 0.8,
            most: 8192,
            turns: 1,
            gap: 2.0,
            tool: 256,
            steps: 2,
            pause: 5.0,
        }
    }
}

/// More requests than this are taken for a slip.
const MOST_REQUESTS: u64 = 100_000_000;
/// A longer prompt or answer is taken for one, too.
const MOST_TOKENS: u32 = 10_000_000;

impl FromStr for Rollouts {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut all = Self::default();
        for part in text.split(',').filter(|part| !part.trim().is_empty()) {
            let (name, value) = part.split_once('=').ok_or_else(|| format!("expected NAME=NUMBER, found {part:?}"))?;
            let (name, value) = (name.trim(), value.trim());
            let whole =
                || value.parse::<u32>().map_err(|_| format!("{name}: expected a whole number, found {value:?}"));
            let number = || {
                let number = value.parse::<f64>().ok().filter(|n| (0.0..1e9).contains(n));
                number.ok_or_else(|| format!("{name}: expected a number of at least 0, found {value:?}"))
            };
            match name {
                "groups" => all.groups = whole()?,
                "samples" => all.samples = whole()?,
                "prompt" => all.prompt = whole()?,
                "output" => all.output = whole()?,
                "sigma" => all.sigma = number()?,
                "most" => all.most = whole()?,
                "turns" => all.turns = whole()?,
                "gap" => all.gap = number()?,
                "tool" => all.tool = whole()?,
                "steps" => all.steps = whole()?,
                "pause" => all.pause = number()?,
                _ => {
                    return Err(format!(
                        "expected groups, samples, prompt, output, sigma, most, turns, gap, tool, steps or pause, found {name:?}"
                    ));
                }
            }
        }
        all.check()?;
        Ok(all)
    }
}

impl fmt::Display for Rollouts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { groups, samples, prompt, output, sigma, most, turns, gap, tool, steps, pause } = self;
        write!(
            f,
            "groups={groups},samples={samples},prompt={prompt},output={output},sigma={sigma},most={most},turns={turns},\
             gap={gap},tool={tool},steps={steps},pause={pause}"
        )
    }
}

impl Rollouts {
    fn check(&self) -> Result<(), String> {
        let at_least_one = [
            ("groups", self.groups),
            ("samples", self.samples),
            ("prompt", self.prompt),
            ("output", self.output),
            ("most", self.most),
            ("turns", self.turns),
            ("steps", self.steps),
        ];
        if let Some((name, _)) = at_least_one.iter().find(|(_, n)| *n == 0) {
            return Err(format!("{name}: expected at least 1, found 0"));
        }
        if let Some((name, n)) =
            [("prompt", self.prompt), ("output", self.output), ("most", self.most), ("tool", self.tool)]
                .into_iter()
                .find(|(_, n)| *n > MOST_TOKENS)
        {
            return Err(format!("{name}: expected at most {MOST_TOKENS}, found {n}"));
        }
        let counts = [self.groups, self.samples, self.turns, self.steps].map(u64::from);
        match counts.iter().try_fold(1_u64, |n, more| n.checked_mul(*more)) {
            Some(n) if n <= MOST_REQUESTS => Ok(()),
            _ => Err(format!("expected at most {MOST_REQUESTS} requests in all")),
        }
    }

    /// The length of a prompt.
    pub(super) fn prompt_tokens(&self, rng: &mut fastrand::Rng) -> u32 {
        log_normal(rng, self.prompt.into(), self.sigma / 2.0).clamp(1.0, f64::from(MOST_TOKENS)) as u32
    }

    /// The length of an answer.
    pub(super) fn output_tokens(&self, rng: &mut fastrand::Rng) -> u32 {
        log_normal(rng, self.output.into(), self.sigma).clamp(1.0, self.most.into()) as u32
    }

    /// How long tools take.
    pub(super) fn tool_time(&self, rng: &mut fastrand::Rng) -> Duration {
        Duration::from_secs_f64(log_normal(rng, self.gap, 0.5).clamp(0.0, 1e9))
    }
}

fn log_normal(rng: &mut fastrand::Rng, median: f64, sigma: f64) -> f64 {
    let (a, b) = (1.0 - rng.f64(), rng.f64());
    let normal = (-2.0 * a.ln()).sqrt() * (std::f64::consts::TAU * b).cos();
    median * (sigma * normal).exp()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let all: Rollouts = "groups=4, samples=2,turns=3,gap=0.5".parse().unwrap();
        assert_eq!((all.groups, all.samples, all.turns, all.gap, all.prompt), (4, 2, 3, 0.5, 1024));
        assert_eq!(all.to_string().parse(), Ok(all));
    }

    #[test]
    fn what_cannot_be_is_named() {
        for (text, says) in [
            ("groups", "expected NAME=NUMBER, found \"groups\""),
            ("groups=0", "groups: expected at least 1, found 0"),
            ("groups=-1", "groups: expected a whole number, found \"-1\""),
            ("gap=nan", "gap: expected a number of at least 0, found \"nan\""),
            ("groups=4000000000,samples=4000000000,steps=4000000000", "expected at most 100000000 requests in all"),
            ("prompt=4000000000", "prompt: expected at most 10000000, found 4000000000"),
        ] {
            assert_eq!(text.parse::<Rollouts>(), Err(says.to_owned()));
        }
    }
}
