//! `epp refusals`: the page of every refusal as Markdown.

use std::io::Write;
use std::process::ExitCode;

use crate::flow::refusal;

/// Lists every answer that the picker gives instead of an endpoint, as Markdown.
#[derive(Clone, Copy, Debug, clap::Args)]
pub struct Args {}

/// Prints to stdout.
pub fn run() -> ExitCode {
    // Nobody is left to be told when the pipe is closed.
    let _ = std::io::stdout().write_all(refusal::markdown().as_bytes());
    ExitCode::SUCCESS
}
