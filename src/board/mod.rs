//! Board, room 4 and what keeps it up to date: which endpoints there are and what their engines last said.

pub mod discovery;
pub mod exposition;
pub mod reading;
pub mod scrape;
