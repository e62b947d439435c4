//! The command `devices plugin` alone, which tests run: the whole command has the backends for hardware too.

use std::io;
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments = std::env::args_os().skip(1).collect();
    // Not locked: the panic hook of another thread prints too.
    device_plugin::tool::run(arguments, &mut io::stdout(), &mut io::stderr())
}
