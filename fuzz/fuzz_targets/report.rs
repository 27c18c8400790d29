//! Fuzzes reports of simulations: each becomes a page without script, always the same one, or is refused.
#![no_main]

use epp::page::simulation;
use epp::simulate::report::Report;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    if let Ok(report) = Report::read(text) {
        let page = simulation::page(&report);
        assert!(!page.contains("<script") && !page.contains("NaN"));
        assert_eq!(page, simulation::page(&report));
    }
});
