//! `epp metrics`: what metric families there are, and the page of them.

pub mod family;
mod sections;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Write;
use std::process::ExitCode;

use epp_plugin_api::PluginType;

use self::family::{Family, read, with_old};
use self::sections::{SECTIONS, section_of};
use super::plugins;
use crate::app::families::every_family;
use crate::telemetry::exposition::{Format, page};

/// Lists the metric families: what each is, its labels, and what it tells.
#[derive(Clone, Copy, Debug, clap::Args)]
pub struct Args {
    /// Print the page of all families as Markdown.
    #[arg(long, hide = true)]
    pub markdown: bool,
}

/// Prints to stdout.
pub fn run(args: Args, registry: &[&'static PluginType]) -> ExitCode {
    let text = if args.markdown { markdown(registry) } else { list(&families(registry)) };
    // Nobody is left to be told when the pipe is closed.
    let _ = std::io::stdout().write_all(text.as_bytes());
    ExitCode::SUCCESS
}

/// Every family that a picker with these plugins can show.
///
/// # Panics
/// If a collector refuses to tell its values.
pub fn families(registry: &[&'static PluginType]) -> Vec<Family> {
    let hub = every_family();
    plugins::build_each(registry, &hub);
    read(&page(&hub, Format::Text).expect("the collectors tell their values"))
}

/// The page of all families.
pub fn markdown(registry: &[&'static PluginType]) -> String {
    let families = families(registry);
    let buckets = buckets(&families);
    let mut text = include_str!("metrics/preamble.md").to_owned();
    let mut parts: Vec<String> = vec![String::new(); SECTIONS.len()];
    for (family, old) in with_old(families) {
        parts[section_of(&family.name)] += &row(&family, &old);
    }
    for (section, rows) in SECTIONS.iter().zip(parts).filter(|(_, rows)| !rows.is_empty()) {
        text += &format!("\n## {}\n\n", section.title);
        if !section.about.is_empty() {
            text += &format!("{}\n\n", section.about);
        }
        text += &format!("| family | kind | unit | labels | what | older name |\n|---|---|---|---|---|---|\n{rows}");
    }
    text + "\n## Buckets\n\nUpper bounds of the histograms.\n\n| bounds | families |\n|---|---|\n" + &buckets
}

fn row(family: &Family, old: &[Family]) -> String {
    let labels = |labels: &[String]| labels.iter().map(|l| format!("`{l}`")).collect::<Vec<_>>().join(", ");
    let old = old.iter().map(|one| match one.labels == family.labels {
        true => format!("`{}`", one.name),
        false if one.labels.is_empty() => format!("`{}` (no labels)", one.name),
        false => format!("`{}` ({})", one.name, labels(&one.labels)),
    });
    let old = old.collect::<Vec<_>>().join(", ");
    let Family { name, kind, help, .. } = family;
    format!("| `{name}` | {kind} | {} | {} | {help} | {old} |\n", family.unit(), labels(&family.labels))
}

/// Bounds, and the histograms that have them, in rows.
fn buckets(families: &[Family]) -> String {
    let mut by_bounds: BTreeMap<&[String], Vec<&str>> = BTreeMap::new();
    for family in families.iter().filter(|f| f.kind == "histogram" && f.instead.is_none()) {
        by_bounds.entry(&family.buckets).or_default().push(&family.name);
    }
    let mut rows: Vec<String> = Vec::new();
    for (bounds, names) in by_bounds {
        let names = names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
        rows.push(format!("| {} | {names} |\n", bounds.join(" ")));
    }
    rows.concat()
}

/// A line a family, in columns.
fn list(families: &[Family]) -> String {
    let width = families.iter().map(|f| f.name.len()).max().unwrap_or(0);
    let mut text = String::new();
    for family in families.iter().filter(|f| f.instead.is_none()) {
        let labels = family.labels.join(",");
        writeln!(text, "{:width$}  {:9}  {}  [{labels}]", family.name, family.kind, family.help)
            .expect("a string takes every write");
    }
    text
}
