//! Quantities as Kubernetes writes them: `10Gi`, `1k`, `500`.

/// Why a text is no quantity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QuantityError {
    #[error("expected a quantity such as 10Gi, 1k or 500")]
    Syntax,
    #[error("expected a quantity that is not negative")]
    Negative,
    #[error("expected a quantity below 2^63")]
    TooLarge,
}

/// Reads a quantity; what is no whole number is rounded away from zero.
///
/// # Errors
/// If the text is no quantity or does not fit.
pub fn parse_quantity(text: &str) -> Result<i64, QuantityError> {
    let (negative, unsigned) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let end = unsigned.find(|c: char| c != '.' && !c.is_ascii_digit()).unwrap_or(unsigned.len());
    let (number, suffix) = unsigned.split_at(end);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if fraction.contains('.') || (whole.is_empty() && fraction.is_empty()) {
        return Err(QuantityError::Syntax);
    }
    let scale = Scale::parse(suffix).ok_or(QuantityError::Syntax)?;
    let size = scaled(whole, fraction, scale).ok_or(QuantityError::TooLarge)?;
    i64::try_from(if negative { -size } else { size }).map_err(|_| QuantityError::TooLarge)
}

/// Reads a size in bytes as flags write it: a quantity, which may end in `B`, with spaces around it.
///
/// # Errors
/// If the text is no size, negative, or does not fit.
pub fn parse_size(text: &str) -> Result<u64, QuantityError> {
    let text = text.trim();
    let text = match text.strip_suffix(['B', 'b']) {
        Some("") | None => text,
        Some(rest) => rest,
    };
    u64::try_from(parse_quantity(text)?).map_err(|_| QuantityError::Negative)
}

enum Scale {
    /// A power of 2.
    Binary(u32),
    /// A power of 10.
    Decimal(i32),
}

impl Scale {
    fn parse(suffix: &str) -> Option<Self> {
        Some(match suffix {
            "" => Self::Decimal(0),
            "Ki" => Self::Binary(10),
            "Mi" => Self::Binary(20),
            "Gi" => Self::Binary(30),
            "Ti" => Self::Binary(40),
            "Pi" => Self::Binary(50),
            "Ei" => Self::Binary(60),
            "n" => Self::Decimal(-9),
            "u" => Self::Decimal(-6),
            "m" => Self::Decimal(-3),
            "k" => Self::Decimal(3),
            "M" => Self::Decimal(6),
            "G" => Self::Decimal(9),
            "T" => Self::Decimal(12),
            "P" => Self::Decimal(15),
            "E" => Self::Decimal(18),
            _ => Self::Decimal(suffix.strip_prefix(['e', 'E'])?.parse().ok()?),
        })
    }
}

/// The number times its scale, rounded up; `None` if that is far too large.
fn scaled(whole: &str, fraction: &str, scale: Scale) -> Option<i128> {
    let digits = format!("{whole}{fraction}");
    let digits = digits.trim_start_matches('0');
    if digits.is_empty() {
        return Some(0);
    }
    let places = i32::try_from(fraction.len()).ok()?;
    let (factor, exponent) = match scale {
        Scale::Binary(bits) => (1_i128 << bits, -places),
        Scale::Decimal(exponent) => (1, exponent.checked_sub(places)?),
    };
    // At most 36 digits and 2^60 would overflow; so many digits are no sensible quantity.
    if digits.len() > 36 {
        return None;
    }
    let size = digits.parse::<i128>().ok()?.checked_mul(factor)?;
    match u32::try_from(exponent) {
        Ok(up) => size.checked_mul(10_i128.checked_pow(up)?),
        // A divisor that does not fit leaves next to nothing, which rounds up to one.
        Err(_) => Some(10_i128.checked_pow(exponent.unsigned_abs()).map_or(1, |by| (size - 1) / by + 1)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_read_as_quantities() {
        for (text, want) in [
            ("0", 0),
            ("500", 500),
            ("+7", 7),
            ("-1", -1),
            ("1k", 1000),
            ("10Ki", 10_240),
            ("10Gi", 10 << 30),
            ("1.5Gi", 3 << 29),
            ("1Pi", 1 << 50),
            ("1G", 1_000_000_000),
            ("1e3", 1000),
            ("2E1", 20),
            ("1E", 1_000_000_000_000_000_000),
            ("100m", 1),
            ("1500m", 2),
            ("1e-99", 1),
            ("0.0", 0),
            (".5k", 500),
            ("5.", 5),
            ("9223372036854775807", i64::MAX),
        ] {
            assert_eq!(parse_quantity(text), Ok(want), "{text}");
        }
    }

    #[test]
    fn what_is_no_quantity_is_refused() {
        use QuantityError::{Syntax, TooLarge};
        for (text, want) in [
            ("", Syntax),
            ("heaps", Syntax),
            ("10invalid", Syntax),
            ("10K", Syntax),
            ("1 k", Syntax),
            ("1.2.3", Syntax),
            (".", Syntax),
            ("1e", Syntax),
            ("--1", Syntax),
            ("10Ei", TooLarge),
            ("9223372036854775808", TooLarge),
            ("1e99", TooLarge),
            ("1e2147483647", TooLarge),
            ("99999999999999999999999999999999999999999999", TooLarge),
        ] {
            assert_eq!(parse_quantity(text), Err(want), "{text}");
        }
    }

    #[test]
    fn sizes_may_end_in_bytes() {
        for (text, want) in [
            ("10485760", Ok(10 << 20)),
            (" 10Mi ", Ok(10 << 20)),
            ("10MiB", Ok(10 << 20)),
            ("20MB", Ok(20_000_000)),
            ("20mb", Ok(1)),
            ("-1", Err(QuantityError::Negative)),
            ("B", Err(QuantityError::Syntax)),
            ("10Ei", Err(QuantityError::TooLarge)),
        ] {
            assert_eq!(parse_size(text), want, "{text}");
        }
    }
}
