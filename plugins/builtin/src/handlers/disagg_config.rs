//! The parameters of `disagg-profile-handler`, in their two styles.

use epp_plugin_api::{BuildContext, BuildError, Value};
use serde::Deserialize;

use super::or_default;

/// Which stage is chosen first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    DecodeFirst,
    PrefillFirst,
}

/// What both styles come to.
#[derive(Debug, PartialEq, Eq)]
pub struct Settings {
    pub order: Order,
    pub decode: String,
    pub prefill: String,
    pub encode: String,
    pub prefill_decider: Reference,
    pub encode_decider: Reference,
}

/// A plugin's name, blank for none, and the parameter that holds it.
#[derive(Debug, PartialEq, Eq)]
pub struct Reference {
    pub path: &'static str,
    pub name: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
struct Nested {
    /// `decode-first` or `prefill-first`. Default `decode-first`.
    stage_order: String,
    profiles: Profiles,
    deciders: Deciders,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
struct Profiles {
    /// The profile that picks where the request goes. Default `decode`.
    decode: String,
    /// The profile that picks where to prefill. Default `prefill`.
    prefill: String,
    /// The profile that picks where to encode. Default `encode`.
    encode: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
struct Deciders {
    /// The decider that says whether to prefill elsewhere. Default: never.
    prefill: String,
    /// The decider that says whether to encode elsewhere. Default: never.
    encode: String,
}

/// The style of old.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
struct Flat {
    stage_order: String,
    decode_profile: String,
    prefill_profile: String,
    encode_profile: String,
    prefill_decider_plugin_name: String,
    encode_decider_plugin_name: String,
    /// Counts where `prefillDeciderPluginName` is blank.
    decider_plugin_name: String,
}

/// The keys that only the flat style has.
const FLAT: [&str; 6] = [
    "decodeProfile",
    "prefillProfile",
    "encodeProfile",
    "prefillDeciderPluginName",
    "encodeDeciderPluginName",
    "deciderPluginName",
];

impl Settings {
    /// Reads the parameters, which are all of one style or all of the other.
    ///
    /// # Errors
    /// If a key is unknown, or both styles are mixed, or the stage order is not one of the two.
    pub fn read(cx: &BuildContext<'_>) -> Result<Self, BuildError> {
        let settings = match (uses(cx, &["profiles", "deciders"]), uses(cx, &FLAT)) {
            (_, false) => nested(cx.config()?)?,
            (false, true) => flat(cx.config()?)?,
            (true, true) => {
                let BuildError(mut mistakes) = cx.config::<Nested>().err().unwrap_or(BuildError(Vec::new()));
                let hint = "; profiles and deciders cannot be mixed with the deprecated flat keys";
                mistakes.iter_mut().for_each(|mistake| mistake.message.push_str(hint));
                return Err(BuildError(mistakes));
            }
        };
        if settings.order == Order::PrefillFirst && !settings.prefill_decider.name.is_empty() {
            let message = "prefill decider is not supported in prefill-first stage order";
            return Err(BuildError::at(settings.prefill_decider.path, message));
        }
        Ok(settings)
    }
}

/// Whether one of these keys is there, in any case.
fn uses(cx: &BuildContext<'_>, keys: &[&str]) -> bool {
    match cx.parameters.map(|node| &node.value) {
        Some(Value::Map(entries)) => {
            entries.iter().any(|(key, ..)| keys.iter().any(|known| known.eq_ignore_ascii_case(key)))
        }
        _ => false,
    }
}

fn nested(cfg: Nested) -> Result<Settings, BuildError> {
    Ok(Settings {
        order: order(&cfg.stage_order)?,
        decode: or_default(&cfg.profiles.decode, "decode"),
        prefill: or_default(&cfg.profiles.prefill, "prefill"),
        encode: or_default(&cfg.profiles.encode, "encode"),
        prefill_decider: reference("deciders.prefill", &cfg.deciders.prefill),
        encode_decider: reference("deciders.encode", &cfg.deciders.encode),
    })
}

fn flat(cfg: Flat) -> Result<Settings, BuildError> {
    let prefill = reference("prefillDeciderPluginName", &cfg.prefill_decider_plugin_name);
    let alias = reference("deciderPluginName", &cfg.decider_plugin_name);
    Ok(Settings {
        order: order(&cfg.stage_order)?,
        decode: or_default(&cfg.decode_profile, "decode"),
        prefill: or_default(&cfg.prefill_profile, "prefill"),
        encode: or_default(&cfg.encode_profile, "encode"),
        prefill_decider: if prefill.name.is_empty() { alias } else { prefill },
        encode_decider: reference("encodeDeciderPluginName", &cfg.encode_decider_plugin_name),
    })
}

fn reference(path: &'static str, name: &str) -> Reference {
    Reference { path, name: name.trim().to_owned() }
}

/// Reads the order in any case, with or without its dash and its second word.
fn order(written: &str) -> Result<Order, BuildError> {
    let plain: String = written.chars().filter(|c| !matches!(c, '-' | '_')).flat_map(char::to_lowercase).collect();
    match plain.as_str() {
        "" | "decodefirst" | "decode" => Ok(Order::DecodeFirst),
        "prefillfirst" | "prefill" => Ok(Order::PrefillFirst),
        _ => {
            let message = format!("invalid stage order {written:?}, must be \"decode-first\" or \"prefill-first\"");
            Err(BuildError::at("stageOrder", message))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stage_order_is_read_loosely() {
        for written in ["prefill-first", "PrefillFirst", "prefill_first", "prefill", "PRE-FILL"] {
            assert_eq!(order(written), Ok(Order::PrefillFirst), "{written}");
        }
        for written in ["", "decode-first", "decode_first", "DecodeFirst", "decode"] {
            assert_eq!(order(written), Ok(Order::DecodeFirst), "{written}");
        }
        assert!(order("bogus").unwrap_err().0[0].message.contains("\"bogus\""));
    }
}
