//! Checks of the source text itself. Each rule comes with texts that break it, so that a rule that sees nothing fails.

mod borders;
mod manifests;
mod words;

use std::fs;
use std::path::{Path, PathBuf};

/// A file of the repository.
struct Source {
    /// From the root of the repository, with forward slashes.
    path: String,
    text: String,
}

/// Something that a rule objects to.
#[derive(Debug)]
struct Finding {
    /// Counts from 1.
    line: usize,
    what: String,
}

/// A rule about one file at a time.
struct Rule {
    /// Which files the rule is about.
    about: fn(&str) -> bool,
    find: fn(&Source) -> Vec<Finding>,
    /// Paths and texts in which the rule must find something.
    bad: &'static [(&'static str, &'static str)],
    /// Paths and texts in which it must find nothing.
    good: &'static [(&'static str, &'static str)],
}

impl Source {
    fn new(path: &str, text: &str) -> Self {
        Self { path: path.to_owned(), text: text.to_owned() }
    }

    /// The lines with their numbers.
    fn lines(&self) -> impl Iterator<Item = (usize, &str)> {
        self.text.lines().enumerate().map(|(i, line)| (i + 1, line))
    }
}

impl Rule {
    fn findings(&self, source: &Source) -> Vec<Finding> {
        if (self.about)(&source.path) { (self.find)(source) } else { Vec::new() }
    }

    /// Tries the rule on its own examples, then on the whole repository.
    fn hold(&self) {
        for (path, text) in self.bad {
            assert!(!self.findings(&Source::new(path, text)).is_empty(), "nothing found in {path}:\n{text}");
        }
        for (path, text) in self.good {
            let findings = self.findings(&Source::new(path, text));
            assert!(findings.is_empty(), "found {findings:?} in {path}:\n{text}");
        }
        let mut report = String::new();
        let mut seen = 0;
        for source in repository() {
            seen += usize::from((self.about)(&source.path));
            for Finding { line, what } in self.findings(&source) {
                report += &format!("\n{}:{line}: {what}", source.path);
            }
        }
        assert!(seen > 0, "the rule is about no file of the repository");
        assert!(report.is_empty(), "{report}");
    }
}

/// Every text file that belongs to the repository.
fn repository() -> Vec<Source> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut sources = Vec::new();
    collect(root, root, &mut sources);
    sources
}

/// Directories of tools, and what tools leave behind.
const LEFT_OUT: [&str; 7] = [".git", ".venv", "target", "corpus", "artifacts", "__pycache__", ".pytest_cache"];

fn collect(root: &Path, directory: &Path, sources: &mut Vec<Source>) {
    let entries = fs::read_dir(directory).unwrap_or_else(|e| panic!("{}: {e}", directory.display()));
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.expect("an entry of a directory").path()).collect();
    paths.sort();
    for path in paths {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if LEFT_OUT.contains(&&*name) {
            continue;
        }
        if path.is_dir() {
            collect(root, &path, sources);
        } else if let Ok(text) = fs::read_to_string(&path) {
            let path = path.strip_prefix(root).expect("a file below the root").to_string_lossy().replace('\\', "/");
            sources.push(Source { path, text });
        }
    }
}

fn is_rust(path: &str) -> bool {
    path.ends_with(".rs")
}

/// A line of Rust without its comment and without what stands in quotes.
fn code(line: &str) -> String {
    let mut out = String::new();
    let mut quoted = false;
    let line = line.replace(r#"'"'"#, "' '").replace(r#"\\"#, "  ").replace(r#"\""#, "  ");
    let mut rest = line.chars().peekable();
    while let Some(c) = rest.next() {
        match c {
            '"' => quoted = !quoted,
            '/' if !quoted && rest.peek() == Some(&'/') => break,
            _ if quoted => {}
            _ => out.push(c),
        }
    }
    out
}

#[test]
fn comments_and_quotes_are_no_code() {
    for (line, kept) in [
        ("use a; // use b;", "use a; "),
        (r#"x("epp_plugins::y", '"', z)"#, "x(, ' ', z)"),
        (r#"x("a \" // b", c)"#, "x(, c)"),
        ("/// crate::app", ""),
    ] {
        assert_eq!(code(line), kept);
    }
}
