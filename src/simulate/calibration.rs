//! What one type of engine can hold and what its work costs, and where these numbers come from.

use std::time::Duration;

use epp_sim::model::{ModelSettings, SettingsError};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::yaml::{self, Duplicates};

/// Describes a type of engine. Fields that a file leaves out are those of the built-in one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct Calibration {
    /// What it is called in reports.
    pub name: String,
    /// Where the numbers come from.
    pub source: String,
    /// Tokens of a KV block. Default 16.
    pub block_tokens: usize,
    /// KV blocks that there is memory for. Default 27000.
    pub blocks: usize,
    /// Requests in a batch. Default 256.
    pub seats: usize,
    /// Requests that may wait in the engine; one more is refused. Default 65536.
    pub queue: usize,
    /// Tokens computed in one step at most. Default 8192.
    pub step_tokens: usize,
    /// Microseconds to compute one prompt token that is not cached. Default 40.
    pub prefill_micros_per_token: f64,
    /// Milliseconds of a step in which some request decodes, whatever the batch. Default 6.
    pub decode_step_millis: f64,
    /// Microseconds that each decoding request adds to its step. Default 20.
    pub decode_micros_per_request: f64,
    /// Nanoseconds that each token of a decoding request's context adds. Default 49.
    pub decode_nanos_per_context_token: f64,
    /// Milliseconds that it takes to begin to move the blocks of a prompt to another engine. Default 5.
    pub transfer_millis: f64,
    /// Tokens a second of which blocks can be moved there. Default 300000.
    pub transfer_tokens_per_second: f64,
    /// Milliseconds until somebody who asks the engine for its load knows what it said. Default 10.
    pub scrape_delay_millis: f64,
}

impl Default for Calibration {
    /// An 8 billion parameter model in 16 bits on one accelerator with 80 GB.
    fn default() -> Self {
        Self {
            name: "dense-8b-80gb".into(),
            source: "computed from data sheets, not measured: a dense model of 8 billion parameters in 16 bits (32 layers, \
                     8 KV heads of 128) on one accelerator with 80 GB, 3.35 TB/s and 990 TFLOP/s. Prefill: 2 FLOP a \
                     parameter at 40 % of the peak. Decode: 16 GB of weights read at 80 % of the bandwidth for every \
                     step, and 131 kB of keys and values a token of context. Blocks: 90 % of the memory less the weights."
                .into(),
            block_tokens: 16,
            blocks: 27_000,
            seats: 256,
            queue: 65_536,
            step_tokens: 8192,
            prefill_micros_per_token: 40.0,
            decode_step_millis: 6.0,
            decode_micros_per_request: 20.0,
            decode_nanos_per_context_token: 49.0,
            transfer_millis: 5.0,
            transfer_tokens_per_second: 300_000.0,
            scrape_delay_millis: 10.0,
        }
    }
}

impl Calibration {
    /// Every built-in type. docs/simulate.md has the arithmetic.
    pub fn built_in() -> [Self; 3] {
        let computed =
            |of: &str| format!("computed from data sheets, not measured: {of}; docs/simulate.md has the arithmetic");
        let small = Self {
            name: "dense-8b-24gb".into(),
            source: computed(
                "a dense model of 8 billion parameters in 16 bits on one accelerator with 24 GB, 0.6 TB/s and 125 TFLOP/s",
            ),
            blocks: 2670,
            step_tokens: 2048,
            prefill_micros_per_token: 320.0,
            decode_step_millis: 33.0,
            decode_nanos_per_context_token: 273.0,
            transfer_tokens_per_second: 19_000.0,
            ..Self::default()
        };
        let large = Self {
            name: "dense-70b-4x80gb".into(),
            source: computed(
                "a dense model of 70 billion parameters in 16 bits on four accelerators with 80 GB, 3.35 TB/s and \
                 990 TFLOP/s each",
            ),
            blocks: 28_000,
            prefill_micros_per_token: 111.0,
            decode_step_millis: 15.2,
            decode_nanos_per_context_token: 31.0,
            transfer_tokens_per_second: 122_000.0,
            ..Self::default()
        };
        [Self::default(), small, large]
    }

