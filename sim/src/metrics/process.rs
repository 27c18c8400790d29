//! The families that every Python server tells about its own process, with values as of one that serves a model.

use super::View;
use super::page::{Label, Page};

/// Writes the `python_` and `process_` families.
pub(super) fn write(page: &mut Page, view: &View) {
    let generations = |page: &mut Page, name: &str, help: &str, values: [f64; 3]| {
        page.family(name, help, "counter");
        for (generation, value) in ["0", "1", "2"].into_iter().zip(values) {
            page.sample(name, &[("generation", generation)], value);
        }
    };
    let (collected, uncollectable) = ("Objects collected during gc", "Uncollectable objects found during GC");
    generations(page, "python_gc_objects_collected_total", collected, [13720.0, 2217.0, 419.0]);
    generations(page, "python_gc_objects_uncollectable_total", uncollectable, [0.0; 3]);
    let collections = "Number of times this generation was collected";
    generations(page, "python_gc_collections_total", collections, [1609.0, 146.0, 10.0]);
    let python: [Label<'_>; 5] =
        [("implementation", "CPython"), ("major", "3"), ("minor", "11"), ("patchlevel", "7"), ("version", "3.11.7")];
    page.family("python_info", "Python platform information", "gauge");
    page.sample("python_info", &python, 1.0);
    let plain = [
        ("process_virtual_memory_bytes", "Virtual memory size in bytes.", "gauge", 4_621_742_080.0),
        ("process_resident_memory_bytes", "Resident memory size in bytes.", "gauge", 878_702_592.0),
        (
            "process_start_time_seconds",
            "Start time of the process since unix epoch in seconds.",
            "gauge",
            view.started_unix,
        ),
        (
            "process_cpu_seconds_total",
            "Total user and system CPU time spent in seconds.",
            "counter",
            view.tally.busy.as_secs_f64(),
        ),
        ("process_open_fds", "Number of open file descriptors.", "gauge", 133.0),
        ("process_max_fds", "Maximum number of open file descriptors.", "gauge", 20000.0),
    ];
    for (name, help, kind, value) in plain {
        page.family(name, help, kind);
        page.sample(name, &[], value);
    }
}
