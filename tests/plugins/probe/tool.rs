//! The command `devices` without backends, which tests run for `devices plugin`.

use std::process::ExitCode;

fn main() -> ExitCode {
    devices::run(std::env::args_os())
}
