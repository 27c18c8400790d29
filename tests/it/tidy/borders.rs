//! Borders between rooms, read off the paths that the code names.

use super::{Finding, Rule, Source, code, is_rust};

/// Which modules of `src` each module may name.
///
/// The way down is main, cli, app, then the rooms; a request goes ext_proc, generation, sched, flow. What several rooms
/// need is small and stands below them all: tasks, files, listen, yaml, trust and telemetry.
const MAY_NAME: [(&str, &[&str]); 21] = [
    ("main", &["cli"]),
    // Flags are lowered to settings of the app and of ext_proc, in the units of the config; `check` loads a config, and
    // `pick` is a client of the wire, over TLS if asked; `plugins` shows examples as YAML, and `refusals` the page of them.
    (
        "cli",
        &[
            "app",
            "bench",
            "config",
            "ext_proc",
            "flow",
            "page",
            "recording",
            "replay",
            "simulate",
            "telemetry",
            "trust",
            "yaml",
        ],
    ),
    (
        "app",
        &[
            "admin",
            "board",
            "calls",
            "config",
            "ext_proc",
            "files",
            "flow",
            "generation",
            "recording",
            "reload",
            "sched",
            "tasks",
            "telemetry",
        ],
    ),
    // A client of the wire and of engines, and a server that answers a constant.
    ("bench", &["ext_proc", "trust"]),
    // Takes from sched what led to decisions, and writes it down; a replay reads it and decides again.
    ("recording", &["sched", "tasks"]),
    ("replay", &["config", "recording", "sched", "telemetry"]),
    // A changed config becomes the next generation; the board takes up where endpoints are and what engines are asked.
    ("reload", &["board", "config", "files", "flow", "generation", "sched", "tasks"]),
    // Runs the pipeline of a config on a clock of its own, and reads descriptions of engines.
    ("simulate", &["config", "flow", "generation", "sched", "yaml"]),
    // Draws what simulations and measurements came to.
    ("page", &["bench", "simulate"]),
    // Does for sched what plugins may not do themselves.
    ("calls", &["sched", "tasks"]),
    // A generation is what a plan becomes: a pipeline to judge with, and parsers to read with.
    ("generation", &["config", "ext_proc", "flow", "sched"]),
    // The table of parsers is built from a plan.
    ("ext_proc", &["config", "flow", "generation", "listen", "sched", "tasks", "telemetry"]),
    // The pipeline is built from a plan. Admission is asked in the cycle, once it is known who the candidates are.
    ("sched", &["config", "flow", "telemetry"]),
    ("flow", &["telemetry"]),
    ("board", &["files", "listen", "tasks", "trust", "yaml"]),
    ("config", &["yaml"]),
    ("admin", &["telemetry"]),
    ("files", &["tasks"]),
    ("yaml", &[]),
    ("tasks", &[]),
    ("telemetry", &[]),
];

/// Modules that name no other one at all, beside those above.
const NAMES_NONE: [&str; 3] = ["trust", "listen", "lib"];

/// Single files that may name one module more, and why.
const FILES_THAT_MAY: [(&str, &str, &str); 9] = [
    ("src/config/tests/defaults.rs", "app", "what a config gets depends on every plugin there is"),
    ("src/config/tests/mod.rs", "app", "flow control is written out with its default policies"),
    ("src/config/tests/golden.rs", "app", "the sample configs are checked with every plugin there is"),
    ("src/flow/tests.rs", "app", "queues are tried with real policies"),
    ("src/recording/tests.rs", "telemetry", "records have a moment"),
    ("src/replay/tests.rs", "app", "whole configs are recorded and replayed"),
    ("src/simulate/tests.rs", "app", "arms are configs with real plugins"),
    ("src/sched/tests.rs", "app", "whole configs are tried with real plugins"),
    ("src/ext_proc/stream/tests.rs", "app", "streams are tried with real parsers"),
];

