//! How each arm looks: one colour and dash on the whole page, and thicker if it is what the reader came for.

use std::fmt;

use super::markup::Markup;

/// Hues that eyes of all kinds tell apart; what comes after them has a dash.
const HUES: usize = 6;
const DASHES: usize = 3;

/// One way of choosing, or whatever else has a line of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Arm {
    pub name: String,
    /// Its place on the page, for what brings it out.
    place: usize,
    slot: usize,
    of_interest: bool,
}

/// The classes of an element that belongs to an arm.
pub(super) struct Classes<'a>(&'a Arm);

impl Arm {
    /// All arms of a page; the first colours go to those of interest.
    pub fn all<'a>(names: impl Iterator<Item = (&'a str, bool)>) -> Vec<Self> {
        let names: Vec<(&str, bool)> = names.collect();
        let n_of_interest = names.iter().filter(|(_, of_interest)| *of_interest).count();
        let told_apart = n_of_interest > 0 && n_of_interest < names.len();
        let (mut first, mut later) = (0, n_of_interest);
        let arms = names.into_iter().enumerate().map(|(place, (name, of_interest))| {
            let next = if of_interest { &mut first } else { &mut later };
            let slot = *next;
            *next += 1;
            Self { name: name.into(), place, slot, of_interest: of_interest && told_apart }
        });
        arms.collect()
    }

    pub fn classes(&self) -> Classes<'_> {
        Classes(self)
    }

    pub fn is_of_interest(&self) -> bool {
        self.of_interest
    }

    /// The name, behind a bit of its line.
    pub fn label(&self, into: &mut Markup) {
        let swatch = format!("swatch {}", self.classes());
        into.nested("svg", &[("class", &swatch), ("viewBox", &"0 0 22 10"), ("aria-hidden", &"true")], |svg| {
            svg.shape("path", &[("class", &"line"), ("d", &"M0 5h22")]);
        });
        into.element("span", &[("class", &"name")], &self.name);
    }
}

impl fmt::Display for Classes<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Arm { place, slot, of_interest, .. } = self.0;
        write!(f, "arm arm-{place} hue-{} dash-{}", slot % HUES, slot / HUES % DASHES)?;
        f.write_str(if *of_interest { " of-interest" } else { "" })
    }
}

/// Boxes to tick that bring arms out on the whole page, which is also where their colours are told.
pub(super) fn chooser(arms: &[Arm], into: &mut Markup) {
    into.nested("fieldset", &[("class", &"chooser")], |fieldset| {
        fieldset.element("legend", &[], "Tick to bring out");
        fieldset.nested("div", &[("class", &"choices")], |choices| {
            for arm in arms {
                choices.nested("label", &[("class", &arm.classes())], |label| {
                    label.shape(
                        "input",
                        &[("type", &"checkbox"), ("class", &"choice"), ("id", &format_args!("choice-{}", arm.place))],
                    );
                    arm.label(label);
                });
            }
        });
    });
}

/// The rules by which ticked boxes bring arms out.
pub(super) fn rules(n_arms: usize) -> String {
    (0..n_arms).map(|i| format!("body:has(#choice-{i}:checked) main .arm-{i}{{opacity:1}}\n")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn classes(names: &[(&str, bool)]) -> Vec<String> {
        Arm::all(names.iter().copied()).iter().map(|arm| arm.classes().to_string()).collect()
    }

    #[test]
    fn those_of_interest_get_the_first_colours() {
        let want = ["arm arm-0 hue-1 dash-0", "arm arm-1 hue-0 dash-0 of-interest"];
        assert_eq!(classes(&[("random", false), ("mine", true)]), want);
        assert_eq!(classes(&[("a", true)]), ["arm arm-0 hue-0 dash-0"]);
    }

    #[test]
    fn no_two_of_eighteen_look_alike() {
        let mut looks: Vec<String> =
            classes(&[("a", false); 18]).iter().map(|all| all.split_once(" hue").unwrap().1.to_owned()).collect();
        looks.sort_unstable();
        looks.dedup();
        assert_eq!(looks.len(), 18);
    }
}
