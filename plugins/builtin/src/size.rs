//! Reads sizes in bytes as configs write them: `64MiB`, `1.5 GB`, `1000`.

const UNITS: [(&str, f64); 17] = [
    ("", 1.0),
    ("b", 1.0),
    ("k", 1e3),
    ("kb", 1e3),
    ("ki", 1024.0),
    ("kib", 1024.0),
    ("m", 1e6),
    ("mb", 1e6),
    ("mi", 1_048_576.0),
    ("mib", 1_048_576.0),
    ("g", 1e9),
    ("gb", 1e9),
    ("gi", 1_073_741_824.0),
    ("gib", 1_073_741_824.0),
    ("t", 1e12),
    ("tb", 1e12),
    ("tib", 1_099_511_627_776.0),
];
/// A petabyte: more is a slip of the pen.
const MOST: f64 = 1e15;

/// Reads a number and its unit, in any case, with or without a space between them.
///
/// # Errors
/// Says what was expected if the text is empty, negative, not that large, or lacks a number or a known unit.
pub fn parse(text: &str) -> Result<usize, String> {
    let refused = || format!("expected a size such as 64MiB or 2GB, found {text:?}");
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let number: f64 = text[..digits].parse().map_err(|_| refused())?;
    let unit = text[digits..].trim().to_ascii_lowercase();
    let (_, factor) = UNITS.iter().find(|(name, _)| *name == unit).ok_or_else(refused)?;
    let bytes = number * factor;
    if bytes <= MOST { Ok(bytes as usize) } else { Err(refused()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_numbers_with_units() {
        for (text, bytes) in [
            ("64MiB", 64 << 20),
            ("2GiB", 2 << 30),
            ("2 gb", 2_000_000_000),
            ("1.5kib", 1536),
            ("1000", 1000),
            ("7B", 7),
            ("1t", 1_000_000_000_000),
        ] {
            assert_eq!(parse(text), Ok(bytes), "{text}");
        }
    }

    #[test]
    fn refuses_what_is_no_size() {
        for text in ["", "MiB", "-1MiB", "much", "1 parsec", "1..5k", "99999999TB", "1e9"] {
            let refused = parse(text).unwrap_err();
            assert!(refused.contains("expected a size"), "{text}");
        }
    }
}
