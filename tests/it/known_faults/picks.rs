//! picks.
