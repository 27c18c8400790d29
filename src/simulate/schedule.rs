//! Engines that fail, leave, come or become slow, at times that a file says.

use std::fmt;
use std::time::Duration;

use epp_plugin_api::{Node, Value};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::yaml::{self, Duplicates};

/// Times from here on are taken for a slip: a hundred years, in seconds.
const MOST_SECONDS: f64 = 3.2e9;

/// Something that happens to an engine.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Change {
    /// Seconds since the beginning.
    pub at: f64,
    /// The endpoint, from 0 on.
    pub endpoint: u32,
    pub what: Kind,
    /// How many times as long everything takes from now on, with `slow`; 1 is as calibrated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub factor: Option<f64>,
    /// Whether requests that are lost with it are picked for once more, with `fail`. Default: they fail.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub retry: bool,
}

/// What happens to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// It ends with everything that it works on.
    Fail,
    /// It is taken out of the list of endpoints, and ends what it has begun.
    Leave,
    /// It comes, or comes back, with an empty cache. One that joins before anything else happens to it is not there at
    /// first.
    Join,
    /// It takes longer, or as long as before.
    Slow,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::Fail => "fail",
            Self::Leave => "leave",
            Self::Join => "join",
            Self::Slow => "slow",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Change {
    /// When it happens.
    pub fn time(&self) -> Duration {
        Duration::from_secs_f64(self.at)
    }

    /// What the speed of the engine becomes, by that which it has as calibrated.
    pub fn speed(&self) -> f64 {
        1.0 / self.factor.unwrap_or(1.0)
    }
}

/// Reads a list of changes, YAML or JSON, for so many endpoints. They are sorted by time.
///
/// # Errors
/// Says where in the text something is wrong, and what was expected.
pub fn read(text: &str, endpoints: u32) -> Result<Vec<Change>, String> {
    let node = yaml::parse(text, Duplicates::Refuse)
        .map_err(|errors| errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))?;
    let Value::List(items) = &node.value else {
        return Err(format!("{}: expected a list of changes, found {}", node.place, node.kind()));
    };
    let mut changes = Vec::new();
    for item in items {
        changes.push((change(item, endpoints)?, item));
    }
    changes.sort_by(|(a, _), (b, _)| a.at.total_cmp(&b.at));
    check_order(&changes, endpoints)?;
    Ok(changes.into_iter().map(|(change, _)| change).collect())
}

fn change(item: &Node, endpoints: u32) -> Result<Change, String> {
    let change: Change = item.decode().map_err(|why| match why.place {
        Some(place) => format!("{place}: {why}"),
        None => format!("{}: {why}", item.place),
    })?;
    let Change { at, endpoint, what, factor, retry } = change;
    let wrong = |key: &str, what: String| {
        let place = item.find(key).map_or(item.place, |node| node.place);
        Err(format!("{place}: {key}: {what}"))
    };
    if !(0.0..MOST_SECONDS).contains(&at) {
        return wrong("at", format!("expected seconds from 0 on, found {at}"));
    }
    if endpoint >= endpoints {
        return wrong("endpoint", format!("expected one of 0 to {}, found {endpoint}", endpoints - 1));
    }
    match factor {
        Some(factor) if !(1e-6..=1e6).contains(&factor) => {
            wrong("factor", format!("expected a number from 0.000001 to 1000000, found {factor}"))
        }
        Some(_) if what != Kind::Slow => wrong("factor", format!("expected only with slow, found with {what}")),
        None if what == Kind::Slow => wrong("what", "expected a factor with slow, found none".into()),
        _ if retry && what != Kind::Fail => wrong("retry", format!("expected only with fail, found with {what}")),
        _ => Ok(change),
    }
}

/// Nobody comes who is there, and to nobody who is not there anything happens.
fn check_order(changes: &[(Change, &Node)], endpoints: u32) -> Result<(), String> {
    let mut there = at_first(changes.iter().map(|(change, _)| change), endpoints);
    for (change, item) in changes {
        let there = &mut there[change.endpoint as usize];
        let comes = change.what == Kind::Join;
        if comes == *there {
            let state = if *there { "is there" } else { "is not there" };
            let Change { at, endpoint, what, .. } = change;
            return Err(format!("{}: {what} of endpoint {endpoint} at {at}: it {state} then", item.place));
        }
        *there = comes || change.what == Kind::Slow;
    }
    Ok(())
}

/// Which endpoints are there when it begins.
pub fn at_first<'a>(changes: impl Iterator<Item = &'a Change>, endpoints: u32) -> Vec<bool> {
    let mut first = vec![None; endpoints as usize];
    for change in changes {
        first[change.endpoint as usize].get_or_insert(change.what);
    }
    first.into_iter().map(|what| what != Some(Kind::Join)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_read_and_sorted() {
        let text =
            "- {at: 120, endpoint: 3, what: fail, retry: true}\n- {at: 2.5, endpoint: 1, what: slow, factor: 4}\n";
        let changes = read(text, 4).unwrap();
        assert_eq!(
            changes.iter().map(|c| (c.at, c.what)).collect::<Vec<_>>(),
            [(2.5, Kind::Slow), (120.0, Kind::Fail)]
        );
        assert_eq!((changes[0].speed(), changes[1].retry), (0.25, true));
        assert_eq!(read(r#"[{"at": 1, "endpoint": 0, "what": "leave"}]"#, 1).unwrap()[0].what, Kind::Leave);
    }

    #[test]
    fn who_joins_first_is_not_there_before() {
        let changes = read("- {at: 1, endpoint: 1, what: join}\n- {at: 2, endpoint: 0, what: leave}\n", 3).unwrap();
        assert_eq!(at_first(changes.iter(), 3), [true, false, true]);
    }

    #[test]
    fn what_makes_no_sense_is_named_with_its_place() {
        for (text, says) in [
            ("at: 1\n", "line 1 column 1: expected a list of changes, found a map"),
            ("- {at: -1, endpoint: 0, what: fail}\n", "line 1 column 8: at: expected seconds from 0 on, found -1"),
            ("- {at: 1, endpoint: 2, what: fail}\n", "line 1 column 21: endpoint: expected one of 0 to 1, found 2"),
            ("- {at: 1, endpoint: 0, what: burn}\n", "line 1 column 30: "),
            ("- {at: 1, endpoint: 0, what: slow}\n", "line 1 column 30: what: expected a factor with slow, found none"),
            ("- {at: 1, endpoint: 0, what: slow, factor: 0}\n", "line 1 column 44: factor: expected a number from "),
            ("- {at: 1, endpoint: 0, what: join, factor: 2}\n", "factor: expected only with slow, found with join"),
            ("- {at: 1, endpoint: 0, what: leave, retry: true}\n", "retry: expected only with fail, found with leave"),
            (
                "- {at: 1, endpoint: 0, what: fail}\n- {at: 2, endpoint: 0, what: slow, factor: 2}\n",
                "line 2 column 3: slow of endpoint 0 at 2: it is not there then",
            ),
            (
                "- {at: 1, endpoint: 0, what: fail}\n- {at: 2, endpoint: 0, what: join}\n- {at: 3, endpoint: 0, what: join}\n",
                "line 3 column 3: join of endpoint 0 at 3: it is there then",
            ),
        ] {
            let why = read(text, 2).unwrap_err();
            assert!(why.contains(says), "{why}");
        }
    }
}
