//! From values to places: scales and where their ticks are.

use super::numbers::{round_time, short, tick};

/// A value on an axis that is named there.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Tick {
    /// Where, from 0 to 1.
    pub at: f64,
    pub label: String,
}

/// Maps values to places from 0 to 1.
#[derive(Clone, Debug)]
pub(super) struct Scale {
    kind: Kind,
    from: f64,
    to: f64,
    /// In the order of their places.
    pub ticks: Vec<Tick>,
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Linear,
    /// In powers of ten.
    Log,
}

/// The unit that a scale of time counts in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unit {
    Seconds,
    Minutes,
    Hours,
    Days,
}

impl Scale {
    /// From `from` to the first tick that is not below `most`, with about as many ticks as are wanted.
    pub fn rounded(from: f64, most: f64, n_ticks: usize, label: impl Fn(f64) -> String) -> Self {
        let step = step(most - from, n_ticks);
        let n = ((most - from) / step - 1e-9).ceil().max(1.0);
        Self::stepped(from, from + n * step, step, label)
    }

    /// From 0 to just this time, and the unit of its ticks.
    pub fn elapsed(seconds: f64) -> (Self, Unit) {
        let unit = Unit::of(seconds);
        let most = if seconds.is_finite() && seconds > 0.0 { seconds / unit.in_seconds() } else { 1.0 };
        let step = match unit {
            Unit::Minutes | Unit::Seconds => {
                [1.0, 2.0, 5.0, 10.0, 15.0, 20.0, 30.0].into_iter().find(|step| most / step <= 6.0 && most >= 4.0)
            }
            Unit::Hours => [1.0, 2.0, 3.0, 6.0, 12.0].into_iter().find(|step| most / step <= 6.0),
            Unit::Days => None,
        };
        let mut scale = Self::stepped(0.0, most, step.unwrap_or_else(|| self::step(most, 5)), tick);
        scale.to *= unit.in_seconds();
        (scale, unit)
    }

    /// Over all of these times, which are above 0, in powers of ten.
    pub fn times(least: f64, most: f64) -> Self {
        let above_zero = |value: f64| value.is_finite() && value > 0.0;
        let from = if above_zero(least) { least } else { 1e-3 };
        let to = if above_zero(most) { most.max(from * 10.0) } else { from * 10.0 };
        let mut scale = Self { kind: Kind::Log, from, to, ticks: Vec::new() };
        // Where there are few powers of ten, some of what is between them is named, too.
        let decades = (to / from).log10();
        let named: &[f64] = match decades {
            d if d <= 1.5 => &[1.0, 2.0, 5.0],
            d if d <= 2.5 => &[1.0, 3.0],
            _ => &[1.0],
        };
        for power in from.log10().floor() as i32..=to.log10().ceil() as i32 {
            for digit in named {
                let value = digit * 10f64.powi(power);
                if value >= from * 0.999 && value <= to * 1.001 {
                    scale.ticks.push(Tick { at: scale.place(value), label: round_time(value) });
                }
            }
        }
        scale
    }

    /// Parts of a whole.
    pub fn parts() -> Self {
        let mut scale = Self { kind: Kind::Linear, from: 0.0, to: 1.0, ticks: Vec::new() };
        scale.ticks =
            [0.0, 0.25, 0.5, 0.75, 0.9, 1.0].map(|at| Tick { at, label: format!("{} %", tick(at * 100.0)) }).into();
        scale
    }

    /// As many places side by side, counted from 0 as reports do; the first and some others are named in their middle.
    pub fn counted(n: usize) -> Self {
        let mut scale = Self { kind: Kind::Linear, from: -0.5, to: n as f64 - 0.5, ticks: Vec::new() };
        let every = step(n as f64, 4).max(1.0) as usize;
        let named = (0..n).filter(|i| i.is_multiple_of(every) || n <= 8);
        scale.ticks = named.map(|i| Tick { at: scale.place(i as f64), label: tick(i as f64) }).collect();
        scale
    }

    /// Ratios around 1, in powers of ten.
    pub fn ratios(least: f64, most: f64) -> Self {
        let (least, most) = (least.clamp(1e-9, 1.0), most.clamp(1.0, 1e9));
        let mut scale = Self::times(least.min(0.5), most.max(2.0));
        let named = |power: i32| [1.0, 2.0, 5.0].map(|digit| digit * 10f64.powi(power));
        let all = || (-9..=9).flat_map(named).filter(|value| scale.from <= *value && *value <= scale.to);
        let every = |value: &f64| all().count() <= 7 || (value.log10().round() - value.log10()).abs() < 1e-9;
        let ticks = all().filter(every).map(|value| Tick { at: scale.place(value), label: tick(value) }).collect();
        scale.ticks = ticks;
        scale
    }

    /// Columns side by side that begin at these bounds and end at the next; about six bounds are named.
    pub fn doubling(bounds: &[u64]) -> Self {
        let n_columns = bounds.len().saturating_sub(1).max(1);
        let every = n_columns.div_ceil(6);
        let named = bounds.iter().enumerate().filter(|(i, _)| i.is_multiple_of(every));
        let ticks = named.map(|(i, bound)| Tick { at: i as f64 / n_columns as f64, label: short(*bound) }).collect();
        Self { kind: Kind::Linear, from: 0.0, to: 1.0, ticks }
    }

