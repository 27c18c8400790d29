//! Plugins that refer to each other: in which order they are built, what is refused, and what is taken over.

use std::sync::Arc;

use super::{Plan, all_names, doc, load_with, loaded, plan, registry};

/// A scorer of this name that refers to these.
fn friend(name: &str, friends: &str) -> String {
    format!("{{type: friend-scorer, name: {name}, parameters: {{friends: [{friends}]}}}}")
}

/// A config with scorers that refer to each other, as pairs of name and friends.
fn text(friends: &[(&str, &str)]) -> String {
    let listed: Vec<String> = friends.iter().map(|(name, friends)| friend(name, friends)).collect();
    doc(&listed.iter().map(String::as_str).collect::<Vec<_>>(), "", "")
}

#[test]
fn the_order_in_the_file_does_not_matter() {
    for friends in [[("a", "b, c"), ("b", "c"), ("c", "")], [("c", ""), ("b", "c"), ("a", "b, c")]] {
        let plan = plan(&text(&friends));
        assert_eq!(all_names(&plan)[1..4], friends.map(|(name, _)| name));
        let refers_to = |name: &str| &plan.plugins.iter().find(|p| p.name == name).unwrap().keys.refers_to;
        assert_eq!((refers_to("a"), refers_to("c")), (&vec!["b".to_owned(), "c".to_owned()], &vec![]));
    }
}

#[track_caller]
fn refused(text: &str, mistakes: &[&str]) {
    let got: Vec<String> = match loaded(text) {
        Ok(_) => panic!("accepted:\n{text}"),
        Err(mistakes) => mistakes.iter().map(ToString::to_string).collect(),
    };
    assert_eq!(got, mistakes, "{text}");
}

const UNKNOWN: &str = "line 5 column 56: plugins[1].parameters.friends: plugin \"a\" of type friend-scorer: no plugin is named \"wibble\"";

#[test]
fn a_reference_to_nobody_is_named_once() {
    refused(&text(&[("a", "wibble"), ("b", "a")]), &[UNKNOWN]);
    refused(&text(&[("a", "b, wibble"), ("b", "")]), &[UNKNOWN]);
}

#[test]
fn a_name_that_is_near_to_the_one_that_nobody_has_is_hinted_at() {
    let mistake = UNKNOWN.replace("wibble", "wibbles") + ", perhaps \"wibble\" is meant";
    refused(&text(&[("a", "wibbles"), ("wibble", "")]), &[&mistake]);
}

#[test]
fn a_reference_to_what_cannot_be_built_is_no_further_mistake() {
    let broken = friend("b", "").replace("friends", "wibble");
    let mistake = "line 6 column 47: plugins[2].parameters: plugin \"b\" of type friend-scorer: \
                   unknown key \"wibble\", expected one of friends";
    refused(&doc(&[&friend("a", "b"), &broken], "", ""), &[mistake]);
    refused(
        &doc(&[&friend("a", "b"), "{type: wibble-scorer, name: b}"], "", ""),
        &["line 6 column 10: plugins[2].type: unknown plugin type \"wibble-scorer\""],
    );
}

#[test]
fn a_cycle_is_named_once() {
    let cycle = |at: usize, first: &str, names: &str| {
        format!(
            "line {} column 56: plugins[{at}].parameters.friends: plugin \"{first}\" of type friend-scorer: plugins refer to each other in a cycle: {names}",
            at + 4
        )
    };
    refused(&text(&[("a", "a")]), &[&cycle(1, "a", "\"a\"")]);
    refused(&text(&[("x", "b"), ("b", "c"), ("c", "b"), ("d", "")]), &[&cycle(2, "b", "\"b\", \"c\"")]);
}

/// Which of the scorers of the first config are taken over by the second.
fn taken_over(first: &[(&str, &str)], second: &[(&str, &str)]) -> Vec<String> {
    let first = plan(&text(first));
    let second = load_with(registry::REGISTRY, &text(second), Some(&first)).unwrap();
    let scorer =
        |plan: &Plan, name: &str| plan.plugins.iter().find(|p| p.name == name).and_then(|p| p.instance.scorer.clone());
    let same = |name: &&str| match (scorer(&first, name), scorer(&second, name)) {
        (Some(old), Some(new)) => Arc::ptr_eq(&old, &new),
        _ => false,
    };
    ["a", "b", "c"].iter().filter(|name| same(name)).map(|name| (*name).to_owned()).collect()
}

#[test]
fn what_refers_to_others_is_taken_over_with_them_only() {
    let first = [("a", "b"), ("b", "c"), ("c", ""), ("d", ""), ("e", "")];
    assert_eq!(taken_over(&first, &first), ["a", "b", "c"]);
    assert_eq!(taken_over(&first, &[("a", "b"), ("b", "d"), ("c", ""), ("d", "")]), ["c"]);
    assert_eq!(taken_over(&first, &[("a", "b"), ("b", "c"), ("c", "d"), ("d", "")]), [""; 0]);
    assert_eq!(taken_over(&first, &[("c", ""), ("a", "b"), ("b", "c")]), ["a", "b", "c"]);
}
