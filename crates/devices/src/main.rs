//! The command `devices`, with the backends of this crate's features and those from files.

use std::process::ExitCode;

// Links every backend of the features.
device_registry::autoload!();

fn main() -> ExitCode {
    devices::run_installed(std::env::args_os())
}
