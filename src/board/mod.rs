//! board

pub mod exposition;
pub mod reading;
pub mod scrape;
