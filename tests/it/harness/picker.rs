//! The picker as a process with a directory of its own.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::Instant;
use tonic::transport::{Channel, Endpoint};

use crate::harness::talk::{Refused, Talk};
use crate::harness::{PATIENCE, until};

/// How a picker is to be started.
pub struct Setup {
    plugins: String,
    profile: String,
    rest: String,
    /// Stands for all of the above if it is not empty.
    text: String,
    flags: Vec<String>,
}

impl Setup {
    /// A picker whose one profile has these scorers, each with weight 1.
    pub fn scorers(types: &[&str]) -> Self {
        let plugins = types.iter().map(|t| format!("- {{type: {t}}}\n")).collect();
        let profile = types.iter().map(|t| format!("  - {{pluginRef: {t}}}\n")).collect();
        Self { plugins, profile, rest: String::new(), text: String::new(), flags: Vec::new() }
    }

    /// A further plugin of the profile, written as in a config.
    pub fn plugin(mut self, name: &str, declared: &str) -> Self {
        self.plugins += &format!("- {declared}\n");
        self.profile += &format!("  - {{pluginRef: {name}}}\n");
        self
    }

    /// A further section of the config.
    pub fn section(mut self, text: &str) -> Self {
        self.rest += text;
        self
    }

    /// This config instead, in which PATH stands for the endpoints file.
    pub fn text(mut self, text: &str) -> Self {
        text.clone_into(&mut self.text);
        self
    }

    pub fn flag(mut self, flag: &str) -> Self {
        self.flags.push(flag.to_owned());
        self
    }

    /// The config, with the endpoints file at `path`.
    fn config(&self, path: &Path) -> String {
        let Self { plugins, profile, rest, .. } = self;
        if !self.text.is_empty() {
            return self.text.replace("PATH", &path.display().to_string());
        }
        format!(
            "apiVersion: llm-d.ai/v1alpha1\nkind: EndpointPickerConfig\nplugins:\n\
             - {{type: file-discovery, parameters: {{path: {}}}}}\n{plugins}\
             dataLayer: {{discovery: {{pluginRef: file-discovery}}}}\n\
             schedulingProfiles:\n- name: default\n  plugins:\n{profile}{rest}",
            path.display()
        )
    }

    /// Starts the picker with this endpoints file, and returns once it serves.
    pub async fn start(self, endpoints: &str) -> Picker {
        let mut picker = self.spawn(Some(endpoints));
        until("serving", async || {
            assert!(picker.child.try_wait().expect("the child is ours").is_none(), "ended: {}", picker.log());
            picker.log().contains("\"msg\":\"serving\"")
        })
        .await;
        picker.find_ports();
        picker
    }

    /// Starts the picker and does not wait. Without endpoints there is no endpoints file.
    pub fn spawn(self, endpoints: Option<&str>) -> Picker {
        let directory = directory();
        let path = directory.join("endpoints.yaml");
        if let Some(text) = endpoints {
            std::fs::write(&path, text).expect("the directory is ours");
        }
        let config = directory.join("config.yaml");
        std::fs::write(&config, self.config(&path)).expect("the directory is ours");
        let mut flags = vec![format!("--config-file={}", config.display())];
        for default in ["--grpc-port=0", "--grpc-health-port=0", "--metrics-port=0", "--secure-serving=false"] {
            let name = default.split('=').next().unwrap_or(default);
            if !self.flags.iter().any(|f| f.starts_with(name)) {
                flags.push(default.to_owned());
            }
        }
        flags.extend(self.flags);
        Picker::launch(directory, &flags)
    }
}

/// A running picker; killed when dropped.
pub struct Picker {
    pub child: Child,
    directory: PathBuf,
    pub grpc: u16,
    pub health: u16,
    pub metrics: u16,
}

/// A directory that nobody else has.
pub fn directory() -> PathBuf {
    static MADE: AtomicU32 = AtomicU32::new(0);
    let name = format!("epp-it-{}-{}", std::process::id(), MADE.fetch_add(1, Relaxed));
    let path = std::env::temp_dir().join(name);
    std::fs::create_dir_all(&path).expect("there is room for temporary files");
    path
}

impl Picker {
    /// Starts the binary with these flags and no others.
    pub fn launch(directory: PathBuf, flags: &[String]) -> Self {
        let log = File::create(directory.join("log")).expect("the directory is ours");
        let mut command = Command::new(env!("CARGO_BIN_EXE_epp"));
        command.args(flags).stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        let child = command.spawn().expect("the binary is built");
        Self { child, directory, grpc: 0, health: 0, metrics: 0 }
    }

    /// Reads off the log where it listens.
    pub fn find_ports(&mut self) {
        let log = self.log();
        let port = |what: &str| {
            let line = log.lines().find(|l| l.contains(&format!("listening for {what}\"")));
            let line: serde_json::Value = serde_json::from_str(line.expect("every port is logged")).expect("JSON");
            line["port"].as_u64().and_then(|p| u16::try_from(p).ok()).expect("a port")
        };
        (self.grpc, self.health, self.metrics) = (port("ext_proc"), port("health"), port("metrics"));
    }

