//! Families as a page of metrics shows them.

use std::collections::HashMap;

/// What a page tells about one family.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Family {
    /// As queries name it; of a histogram without `_bucket`, `_sum` and `_count`.
    pub name: String,
    /// `counter`, `gauge` or `histogram`.
    pub kind: String,
    /// In the order of the page, without that of buckets.
    pub labels: Vec<String>,
    /// Upper bounds of a histogram, lowest first, without the infinite one.
    pub buckets: Vec<String>,
    /// Without marks and without the full stop.
    pub help: String,
    /// The name that this one is an older one of.
    pub instead: Option<String>,
}

impl Family {
    /// What its values are measured in.
    pub fn unit(&self) -> &'static str {
        const SHARES: [&str; 6] = ["utilization", "ratio", "share", "saturation", "fairness", "reclaim"];
        let name = self.name.strip_suffix("_total").unwrap_or(&self.name);
        let is = |unit: &str| name.ends_with(unit);
        if name.split('_').any(|word| SHARES.contains(&word)) {
            "share"
        } else if is("_milliseconds") {
            "milliseconds"
        } else if is("_seconds") {
            "seconds"
        } else if is("_bytes") {
            "bytes"
        } else if is("_tokens") {
            "tokens"
        } else {
            "number"
        }
    }
}

/// The families of a page in Prometheus text, in its order.
pub fn read(page: &str) -> Vec<Family> {
    let mut families: Vec<Family> = Vec::new();
    for line in page.lines() {
        if let Some((name, help)) = line.strip_prefix("# HELP ").and_then(|rest| rest.split_once(' ')) {
            let (help, instead) = help_of(help);
            families.push(Family { name: name.to_owned(), help, instead, ..Family::default() });
        } else if let Some(family) = families.last_mut() {
            match line.strip_prefix("# TYPE ").and_then(|rest| rest.split_once(' ')) {
                Some((_, kind)) => family.kind = kind.to_owned(),
                None => sample(family, line),
            }
        }
    }
    families
}

/// The families that queries should name, each with its older names.
pub fn with_old(families: Vec<Family>) -> Vec<(Family, Vec<Family>)> {
    let (old, now): (Vec<Family>, Vec<Family>) = families.into_iter().partition(|f| f.instead.is_some());
    let mut by_name: HashMap<String, Vec<Family>> = HashMap::new();
    for one in old {
        by_name.entry(one.instead.clone().unwrap_or_default()).or_default().push(one);
    }
    now.into_iter().map(|family| (by_name.remove(&family.name).unwrap_or_default(), family)).map(swap).collect()
}

fn swap<A, B>((a, b): (A, B)) -> (B, A) {
    (b, a)
}

fn help_of(help: &str) -> (String, Option<String>) {
    let help = help.strip_prefix("[ALPHA] ").unwrap_or(help);
    let deprecated = help.strip_prefix("[Deprecated: Use ").and_then(|rest| rest.split_once("] "));
    let (instead, help) = deprecated.map_or((None, help), |(instead, help)| (Some(instead.to_owned()), help));
    (help.strip_suffix('.').unwrap_or(help).to_owned(), instead)
}

/// Takes the labels of the first sample, and the bounds of the first series.
fn sample(family: &mut Family, line: &str) {
    let Some((name, rest)) = line.split_once('{') else { return };
    let labels = labels(rest);
    let is_first = family.labels.is_empty();
    for (label, value) in labels {
        if label != "le" {
            if is_first {
                family.labels.push(label.to_owned());
            }
        } else if name.ends_with("_bucket") && value != "+Inf" && !family.buckets.iter().any(|b| b == value) {
            family.buckets.push(value.to_owned());
        }
    }
}

/// The labels of a sample, from behind the brace on; values as they are written.
fn labels(mut rest: &str) -> Vec<(&str, &str)> {
    let mut labels = Vec::new();
    while let Some((label, after)) = rest.split_once("=\"") {
        let mut escaped = false;
        let end = after.find(|c: char| {
            let ends = c == '"' && !escaped;
            escaped = c == '\\' && !escaped;
            ends
        });
        let Some(end) = end else { break };
        labels.push((label.trim_start_matches(','), &after[..end]));
        rest = &after[end + 1..];
        if rest.starts_with('}') {
            break;
        }
    }
    labels
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_tells_of_its_families() {
        let page = "# HELP a_total [ALPHA] How many.\n# TYPE a_total counter\na_total{x=\"a,b=\\\"}\",y=\"\"} 1\n\
                    # HELP b_seconds [ALPHA] [Deprecated: Use c_seconds] Old.\n# TYPE b_seconds histogram\n\
                    b_seconds_bucket{le=\"0.5\"} 0\nb_seconds_bucket{le=\"+Inf\"} 0\nb_seconds_sum 0\n";
        let text = |words: &[&str]| words.iter().map(|w| (*w).to_owned()).collect::<Vec<_>>();
        let [counter, histogram] = <[Family; 2]>::try_from(read(page)).expect("two families");
        assert_eq!(
            (counter.name.as_str(), counter.kind.as_str(), counter.labels),
            ("a_total", "counter", text(&["x", "y"]))
        );
        assert_eq!((counter.help.as_str(), counter.instead), ("How many", None));
        assert_eq!((histogram.labels.len(), histogram.buckets), (0, text(&["0.5"])));
        assert_eq!((histogram.help.as_str(), histogram.instead.as_deref()), ("Old", Some("c_seconds")));
    }

    #[test]
    fn units_are_told_by_names() {
        for (name, unit) in [
            ("llm_d_epp_flow_control_capacity_utilization_bytes", "share"),
            ("llm_d_epp_request_size_bytes", "bytes"),
            ("process_cpu_seconds_total", "seconds"),
            ("epp_config_generation", "number"),
            ("llm_d_epp_request_total", "number"),
        ] {
            assert_eq!(Family { name: name.to_owned(), ..Family::default() }.unit(), unit, "{name}");
        }
    }
}
