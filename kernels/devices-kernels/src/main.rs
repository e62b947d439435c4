//! The command `devices`, with the kernel sets of this crate's features.

use std::process::ExitCode;

// The package's own library has the benchmark.
device_registry::autoload!();

fn main() -> ExitCode {
    devices::run(std::env::args_os())
}
