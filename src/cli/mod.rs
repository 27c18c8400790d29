//! The command line: flags only serve; beside that, one file a subcommand.

mod bench;
pub mod check;
pub mod engine;
mod explain;
pub mod metrics;
pub mod pick;
pub mod plugins;
mod progress;
pub mod refusals;
mod replay;
pub mod schema;
pub mod serve;
pub mod settings;
mod simulate;
mod trace;

use std::ffi::OsString;
use std::future::Future;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, Subcommand};

use crate::app;
use crate::telemetry::log;

/// What there is beside serving.
#[derive(Debug, Parser)]
#[command(name = "epp", max_term_width = 110)]
struct Tools {
    #[command(subcommand)]
    tool: Tool,
}

#[derive(Debug, Subcommand)]
enum Tool {
    Bench(bench::Args),
    Check(check::Args),
    Engine(engine::Args),
    Metrics(metrics::Args),
    Pick(pick::Args),
    Plugins(plugins::Args),
    Refusals(refusals::Args),
    Replay(replay::Args),
    Schema(schema::Args),
    Simulate(simulate::Args),
    Trace(trace::Args),
}

/// Runs what the arguments ask for. The first one may name a subcommand; otherwise they are the flags of serving.
pub fn main(args: Vec<OsString>) -> ExitCode {
    if !matches!(
        args.get(1).and_then(|a| a.to_str()),
        Some(
            "bench"
                | "check"
                | "engine"
                | "metrics"
                | "pick"
                | "plugins"
                | "refusals"
                | "replay"
                | "schema"
                | "simulate"
                | "trace"
        )
    ) {
        return serve(&serve::Args::parse_from(args));
    }
    match Tools::parse_from(args).tool {
        Tool::Bench(args) => tool(bench::run(args)),
        Tool::Check(args) => check::run(&args, app::registry()),
        Tool::Engine(args) => tool(engine::run(args)),
        Tool::Metrics(args) => metrics::run(args, app::registry()),
        Tool::Pick(args) => tool(pick::run(args)),
        Tool::Plugins(args) => plugins::run(&args, app::registry()),
        Tool::Refusals(refusals::Args {}) => refusals::run(),
        Tool::Replay(args) => replay::run(&args),
        Tool::Schema(args) => schema::run(&args, app::registry()),
        Tool::Simulate(args) => simulate::run(&args, app::registry()),
        Tool::Trace(args) => trace::run(&args),
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
