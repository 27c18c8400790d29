//! What was probably meant by a name that nobody has.

/// Edits that a name may be away from what was meant: one in so many letters.
const LETTERS_AN_EDIT: usize = 4;

/// A hint at the known name that is nearest to this one, to be put behind a message; empty if none is near.
pub fn hint<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    let letters = name.chars().count();
    let away = known.into_iter().map(|known| (strsim::osa_distance(name, known), known));
    let nearest = away.filter(|(edits, _)| edits * LETTERS_AN_EDIT <= letters).min();
    nearest.map_or_else(String::new, |(_, known)| format!(", perhaps {known:?} is meant"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_of_the_fingers_is_seen_through() {
        let known = ["queue-scorer", "max-score-picker", "a"];
        for (name, hinted) in [
            ("queue-scorre", "queue-scorer"),
            ("queue-score", "queue-scorer"),
            ("que-scorer", "queue-scorer"),
            ("maxscorepicker", "max-score-picker"),
        ] {
            assert_eq!(hint(name, known), format!(", perhaps {hinted:?} is meant"));
        }
        for name in ["wibble-scorer", "wibble", "", "queue", "b"] {
            assert_eq!(hint(name, known), "", "{name}");
        }
    }
}
