//! Parsers: one file an API.
