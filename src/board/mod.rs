//! board

pub mod exposition;
pub mod reading;
