//! Numbers: where one ends and whether it is whole. Every number counts as a 64-bit float, so `1.0` is whole.

use super::Fault;

/// Finds the byte after the number that starts at `start`.
pub(super) fn end(body: &[u8], start: usize) -> Result<usize, Fault> {
    let digits = |at: usize| at + body[at..].iter().take_while(|b| b.is_ascii_digit()).count();
    let some_digits = |at: usize| match digits(at) {
        end if end == at => Err(Fault { at, wanted: "a digit" }),
        end => Ok(end),
    };
    let mut at = start + usize::from(body.get(start) == Some(&b'-'));
    at = match body.get(at) {
        Some(b'0') => at + 1,
        _ => some_digits(at)?,
    };
    if body.get(at) == Some(&b'.') {
        at = some_digits(at + 1)?;
    }
    if let Some(b'e' | b'E') = body.get(at) {
        at += 1;
        at += usize::from(matches!(body.get(at), Some(b'+' | b'-')));
        at = some_digits(at)?;
    }
    Ok(at)
}

/// The value of a number, if it is whole and not negative. What is over 64 bits becomes the largest value.
pub fn whole(number: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(number).ok()?;
    if let Ok(value) = text.parse::<u64>() {
        return Some(value);
    }
    let value = text.parse::<f64>().ok()?;
    (value >= 0.0 && value.fract() == 0.0).then_some(value as u64)
}
