//! What may not stand in a file, how it begins, and how long it may be.

use std::path::Path;

use super::{Finding, Rule, Source, code, is_rust};

/// More lines than this, and a file answers more than one question.
const MOST_LINES: usize = 600;

/// What nobody leaves in the source, with what to do instead.
const UNFINISHED: [(&str, &str); 8] = [
    ("todo!", "write it"),
    ("unimplemented!", "write it"),
    ("TODO", "do it, or leave it out"),
    ("FIXME", "fix it"),
    ("#[ignore", "a test runs or it is not there"),
    ("#[allow(", "say #[expect(lint, reason = \"...\")]"),
    ("#![allow(", "say #[expect(lint, reason = \"...\")]"),
    ("unsafe ", "unsafe code gets a crate and a decision record of its own"),
];

/// Words of the place where something was written, which mean nothing to a reader.
const OF_A_WORKPLACE: [&str; 6] = ["/work/", "/root/", "/home/", "../shared", "Go program", "issue #"];

/// Tests that must wait for the world outside, or whose paused time this test does not see, and why.
const MAY_SLEEP: [(&str, &str); 3] = [
    ("src/files/tests.rs", "writes a real file again and again while the kernel tells of it"),
    ("src/flow/tests/shell.rs", "every test in it is on paused time, and so are what they have in common"),
    ("tests/it/harness", "asks a program that runs by itself, until it is ready or has ended"),
];

/// The rules themselves name what they forbid.
fn is_of_the_rules(path: &str) -> bool {
    path.starts_with("tests/it/tidy")
}

fn each_line(source: &Source, find: impl Fn(&str) -> Option<String>) -> Vec<Finding> {
    source.lines().filter_map(|(line, text)| find(text).map(|what| Finding { line, what })).collect()
}

#[test]
fn no_file_is_too_long() {
    let rule = Rule {
        about: |path| path.ends_with(".rs") || path.ends_with(".py"),
        find: |source| {
            let n_lines = source.text.lines().count();
            let what = format!("expected at most {MOST_LINES} lines, found {n_lines}");
            if n_lines > MOST_LINES { vec![Finding { line: n_lines, what }] } else { Vec::new() }
        },
        bad: &[],
        good: &[("a.rs", "//! Short.\n")],
    };
    for (n_lines, n_findings) in [(MOST_LINES, 0), (MOST_LINES + 1, 1)] {
        let source = Source::new("a.py", &"x\n".repeat(n_lines));
        assert_eq!(rule.findings(&source).len(), n_findings, "{n_lines} lines");
    }
    rule.hold();
}

#[test]
fn every_rust_file_begins_with_what_it_does() {
    Rule {
        about: is_rust,
        find: |source| match source.text.strip_prefix("//! ") {
            Some(_) => Vec::new(),
            None => vec![Finding { line: 1, what: "expected `//!` and what the file does".into() }],
        },
        bad: &[("a.rs", "use b;\n//! Late.\n"), ("a.rs", ""), ("a.rs", "// Reads.\n")],
        good: &[("a.rs", "//! Reads.\nuse b;\n")],
    }
    .hold();
}

#[test]
fn nothing_is_left_unfinished() {
    Rule {
        about: |path| (is_rust(path) || path.ends_with(".py")) && !is_of_the_rules(path),
        find: |source| {
            each_line(source, |line| {
                let found = UNFINISHED.iter().find(|(word, _)| line.contains(word));
                found.map(|(word, instead)| format!("found `{word}`: {instead}"))
            })
        },
        bad: &[
            ("a.rs", "fn f() { todo!() }"),
            ("a.rs", "unimplemented!();"),
            ("a.py", "# TODO: more"),
            ("a.rs", "// FIXME"),
            ("a.rs", "#[ignore = \"slow\"]"),
            ("a.rs", "#[allow(dead_code)]"),
            ("a.rs", "#![allow(dead_code)]"),
            ("a.rs", "let x = unsafe { y };"),
        ],
        good: &[("a.rs", "#[expect(dead_code, reason = \"kept\")]\nfn ignore() {}")],
    }
    .hold();
}

