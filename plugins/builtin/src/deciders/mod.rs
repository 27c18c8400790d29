//! Deciders: one file a way to say whether a stage of a request is worth an endpoint of its own.

pub mod always;
pub mod multimodal;
pub mod prefix_based;

use std::sync::Arc;

use epp_plugin_api::{BuildContext, BuildError, Decider};

use crate::handlers::disagg_config::Reference;

/// The decider of this name, to which the parameter `path` refers.
///
/// # Errors
/// If there is no such plugin, or it is no decider.
pub fn named(cx: &mut BuildContext<'_>, path: &str, name: &str) -> Result<Arc<dyn Decider>, BuildError> {
    let found = cx.plugin(path, name)?;
    let roles: Vec<String> = found.roles().map(|role| role.to_string()).collect();
    found.decider.ok_or_else(|| {
        BuildError::at(
            path,
            format!("expected a decider, found plugin {name:?}, whose role is {}", roles.join(" and ")),
        )
    })
}

/// As [`named`]; none if the name is blank.
///
/// # Errors
/// As [`named`].
pub fn named_if_any(cx: &mut BuildContext<'_>, reference: &Reference) -> Result<Option<Arc<dyn Decider>>, BuildError> {
    if reference.name.is_empty() { Ok(None) } else { named(cx, reference.path, &reference.name).map(Some) }
}
