//! What is wrong with a config: where, in which part, and what was expected there.

use std::cell::RefCell;
use std::fmt;

use epp_plugin_api::Place;

/// A mistake in a config.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistake {
    /// `None` for what stands nowhere in the file.
    pub place: Option<Place>,
    /// The part, as `schedulingProfiles[0].plugins[1].pluginRef`; empty for the whole.
    pub path: String,
    pub message: String,
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(place) = self.place {
            write!(f, "{place}: ")?;
        }
        if !self.path.is_empty() {
            write!(f, "{}: ", self.path)?;
        }
        f.write_str(&self.message)
    }
}

impl std::error::Error for Mistake {}

/// Where mistakes are gathered while a config is read on.
#[derive(Debug, Default)]
pub struct Sink(RefCell<Vec<Mistake>>);

impl Sink {
    /// Adds a mistake.
    pub fn add(&self, place: impl Into<Option<Place>>, path: impl Into<String>, message: impl Into<String>) {
        self.0.borrow_mut().push(Mistake { place: place.into(), path: path.into(), message: message.into() });
    }

    /// Whether there is none so far.
    pub fn is_empty(&self) -> bool {
        self.0.borrow().is_empty()
    }

    /// Hands over the mistakes in the order of the file, each once; those without a place come last.
    pub fn into_mistakes(self) -> Vec<Mistake> {
        let mut mistakes = self.0.into_inner();
        mistakes.sort_by_key(|m| (m.place.is_none(), m.place));
        let mut kept: Vec<Mistake> = Vec::with_capacity(mistakes.len());
        for mistake in mistakes {
            if !kept.contains(&mistake) {
                kept.push(mistake);
            }
        }
        kept
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mistake_names_its_place_and_path() {
        let mistake = Mistake {
            place: Some(Place { line: 5, column: 3 }),
            path: "plugins[1].type".into(),
            message: "unknown plugin type \"x\"".into(),
        };
        assert_eq!(mistake.to_string(), "line 5 column 3: plugins[1].type: unknown plugin type \"x\"");
        let nowhere = Mistake { place: None, path: String::new(), message: "no parser".into() };
        assert_eq!(nowhere.to_string(), "no parser");
    }
}
