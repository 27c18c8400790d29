//! Parsers: one an API. Each reads a request body in one pass, and the usage off a response.
//!
//! None has parameters, so a config only lists them, and the ones that it does not declare are made by their type:
//!
//! ```yaml
//! requestHandler:
//!   parsers:
//!   - pluginRef: openai-parser
//!   - pluginRef: passthrough-parser
//! ```

pub mod anthropic;
mod draft;
mod grpc;
pub mod openai;
pub mod passthrough;
mod response;
pub mod sglanghttp;
pub mod vertexai;
pub mod vllmgrpc;
pub mod vllmhttp;

use std::sync::Arc;

use epp_plugin_api::{BuildContext, BuildError, Instance, ParseError, Parser};
use schemars::JsonSchema;
use serde::Deserialize;

/// Parsers have no parameters; any is a mistake.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct NoParameters {}

fn build(cx: &BuildContext<'_>, parser: impl Parser + 'static) -> Result<Instance, BuildError> {
    let NoParameters {} = cx.config()?;
    Ok(Instance { parser: Some(Arc::new(parser)), ..Instance::default() })
}

fn refuse<T>(why: impl std::fmt::Display) -> Result<T, ParseError> {
    Err(ParseError(why.to_string()))
}

#[cfg(test)]
mod properties;
#[cfg(test)]
mod testing;