#[test]
fn the_text_speaks_of_itself_alone() {
    Rule {
        about: |path| !is_of_the_rules(path) && path != "Cargo.lock" && !path.starts_with("tests/data/"),
        find: |source| {
            each_line(source, |line| {
                let mut words = OF_A_WORKPLACE.iter().filter(|word| line.contains(**word));
                // The scenarios are not part of the repository, and are run where they are.
                let found = words.find(|word| !(source.path == ".ci/run" && **word == "../shared"));
                found.map(|word| format!("found `{word}`, which means nothing to a reader"))
            })
        },
        bad: &[
            ("README.md", "see /work/notes"),
            ("a.py", "open('/root/x')"),
            ("a.rs", "// as in ../shared/x"),
            (".ci/run", "/home/me"),
            ("a.rs", "// as the Go program does"),
            ("a.rs", "// issue #12"),
        ],
        good: &[(".ci/run", "scenarios=../shared/x"), ("a.rs", "//! Shares the work.\n")],
    }
    .hold();
}

#[test]
fn links_lead_somewhere() {
    Rule {
        about: |path| path.ends_with(".md"),
        find: |source| {
            let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join(&source.path).with_file_name("");
            let mut findings = Vec::new();
            for (line, text) in source.lines() {
                let targets = text.split("](").skip(1).filter_map(|rest| rest.split(')').next());
                for target in targets.filter(|t| !t.contains("://") && !t.starts_with('#')) {
                    let file = target.split('#').next().unwrap_or(target);
                    if !directory.join(file).exists() {
                        findings.push(Finding { line, what: format!("there is no {target}") });
                    }
                }
            }
            findings
        },
        bad: &[("README.md", "see [this](docs/none.md)"), ("docs/metrics.md", "[up](README.md)")],
        good: &[("README.md", "[a](Cargo.toml), [b](https://example.com/x), [c](#part), [d](src/lib.rs#x)")],
    }
    .hold();
}

/// Whether a file holds nothing but tests.
fn is_test_file(path: &str) -> bool {
    path.contains("/tests/") || path.starts_with("tests/") || path.ends_with("tests.rs")
}

#[test]
fn tests_do_not_sleep() {
    Rule {
        about: |path| {
            is_rust(path) && !is_of_the_rules(path) && MAY_SLEEP.iter().all(|(place, _)| !path.starts_with(place))
        },
        find: |source| {
            let (mut in_tests, mut paused) = (is_test_file(&source.path), false);
            let mut findings = Vec::new();
            for (line, text) in source.lines() {
                let text = code(text);
                in_tests |= text.contains("#[cfg(test)]");
                if text.contains("test]") || text.contains("::test(") {
                    paused = text.contains("start_paused = true");
                }
                let sleeps = text.contains("thread::sleep(") || text.contains("time::sleep(") && !paused;
                if in_tests && sleeps {
                    findings.push(Finding { line, what: "expected a test on paused time, found a sleep".into() });
                }
            }
            findings
        },
        bad: &[
            ("src/a/tests.rs", "std::thread::sleep(x);"),
            ("src/a.rs", "#[cfg(test)]\nmod tests {\n#[tokio::test]\ntokio::time::sleep(x).await;"),
            ("tests/it/a.rs", "#[tokio::test(start_paused = true)]\n#[tokio::test]\ntokio::time::sleep(x).await;"),
            ("sim/tests/a.rs", "#[tokio::test(start_paused = true)]\nthread::sleep(x);"),
        ],
        good: &[
            ("src/a.rs", "tokio::time::sleep(x).await;\n#[cfg(test)]\nmod tests {}"),
            ("src/a/tests.rs", "#[tokio::test(start_paused = true)]\ntokio::time::sleep(x).await;"),
        ],
    }
    .hold();
}
