//! Reads durations as configs write them: `200ms`, `1.5s`, `1h30m`.

use std::time::Duration;

const UNITS: [(&str, f64); 8] =
    [("ns", 1e-9), ("us", 1e-6), ("µs", 1e-6), ("μs", 1e-6), ("ms", 1e-3), ("s", 1.0), ("m", 60.0), ("h", 3600.0)];

/// Reads numbers with units, one after another; their sum counts.
///
/// # Errors
/// Says what was expected if the text is empty, negative, too long a time, or lacks a number or a unit.
pub fn parse(text: &str) -> Result<Duration, String> {
    let refused = || format!("expected a duration such as 200ms or 1m30s, found {text:?}");
    if text == "0" {
        return Ok(Duration::ZERO);
    }
    let mut rest = text.strip_prefix('+').unwrap_or(text);
    if rest.is_empty() {
        return Err(refused());
    }
    let mut seconds = 0.0;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.').ok_or_else(refused)?;
        let number: f64 = rest[..digits].parse().map_err(|_| refused())?;
        let unit_end = rest[digits..].find(|c: char| c.is_ascii_digit() || c == '.').map_or(rest.len(), |n| digits + n);
        let (_, unit) = UNITS.iter().find(|(name, _)| *name == &rest[digits..unit_end]).ok_or_else(refused)?;
        seconds += number * unit;
        rest = &rest[unit_end..];
    }
    Duration::try_from_secs_f64(seconds).map_err(|_| refused())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_numbers_with_units() {
        for (text, millis) in [
            ("200ms", 200),
            ("1s", 1000),
            ("1.5s", 1500),
            ("1m30s", 90_000),
            ("1h", 3_600_000),
            ("0", 0),
            (".5s", 500),
            ("+2s", 2000),
            ("1000us", 1),
        ] {
            assert_eq!(parse(text), Ok(Duration::from_millis(millis)), "{text}");
        }
    }

    #[test]
    fn refuses_what_is_no_duration() {
        for text in ["", "soon", "5", "ms", "-1s", "1 s", "1s2", "1d", "..s", "+", "9999999999999999999999h"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
