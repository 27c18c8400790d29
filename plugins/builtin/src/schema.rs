//! What the parameters of plugins look like, as JSON Schema: made from the types that they are read into.

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};

/// The schema of `C`, as the registry wants it.
pub fn of<C: JsonSchema>(generator: &mut SchemaGenerator) -> Schema {
    generator.subschema_for::<C>()
}

/// The schema of a text that [`crate::duration::parse`] reads; its title is its type on the pages of the catalogue.
pub fn duration(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "title": "duration",
        "type": "string",
        "pattern": r"^\+?(0|(([0-9]+\.?[0-9]*|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))+)$",
    })
}

#[cfg(test)]
mod tests {
    use schemars::generate::SchemaSettings;

    use super::*;

    #[derive(serde::Deserialize, JsonSchema)]
    #[serde(default, deny_unknown_fields, rename_all = "camelCase")]
    struct Config {
        /// Says how long. Above 0.
        #[schemars(schema_with = "duration")]
        how_long: String,
        /// Says how much.
        #[schemars(range(min = 0, max = 1))]
        share: f64,
    }

    impl Default for Config {
        fn default() -> Self {
            Self { how_long: "1s".into(), share: 0.5 }
        }
    }

    #[test]
    fn a_field_gives_its_doc_its_default_and_its_range() {
        let schema = of::<Config>(&mut SchemaSettings::draft2020_12().with(|s| s.inline_subschemas = true).into());
        let at = |path: &str| schema.pointer(path).cloned().unwrap_or_default();
        assert_eq!(at("/additionalProperties"), false);
        assert_eq!(at("/properties/howLong/description"), "Says how long. Above 0.");
        assert_eq!(at("/properties/howLong/default"), "1s");
        assert_eq!(at("/properties/howLong/title"), "duration");
        assert_eq!(at("/properties/share/default"), 0.5);
        assert_eq!(at("/properties/share/maximum"), 1);
    }
}
