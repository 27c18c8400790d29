//! Rooms 1, 2, 7 and 8: the door, reading, the answer, and after. The only part that knows Envoy, tonic and prost.

pub mod after;
pub mod answer;
pub mod bodies;
pub mod context;
pub mod exchange;
pub mod health;
pub mod metrics;
pub mod parser_table;
pub mod pick;
pub mod reading;
pub mod server;
pub mod service;
pub mod stream;
pub mod tls;
pub mod waiting;
pub mod wire;
