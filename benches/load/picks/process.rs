//! The processes that are measured, and what the kernel says of them. Each is ended when dropped.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use epp::bench::process::Process;

const EPP: &str = env!("CARGO_BIN_EXE_epp");

/// A child process that does not outlive this one.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended by itself; then there is nothing left to do.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn start(command: &mut Command) -> Running {
    Running(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("the program is there"))
}

/// Simulated engines with an endpoints file and a config beside it, in a directory of their own.
pub struct Engines {
    _running: Running,
    pub directory: PathBuf,
}

impl Engines {
    /// Starts so many engines and waits until they listen.
    pub fn start(count: usize) -> Self {
        Self::start_with(count, &[], config)
    }

    /// As `start`, with more flags, and a config that is made of the path of the endpoints file.
    pub fn start_with(count: usize, flags: &[&str], config: impl Fn(&Path) -> String) -> Self {
        let directory = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("load-{}-{count}", std::process::id()));
        std::fs::create_dir_all(&directory).expect("the target directory can be written");
        let endpoints = directory.join("endpoints.yaml");
        let running = start(
            Command::new(EPP)
                .args(["engine", "--base-port=0", &format!("--count={count}")])
                .args(flags)
                .arg("--endpoints")
                .arg(&endpoints),
        );
        for _ in 0..200 {
            if endpoints.exists() {
                break;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        std::fs::write(directory.join("config.yaml"), config(&endpoints)).expect("the target directory can be written");
        Self { _running: running, directory }
    }
}

impl Drop for Engines {
    fn drop(&mut self) {
        // What stays is in the target directory, where it harms nobody.
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

fn config(endpoints: &Path) -> String {
    format!(
        "apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
plugins:
- type: file-discovery
  parameters: {{path: {}}}
- type: prefix-cache-scorer
- type: active-request-scorer
- type: queue-scorer
dataLayer:
  discovery: {{pluginRef: file-discovery}}
schedulingProfiles:
- name: default
  plugins:
  - {{pluginRef: prefix-cache-scorer, weight: 2}}
  - {{pluginRef: active-request-scorer, weight: 1}}
  - {{pluginRef: queue-scorer, weight: 1}}
",
        endpoints.display()
    )
}

/// A server of ext_proc streams.
pub struct Server {
    running: Running,
    pub port: u16,
    pub metrics_port: u16,
}

impl Server {
    /// Starts this program as the baseline.
    pub fn baseline() -> Self {
        let [port] = free_ports();
        let this = std::env::current_exe().expect("Linux tells");
        Self { running: start(Command::new(this).args(["baseline", &port.to_string()])), port, metrics_port: 0 }
    }

    /// Starts the picker on these engines; asks them this often, or as often as it does without a flag.
    pub fn picker(engines: &Engines, scrape_every: Option<Duration>) -> Self {
        let flags = scrape_every.map_or(Vec::new(), |every| {
            vec![
                format!("--refresh-metrics-interval={}s", every.as_secs()),
                format!("--metrics-staleness-threshold={}s", 3 * every.as_secs()),
            ]
        });
        Self::picker_with(engines, &flags, Stdio::null())
    }

    /// As `picker`, with these flags; what it logs goes there.
    pub fn picker_with(engines: &Engines, flags: &[String], log: Stdio) -> Self {
        let [port, health, metrics_port] = free_ports();
        let mut command = Command::new(EPP);
        command.args(["--secure-serving=false", "--config-file"]).arg(engines.directory.join("config.yaml"));
        command.args([
            format!("--grpc-port={port}"),
            format!("--grpc-health-port={health}"),
            format!("--metrics-port={metrics_port}"),
        ]);
        command.args(flags);
        let running = command.stdout(Stdio::null()).stderr(log).spawn().expect("the program is there");
        Self { running: Running(running), port, metrics_port }
    }

    /// How long the threads of the server have been on a CPU.
    pub fn on_cpu(&self) -> Duration {
        self.process().on_cpu().expect("the server runs")
    }

    /// Resident memory, in millions of bytes.
    pub fn resident_mb(&self) -> f64 {
        self.process().memory().expect("the server runs").resident as f64 / 1e6
    }

    fn process(&self) -> Process {
        Process(self.running.0.id())
    }
}

/// Ports that nobody has at the moment.
fn free_ports<const N: usize>() -> [u16; N] {
    let listeners = [(); N].map(|()| TcpListener::bind("127.0.0.1:0").expect("loopback has free ports"));
    listeners.map(|l| l.local_addr().expect("it is bound").port())
}
