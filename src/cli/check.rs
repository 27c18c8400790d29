//! `epp check CONFIG`: says what a config means, or everything that is wrong with it.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use epp_plugin_api::{MetricHub, Place, PluginType, Slots};

use crate::config::plan::Plan;
use crate::config::{Environment, Mistake, load};

/// Reads a config, and prints it as it would run, with every default and every plugin that is added.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// The config file.
    pub config: PathBuf,
    /// Accept plugin types of alpha stability.
    #[arg(long)]
    pub allow_experimental_plugins: bool,
}

/// Prints the config as it runs to stdout and everything else to stderr; fails if the config has a mistake.
pub fn run(args: &Args, registry: &[&'static PluginType]) -> ExitCode {
    let report = check(args, registry);
    // Nobody is left to be told when these pipes are closed.
    let _ = std::io::stdout().write_all(report.out.as_bytes());
    let _ = std::io::stderr().write_all(report.err.as_bytes());
    if report.accepted { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

struct Report {
    out: String,
    err: String,
    accepted: bool,
}

fn check(args: &Args, registry: &[&'static PluginType]) -> Report {
    let file = &args.config;
    match read(file).and_then(|text| plan(&text, args, registry)) {
        Ok(plan) => {
            let mut err = String::new();
            for notice in &plan.notices {
                let kind = if notice.warning { "warning" } else { "deprecated" };
                err.push_str(&format!("{}: {kind}: {}\n", at(file, notice.place), notice.message));
            }
            Report { out: plan.effective, err, accepted: true }
        }
        Err(mistakes) => {
            let mut err = String::new();
            for Mistake { place, path, message } in &mistakes {
                let path = if path.is_empty() { String::new() } else { format!("{path}: ") };
                err.push_str(&format!("{}: {path}{message}\n", at(file, *place)));
            }
            let plural = if mistakes.len() == 1 { "" } else { "s" };
            err.push_str(&format!("{} mistake{plural} in {}\n", mistakes.len(), file.display()));
            Report { out: String::new(), err, accepted: false }
        }
    }
}

fn at(file: &Path, place: Option<Place>) -> String {
    match place {
        Some(Place { line, column }) => format!("{}:{line}:{column}", file.display()),
        None => file.display().to_string(),
    }
}

fn read(file: &Path) -> Result<String, Vec<Mistake>> {
    std::fs::read_to_string(file).map_err(|e| {
        let message = format!("expected a readable text file: {e}");
        vec![Mistake { place: None, path: String::new(), message }]
    })
}

fn plan(text: &str, args: &Args, registry: &[&'static PluginType]) -> Result<Plan, Vec<Mistake>> {
    let environment = Environment {
        registry,
        slots: &Slots::default(),
        metrics: &MetricHub::default(),
        staleness: Duration::from_secs(5),
        allow_experimental: args.allow_experimental_plugins,
        previous: None,
    };
    let plan = load(text, &environment)?;
    plan.required_discovery().map_err(|mistake| vec![mistake])?;
    Ok(plan)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::tests::registry::REGISTRY;

    const GOOD: &str = "plugins: [{type: by-label}, {type: file-discovery, parameters: {path: e.yaml}}]\n\
                        dataLayer: {discovery: {pluginRef: file-discovery}}\n";

    /// Checks a file of this text; the file's name is `c.yaml` in what is returned.
    fn checked(text: &[u8]) -> Report {
        let directory =
            std::env::temp_dir().join(format!("epp-check-{}-{:?}", std::process::id(), std::thread::current().id()));
        std::fs::create_dir_all(&directory).unwrap();
        let config = directory.join("c.yaml");
        std::fs::write(&config, text).unwrap();
        let mut report = check(&Args { config: config.clone(), allow_experimental_plugins: false }, REGISTRY);
        report.err = report.err.replace(&config.display().to_string(), "c.yaml");
        std::fs::remove_dir_all(&directory).unwrap();
        report
    }

    #[test]
    fn a_good_config_is_printed_as_it_runs() {
        let report = checked(GOOD.as_bytes());
        assert!(report.accepted);
        assert!(report.out.contains("- type: utilization-detector # default\n"), "{}", report.out);
        assert_eq!(
            report.err,
            "c.yaml:1:11: deprecated: plugins[0].type: plugin type by-label is deprecated, use decode-filter\n"
        );
    }

    fn refused(text: &[u8], err: &str) {
        let report = checked(text);
        assert_eq!((report.accepted, report.out.as_str(), report.err.as_str()), (false, "", err));
    }

    #[test]
    fn every_mistake_is_a_line_with_its_place() {
        refused(
            b"plugins: [{type: wibble}]\nkind: Other\n",
            "c.yaml:1:18: plugins[0].type: unknown plugin type \"wibble\"\n\
             c.yaml:2:7: kind: expected EndpointPickerConfig, found \"Other\"\n\
             2 mistakes in c.yaml\n",
        );
    }

    #[test]
    fn a_config_that_cannot_serve_is_refused() {
        refused(
            b"",
            "c.yaml: dataLayer.discovery.pluginRef: expected a discovery plugin such as file-discovery, found none\n\
             1 mistake in c.yaml\n",
        );
    }

    #[test]
    fn a_file_that_is_no_text_is_refused() {
        refused(
            b"a: \xff\n",
            "c.yaml: expected a readable text file: stream did not contain valid UTF-8\n1 mistake in c.yaml\n",
        );
    }
}
