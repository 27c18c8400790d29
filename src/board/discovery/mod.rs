//! Where endpoints come from: a file that is followed, and the addresses of the host names in it.

pub mod file;
