//! What a scalar without quotes means: the rules of YAML 1.1 as the YAML tools of Kubernetes apply them.

use epp_plugin_api::Value;

/// Reads a plain scalar. What is no null, boolean or number is a string.
pub fn resolve(text: &str) -> Value {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => Value::Null,
        "y" | "Y" | "yes" | "Yes" | "YES" | "true" | "True" | "TRUE" | "on" | "On" | "ON" => Value::Bool(true),
        "n" | "N" | "no" | "No" | "NO" | "false" | "False" | "FALSE" | "off" | "Off" | "OFF" => Value::Bool(false),
        ".nan" | ".NaN" | ".NAN" => Value::Float(f64::NAN),
        ".inf" | ".Inf" | ".INF" | "+.inf" | "+.Inf" | "+.INF" => Value::Float(f64::INFINITY),
        "-.inf" | "-.Inf" | "-.INF" => Value::Float(f64::NEG_INFINITY),
        _ => number(text).unwrap_or_else(|| Value::String(text.to_owned())),
    }
}

fn number(text: &str) -> Option<Value> {
    if !text.starts_with(|c: char| matches!(c, '+' | '-' | '.' | '0'..='9')) {
        return None;
    }
    let plain = text.replace('_', "");
    integer(&plain).map(Value::Int).or_else(|| float(&plain))
}

/// Decimal, `0x`, `0o`, `0b`, and octal with a leading zero; `None` too when it does not fit.
fn integer(plain: &str) -> Option<i64> {
    let (negative, digits) = match plain.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, plain.strip_prefix('+').unwrap_or(plain)),
    };
    let lower = digits.to_ascii_lowercase();
    let (radix, digits) = match lower.as_bytes() {
        [b'0', b'x', ..] => (16, &lower[2..]),
        [b'0', b'o', ..] => (8, &lower[2..]),
        [b'0', b'b', ..] => (2, &lower[2..]),
        [b'0', b'0'..=b'7', ..] if lower.bytes().all(|c| matches!(c, b'0'..=b'7')) => (8, &lower[1..]),
        _ => (10, lower.as_str()),
    };
    if !digits.bytes().all(|c| c.is_ascii_alphanumeric()) {
        return None;
    }
    let size = i128::from_str_radix(digits, radix).ok()?;
    i64::try_from(if negative { -size } else { size }).ok()
}

fn float(plain: &str) -> Option<Value> {
    let unsigned = plain.strip_prefix(['+', '-']).unwrap_or(plain);
    let (mantissa, exponent) = match unsigned.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, Some(exponent)),
        None => (unsigned, None),
    };
    let digits = |s: &str| s.bytes().all(|c| c.is_ascii_digit());
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let shaped = digits(whole) && digits(fraction) && !(whole.is_empty() && fraction.is_empty());
    let exponent_shaped = exponent.is_none_or(|e| {
        let e = e.strip_prefix(['+', '-']).unwrap_or(e);
        !e.is_empty() && digits(e)
    });
    if !shaped || !exponent_shaped {
        return None;
    }
    plain.parse().ok().map(Value::Float)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(table: &[(&str, Value)]) {
        for (text, want) in table {
            assert_eq!(&resolve(text), want, "{text:?}");
        }
    }

    #[test]
    fn words_are_booleans_and_nulls() {
        check(&[
            ("yes", Value::Bool(true)),
            ("On", Value::Bool(true)),
            ("TRUE", Value::Bool(true)),
            ("n", Value::Bool(false)),
            ("off", Value::Bool(false)),
            ("", Value::Null),
            ("~", Value::Null),
            ("Null", Value::Null),
            ("tRUE", Value::String("tRUE".into())),
            ("nULL", Value::String("nULL".into())),
        ]);
    }

    #[test]
    fn numbers_are_numbers_in_every_usual_base() {
        check(&[
            ("0", Value::Int(0)),
            ("-17", Value::Int(-17)),
            ("+3", Value::Int(3)),
            ("1_000", Value::Int(1000)),
            ("0x1F", Value::Int(31)),
            ("0o17", Value::Int(15)),
            ("017", Value::Int(15)),
            ("0b101", Value::Int(5)),
            ("0800", Value::Int(800)),
            ("9223372036854775807", Value::Int(i64::MAX)),
            ("-9223372036854775808", Value::Int(i64::MIN)),
            ("9223372036854775808", Value::Float(9_223_372_036_854_775_808.0)),
            ("1.5", Value::Float(1.5)),
            (".5", Value::Float(0.5)),
            ("2.", Value::Float(2.0)),
            ("1e3", Value::Float(1000.0)),
            ("-1.5E-2", Value::Float(-0.015)),
            ("1e999", Value::Float(f64::INFINITY)),
            ("-.Inf", Value::Float(f64::NEG_INFINITY)),
        ]);
        assert!(matches!(resolve(".NaN"), Value::Float(v) if v.is_nan()));
    }

    #[test]
    fn what_only_looks_like_a_number_is_a_string() {
        for text in [
            "-",
            "+",
            ".",
            "1.2.3",
            "10.0.0.1",
            "1e",
            "0x",
            "0b2",
            "1m30s",
            "10Gi",
            "inf",
            "nan",
            "--1",
            "0x-1",
            "2024-01-01",
        ] {
            assert_eq!(resolve(text), Value::String(text.into()), "{text:?}");
        }
    }
}
