//! Profile handlers: one file a way to run profiles and to make one decision of their results.

pub mod single;