/// Which crates of ours a place may name; the first line whose path begins the file's path counts.
const CRATES: [(&str, &[&str]); 21] = [
    ("src/app.rs", &["epp_plugin_api", "epp_plugins"]),
    ("src/bench/", &["epp_trace"]),
    ("src/cli/bench.rs", &["epp_trace"]),
    ("src/cli/engine.rs", &["epp_sim"]),
    ("src/cli/progress.rs", &["epp_trace"]),
    ("src/cli/simulate.rs", &["epp_plugin_api", "epp_trace"]),
    ("src/cli/trace.rs", &["epp_trace"]),
    ("src/main.rs", &["epp"]),
    ("src/page/", &["epp_trace"]),
    ("src/simulate/", &["epp_plugin_api", "epp_sim", "epp_trace"]),
    ("src/", &["epp_plugin_api"]),
    ("plugins/api/", &[]),
    ("plugins/builtin/benches/", &["epp_plugin_api", "epp_plugins", "epp_prefix_index"]),
    ("plugins/builtin/", &["epp_plugin_api", "epp_prefix_index"]),
    // The tests of the example run it in the picker; the example itself knows what any plugin may know.
    ("plugins/example/tests/", &["epp", "epp_plugin_api", "epp_plugin_example"]),
    ("plugins/example/", &["epp_plugin_api"]),
    // Benches and tests of a crate name it as anyone else would.
    ("plugins/prefix-index/", &["epp_prefix_index"]),
    ("sim/tests/", &["epp_sim"]),
    ("sim/", &[]),
    ("trace/tests/", &["epp_trace"]),
    ("trace/", &[]),
];

/// All crates of ours, as paths name them.
const OURS: [&str; 7] =
    ["epp", "epp_plugin_api", "epp_plugin_example", "epp_plugins", "epp_prefix_index", "epp_sim", "epp_trace"];

/// Libraries that one part only may know: how their paths begin, and where they may stand.
const KEPT_INSIDE: [(&str, &[&str]); 6] = [
    ("tonic", &["src/bench/", "src/ext_proc/", "src/cli/pick.rs"]),
    ("prost", &["src/ext_proc/", "src/cli/pick.rs"]),
    ("envoy_types", &["src/ext_proc/"]),
    ("saphyr_parser", &["src/yaml.rs", "src/yaml/"]),
    ("axum", &["src/admin/"]),
    ("clap", &["src/cli/"]),
];

/// The module of `src` that a file belongs to.
fn module(path: &str) -> &str {
    let inside = path.strip_prefix("src/").unwrap_or(path);
    let first = inside.split('/').next().unwrap_or(inside);
    first.strip_suffix(".rs").unwrap_or(first)
}

/// How many modules deep a file of `src` is: 1 for a room itself.
fn depth(path: &str) -> usize {
    let inside = path.strip_prefix("src/").unwrap_or(path);
    let inside = inside.strip_suffix("/mod.rs").or(inside.strip_suffix(".rs")).unwrap_or(inside);
    inside.split('/').count()
}

fn is_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

/// What comes after each `prefix` of a line that is not the end of a longer name.
fn after<'a>(line: &'a str, prefix: &'a str) -> impl Iterator<Item = &'a str> {
    line.match_indices(prefix)
        .filter(|(at, _)| !line[..*at].ends_with(|c: char| is_name(c) || c == ':'))
        .map(|(at, _)| &line[at + prefix.len()..])
}

fn first_name(text: &str) -> &str {
    text.split(|c| !is_name(c)).next().unwrap_or_default()
}

fn crossings(source: &Source) -> Vec<Finding> {
    let own = module(&source.path);
    let allowed = MAY_NAME.iter().find(|(name, _)| *name == own).map(|(_, allowed)| *allowed);
    let Some(allowed) = allowed.or(NAMES_NONE.contains(&own).then_some(&[])) else {
        return vec![Finding { line: 1, what: format!("module {own} is new: say in this test what it may name") }];
    };
    let mut findings = Vec::new();
    for (line, raw) in source.lines() {
        let text = code(raw);
        let mut say = |what: String| findings.push(Finding { line, what });
        let root = if own == "main" { "epp::" } else { "crate::" };
        for rest in after(&text, root) {
            let name = first_name(rest);
            let excused = FILES_THAT_MAY.iter().any(|(path, other, _)| *path == source.path && *other == name);
            if name.is_empty() {
                say("name modules one by one, so that this test can read them".into());
            } else if name != own && !allowed.contains(&name) && !excused {
                say(format!("module {own} may not name {name}"));
            }
        }
        let n_supers = text.matches("super::").count();
        // What is indented is inside a module of tests, one deeper.
        let depth = depth(&source.path) + usize::from(raw.starts_with(' '));
        if n_supers > 0 && n_supers >= depth {
            say("name another module by crate::, so that this test can read it".into());
        }
    }
    findings
}

