//! Moments as people write them, as the time since 1970.

use std::time::Duration;

use crate::bad::Complaint;
use crate::field::found;

/// Reads `2023-11-16 18:17:03.9799600`, also with a `T`, a `Z` or an offset such as `+00:00`; without either it is UTC.
pub fn moment(name: &str, text: Option<&str>) -> Result<Duration, Complaint> {
    text.and_then(|text| read(text.trim())).ok_or_else(|| {
        Complaint::new(name, format!("expected a moment such as 2023-11-16 18:17:03.97, found {}", found(text)))
    })
}

fn read(text: &str) -> Option<Duration> {
    let (date, rest) = text.split_once([' ', 'T'])?;
    let rest = rest.trim_end_matches('Z');
    let (time, offset) = match rest.find(['+', '-']) {
        Some(at) => (&rest[..at], seconds_of_offset(&rest[at..])?),
        None => (rest, 0),
    };
    let mut date = date.split('-').map(digits);
    let (year, month, day) = (date.next()??, date.next()??, date.next()??);
    let (clock, fraction) = time.split_once('.').unwrap_or((time, ""));
    let mut clock = clock.split(':').map(digits);
    let (hour, minute, second) = (clock.next()??, clock.next()??, clock.next()??);
    let in_range = (1970..10_000).contains(&year)
        && (1..=12).contains(&month)
        && (1..=31).contains(&day)
        && hour < 24
        && minute < 60
        && second < 61;
    if !in_range || date.next().is_some() || clock.next().is_some() {
        return None;
    }
    let seconds = ((days_since_1970(year, month, day) * 24 + hour) * 60 + minute) * 60 + second;
    Some(Duration::new(u64::try_from(seconds - offset).ok()?, nanoseconds(fraction)?))
}

/// A short row of digits as a number.
fn digits(text: &str) -> Option<i64> {
    let fine = !text.is_empty() && text.len() <= 4 && text.bytes().all(|byte| byte.is_ascii_digit());
    fine.then(|| text.parse().ok())?
}

fn nanoseconds(fraction: &str) -> Option<u32> {
    if !fraction.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let nine: String = fraction.chars().chain(std::iter::repeat('0')).take(9).collect();
    nine.parse().ok()
}

fn seconds_of_offset(text: &str) -> Option<i64> {
    let (hours, minutes) = text.get(1..)?.split_once(':').unwrap_or((text.get(1..)?, "0"));
    let seconds = digits(hours)? * 3600 + digits(minutes)? * 60;
    Some(if text.starts_with('-') { -seconds } else { seconds })
}

/// Counts with a year that begins in March, so that a leap day is its last.
fn days_since_1970(year: i64, month: i64, day: i64) -> i64 {
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    365 * year + year / 4 - year / 100 + year / 400 + (153 * month + 2) / 5 + day - 719_469
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_read_as_they_are_written() {
        for (text, seconds, nanoseconds) in [
            ("1970-01-01 00:00:00", 0, 0),
            ("2000-02-29T12:00:00Z", 951_825_600, 0),
            ("2023-11-16 18:17:03.9799600", 1_700_158_623, 979_960_000),
            ("2024-05-10 00:00:00.009930+00:00", 1_715_299_200, 9_930_000),
            ("2024-05-10 02:00:00+02:00", 1_715_299_200, 0),
        ] {
            assert_eq!(moment("t", Some(text)), Ok(Duration::new(seconds, nanoseconds)), "{text}");
        }
    }

    #[test]
    fn what_is_no_moment_is_refused() {
        for text in
            ["", "2023", "2023-13-01 00:00:00", "1969-12-31 00:00:00", "2023-11-16 18:17", "2023-11-16 1é:17:03"]
        {
            assert!(moment("t", Some(text)).is_err(), "{text}");
        }
    }
}
