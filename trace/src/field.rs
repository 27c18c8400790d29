//! Numbers and names of a record, each checked, with a message that names its field.

use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::bad::Complaint;
use crate::prompt::{OWN, Run, push_id};

/// More tokens than this no model takes.
pub const MOST_TOKENS: u32 = 10_000_000;
/// Moments and gaps are shorter than this, in seconds: some 3,000 years.
const LONGEST_SECONDS: f64 = 1e11;
/// How much of what was found a message shows.
const SHOWN: usize = 40;

/// A field of a JSON object as it stands there; `None` if it does not.
pub type Raw<'a> = Option<&'a RawValue>;

/// What stands there, unless it is nothing or null.
pub fn given<'a>(raw: Raw<'a>) -> Option<&'a str> {
    raw.map(RawValue::get).filter(|text| *text != "null")
}

/// Reads a JSON object or list whose parts are looked at one by one.
pub fn json<'a, T: Deserialize<'a>>(text: &'a str, expected: &str) -> Result<T, Complaint> {
    serde_json::from_str(text).map_err(|why| {
        let what = if why.is_eof() {
            format!("expected {expected}, found one that ends too early")
        } else {
            format!("expected {expected}, found an error: {why}")
        };
        Complaint::new("", what)
    })
}

/// Reads a JSON object.
pub fn object<'a, T: Deserialize<'a>>(text: &'a str) -> Result<T, Complaint> {
    if text.trim_start().starts_with('{') {
        return json(text, "a JSON object");
    }
    // Lists would be taken for objects without names.
    Err(Complaint::new("", format!("expected a JSON object, found {}", found(Some(text)))))
}

/// What was found, as far as a message shows it.
pub fn found(text: Option<&str>) -> String {
    let Some(text) = text else { return "nothing".into() };
    let text = text.trim();
    if text.is_empty() {
        return "nothing".into();
    }
    match text.char_indices().nth(SHOWN) {
        Some((at, _)) => format!("{}...", &text[..at]),
        None => text.to_owned(),
    }
}

fn number(name: &str, text: Option<&str>, expected: &str) -> Result<f64, Complaint> {
    let number = text.and_then(|text| text.trim().parse::<f64>().ok()).filter(|number| number.is_finite());
    number.ok_or_else(|| Complaint::new(name, format!("expected {expected}, found {}", found(text))))
}

/// A number of tokens.
pub fn tokens(name: &str, text: Option<&str>) -> Result<u32, Complaint> {
    whole(name, text, MOST_TOKENS)
}

/// A whole number from 0 to `most`; one that is written with a point counts, if nothing is behind the point.
pub fn whole(name: &str, text: Option<&str>, most: u32) -> Result<u32, Complaint> {
    if let Some(number) = text.and_then(|text| text.trim().parse::<u32>().ok()).filter(|number| *number <= most) {
        return Ok(number);
    }
    let wrong = |expected: &str| Err(Complaint::new(name, format!("expected {expected}, found {}", found(text))));
    match number(name, text, "a whole number from 0 on")? {
        number if number < 0.0 => wrong("0 or more"),
        number if number > f64::from(most) => wrong(&format!("at most {most}")),
        number if number.fract() != 0.0 => wrong("a whole number"),
        number => Ok(number as u32),
    }
}

/// A moment or a length of time, in units of which `per_second` make a second.
pub fn time(name: &str, text: Option<&str>, per_second: f64) -> Result<Duration, Complaint> {
    let seconds = number(name, text, "a number from 0 on")? / per_second;
    let expected = if seconds < 0.0 { "0 or more" } else { "less than 3,000 years" };
    match Duration::try_from_secs_f64(seconds) {
        Ok(time) if seconds <= LONGEST_SECONDS => Ok(time),
        Ok(_) | Err(_) => Err(Complaint::new(name, format!("expected {expected}, found {}", found(text)))),
    }
}

/// A whole number of either sign, as an id.
pub fn id(name: &str, text: Option<&str>) -> Result<i64, Complaint> {
    let id = text.and_then(|text| text.trim().parse().ok());
    id.ok_or_else(|| Complaint::new(name, format!("expected a whole number, found {}", found(text))))
}

