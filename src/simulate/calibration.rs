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
            scrape_delay_millis: 10.0,
        }
    }
}

impl Calibration {
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
        calibration.scrape_delay()?;
        Ok(calibration)
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
    fn what_is_no_engine_is_named() {
        for (text, says) in [
            ("seats: 0\n", "seats must be at least 1, found 0"),
            ("seats: many\n", "line 1 column 8: "),
            ("seat: 1\n", "line 1 column "),
            ("scrapeDelayMillis: -1\n", "scrapeDelayMillis must be a time of at least 0, found -1"),
            ("prefillMicrosPerToken: -1\n", "prefillMicrosPerToken must be a time of at least 0, found -1"),
        ] {
            let why = Calibration::read(text).unwrap_err();
            assert!(why.contains(says), "{why}");
        }
    }
}