    /// What was logged so far.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.directory.join("log")).unwrap_or_default()
    }

    /// The lines of these levels.
    pub fn lines(&self, levels: &[&str]) -> Vec<String> {
        let is = |line: &&str| levels.iter().any(|level| line.starts_with(&format!("{{\"level\":\"{level}\"")));
        self.log().lines().filter(is).map(str::to_owned).collect()
    }

    /// Puts another endpoints file in the place of the one that is there, by a rename.
    pub fn endpoints(&self, text: &str) {
        let new = self.directory.join("new");
        std::fs::write(&new, text).expect("the directory is ours");
        std::fs::rename(new, self.directory.join("endpoints.yaml")).expect("the directory is ours");
    }

    /// Makes it end with this signal, such as TERM.
    pub fn signal(&self, name: &str) {
        let sent = Command::new("kill").args([format!("-{name}"), self.child.id().to_string()]).status();
        assert!(sent.expect("there is kill").success());
    }

    /// Waits for the end of the process.
    pub async fn ended(&mut self) -> ExitStatus {
        let mut status = None;
        until("the end of the picker", async || {
            status = self.child.try_wait().expect("the child is ours");
            status.is_some()
        })
        .await;
        status.expect("it was just seen")
    }

    /// A line of `/proc/PID/status` in KiB.
    pub fn kib(&self, line: &str) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).expect("it runs");
        let line = status.lines().find_map(|l| l.strip_prefix(line)).expect("the kernel tells");
        line.trim_matches(|c: char| !c.is_ascii_digit()).parse().expect("a number")
    }

    /// Asks a page of the metrics port; the status and the body.
    pub async fn get(&self, path: &str) -> (u16, String) {
        let mut stream = TcpStream::connect(("127.0.0.1", self.metrics)).await.expect("the metrics port is open");
        let ask = format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
        stream.write_all(ask.as_bytes()).await.expect("the picker reads");
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await.expect("the picker answers");
        let answer = String::from_utf8(answer).expect("text");
        let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
        let status = head.split(' ').nth(1).and_then(|s| s.parse().ok()).expect("a status");
        (status, body.to_owned())
    }

    pub async fn page(&self) -> String {
        self.get("/metrics").await.1
    }

    /// The sum of the series of a family that have all of these parts in their line.
    pub async fn sum(&self, family: &str, parts: &[&str]) -> f64 {
        let page = self.page().await;
        let of_family = |l: &&str| l.strip_prefix(family).is_some_and(|rest| rest.starts_with(['{', ' ']));
        let lines = page.lines().filter(of_family).filter(|l| parts.iter().all(|p| l.contains(p)));
        lines.filter_map(|l| l.rsplit(' ').next()?.parse::<f64>().ok()).sum()
    }

    /// The page `/debug/endpoints`.
    pub async fn report(&self) -> serde_json::Value {
        serde_json::from_str(&self.get("/debug/endpoints").await.1).expect("JSON")
    }

    /// Whether every endpoint was heard of lately, and there are this many.
    pub async fn knows(&self, n: usize) -> bool {
        let report = self.report().await;
        let endpoints = report["endpoints"].as_array().expect("a list");
        endpoints.len() == n && endpoints.iter().all(|e| e["fresh"] == true)
    }

    /// Requests in flight on each endpoint, in the order of the file.
    pub async fn in_flight(&self) -> Vec<i64> {
        let report = self.report().await;
        let endpoints = report["endpoints"].as_array().expect("a list");
        endpoints.iter().map(|e| e["in_flight"]["requests"].as_i64().expect("a count")).collect()
    }

    pub async fn channel(&self) -> Channel {
        let endpoint = Endpoint::from_shared(format!("http://127.0.0.1:{}", self.grpc)).expect("a URL");
        endpoint.connect_timeout(PATIENCE).connect().await.expect("the ext_proc port is open")
    }

    /// Opens one stream on a connection of its own.
    pub async fn open(&self) -> Talk {
        Talk::open(self.channel().await).await
    }

    /// Asks for one pick and ends the stream.
    pub async fn pick(&self, path: &str, body: &str) -> Result<String, Refused> {
        Ok(self.hold(path, body).await?.0)
    }

    /// Asks for one pick and keeps the stream open.
    pub async fn hold(&self, path: &str, body: &str) -> Result<(String, Talk), Refused> {
        let mut talk = self.open().await;
        let target = talk.ask(path, body).await?;
        Ok((target, talk))
    }
}

impl Drop for Picker {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

/// Whether a picker that must not start ended by itself with an error, and what it said.
pub async fn refusal_to_start(mut picker: Picker) -> String {
    let end = Instant::now() + PATIENCE;
    loop {
        match picker.child.try_wait().expect("the child is ours") {
            Some(status) => {
                assert!(!status.success(), "ended well: {}", picker.log());
                return picker.log();
            }
            None => assert!(Instant::now() < end, "still runs: {}", picker.log()),
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
