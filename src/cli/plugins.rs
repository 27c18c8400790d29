//! `epp plugins`: what plugin types there are, and the page of each.

mod page;
mod parameter;
mod sheet;

use std::io::Write;
use std::process::ExitCode;

use epp_plugin_api::{MetricHub, PluginType, Stability};

use self::page::Page;
use crate::config::near;

/// Lists the plugin types, or tells about one of them: its parameters and the data that it reads and writes.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// The plugin type to tell about.
    pub name: Option<String>,
    /// Print the pages of all types as Markdown.
    #[arg(long, hide = true, conflicts_with = "name")]
    pub markdown: bool,
}

/// Prints to stdout; fails if there is no such type.
pub fn run(args: &Args, registry: &[&'static PluginType]) -> ExitCode {
    let (out, err, code) = match &args.name {
        None if args.markdown => (markdown(registry), String::new(), ExitCode::SUCCESS),
        None => (list(registry), String::new(), ExitCode::SUCCESS),
        Some(name) => match registry.iter().find(|kind| kind.name == *name) {
            Some(kind) => (sheet::text(&Page::of(kind, registry)), String::new(), ExitCode::SUCCESS),
            None => (String::new(), unknown(name, registry), ExitCode::FAILURE),
        },
    };
    // Nobody is left to be told when these pipes are closed.
    let _ = std::io::stdout().write_all(out.as_bytes());
    let _ = std::io::stderr().write_all(err.as_bytes());
    code
}

/// The pages of all types as Markdown.
pub fn markdown(registry: &[&'static PluginType]) -> String {
    let pages: Vec<Page> = registry.iter().map(|kind| Page::of(kind, registry)).collect();
    sheet::markdown(&pages)
}

/// Builds an instance of each type on trial, with the parameters of its example, so that what it shows is on the hub.
pub fn build_each(registry: &[&'static PluginType], hub: &MetricHub) {
    registry.iter().for_each(|kind| page::try_example(kind, registry, hub));
}

/// A line a type, in columns.
fn list(registry: &[&'static PluginType]) -> String {
    let rows: Vec<[String; 4]> = registry
        .iter()
        .map(|kind| [kind.name.to_owned(), kinds(kind), standing(kind), kind.summary.to_owned()])
        .collect();
    let heads = ["TYPE", "KIND", "STABILITY", "SUMMARY"].map(str::to_owned);
    let width = |column: usize| rows.iter().chain([&heads]).map(|row| row[column].chars().count()).max().unwrap_or(0);
    let (name, kind, stability) = (width(0), width(1), width(2));
    let line = |row: &[String; 4]| format!("{:name$}  {:kind$}  {:stability$}  {}\n", row[0], row[1], row[2], row[3]);
    std::iter::once(&heads).chain(&rows).map(line).collect()
}

fn unknown(name: &str, registry: &[&'static PluginType]) -> String {
    let names = || registry.iter().map(|kind| kind.name);
    let longer: Vec<&str> = names().filter(|known| known.contains(name)).collect();
    let there =
        if longer.is_empty() { "epp plugins lists all".to_owned() } else { format!("there is {}", longer.join(", ")) };
    format!("epp: expected a plugin type, found {name:?}{}; {there}\n", near::hint(name, names()))
}

fn kinds(kind: &PluginType) -> String {
    kind.kinds.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

fn standing(kind: &PluginType) -> String {
    let stability = match kind.stability {
        Stability::Alpha => "alpha",
        Stability::Beta => "beta",
    };
    kind.replaced_by.map_or_else(|| stability.to_owned(), |new| format!("deprecated, use {new}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::tests::registry::REGISTRY;

    #[test]
    fn the_list_is_in_columns() {
        let listed = list(REGISTRY);
        let column = listed.lines().next().and_then(|heads| heads.find("KIND")).unwrap_or_default();
        for (line, kind) in listed.lines().skip(1).zip(REGISTRY) {
            assert!(line.starts_with(kind.name), "{line}");
            assert!(line[column..].starts_with(&kinds(kind)), "{line}");
        }
    }

    #[test]
    fn an_unknown_type_is_told_with_those_that_are_meant() {
        assert_eq!(unknown("queue", REGISTRY), "epp: expected a plugin type, found \"queue\"; there is queue-scorer\n");
        assert_eq!(
            unknown("wibble", REGISTRY),
            "epp: expected a plugin type, found \"wibble\"; epp plugins lists all\n"
        );
    }
}
