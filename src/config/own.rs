//! The config of a picker that is told where the endpoints are, and not how to choose.

/// What this picker does unless told; a sample that others start from. Its endpoints file is `endpoints.yaml`.
pub const TEXT: &str = include_str!("../../config/default.yaml");

const SAMPLE_PATH: &str = "path: endpoints.yaml\n";

/// The same with another endpoints file.
pub fn of_endpoints(path: &str) -> String {
    let quoted = serde_json::Value::from(path);
    TEXT.replace(SAMPLE_PATH, &format!("path: {quoted}\n"))
}

#[cfg(test)]
mod tests {
    use epp_plugin_api::Value;

    use crate::yaml::{self, Duplicates};

    use super::*;

    #[test]
    fn any_path_is_what_is_read() {
        assert_eq!(TEXT.matches(SAMPLE_PATH).count(), 1);
        for path in ["endpoints.yaml", "/a b/ü: #1.yaml", "'\"\\\n\t{}", "5", "~"] {
            let read = yaml::parse(&of_endpoints(path), Duplicates::Refuse).unwrap();
            let Some(Value::List(plugins)) = read.find("plugins").map(|plugins| &plugins.value) else {
                panic!("{read:?}")
            };
            let found = plugins[0].find("parameters").and_then(|parameters| parameters.find("path")).unwrap();
            assert_eq!(found.value, Value::String(path.to_owned()));
        }
    }
}
