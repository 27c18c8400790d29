//! What chat templates expect of Python: its JSON and its dates.

use std::fmt::Write;
use std::io;
use std::time::{SystemTime, UNIX_EPOCH};

use minijinja::value::Kwargs;
use minijinja::{Error, ErrorKind, Value};
use serde::Serialize;
use serde_json::Serializer;
use serde_json::ser::{Formatter, PrettyFormatter};

/// More blanks than this are no indentation.
const MOST_INDENT: usize = 64;

/// Writes a value as `json.dumps` does with `ensure_ascii=False`; of its options `indent` counts.
pub fn to_json(value: &Value, options: Kwargs) -> Result<Value, Error> {
    let indent: Option<usize> = options.get("indent")?;
    let mut out = Vec::new();
    let written = match indent {
        Some(indent) => {
            let blanks = " ".repeat(indent.min(MOST_INDENT));
            let formatter = PrettyFormatter::with_indent(blanks.as_bytes());
            value.serialize(&mut Serializer::with_formatter(&mut out, formatter))
        }
        None => value.serialize(&mut Serializer::with_formatter(&mut out, Spaced)),
    };
    let failed = |e: &dyn std::fmt::Display| Error::new(ErrorKind::BadSerialization, e.to_string());
    written.map_err(|e| failed(&e))?;
    String::from_utf8(out).map(Value::from).map_err(|e| failed(&e))
}

/// A blank after commas and colons.
struct Spaced;

impl Formatter for Spaced {
    fn begin_array_value<W: ?Sized + io::Write>(&mut self, writer: &mut W, first: bool) -> io::Result<()> {
        if first { Ok(()) } else { writer.write_all(b", ") }
    }

    fn begin_object_key<W: ?Sized + io::Write>(&mut self, writer: &mut W, first: bool) -> io::Result<()> {
        if first { Ok(()) } else { writer.write_all(b", ") }
    }

    fn begin_object_value<W: ?Sized + io::Write>(&mut self, writer: &mut W) -> io::Result<()> {
        writer.write_all(b": ")
    }
}

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
const DAYS: [&str; 7] = ["Thursday", "Friday", "Saturday", "Sunday", "Monday", "Tuesday", "Wednesday"];

/// Writes a time, in UTC, as `strftime` does; codes that templates do not use stay as they are.
pub fn strftime(now: SystemTime, format: &str) -> String {
    let seconds = now.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    let (year, month, day) = date(days);
    let (month_name, day_name) = (MONTHS[month - 1], DAYS[(days % 7) as usize]);
    let mut out = String::new();
    let mut rest = format.chars();
    while let Some(c) = rest.next() {
        let code = if c == '%' { rest.next() } else { None };
        // Writing to a string does not fail.
        let _ = match code {
            None => write!(out, "{c}"),
            Some('Y') => write!(out, "{year}"),
            Some('y') => write!(out, "{:02}", year % 100),
            Some('m') => write!(out, "{month:02}"),
            Some('d') => write!(out, "{day:02}"),
            Some('B') => write!(out, "{month_name}"),
            Some('b') => write!(out, "{}", &month_name[..3]),
            Some('A') => write!(out, "{day_name}"),
            Some('a') => write!(out, "{}", &day_name[..3]),
            Some('H') => write!(out, "{:02}", second / 3600),
            Some('M') => write!(out, "{:02}", second / 60 % 60),
            Some('S') => write!(out, "{:02}", second % 60),
            Some('%') => write!(out, "%"),
            Some(other) => write!(out, "%{other}"),
        };
    }
    out
}

/// Year, month and day of so many days after the first of January 1970.
fn date(days: u64) -> (u64, usize, u64) {
    let (mut year, mut left) = (1970, days);
    loop {
        let in_year = if is_leap(year) { 366 } else { 365 };
        if left < in_year || year == 9999 {
            break;
        }
        left -= in_year;
        year += 1;
    }
    let february = if is_leap(year) { 29 } else { 28 };
    let mut month = 0;
    for in_month in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30] {
        if left < in_month {
            break;
        }
        left -= in_month;
        month += 1;
    }
    (year, month + 1, left + 1)
}

fn is_leap(year: u64) -> bool {
    year.is_multiple_of(4) && !year.is_multiple_of(100) || year.is_multiple_of(400)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn writes_dates_as_python_does() {
        for (seconds, want) in [
            (0, "Thursday Thu 01 January Jan 1970-01-01 00:00:00"),
            (1_709_210_096, "Thursday Thu 29 February Feb 2024-02-29 12:34:56"),
            (1_735_689_599, "Tuesday Tue 31 December Dec 2024-12-31 23:59:59"),
            (1_735_689_600, "Wednesday Wed 01 January Jan 2025-01-01 00:00:00"),
        ] {
            let now = UNIX_EPOCH + Duration::from_secs(seconds);
            assert_eq!(strftime(now, "%A %a %d %B %b %Y-%m-%d %H:%M:%S"), want);
        }
        assert_eq!(strftime(UNIX_EPOCH, "100%% %Q %"), "100% %Q %");
    }
}
