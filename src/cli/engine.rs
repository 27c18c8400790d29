//! `epp engine`: plays engines over HTTP, for demos, tests and load benches without a GPU.

use std::fmt::Write;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use epp_sim::http::{Engine, Engines, Settings};
use epp_sim::kind::Kind;
use epp_sim::model::ModelSettings;
use tokio::signal::unix::{SignalKind, signal};

use crate::cli::simulate::calibration;

/// Plays engines that answer over HTTP as a real one would, without a model.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// How many engines to play
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub count: usize,
    /// Port of the first engine; the others follow. 0 gives each a free port
    #[arg(long, value_name = "PORT", default_value_t = 8000)]
    pub base_port: u16,
    /// Whose metrics the engines tell: vllm, sglang or trtllm
    #[arg(long, value_name = "KIND", default_value_t = Kind::Vllm)]
    pub kind: Kind,
    /// Address to listen on
    #[arg(long, value_name = "ADDRESS", default_value_t = IpAddr::V4(Ipv4Addr::LOCALHOST))]
    pub host: IpAddr,
    /// Name of the model that the engines serve; requests may name any
    #[arg(long, value_name = "NAME", default_value = "sim")]
    pub model: String,
    /// A calibration file that describes the engines, as `epp simulate` takes it; docs/simulate.md has the fields
    #[arg(long, value_name = "FILE", conflicts_with_all = ["blocks", "block_size", "seats", "prefill_us_per_token", "decode_ms"])]
    pub engine: Option<PathBuf>,
    /// KV blocks an engine
    #[arg(long, value_name = "N", default_value_t = ModelSettings::default().blocks)]
    pub blocks: usize,
    /// Tokens a block
    #[arg(long, value_name = "N", default_value_t = ModelSettings::default().block_size)]
    pub block_size: usize,
    /// Requests that an engine runs at once; more wait
    #[arg(long, value_name = "N", default_value_t = ModelSettings::default().seats)]
    pub seats: usize,
    /// Microseconds to compute one prompt token that is not cached
    #[arg(long, value_name = "F", default_value_t = ModelSettings::default().prefill_per_token.as_secs_f64() * 1e6)]
    pub prefill_us_per_token: f64,
    /// Milliseconds to generate one token; each further running request adds to it
    #[arg(long, value_name = "F", default_value_t = ModelSettings::default().decode_step.as_secs_f64() * 1e3)]
    pub decode_ms: f64,
    /// How many times as fast everything goes
    #[arg(long, value_name = "F", default_value_t = 1.0)]
    pub speed: f64,
    /// Write an endpoints file with these engines for the picker
    #[arg(long, value_name = "FILE")]
    pub endpoints: Option<PathBuf>,
}

/// Plays engines until SIGINT or SIGTERM.
///
/// # Errors
/// If the flags make no engine, a port is taken, or the endpoints file cannot be written.
pub async fn run(args: Args) -> Result<()> {
    let mut terminate = signal(SignalKind::terminate()).context("cannot listen for SIGTERM")?;
    let engines = Engines::start(settings(&args)?).await?;
    if let Some(path) = &args.endpoints {
        write_whole(path, &endpoints_file(engines.engines())).await?;
    }
    for engine in engines.engines() {
        println!("engine {} kind {} on {}", engine.name(), engine.kind(), engine.address());
    }
    tokio::select! {
        interrupted = tokio::signal::ctrl_c() => interrupted.context("cannot listen for SIGINT")?,
        _ = terminate.recv() => {}
    }
    engines.stop().await;
    Ok(())
}

fn settings(args: &Args) -> Result<Settings> {
    ensure!(args.count > 0, "--count must be at least 1, found 0");
    let (model, metrics_delay) = match &args.engine {
        Some(path) => described(path)?,
        None => (model(args)?, Duration::ZERO),
    };
    Ok(Settings {
        kind: args.kind,
        count: args.count,
        host: args.host,
        base_port: args.base_port,
        model_name: args.model.clone(),
        model,
        speed: args.speed,
        metrics_delay,
    })
}

/// The engine of a calibration file, and how late its metrics are.
fn described(path: &Path) -> Result<(ModelSettings, Duration)> {
    let engine = calibration(path)?;
    let both = engine.at_speed(1.0).and_then(|model| Ok((model, engine.scrape_delay()?)));
    both.map_err(|why| anyhow!("{}: {why}", path.display()))
}

fn model(args: &Args) -> Result<ModelSettings> {
    Ok(ModelSettings {
        block_size: args.block_size,
        blocks: args.blocks,
        seats: args.seats,
        prefill_per_token: duration("--prefill-us-per-token", args.prefill_us_per_token, 1e6)?,
        decode_step: duration("--decode-ms", args.decode_ms, 1e3)?,
        ..ModelSettings::default()
    })
}

fn duration(flag: &str, value: f64, per_second: f64) -> Result<Duration> {
    Duration::try_from_secs_f64(value / per_second)
        .with_context(|| format!("{flag} must be a number from 0 on, found {value}"))
}

