//! The integration tests of the picker, in one binary.

mod tidy;
