//! The command `devices plugin`: its arguments, and what it does with them. It is here so that tests of other
//! packages can build the command; nothing else calls it.

mod arguments;
mod check;
mod child;
mod compare;
mod contents;
mod describe;
mod exit_code;
mod page;
mod print;
mod process;

use std::ffi::OsString;
use std::io::{self, Write};
use std::process::ExitCode;

pub use crate::tool::arguments::CHILD;
use crate::tool::arguments::{Command, USAGE};
use crate::tool::exit_code::{FINE, PROBLEMS, USAGE_ERROR};

/// Runs the command with its arguments, without the name of the program. The program has to do nothing else:
/// it is started once more for each library, as a library is opened in its own process.
///
/// The exit code is 0 if all is well, 1 if there are problems, and 2 if the arguments are wrong.
pub fn run(arguments: Vec<OsString>, output: &mut dyn Write, errors: &mut dyn Write) -> ExitCode {
    let command = match arguments::parse(arguments) {
        Ok(command) => command,
        Err(message) => {
            let _ = writeln!(errors, "devices plugin: {message}\n\n{USAGE}");
            return ExitCode::from(USAGE_ERROR);
        }
    };
    let done = match command {
        Command::Help => write!(output, "{USAGE}").map(|()| FINE),
        Command::Version => writeln!(output, "devices plugin {}", env!("CARGO_PKG_VERSION")).map(|()| FINE),
        Command::Check(check) => check::run(&check, output),
        Command::Manifest(manifest) => print::run(&manifest, output, errors),
        Command::Child { file, how } => child::run(&file, how),
    };
    // A closed pipe is the reader's way to end the command.
    ExitCode::from(done.unwrap_or_else(|error: io::Error| {
        if error.kind() != io::ErrorKind::BrokenPipe {
            let _ = writeln!(errors, "devices plugin: cannot write: {error}");
        }
        PROBLEMS
    }))
}
