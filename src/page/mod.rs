//! Reports as pages that people look at: one HTML file with drawings, made without script and without the network.

mod arms;
mod bars;
pub mod bench;
mod chart;
mod columns;
mod document;
mod gantt;
mod heat;
mod lines;
mod markup;
pub mod numbers;
mod ranges;
mod scale;
pub mod simulation;
mod table;
#[cfg(test)]
mod tests;
pub mod traffic;
