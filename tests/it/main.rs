//! The integration tests of the picker, in one binary: tidiness, the catalogue, and the whole program on loopback.

mod catalogue;
mod harness;
mod known_faults;
mod tidy;