/// The endpoints file of these engines. One that listens on every address is named by its loopback address.
fn endpoints_file(engines: &[Engine]) -> String {
    let mut text = "endpoints:\n".to_owned();
    for engine in engines {
        let address = match engine.address().ip() {
            IpAddr::V4(ip) if ip.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
            IpAddr::V6(ip) if ip.is_unspecified() => IpAddr::V6(Ipv6Addr::LOCALHOST),
            ip => ip,
        };
        let (name, port, kind) = (engine.name(), engine.address().port(), engine.kind().engine_type());
        write!(
            text,
            "  - name: {name}\n    address: \"{address}\"\n    port: \"{port}\"\n    labels:\n      \
             llm-d.ai/engine-type: {kind}\n"
        )
        .expect("a string takes every write");
    }
    text
}

/// Replaces a file in one step, so that a picker that watches it never reads half of it.
async fn write_whole(path: &Path, text: &str) -> Result<()> {
    let mut part = path.as_os_str().to_owned();
    part.push(".part");
    let written = async {
        tokio::fs::write(&part, text).await?;
        tokio::fs::rename(&part, path).await
    };
    written.await.with_context(|| format!("cannot write {}", path.display()))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        args: Args,
    }

    fn args(line: &[&str]) -> Result<Args, clap::Error> {
        Line::try_parse_from(["engine"].iter().chain(line)).map(|line| line.args)
    }

    #[test]
    fn without_flags_the_model_has_its_defaults() {
        let settings = settings(&args(&[]).unwrap()).unwrap();
        assert_eq!(settings, Settings { base_port: 8000, ..Settings::default() });
    }

    #[test]
    fn every_flag_reaches_the_engine() {
        let line = "--count 2 --base-port 9001 --kind sglang --host ::1 --model m --blocks 10 --block-size 64 --seats 3 \
                    --prefill-us-per-token 1.5 --decode-ms 0.25 --speed 10 --endpoints f";
        let args = args(&line.split_whitespace().collect::<Vec<_>>()).unwrap();
        assert_eq!(args.endpoints.as_deref(), Some(Path::new("f")));
        let want = Settings {
            kind: Kind::Sglang,
            count: 2,
            host: IpAddr::V6(Ipv6Addr::LOCALHOST),
            base_port: 9001,
            model_name: "m".to_owned(),
            model: ModelSettings {
                block_size: 64,
                blocks: 10,
                seats: 3,
                prefill_per_token: Duration::from_nanos(1500),
                decode_step: Duration::from_micros(250),
                ..ModelSettings::default()
            },
            speed: 10.0,
            metrics_delay: Duration::ZERO,
        };
        assert_eq!(settings(&args).unwrap(), want);
    }

    #[test]
    fn a_calibration_file_describes_the_engine_as_it_does_for_simulations() {
        let path = std::env::temp_dir().join(format!("engine-{}.yaml", std::process::id()));
        std::fs::write(&path, "name: small\nblocks: 100\ndecodeStepMillis: 25\nscrapeDelayMillis: 3\n").unwrap();
        let flag = format!("--engine={}", path.display());
        let found = settings(&args(&[&flag, "--speed=2"]).unwrap()).unwrap();
        let wanted = calibration(&path).unwrap().at_speed(1.0).unwrap();
        std::fs::remove_file(&path).unwrap();
        assert_eq!((&found.model, found.metrics_delay), (&wanted, Duration::from_millis(3)));
        assert_eq!((found.model.blocks, found.speed), (100, 2.0));
        assert!(args(&[&flag, "--blocks=3"]).unwrap_err().to_string().contains("--blocks"));
        let gone = settings(&args(&[&flag]).unwrap()).unwrap_err();
        assert!(gone.to_string().contains("engine-"), "{gone}");
    }

    #[test]
    fn flags_that_make_no_engine_are_named() {
        for (line, named) in [
            (["--count", "0"], "--count must be at least 1, found 0"),
            (["--decode-ms=-1", "--count=1"], "--decode-ms must be a number from 0 on, found -1"),
            (
                ["--prefill-us-per-token=NaN", "--count=1"],
                "--prefill-us-per-token must be a number from 0 on, found NaN",
            ),
        ] {
            assert_eq!(settings(&args(&line).unwrap()).unwrap_err().to_string(), named);
        }
        assert!(
            args(&["--kind", "tgi"]).unwrap_err().to_string().contains("expected vllm, sglang or trtllm, found tgi")
        );
    }

    #[tokio::test]
    async fn the_endpoints_file_names_every_engine() {
        let args = args(&["--count", "2", "--base-port", "0", "--kind", "trtllm", "--host", "0.0.0.0"]).unwrap();
        let engines = Engines::start(settings(&args).unwrap()).await.unwrap();
        let [a, b] = engines.addresses().try_into().unwrap();
        let entry = |name: &str, port: u16| {
            format!(
                "  - name: {name}\n    address: \"127.0.0.1\"\n    port: \"{port}\"\n    labels:\n      \
                 llm-d.ai/engine-type: trtllm-serve\n"
            )
        };
        let want = format!("endpoints:\n{}{}", entry("e0", a.port()), entry("e1", b.port()));
        assert_eq!(endpoints_file(engines.engines()), want);
    }

    #[tokio::test]
    async fn a_taken_port_is_one_clear_error() {
        let first = Engines::start(Settings::default()).await.unwrap();
        let address = first.addresses()[0];
        let line = ["--base-port", &address.port().to_string()].map(str::to_owned);
        let error = run(args(&line.each_ref().map(String::as_str)).unwrap()).await.unwrap_err();
        assert!(format!("{error:#}").starts_with(&format!("cannot listen on {address}: ")), "{error:#}");
    }
}