/// A text; `None` if the field is not there or null.
pub fn text(name: &str, raw: Raw) -> Result<Option<Arc<str>>, Complaint> {
    match raw.map(RawValue::get) {
        None | Some("null") => Ok(None),
        Some(json) => match serde_json::from_str::<String>(json) {
            Ok(text) => Ok(Some(text.into())),
            Err(_) => Err(Complaint::new(name, format!("expected a text, found {}", found(Some(json))))),
        },
    }
}

/// Block ids below `limit`, which is at most [`OWN`].
pub fn block_ids(name: &str, raw: Raw, limit: u64) -> Result<Vec<Run>, Complaint> {
    debug_assert!(limit <= OWN);
    let mut runs = Vec::new();
    for item in items(name, raw)? {
        let id = item.parse().ok().filter(|id| *id < limit);
        push_id(
            &mut runs,
            id.ok_or_else(|| {
                let what = if item.starts_with('-') { "ids from 0 on" } else { "whole numbers as ids of blocks" };
                Complaint::new(name, format!("expected {what}, found {}", found(Some(item))))
            })?,
        );
    }
    Ok(runs)
}

/// The pieces between the commas of a list of numbers. A list of anything else comes apart in pieces that are no numbers.
pub fn items<'a>(name: &str, raw: Raw<'a>) -> Result<impl Iterator<Item = &'a str>, Complaint> {
    let json = raw.map(RawValue::get);
    let inside = json.and_then(|json| json.strip_prefix('[')?.strip_suffix(']'));
    let inside = inside.ok_or_else(|| Complaint::new(name, format!("expected a list, found {}", found(json))))?;
    // Of an empty list nothing comes.
    Ok(inside.split(',').map(str::trim).filter(move |item| !(item.is_empty() && inside.trim().is_empty())))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said<T: std::fmt::Debug>(result: Result<T, Complaint>) -> String {
        match result {
            Ok(value) => format!("{value:?}"),
            Err(Complaint { field, what }) => format!("{field}: {what}"),
        }
    }

    #[test]
    fn numbers_say_what_was_expected_and_found() {
        for (text, want) in [
            (Some("12"), "12"),
            (Some(" 12.0 "), "12"),
            (Some("-3"), "n: expected 0 or more, found -3"),
            (Some("1e300"), "n: expected at most 10000000, found 1e300"),
            (Some("1.5"), "n: expected a whole number, found 1.5"),
            (Some("\"12\""), "n: expected a whole number from 0 on, found \"12\""),
            (Some("NaN"), "n: expected a whole number from 0 on, found NaN"),
            (Some(""), "n: expected a whole number from 0 on, found nothing"),
            (None, "n: expected a whole number from 0 on, found nothing"),
        ] {
            assert_eq!(said(tokens("n", text)), want);
        }
    }

    #[test]
    fn times_are_neither_negative_nor_endless() {
        for (text, want) in [
            ("1500", "1.5s"),
            ("-1", "t: expected 0 or more, found -1"),
            ("1e40", "t: expected less than 3,000 years, found 1e40"),
            ("soon", "t: expected a number from 0 on, found soon"),
        ] {
            assert_eq!(said(time("t", Some(text), 1000.0)), want);
        }
    }

    #[test]
    fn lists_of_ids_become_runs() {
        let runs = |json: &str| {
            let raw: Box<RawValue> = serde_json::from_str(json).unwrap();
            said(block_ids("ids", Some(&raw), OWN))
        };
        assert_eq!(runs("[1, 2,3, 9]"), "[Run { first: 1, len: 3 }, Run { first: 9, len: 1 }]");
        assert_eq!(runs("[ ]"), "[]");
        assert_eq!(runs("[1,-2]"), "ids: expected ids from 0 on, found -2");
        assert_eq!(runs("[1,[2]]"), "ids: expected whole numbers as ids of blocks, found [2]");
        assert_eq!(
            runs("[9223372036854775808]"),
            "ids: expected whole numbers as ids of blocks, found 9223372036854775808"
        );
        assert_eq!(runs("{}"), "ids: expected a list, found {}");
    }
}
