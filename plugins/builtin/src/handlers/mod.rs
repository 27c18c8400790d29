//! Profile handlers: one file a way to run profiles and to make one decision of their results.

pub mod data_parallel;
mod decisions;
pub mod disagg;
pub mod disagg_config;
pub mod disagg_headers;
pub mod header;
pub mod pd;
mod routing;
pub mod single;

#[cfg(test)]
mod testing;

use epp_plugin_api::{BuildError, HandlerError, ProfileRun, Runs};

/// The decision of a handler that found no profile to run.
fn no_profile() -> HandlerError {
    HandlerError("failed to run any scheduler profile for request (no configured profile applies to it)".into())
}

/// The decision of a handler whose only profile chose nobody.
fn failed(profile: &str) -> HandlerError {
    HandlerError(format!("failed to run scheduler profile '{profile}'"))
}

/// The place of the profile of this name, if there is one that has neither run nor been skipped.
fn not_run(runs: &Runs, profile: &str) -> Option<usize> {
    runs.position(profile).filter(|at| runs.runs[*at] == ProfileRun::NotRun)
}

/// The parameter `primaryPort`.
fn port(primary_port: i64) -> Result<u16, BuildError> {
    let out_of_range = || format!("expected 0 or a port between 1 and 65535, found {primary_port}");
    u16::try_from(primary_port).map_err(|_| BuildError::at("primaryPort", out_of_range()))
}

/// The name, or the default if it is blank.
fn or_default(name: &str, default: &str) -> String {
    let name = name.trim();
    if name.is_empty() { default.to_owned() } else { name.to_owned() }
}
