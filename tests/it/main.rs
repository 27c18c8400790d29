//! Tests of the whole program: the real binary on loopback, asked as Envoy and direct clients ask it.

mod harness;
mod known_faults;
