//! `epp schema`: the JSON Schema of a config, for editors.

use std::io::Write;
use std::process::ExitCode;

use epp_plugin_api::PluginType;

use crate::config::schema;
use crate::simulate::report;

/// Prints a JSON Schema of the config, with the parameters of every plugin type, for an editor to complete and check
/// with.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// The schema of the report of `epp simulate` instead
    #[arg(long)]
    pub report: bool,
}

/// Prints it to stdout.
pub fn run(args: &Args, registry: &[&'static PluginType]) -> ExitCode {
    let schema = if args.report { report::schema() } else { schema::of(registry) };
    // Nobody is left to be told when the pipe is closed.
    let _ = writeln!(std::io::stdout(), "{schema:#}");
    ExitCode::SUCCESS
}
