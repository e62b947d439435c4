//! The command `device-plugin`, for authors and packagers of backends in files. `device-plugin --help` says
//! how to use it.

use std::io;
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments = std::env::args_os().skip(1).collect();
    // Not locked: the panic hook of another thread prints too.
    device_plugin::tool::run(arguments, &mut io::stdout(), &mut io::stderr())
}
