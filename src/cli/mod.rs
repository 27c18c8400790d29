//! The command line: flags only serve; beside that, one file a subcommand.

pub mod check;
pub mod engine;
pub mod pick;
pub mod serve;
pub mod settings;

use std::ffi::OsString;
use std::future::Future;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;

use crate::app;
use crate::telemetry::log;

/// Runs what the arguments ask for. The first one may name a subcommand; otherwise they are the flags of serving.
pub fn main(args: Vec<OsString>) -> ExitCode {
    let subcommand = args.get(1).and_then(|a| a.to_str()).unwrap_or_default().to_owned();
    // A subcommand parses what follows its name.
    let rest = || args.iter().skip(1).cloned();
    match subcommand.as_str() {
        "check" => check::run(&check::Args::parse_from(rest()), app::registry()),
        "engine" => tool(engine::run(engine::Args::parse_from(rest()))),
        "pick" => tool(pick::run(pick::Args::parse_from(rest()))),
        _ => serve(&serve::Args::parse_from(args)),
    }
}

fn serve(args: &serve::Args) -> ExitCode {
    let detail = match args.zap_log_level.as_deref() {
        Some(level) => level.parse().unwrap_or_else(|_| log::Detail::from_verbosity(args.verbosity.into())),
        None => log::Detail::from_verbosity(args.verbosity.into()),
    };
    log::init(args.log_format, detail);
    let result = args.lower().and_then(|settings| block_on(app::serve(settings))?);
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            tracing::error!("{why:#}");
            ExitCode::FAILURE
        }
    }
}

/// Runs a subcommand that talks to a person: what went wrong is one line on stderr.
fn tool(run: impl Future<Output = anyhow::Result<()>>) -> ExitCode {
    match block_on(run).and_then(|result| result) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("epp: {why:#}");
            ExitCode::FAILURE
        }
    }
}

/// Runs to the end; work that cannot be stopped, such as a read of a file, is not waited for.
fn block_on<T>(run: impl Future<Output = T>) -> anyhow::Result<T> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let result = runtime.block_on(run);
    runtime.shutdown_timeout(Duration::from_millis(100));
    Ok(result)
}
