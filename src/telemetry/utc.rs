//! Moments as people and RFC 3339 write them, in UTC.

use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Serialize, Serializer};

const SECONDS_A_DAY: u64 = 86_400;

/// A moment, as the time since 1970. Displays as RFC 3339 with nanoseconds, or with as many digits of the second as the
/// precision says, at most nine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Utc(pub Duration);

impl Utc {
    /// The moment that the clock of the machine shows.
    pub fn now() -> Self {
        Self(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default())
    }
}

impl Serialize for Utc {
    /// As it displays.
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl fmt::Display for Utc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (days, second) = (self.0.as_secs() / SECONDS_A_DAY, self.0.as_secs() % SECONDS_A_DAY);
        let (year, month, day) = date(days);
        let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
        write!(f, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}")?;
        let digits = f.precision().unwrap_or(9).min(9);
        if digits > 0 {
            let fraction = self.0.subsec_nanos() / 10_u32.pow(9 - digits as u32);
            write!(f, ".{fraction:0digits$}")?;
        }
        f.write_str("Z")
    }
}

/// Year, month and day of the day this many days after 1970-01-01. Counts in cycles of 400 years, which all have the same
/// number of days, from the first of March of the year 0, so that a leap day is the last of its year.
fn date(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let (cycle, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let (month, next) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    (cycle * 400 + year + next, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_written_as_the_calendar_has_them() {
        for (seconds, written) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_399, "2000-02-28T23:59:59Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (951_868_800, "2000-03-01T00:00:00Z"),
            (1_735_689_599, "2024-12-31T23:59:59Z"),
            (1_735_689_600, "2025-01-01T00:00:00Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
            (4_107_542_399, "2100-02-28T23:59:59Z"),
        ] {
            assert_eq!(format!("{:.0}", Utc(Duration::from_secs(seconds))), written, "{seconds}");
        }
    }

    #[test]
    fn the_precision_says_how_many_digits_the_second_has() {
        let moment = Utc(Duration::new(1, 20_345_678));
        assert_eq!(moment.to_string(), "1970-01-01T00:00:01.020345678Z");
        assert_eq!(format!("{moment:.3}"), "1970-01-01T00:00:01.020Z");
    }
}