    /// Reads YAML or JSON.
    ///
    /// # Errors
    /// Says what is wrong with it, and where.
    pub fn read(text: &str) -> Result<Self, String> {
        let node = yaml::parse(text, Duplicates::Refuse)
            .map_err(|errors| errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))?;
        let calibration: Self = node.decode().map_err(|why| match why.place {
            Some(place) => format!("{place}: {why}"),
            None => why.to_string(),
        })?;
        calibration.at_speed(1.0)?;
        calibration.transfer()?;
        calibration.scrape_delay()?;
        Ok(calibration)
    }

    /// What it takes to move the blocks of a prompt from one such engine to another.
    ///
    /// # Errors
    /// Says why there is no such time.
    pub fn transfer(&self) -> Result<Transfer, String> {
        let (millis, rate) = (self.transfer_millis, self.transfer_tokens_per_second);
        let fixed = Duration::try_from_secs_f64(millis * 1e-3)
            .map_err(|_| format!("transferMillis must be a time of at least 0, found {millis}"))?;
        if !(rate >= 1.0 && rate.is_finite()) {
            return Err(format!("transferTokensPerSecond must be a number of at least 1, found {rate}"));
        }
        Ok(Transfer { fixed, per_token: Duration::from_secs_f64(1.0 / rate) })
    }

    /// How long it takes until somebody knows what the engine said.
    ///
    /// # Errors
    /// Says why there is no such time.
    pub fn scrape_delay(&self) -> Result<Duration, String> {
        cost("scrapeDelayMillis", self.scrape_delay_millis, 1e-3)
    }

    /// An engine of this type that does everything `speed` times as fast.
    ///
    /// # Errors
    /// Says why there is no such engine.
    pub fn at_speed(&self, speed: f64) -> Result<ModelSettings, String> {
        let settings = ModelSettings {
            block_size: self.block_tokens,
            blocks: self.blocks,
            seats: self.seats,
            queue: self.queue,
            step_tokens: self.step_tokens,
            prefill_per_token: cost("prefillMicrosPerToken", self.prefill_micros_per_token, 1e-6)?,
            decode_step: cost("decodeStepMillis", self.decode_step_millis, 1e-3)?,
            decode_per_request: cost("decodeMicrosPerRequest", self.decode_micros_per_request, 1e-6)?,
            decode_per_context_token: cost("decodeNanosPerContextToken", self.decode_nanos_per_context_token, 1e-9)?,
        };
        let says = |why: SettingsError| why.to_string();
        let settings = settings.sped_up(speed).map_err(says)?;
        epp_sim::model::Model::brief(settings.clone()).map_err(says)?;
        Ok(settings)
    }
}

fn cost(name: &str, value: f64, unit: f64) -> Result<Duration, String> {
    let cost = Duration::try_from_secs_f64(value * unit);
    cost.map_err(|_| format!("{name} must be a time of at least 0, found {value}"))
}

/// What it takes to move the blocks of a prompt.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Transfer {
    /// Whatever is moved.
    pub fixed: Duration,
    pub per_token: Duration,
}

impl Transfer {
    /// How long it takes to move so many tokens.
    pub fn time(&self, tokens: usize) -> Duration {
        self.fixed.saturating_add(self.per_token.saturating_mul(u32::try_from(tokens).unwrap_or(u32::MAX)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_changes_what_it_names() {
        let read = Calibration::read("name: mine\nsource: measured\nseats: 8\nprefillMicrosPerToken: 10.5\n").unwrap();
        assert_eq!((read.seats, read.blocks), (8, Calibration::default().blocks));
        assert_eq!(read.at_speed(0.5).unwrap().prefill_per_token, Duration::from_micros(21));
        assert_eq!(Calibration::read(r#"{"seats": 8}"#).unwrap().seats, 8);
    }

    #[test]
    fn built_in_types_are_engines_of_their_own_names() {
        let mut names: Vec<String> = Calibration::built_in().map(|engine| engine.name).into();
        for engine in Calibration::built_in() {
            assert!(engine.at_speed(1.0).is_ok() && engine.transfer().is_ok(), "{}", engine.name);
        }
        names.dedup();
        assert_eq!(names, ["dense-8b-80gb", "dense-8b-24gb", "dense-70b-4x80gb"]);
    }

    #[test]
    fn what_is_no_engine_is_named() {
        for (text, says) in [
            ("seats: 0\n", "seats must be at least 1, found 0"),
            ("seats: many\n", "line 1 column 8: "),
            ("seat: 1\n", "line 1 column "),
            ("transferMillis: -1\n", "transferMillis must be a time of at least 0, found -1"),
            ("transferTokensPerSecond: 0\n", "transferTokensPerSecond must be a number of at least 1, found 0"),
            ("scrapeDelayMillis: -1\n", "scrapeDelayMillis must be a time of at least 0, found -1"),
            ("prefillMicrosPerToken: -1\n", "prefillMicrosPerToken must be a time of at least 0, found -1"),
        ] {
            let why = Calibration::read(text).unwrap_err();
            assert!(why.contains(says), "{why}");
        }
    }
}
