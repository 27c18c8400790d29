//! Allocator, command line, one subcommand, exit code.

use std::process::ExitCode;

use tikv_jemallocator::Jemalloc;

#[global_allocator]
static ALLOCATOR: Jemalloc = Jemalloc;

fn main() -> ExitCode {
    epp::cli::main(std::env::args_os().collect())
}
