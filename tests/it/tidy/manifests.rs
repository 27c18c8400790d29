//! Dependencies: their versions stand in one place, and which part may depend on which.

use super::{Finding, Rule, Source};

/// Which crates of ours each manifest may name.
const MAY_NAME: [(&str, &[&str]); 8] = [
    ("Cargo.toml", &["epp-plugin-api", "epp-plugins", "epp-sim", "epp-trace"]),
    ("plugins/api/Cargo.toml", &[]),
    ("plugins/builtin/Cargo.toml", &["epp-plugin-api", "epp-prefix-index"]),
    // Its tests run it in the picker.
    ("plugins/example/Cargo.toml", &["epp-plugin-api", "epp"]),
    ("plugins/prefix-index/Cargo.toml", &[]),
    ("sim/Cargo.toml", &[]),
    ("trace/Cargo.toml", &[]),
    ("fuzz/Cargo.toml", &["epp", "epp-plugin-api", "epp-plugins", "epp-prefix-index", "epp-trace"]),
];

/// The lines of the tables of dependencies: number, name, and what is said of it.
fn dependencies(source: &Source) -> Vec<(usize, &str, &str)> {
    let mut inside = false;
    let mut found = Vec::new();
    for (line, text) in source.lines() {
        let text = text.split('#').next().unwrap_or_default().trim();
        if let Some(table) = text.strip_prefix('[') {
            inside = table.trim_end_matches(']').ends_with("dependencies") && !table.starts_with("workspace.");
        } else if inside && let Some((key, value)) = text.split_once('=') {
            let (name, of) = key.trim().split_once('.').unwrap_or((key.trim(), ""));
            // `name.workspace = true` and `name = { workspace = true }` say the same.
            let from_the_root = of == "workspace" || value.contains("workspace = true");
            found.push((line, name, if from_the_root { "workspace" } else { value }));
        }
    }
    found
}

#[test]
fn versions_stand_in_the_root_manifest_only() {
    Rule {
        // The fuzz targets are a workspace of their own, which cannot look into this one.
        about: |path| path.ends_with("Cargo.toml") && path != "fuzz/Cargo.toml",
        find: |source| {
            let mut findings = Vec::new();
            for (line, name, said) in dependencies(source) {
                if said != "workspace" {
                    findings.push(Finding { line, what: format!("expected `{name}.workspace = true`") });
                }
            }
            findings
        },
        bad: &[
            ("sim/Cargo.toml", "[dependencies]\nbytes = \"1\"\n"),
            ("Cargo.toml", "[dev-dependencies]\ntokio = { version = \"1\" }\n"),
            ("sim/Cargo.toml", "[target.'cfg(unix)'.dependencies]\nlibc = \"0.2\"\n"),
        ],
        good: &[
            ("Cargo.toml", "[workspace.dependencies]\nbytes = \"1\"\n[dependencies]\nbytes.workspace = true\n"),
            ("sim/Cargo.toml", "[dependencies]\nhyper = { workspace = true, features = [\"server\"] }\n"),
        ],
    }
    .hold();
}

#[test]
fn a_part_depends_only_on_what_it_may_know() {
    Rule {
        about: |path| path.ends_with("Cargo.toml"),
        find: |source| {
            let Some((_, allowed)) = MAY_NAME.iter().find(|(path, _)| *path == source.path) else {
                return vec![Finding { line: 1, what: "a new part: say in this test what it may depend on".into() }];
            };
            let ours = |name: &str| name == "epp" || name.starts_with("epp-");
            let dependencies = dependencies(source).into_iter();
            let refused = dependencies.filter(|(_, name, _)| ours(name) && !allowed.contains(name));
            refused.map(|(line, name, _)| Finding { line, what: format!("may not depend on {name}") }).collect()
        },
        bad: &[
            ("plugins/api/Cargo.toml", "[dependencies]\nepp-prefix-index.workspace = true\n"),
            ("sim/Cargo.toml", "[dev-dependencies]\nepp-plugin-api.workspace = true\n"),
            ("new/Cargo.toml", "[package]\n"),
        ],
        good: &[("plugins/builtin/Cargo.toml", "[dependencies]\nepp-plugin-api.workspace = true\n")],
    }
    .hold();
}
