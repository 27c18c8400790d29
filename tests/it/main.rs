//! The integration tests of the picker, in one binary: tidiness of the source, and the whole program on loopback.

mod harness;
mod known_faults;
mod tidy;
