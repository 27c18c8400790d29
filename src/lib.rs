//! The endpoint picker: the rooms of one request, and what is behind them. `ARCHITECTURE.md` has the map.

pub mod admin;
pub mod app;
pub mod bench;
pub mod board;
pub mod calls;
pub mod cli;
pub mod config;
pub mod ext_proc;
pub mod files;
pub mod flow;
pub mod generation;
pub mod listen;
pub mod page;
pub mod recording;
pub mod reload;
pub mod replay;
pub mod sched;
pub mod simulate;
pub mod tasks;
pub mod telemetry;
pub mod trust;
pub mod yaml;