    /// Where a value is; what lies outside is at the end that is next to it, and what is no number at the beginning.
    pub fn place(&self, value: f64) -> f64 {
        let part = match self.kind {
            Kind::Linear => (value - self.from) / (self.to - self.from),
            Kind::Log => (value / self.from).log10() / (self.to / self.from).log10(),
        };
        if part.is_nan() { 0.0 } else { part.clamp(0.0, 1.0) }
    }

    /// The values at both ends.
    pub fn ends(&self) -> (f64, f64) {
        (self.from, self.to)
    }

    fn stepped(from: f64, to: f64, step: f64, label: impl Fn(f64) -> String) -> Self {
        let mut scale = Self { kind: Kind::Linear, from, to, ticks: Vec::new() };
        let n = ((to - from) / step + 1e-9).floor().clamp(0.0, 100.0) as u32;
        let values = (0..=n).map(|i| from + f64::from(i) * step);
        scale.ticks = values.map(|value| Tick { at: scale.place(value), label: label(value) }).collect();
        scale
    }
}

impl Unit {
    fn of(seconds: f64) -> Self {
        match seconds {
            s if s >= 3.0 * 86_400.0 => Self::Days,
            s if s >= 3.0 * 3600.0 => Self::Hours,
            s if s >= 180.0 => Self::Minutes,
            _ => Self::Seconds,
        }
    }

    pub fn in_seconds(self) -> f64 {
        match self {
            Self::Seconds => 1.0,
            Self::Minutes => 60.0,
            Self::Hours => 3600.0,
            Self::Days => 86_400.0,
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            Self::Seconds => "seconds",
            Self::Minutes => "minutes",
            Self::Hours => "hours",
            Self::Days => "days",
        }
    }
}

/// 1, 2 or 5 times a power of ten, so that about so many fit.
fn step(span: f64, n: usize) -> f64 {
    let rough = span / n.max(1) as f64;
    if !(rough.is_finite() && rough > 0.0) {
        return 1.0;
    }
    let power = 10f64.powf(rough.log10().floor());
    let digit = [1.0, 2.0, 5.0].into_iter().find(|digit| digit * power >= rough * 0.999);
    digit.unwrap_or(10.0) * power
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(scale: &Scale) -> Vec<&str> {
        scale.ticks.iter().map(|tick| tick.label.as_str()).collect()
    }

    #[test]
    fn a_scale_ends_at_a_round_number() {
        for (most, n, want) in [
            (7.3, 4, vec!["0", "2", "4", "6", "8"]),
            (8.0, 4, vec!["0", "2", "4", "6", "8"]),
            (0.9, 4, vec!["0", "0.5", "1"]),
            (0.0, 4, vec!["0", "1"]),
            (f64::NAN, 4, vec!["0", "1"]),
            (1234.0, 4, vec!["0", "500", "1,000", "1,500"]),
        ] {
            let scale = Scale::rounded(0.0, most, n, tick);
            assert_eq!(labels(&scale), want, "{most}");
            assert!(scale.ticks.last().unwrap().at == 1.0);
        }
    }

    #[test]
    fn elapsed_time_is_told_in_its_unit() {
        for (seconds, unit, want) in [
            (3537.0, Unit::Minutes, vec!["0", "10", "20", "30", "40", "50"]),
            (44_289.0, Unit::Hours, vec!["0", "3", "6", "9", "12"]),
            (363.0, Unit::Minutes, vec!["0", "2", "4", "6"]),
            (1.5, Unit::Seconds, vec!["0", "0.5", "1", "1.5"]),
            (0.0, Unit::Seconds, vec!["0", "0.2", "0.4", "0.6", "0.8", "1"]),
        ] {
            let (scale, found) = Scale::elapsed(seconds);
            assert_eq!((labels(&scale), found), (want, unit), "{seconds}");
        }
        let (scale, _) = Scale::elapsed(3600.0);
        assert_eq!(scale.place(1800.0), 0.5);
    }

    #[test]
    fn times_are_told_in_powers_of_ten_and_between_them_if_they_are_few() {
        assert_eq!(labels(&Scale::times(0.001, 107.0)), ["1 ms", "10 ms", "100 ms", "1 s", "10 s", "100 s"]);
        assert_eq!(labels(&Scale::times(0.004, 0.06)), ["5 ms", "10 ms", "20 ms", "50 ms"]);
        assert_eq!(labels(&Scale::times(0.0, 0.0)), ["1 ms", "2 ms", "5 ms", "10 ms"]);
    }

    #[test]
    fn places_side_by_side_are_counted_from_0() {
        let scale = Scale::counted(2);
        assert_eq!((labels(&scale), scale.ticks[1].at), (vec!["0", "1"], 0.75));
        assert_eq!(labels(&Scale::counted(1000)), ["0", "500"]);
        assert_eq!(labels(&Scale::counted(0)), [""; 0]);
    }

    #[test]
    fn every_value_has_a_place() {
        let scale = Scale::times(0.01, 1.0);
        assert_eq!([0.1, 0.0, -1.0, f64::NAN, f64::INFINITY].map(|v| scale.place(v)), [0.5, 0.0, 0.0, 0.0, 1.0]);
    }
}
