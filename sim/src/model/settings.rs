//! What an engine can hold and what its work costs.

use std::time::Duration;

/// Describes one engine. The costs are those of a mid-size model on one accelerator, rounded.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelSettings {
    /// Tokens a KV block; at least 1. Default 16.
    pub block_size: usize,
    /// KV blocks; at least 1, fewer than 2^32. Prompt and answer of one request never take more than all of them.
    /// Default 2048.
    pub blocks: usize,
    /// Requests in a batch; at least 1. More wait. Default 64.
    pub seats: usize,
    /// Requests that may wait; one more is refused. Default 8192.
    pub queue: usize,
    /// Tokens computed in one step at most, so that a long prompt is spread over several; at least 1. Default 8192.
    pub step_tokens: usize,
    /// Time to compute one prompt token that is not cached. Default 20 µs.
    pub prefill_per_token: Duration,
    /// Time of a step in which some request decodes, whatever the batch. Default 15 ms.
    pub decode_step: Duration,
    /// Time that each decoding request adds to its step. Default 100 µs.
    pub decode_per_request: Duration,
    /// Time that each token before it adds for a decoding request, because its keys and values are read. Default 0.
    pub decode_per_context_token: Duration,
}

impl Default for ModelSettings {
    fn default() -> Self {
        Self {
            block_size: 16,
            blocks: 2048,
            seats: 64,
            queue: 8192,
            step_tokens: 8192,
            prefill_per_token: Duration::from_micros(20),
            decode_step: Duration::from_millis(15),
            decode_per_request: Duration::from_micros(100),
            decode_per_context_token: Duration::ZERO,
        }
    }
}

/// Says which setting makes no engine.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum SettingsError {
    #[error("{name} must be at least 1, found 0")]
    Zero { name: &'static str },
    #[error("{name} must be at most {most}, found {found}")]
    TooMany { name: &'static str, most: usize, found: usize },
    #[error("speed must be a number above 0, found {0}")]
    Speed(f64),
}

impl ModelSettings {
    /// Makes an engine that does everything `speed` times as fast.
    ///
    /// # Errors
    /// If `speed` is not a finite number above zero.
    pub fn sped_up(&self, speed: f64) -> Result<Self, SettingsError> {
        let scale = |cost: Duration| {
            let seconds = cost.as_secs_f64() / speed;
            Duration::try_from_secs_f64(seconds).map_err(|_| SettingsError::Speed(speed))
        };
        if !(speed.is_finite() && speed > 0.0) {
            return Err(SettingsError::Speed(speed));
        }
        Ok(Self {
            prefill_per_token: scale(self.prefill_per_token)?,
            decode_step: scale(self.decode_step)?,
            decode_per_request: scale(self.decode_per_request)?,
            decode_per_context_token: scale(self.decode_per_context_token)?,
            ..self.clone()
        })
    }

    /// How many tokens prompt and answer of one request can have together.
    pub fn window(&self) -> usize {
        self.blocks.saturating_mul(self.block_size)
    }

    /// Checks that such an engine can run.
    pub(super) fn check(&self) -> Result<(), SettingsError> {
        let at_least_one = [
            ("block size", self.block_size),
            ("blocks", self.blocks),
            ("seats", self.seats),
            ("step tokens", self.step_tokens),
        ];
        if let Some((name, _)) = at_least_one.into_iter().find(|(_, n)| *n == 0) {
            return Err(SettingsError::Zero { name });
        }
        let most = u32::MAX as usize;
        match [("blocks", self.blocks), ("block size", self.block_size)].into_iter().find(|(_, n)| *n > most) {
            Some((name, found)) => Err(SettingsError::TooMany { name, most, found }),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn speed_divides_every_cost() {
        let fast = ModelSettings::default().sped_up(10.0).unwrap();
        assert_eq!(fast.prefill_per_token, Duration::from_micros(2));
        assert_eq!(fast.decode_step, Duration::from_micros(1500));
        assert_eq!(fast.decode_per_request, Duration::from_micros(10));
        assert_eq!(fast.blocks, 2048);
    }

    #[test]
    fn a_speed_that_is_none_is_refused() {
        for speed in [0.0, -1.0, f64::NAN, f64::INFINITY, 1e-300] {
            assert!(ModelSettings::default().sped_up(speed).is_err(), "{speed}");
        }
    }

    #[test]
    fn an_engine_without_room_is_refused() {
        let none = ModelSettings { seats: 0, ..ModelSettings::default() };
        assert_eq!(none.check(), Err(SettingsError::Zero { name: "seats" }));
        assert_eq!(ModelSettings::default().check(), Ok(()));
    }
}
