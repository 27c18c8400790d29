//! Faults that users of programs of this kind have reported: each is tried on this one. `docs/known-faults.md` lists them.

mod bodies;
mod config;
mod files;
mod grpc;
mod health;
mod limits;
mod metrics;
mod picks;
mod protocol;
mod responses;

use std::path::Path;

#[test]
fn every_test_that_the_list_names_exists() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let list = std::fs::read_to_string(root.join("docs/known-faults.md")).expect("the list is there");
    let named = list.split('`').skip(1).step_by(2).filter_map(|code| code.split_once("::"));
    let mut n_named = 0;
    for (path, name) in named {
        let text = std::fs::read_to_string(root.join(path)).unwrap_or_else(|e| panic!("{path}: {e}"));
        assert!(text.contains(&format!("fn {name}(")), "{path} has no {name}");
        n_named += 1;
    }
    assert!(n_named > 100, "{n_named}");
    let rows: Vec<_> = list.lines().filter(|l| l.starts_with("| ") && !l.starts_with("| id")).collect();
    assert!(rows.iter().all(|row| row.contains("::")), "a row names no test");
}
