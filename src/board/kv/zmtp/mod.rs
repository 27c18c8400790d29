//! Board, KV events: as much of ZMTP 3, the protocol of ZeroMQ over TCP, as a subscriber needs.
//!
//! Says that it speaks 3.0, so a subscription is sent as a message, which peers of every 3.x understand. There is no
//! security but the mechanism NULL. A PING is answered, though only 3.1 has it.

pub mod connection;
pub mod wire;
