//! Subscribers against publishers in the same process, on paused time.

mod bound;
mod live;
mod many;
mod replaying;
mod rig;
