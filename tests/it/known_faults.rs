//! Faults that users of programs of this kind have reported: each is tried on this one. `docs/known-faults.md` lists them.

mod bodies;
mod config;
mod files;
mod grpc;
mod health;
mod limits;
mod metrics;
mod picks;
mod protocol;
mod responses;
