//! Chance for generated traffic: one seed gives one row of numbers on any machine of the same arithmetic.

use serde::Deserialize;

use crate::ids::mix;

/// Numbers that look random; SplitMix64.
#[derive(Clone, Debug)]
pub struct Chance(u64);

impl Chance {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// Above 0 and below 1, every value as likely.
    fn share(&mut self) -> f64 {
        ((self.bits() >> 11) as f64 + 0.5) / (1_u64 << 53) as f64
    }

    /// Mean 0, deviation 1.
    fn normal(&mut self) -> f64 {
        let (radius, angle) = ((-2.0 * self.share().ln()).sqrt(), std::f64::consts::TAU * self.share());
        radius * angle.cos()
    }

    /// A gamma distribution of mean 1 and this coefficient of variation; 1 makes it exponential, 0 always 1. By the
    /// method of Marsaglia and Tsang, 2000.
    pub fn gamma(&mut self, cv: f64) -> f64 {
        if cv <= 0.0 {
            return 1.0;
        }
        let shape = 1.0 / (cv * cv);
        // Shapes below 1 are made of the next higher one.
        let (boosted, factor) = if shape < 1.0 { (shape + 1.0, self.share().powf(1.0 / shape)) } else { (shape, 1.0) };
        let d = boosted - 1.0 / 3.0;
        let c = 1.0 / (9.0 * d).sqrt();
        loop {
            let x = self.normal();
            let v = (1.0 + c * x).powi(3);
            if v > 0.0 && self.share().ln() < 0.5 * x * x + d - d * v + d * v.ln() {
                return d * v * factor / shape;
            }
        }
    }
}

/// How long prompts, answers, sessions or pauses are.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase", deny_unknown_fields)]
pub enum Length {
    /// Always the same.
    Fixed(f64),
    /// Every value from one to the other is as likely.
    Uniform { least: f64, most: f64 },
    /// Short ones are likelier.
    Exponential { mean: f64 },
    /// Many short ones, few long ones; `sigma` is the deviation of the logarithm, 0.5 to 2 for prompts.
    LogNormal { median: f64, sigma: f64 },
    /// A long tail; the smaller `alpha`, the longer. At least `least`.
    Pareto { least: f64, alpha: f64 },
    /// One of these, each as often as its weight says.
    Mixture(Vec<Part>),
}

/// A part of a mixture.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Part {
    pub weight: f64,
    pub length: Length,
}

/// How deep mixtures may be inside of each other.
const DEEPEST: usize = 4;

impl Length {
    /// What is wrong with its numbers.
    pub fn mistake(&self) -> Option<String> {
        self.mistake_at(0)
    }

    fn mistake_at(&self, depth: usize) -> Option<String> {
        let from_0 = |name: &str, n: f64| {
            (!n.is_finite() || n < 0.0).then(|| format!("{name}: expected a number from 0 on, found {n}"))
        };
        let above_0 = |name: &str, n: f64| {
            (!n.is_finite() || n <= 0.0).then(|| format!("{name}: expected a number above 0, found {n}"))
        };
        match self {
            Self::Fixed(n) => from_0("fixed", *n),
            Self::Uniform { least, most } if most < least => {
                Some(format!("most: expected at least {least}, found {most}"))
            }
            Self::Uniform { least, most } => from_0("least", *least).or(from_0("most", *most)),
            Self::Exponential { mean } => from_0("mean", *mean),
            Self::LogNormal { median, sigma } => from_0("median", *median).or(from_0("sigma", *sigma)),
            Self::Pareto { least, alpha } => from_0("least", *least).or(above_0("alpha", *alpha)),
            Self::Mixture(_) if depth >= DEEPEST => {
                Some(format!("mixture: expected at most {DEEPEST} in each other, found more"))
            }
            Self::Mixture(parts) if parts.is_empty() => Some("mixture: expected at least one part, found none".into()),
            Self::Mixture(parts) => parts
                .iter()
                .find_map(|part| above_0("weight", part.weight).or_else(|| part.length.mistake_at(depth + 1))),
        }
    }

    /// One value, from 0 on.
    pub fn draw(&self, chance: &mut Chance) -> f64 {
        match self {
            Self::Fixed(n) => *n,
            Self::Uniform { least, most } => least + (most - least) * chance.share(),
            Self::Exponential { mean } => -mean * chance.share().ln(),
            Self::LogNormal { median, sigma } => median * (sigma * chance.normal()).exp(),
            Self::Pareto { least, alpha } => least * chance.share().powf(-1.0 / alpha),
            Self::Mixture(parts) => {
                let mut left = parts.iter().map(|part| part.weight).sum::<f64>() * chance.share();
                for part in parts {
                    left -= part.weight;
                    if left < 0.0 {
                        return part.length.draw(chance);
                    }
                }
                // Rounding may leave a little.
                parts.last().map_or(0.0, |part| part.length.draw(chance))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Mean and coefficient of variation of many draws.
    fn moments(mut draw: impl FnMut() -> f64) -> (f64, f64) {
        const N: usize = 100_000;
        let all: Vec<f64> = (0..N).map(|_| draw()).collect();
        let mean = all.iter().sum::<f64>() / N as f64;
        let variance = all.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / N as f64;
        (mean, variance.sqrt() / mean)
    }

    fn near(found: f64, want: f64) {
        assert!((found - want).abs() < 0.03 * want.max(1.0), "expected about {want}, found {found}");
    }

    #[test]
    fn gaps_have_the_burstiness_that_was_asked_for() {
        for cv in [0.5, 1.0, 2.0] {
            let mut chance = Chance::new(1);
            let (mean, found) = moments(|| chance.gamma(cv));
            near(mean, 1.0);
            near(found, cv);
        }
        assert_eq!(Chance::new(1).gamma(0.0), 1.0);
    }

    #[test]
    fn lengths_have_the_mean_of_their_distribution() {
        let part = |weight, n| Part { weight, length: Length::Fixed(n) };
        for (length, want) in [
            (Length::Fixed(7.0), 7.0),
            (Length::Uniform { least: 2.0, most: 4.0 }, 3.0),
            (Length::Exponential { mean: 5.0 }, 5.0),
            (Length::LogNormal { median: 10.0, sigma: 0.5 }, 10.0 * 0.125_f64.exp()),
            (Length::Pareto { least: 3.0, alpha: 4.0 }, 4.0),
            (Length::Mixture(vec![part(1.0, 1.0), part(3.0, 5.0)]), 4.0),
        ] {
            let mut chance = Chance::new(2);
            near(moments(|| length.draw(&mut chance)).0, want);
        }
    }

    #[test]
    fn impossible_distributions_are_named() {
        for (json, want) in [
            ("{\"fixed\": -1}", "fixed: expected a number from 0 on, found -1"),
            ("{\"uniform\": {\"least\": 2, \"most\": 1}}", "most: expected at least 2, found 1"),
            ("{\"pareto\": {\"least\": 2, \"alpha\": 0}}", "alpha: expected a number above 0, found 0"),
            ("{\"mixture\": []}", "mixture: expected at least one part, found none"),
        ] {
            let length: Length = serde_json::from_str(json).unwrap();
            assert_eq!(length.mistake().as_deref(), Some(want));
        }
    }
}
