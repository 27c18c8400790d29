//! Durations as configs and flags write them: `1m30s`, `500ms`, `0s`.

use std::time::Duration;

/// Why a text is no duration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DurationError {
    #[error("expected a duration such as 1m30s or 500ms")]
    Syntax,
    #[error("expected a duration that is not negative")]
    Negative,
    #[error("expected a duration below 292 years")]
    TooLong,
}

/// Reads numbers with units (`ns`, `us`, `ms`, `s`, `m`, `h`), one after the other; fractions are fine, and a bare `0`.
///
/// # Errors
/// If the text is anything else, negative, or too long for 63 bits of nanoseconds.
pub fn parse_duration(text: &str) -> Result<Duration, DurationError> {
    let (negative, unsigned) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let nanos = if unsigned == "0" { 0 } else { nanoseconds(unsigned)? };
    if negative && nanos > 0 {
        return Err(DurationError::Negative);
    }
    i64::try_from(nanos).map_err(|_| DurationError::TooLong)?;
    u64::try_from(nanos).map(Duration::from_nanos).map_err(|_| DurationError::TooLong)
}

fn nanoseconds(text: &str) -> Result<u128, DurationError> {
    if text.is_empty() {
        return Err(DurationError::Syntax);
    }
    let mut rest = text;
    let mut sum: u128 = 0;
    while !rest.is_empty() {
        let (whole, after) = digits(rest);
        let (fraction, after) = match after.strip_prefix('.') {
            Some(after) => digits(after),
            None => ("", after),
        };
        if whole.is_empty() && fraction.is_empty() {
            return Err(DurationError::Syntax);
        }
        let unit_end = after.find(|c: char| c == '.' || c.is_ascii_digit()).unwrap_or(after.len());
        let (unit, after) = after.split_at(unit_end);
        let unit = nanos_per(unit).ok_or(DurationError::Syntax)?;
        sum = sum.checked_add(scaled(whole, fraction, unit)?).ok_or(DurationError::TooLong)?;
        rest = after;
    }
    Ok(sum)
}

fn digits(text: &str) -> (&str, &str) {
    text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()))
}

fn nanos_per(unit: &str) -> Option<u64> {
    Some(match unit {
        "ns" => 1,
        "us" | "µs" | "μs" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        "m" => 60_000_000_000,
        "h" => 3_600_000_000_000,
        _ => return None,
    })
}

fn scaled(whole: &str, fraction: &str, unit: u64) -> Result<u128, DurationError> {
    let whole: u64 = match whole {
        "" => 0,
        _ => whole.parse().map_err(|_| DurationError::TooLong)?,
    };
    // Digits beyond the twentieth are far below a nanosecond.
    let fraction = &fraction[..fraction.len().min(20)];
    let (part, scale) =
        fraction.bytes().fold((0_u128, 1_u128), |(part, scale), c| (part * 10 + u128::from(c - b'0'), scale * 10));
    // Below 10^20 * 3.6 * 10^12, so it fits.
    Ok(u128::from(whole) * u128::from(unit) + part * u128::from(unit) / scale)
}

/// Writes a duration so that [`parse_duration`] reads the same one.
pub fn write_duration(duration: Duration) -> String {
    let nanos = duration.as_nanos();
    match nanos {
        n if n % 1_000_000_000 == 0 => format!("{}s", n / 1_000_000_000),
        n if n % 1_000_000 == 0 => format!("{}ms", n / 1_000_000),
        n => format!("{n}ns"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_read_as_durations() {
        for (text, nanos) in [
            ("0", 0),
            ("0s", 0),
            ("-0s", 0),
            ("60s", 60_000_000_000),
            ("1m30s", 90_000_000_000),
            ("500ms", 500_000_000),
            ("1.5h", 5_400_000_000_000),
            (".5s", 500_000_000),
            ("1.s", 1_000_000_000),
            ("+1us", 1_000),
            ("2µs", 2_000),
            ("1h2m3s4ms5us6ns", 3_723_004_005_006),
            ("0.000000001s", 1),
            ("0.3333333333333333333h", 1_200_000_000_000 - 1),
            ("0.1s", 100_000_000),
        ] {
            assert_eq!(parse_duration(text), Ok(Duration::from_nanos(nanos)), "{text}");
        }
    }

    #[test]
    fn what_is_no_duration_is_refused() {
        use DurationError::{Negative, Syntax, TooLong};
        for (text, want) in [
            ("", Syntax),
            ("5", Syntax),
            ("soon", Syntax),
            ("s", Syntax),
            (".s", Syntax),
            ("1 s", Syntax),
            ("1d", Syntax),
            ("1s-1s", Syntax),
            ("--1s", Syntax),
            ("-1s", Negative),
            ("99999999999h", TooLong),
            ("99999999999999999999s", TooLong),
        ] {
            assert_eq!(parse_duration(text), Err(want), "{text}");
        }
    }

    #[test]
    fn a_written_duration_reads_as_the_same() {
        for nanos in [0, 1, 1_500_000_000, 250_000_000, 60_000_000_000, 1_234_567_891] {
            let duration = Duration::from_nanos(nanos);
            assert_eq!(parse_duration(&write_duration(duration)), Ok(duration));
        }
    }
}
