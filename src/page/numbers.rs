//! Numbers as people read them.

use std::fmt;

/// With a comma after every three digits.
pub fn grouped(n: u64) -> String {
    let digits = n.to_string();
    let mut text = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// With a letter for thousands, millions and billions.
pub fn short(n: u64) -> String {
    match n {
        0..10_000 => grouped(n),
        10_000..1_000_000 => format!("{:.1}k", n as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.1}M", n as f64 / 1e6),
        1_000_000_000.. => format!("{:.1}G", n as f64 / 1e9),
    }
}

/// The same without a zero behind the point, as ticks have it.
pub(super) fn round_short(value: f64) -> String {
    match value {
        n if n.abs() >= 10_000.0 => short(n as u64).replace(".0", ""),
        n => tick(n),
    }
}

/// A stretch of time of some minutes to days.
pub fn duration(seconds: f64) -> String {
    match seconds {
        s if s < 120.0 => format!("{s:.1} s"),
        s if s < 7200.0 => format!("{:.1} min", s / 60.0),
        s if s < 172_800.0 => format!("{:.1} h", s / 3600.0),
        s => format!("{:.1} days", s / 86_400.0),
    }
}

/// A measured time, with three digits that count.
pub(super) fn time(seconds: f64) -> String {
    match seconds {
        s if !s.is_finite() => "?".into(),
        s if s <= 0.0 => "0 s".into(),
        s if s < 1e-3 => format!("{} µs", number(s * 1e6)),
        s if s < 0.9995 => format!("{} ms", number(s * 1e3)),
        s => format!("{} s", number(s)),
    }
}

/// A time without zeros behind the point: one that was chosen and not measured.
pub(super) fn round_time(seconds: f64) -> String {
    let text = time(seconds);
    match text.split_once(' ') {
        Some((number, unit)) if number.contains('.') => {
            format!("{} {unit}", number.trim_end_matches('0').trim_end_matches('.'))
        }
        Some(_) | None => text,
    }
}

/// Three digits that count, or all that stand before the point.
pub(super) fn number(value: f64) -> String {
    match value.abs() {
        n if !n.is_finite() => "?".into(),
        n if n >= 1e15 => format!("{value:.2e}"),
        n if n >= 99.95 => {
            let sign = if value < 0.0 { "-" } else { "" };
            format!("{sign}{}", grouped(n.round() as u64))
        }
        n if n >= 9.995 => format!("{value:.1}"),
        n if n >= 0.9995 => format!("{value:.2}"),
        0.0 => "0".into(),
        _ => format!("{value:.3}"),
    }
}

pub(super) fn percent(part: f64) -> String {
    let hundredths = part * 100.0;
    if hundredths.is_finite() { format!("{hundredths:.1} %") } else { "?".into() }
}

/// As a tick of an axis has it: without zeros at the end.
pub(super) fn tick(value: f64) -> String {
    if value.abs() >= 1000.0 || !value.is_finite() {
        return number(value);
    }
    let text = format!("{value:.6}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    if text == "-0" { "0".into() } else { text.into() }
}

/// A place in a drawing, to a tenth of a unit. What is no number is 0: a drawing has no place for it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Px(pub f64);

impl fmt::Display for Px {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tenths = if self.0.is_finite() { (self.0 * 10.0).round() as i64 } else { 0 };
        let sign = if tenths < 0 { "-" } else { "" };
        match (tenths.abs() / 10, tenths.abs() % 10) {
            (whole, 0) => write!(f, "{sign}{whole}"),
            (whole, tenth) => write!(f, "{sign}{whole}.{tenth}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_for_people() {
        assert_eq!([0, 999, 1000, 1_234_567].map(grouped), ["0", "999", "1,000", "1,234,567"]);
        assert_eq!([9999, 12_345, 1_250_000, 13_675_350_647].map(short), ["9,999", "12.3k", "1.2M", "13.7G"]);
        assert_eq!([0.5, 2000.0, 50_000_000.0, 1_500_000.0].map(round_short), ["0.5", "2,000", "50M", "1.5M"]);
        assert_eq!([1.0, 3537.0, 7200.0, 864_000.0].map(duration), ["1.0 s", "59.0 min", "2.0 h", "10.0 days"]);
    }

    #[test]
    fn three_digits_count() {
        let said = [0.0, 0.000_25, 0.0123, 0.365_098, 0.9996, 1.5, 31.024, 44_289.4].map(time);
        assert_eq!(said, ["0 s", "250 µs", "12.3 ms", "365 ms", "1.00 s", "1.50 s", "31.0 s", "44,289 s"]);
        assert_eq!([0.05, 1.0, 1.05, 20.0, 0.1].map(round_time), ["50 ms", "1 s", "1.05 s", "20 s", "100 ms"]);
        assert_eq!([0.0, 0.1234, 9.999, 99.96, -1234.0].map(number), ["0", "0.123", "10.0", "100", "-1,234"]);
        assert_eq!([0.0, 0.5, 0.25, 20.0, 1500.0].map(tick), ["0", "0.5", "0.25", "20", "1,500"]);
    }

    #[test]
    fn what_is_no_number_is_said_and_drawn_nowhere() {
        assert_eq!(
            [f64::NAN, f64::INFINITY].map(|n| (time(n), number(n), percent(n))),
            [(); 2].map(|()| ("?".into(), "?".into(), "?".into()))
        );
        assert_eq!(
            [f64::NAN, f64::INFINITY, 1.25, -0.04, -2.0].map(|n| Px(n).to_string()),
            ["0", "0", "1.3", "0", "-2"]
        );
    }
}
