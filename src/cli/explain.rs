//! `epp pick --explain`: the record of a decision as a table for people.

use std::fmt::Write;

use serde_json::Value;

/// Writes the record as lines: what each filter dropped, then a row an endpoint with each scorer's part of its total.
pub fn table(record: &Value) -> String {
    let mut out = String::new();
    let text = |v: &Value| v.as_str().unwrap_or_default().to_owned();
    let _ = writeln!(
        out,
        "  config {}, seed {}, {} of {} endpoints were candidates",
        record["generation"], record["seed"], record["candidates"], record["endpoints"]
    );
    for profile in list(&record["profiles"]) {
        let _ = writeln!(out, "  profile {}", text(&profile["name"]));
        for filter in list(&profile["filters"]) {
            let names: Vec<String> = list(&filter["names"]).iter().map(text).collect();
            let _ = writeln!(
                out,
                "    {} kept {}, dropped {}{}{}",
                text(&filter["plugin"]),
                filter["kept"],
                filter["dropped"],
                if names.is_empty() { "" } else { ": " },
                names.join(", ")
            );
        }
        let scorers = list(&profile["scorers"]);
        let heads: Vec<String> = scorers.iter().map(|s| format!("{} x{}", text(&s["plugin"]), s["weight"])).collect();
        let picked = list(&profile["picked"]);
        let _ = write!(out, "    {:24} {:>8}", "endpoint", "total");
        for head in &heads {
            let _ = write!(out, "  {head}");
        }
        out.push('\n');
        for endpoint in list(&profile["endpoints"]) {
            let mark = if picked.contains(&endpoint["endpoint"]) { "*" } else { " " };
            let total = endpoint["total"].as_f64().unwrap_or_default();
            let _ = write!(out, "  {mark} {:24} {total:8.4}", text(&endpoint["endpoint"]));
            for (score, head) in list(&endpoint["scores"]).iter().zip(&heads) {
                let score = score.as_f64().unwrap_or(f64::NAN);
                let _ = write!(out, "  {score:>width$.4}", width = head.len());
            }
            out.push('\n');
        }
    }
    out
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn every_scorer_has_a_column_and_the_pick_has_a_mark() {
        let record = json!({
            "generation": 3, "seed": 7, "candidates": 2, "endpoints": 3,
            "profiles": [{
                "name": "default",
                "filters": [{"plugin": "decode-filter", "kept": 2, "dropped": 1, "names": ["default/p"]}],
                "scorers": [{"plugin": "queue-scorer", "weight": 2.0}],
                "endpoints": [{"endpoint": "a:1", "total": 2.0, "scores": [1.0]}, {"endpoint": "b:1", "total": 0.5, "scores": [0.25]}],
                "picked": ["a:1"],
            }],
        });
        assert_eq!(
            table(&record),
            "  config 3, seed 7, 2 of 3 endpoints were candidates\n  \
             profile default\n    \
             decode-filter kept 2, dropped 1: default/p\n    \
             endpoint                    total  queue-scorer x2.0\n  \
             * a:1                        2.0000             1.0000\n    \
             b:1                        0.5000             0.2500\n"
        );
    }
}
