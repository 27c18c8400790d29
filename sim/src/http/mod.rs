//! Engines over HTTP: one process plays many, each on its own port, all on the real clock.

mod answer;
mod ask;
mod body;
mod given;
mod live;
mod serve;
mod shapes;
mod words;

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::task::JoinSet;

use self::live::Live;
use crate::kind::Kind;
use crate::model::{Load, Model, ModelSettings, SettingsError};

/// Describes a group of equal engines.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    pub kind: Kind,
    /// How many engines. Default 1.
    pub count: usize,
    /// Where they listen. Default 127.0.0.1.
    pub host: IpAddr,
    /// The port of the first; the others follow. 0, the default, gives each a free port.
    pub base_port: u16,
    /// The name that `/v1/models` and the metrics tell. Requests may ask for any model. Default `sim`.
    pub model_name: String,
    pub model: ModelSettings,
    /// How many times as fast as `model` says everything goes. Default 1.
    pub speed: f64,
    /// How long it takes until the metrics page, as it was when it was asked for, is sent. Default 0.
    pub metrics_delay: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            kind: Kind::default(),
            count: 1,
            host: IpAddr::V4(Ipv4Addr::LOCALHOST),
            base_port: 0,
            model_name: "sim".to_owned(),
            model: ModelSettings::default(),
            speed: 1.0,
            metrics_delay: Duration::ZERO,
        }
    }
}

/// Says why engines did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error(transparent)]
    Settings(#[from] SettingsError),
    #[error("{count} ports from {base_port} on go beyond 65535")]
    Ports { base_port: u16, count: usize },
    #[error("cannot listen on {address}: {source}")]
    Listen { address: SocketAddr, source: io::Error },
}

/// Engines that serve until they are stopped or dropped.
#[derive(Debug)]
pub struct Engines(Vec<Engine>);

/// One engine that serves until it is stopped or dropped.
#[derive(Debug)]
pub struct Engine {
    name: String,
    address: SocketAddr,
    live: Arc<Live>,
    tasks: JoinSet<()>,
}

impl Engines {
    /// Starts engines that are ready for requests on return; none of them if one cannot start.
    ///
    /// # Errors
    /// If the settings make no engine, or a port cannot be had.
    pub async fn start(settings: Settings) -> Result<Self, StartError> {
        let Settings { kind, count, host, base_port, model_name, model, speed, metrics_delay } = settings;
        let model = model.sped_up(speed)?;
        let mut bound = Vec::new();
        for i in 0..count {
            let port = match base_port {
                0 => Some(0),
                first => u16::try_from(i).ok().and_then(|i| first.checked_add(i)),
            };
            let address = SocketAddr::new(host, port.ok_or(StartError::Ports { base_port, count })?);
            let listen = |source| StartError::Listen { address, source };
            let listener = TcpListener::bind(address).await.map_err(listen)?;
            let address = listener.local_addr().map_err(listen)?;
            bound.push((listener, address, Model::new(model.clone())?));
        }
        let started = serve::unix_now().as_secs_f64();
        let engines = bound.into_iter().enumerate().map(|(i, (listener, address, model))| {
            let live = Arc::new(Live::new(kind, model_name.clone(), address.port(), model, started));
            let mut tasks = JoinSet::new();
            let clock = live.clone();
            tasks.spawn(async move { clock.run().await });
            tasks.spawn(serve::serve(live.clone(), listener, metrics_delay));
            Engine { name: format!("e{i}"), address, live, tasks }
        });
        Ok(Self(engines.collect()))
    }

    /// The engines, in the order of their ports.
    pub fn engines(&self) -> &[Engine] {
        &self.0
    }

    /// Where the engines listen, in order.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.0.iter().map(Engine::address).collect()
    }

    /// Parts the group, so that each engine can be stopped by itself.
    pub fn into_engines(self) -> Vec<Engine> {
        self.0
    }

    /// Closes all ports and connections, and returns when they are closed.
    pub async fn stop(self) {
        for engine in self.0 {
            engine.stop().await;
        }
    }
}

impl Engine {
    /// The engine's name in its group: `e0` and so on.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Where the engine listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Which engine is played.
    pub fn kind(&self) -> Kind {
        self.live.kind
    }

    /// What the engine is busy with.
    pub fn load(&self) -> Load {
        self.live.load()
    }

    /// Closes the port and all connections, and returns when they are closed.
    pub async fn stop(mut self) {
        self.tasks.shutdown().await;
    }
}