#[test]
fn rooms_name_only_those_they_may() {
    Rule {
        about: |path| is_rust(path) && path.starts_with("src/"),
        find: crossings,
        bad: &[
            ("src/sched/cycle.rs", "use crate::ext_proc::wire::HttpBody;"),
            ("src/flow/refusal.rs", "fn f(x: &crate::config::plan::Plan) {}"),
            ("src/main.rs", "fn main() { epp::app::serve() }"),
            ("src/board/mod.rs", "use crate::{files, sched};"),
            ("src/board/mod.rs", "use super::sched::cycle;"),
            ("src/board/a.rs", "use super::super::sched;"),
            ("src/trust.rs", "use crate::app;"),
            ("src/attic/mod.rs", "//! New."),
        ],
        good: &[
            ("src/sched/cycle.rs", "use crate::flow::refusal::Refusal;\nuse crate::sched::scratch::Scratch;"),
            ("src/board/mod.rs", "// crate::sched is told later.\nlet x = \"crate::sched\";"),
            ("src/board/a/tests.rs", "use super::super::b;"),
            ("src/files.rs", "mod tests {\n    use super::*;\n}"),
            ("src/config/tests/golden.rs", "crate::app::registry()"),
            ("src/main.rs", "epp::cli::main()"),
        ],
    }
    .hold();
}

#[test]
fn parts_name_only_crates_that_they_may() {
    Rule {
        about: |path| is_rust(path) && CRATES.iter().any(|(place, _)| path.starts_with(place)),
        find: |source| {
            let allowed = CRATES.iter().find(|(place, _)| source.path.starts_with(place)).map_or(&[][..], |(_, a)| a);
            let mut findings = Vec::new();
            for (line, text) in source.lines() {
                let text = code(text);
                for name in OURS {
                    let named = after(&text, name).any(|rest| rest.starts_with("::"));
                    if named && !allowed.contains(&name) {
                        findings.push(Finding { line, what: format!("{name} may not be named here") });
                    }
                }
            }
            findings
        },
        bad: &[
            ("src/sched/cycle.rs", "use epp_plugins::registry::REGISTRY;"),
            ("src/board/mod.rs", "let x = epp_sim::model::new();"),
            ("plugins/api/src/lib.rs", "use epp_prefix_index::Limits;"),
            ("plugins/builtin/src/lib.rs", "use epp::config;"),
            ("plugins/example/src/lib.rs", "use epp_plugins::attributes::InFlight;"),
            ("plugins/example/src/lib.rs", "use epp::config;"),
            ("src/app.rs", "use epp_plugin_example::TYPE;"),
            ("sim/src/lib.rs", "use epp_plugin_api::Node;"),
            ("trace/src/lib.rs", "use epp_sim::kind::Kind;"),
            ("src/sched/mod.rs", "use epp_trace::trace::Trace;"),
        ],
        good: &[
            ("src/app.rs", "epp_plugins::registry::REGISTRY"),
            ("src/telemetry/log.rs", "target: \"epp_plugins::scorers\""),
            ("plugins/builtin/src/x.rs", "use epp_plugin_api::Node;"),
        ],
    }
    .hold();
}

#[test]
fn libraries_stay_where_they_belong() {
    Rule {
        about: |path| {
            is_rust(path) && ["src/", "plugins/", "sim/", "trace/"].iter().any(|place| path.starts_with(place))
        },
        find: |source| {
            let mut findings = Vec::new();
            for (line, text) in source.lines() {
                let text = code(text);
                for (library, places) in KEPT_INSIDE {
                    // `tonic::x` as well as `tonic_health::x`; a module of ours that is called alike does not count.
                    let named = after(&text, library).any(|rest| rest.trim_start_matches(is_name).starts_with("::"));
                    if named && !places.iter().any(|place| source.path.starts_with(place)) {
                        findings.push(Finding { line, what: format!("{library} is known to {places:?} only") });
                    }
                }
            }
            findings
        },
        bad: &[
            ("src/sched/cycle.rs", "use tonic::Status;"),
            ("src/app.rs", "let x = tonic_health::server::x();"),
            ("plugins/builtin/src/x.rs", "use prost_types::Struct;"),
            ("src/config/document.rs", "use saphyr_parser::Parser;"),
        ],
        good: &[
            ("src/ext_proc/wire.rs", "use prost::Message;"),
            ("src/cli/pick.rs", "use tonic::client::Grpc;"),
            ("src/yaml.rs", "use saphyr_parser::Parser;"),
        ],
    }
    .hold();
}
