//! Recorded traffic: readers of the formats that it comes in, one record for all of them, and what is in it.
//!
//! [`Reader`](reader::Reader) gives one [`Record`](record::Record) after the other and holds no more than one piece of the
//! input, which has a bound. [`Trace`](trace::Trace) keeps a whole trace in about 130 bytes a request, because prompts
//! are runs of block ids, or seeds of which token ids are made on demand. [`Summary`](summary::Summary) says what is in
//! one.

pub mod bad;
mod csv;
mod detect;
mod field;
pub mod format;
mod formats;
pub mod ids;
mod lines;
mod moment;
pub mod prompt;
pub mod reader;
pub mod record;
pub mod reuse;
pub mod summary;
pub mod trace;
