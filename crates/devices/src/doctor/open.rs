//! Opening a driver's library in a process of its own, as its initialisers may crash or never end.

use std::error::Error;
use std::ffi::{OsStr, OsString};
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use libloading::Library;

/// The first argument of the process that opens a library. The interface and the library follow.
pub(crate) const CHILD: &str = "--open-driver";

/// How long a library may take. One of LLVM's size takes a second from a slow disk.
const LIMIT: Duration = Duration::from_secs(20);

/// What the process's line begins with. Libraries may print other lines.
const OPENED: &str = "devices: opened";
const REFUSED: &str = "devices: refused ";

/// How much is read of what a library prints.
const KEPT: u64 = 1 << 20;

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Opened,
    /// With the dynamic linker's words.
    Refused(String),
    /// How the process ended, or that it did not.
    Ended(String),
}

/// Starts this program once more, which opens the library there.
pub(super) fn in_a_process(interface: &str, library: &Path) -> Outcome {
    try_in_a_process(interface, library)
        .unwrap_or_else(|error| Outcome::Refused(format!("no process could be started to open it: {error}")))
}

fn try_in_a_process(interface: &str, library: &Path) -> std::io::Result<Outcome> {
    let mut child = Command::new(std::env::current_exe()?)
        .args([OsStr::new(CHILD), interface.as_ref(), library.as_os_str()])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()?;
    let (sender, receiver) = mpsc::channel();
    if let Some(output) = child.stdout.take() {
        thread::spawn(move || {
            let lines = BufReader::new(output.take(KEPT)).split(b'\n').map_while(Result::ok);
            let outcome = lines.map(|line| String::from_utf8_lossy(&line).into_owned()).find_map(|line| {
                let refused = |reason: &str| Outcome::Refused(reason.to_owned());
                if line == OPENED { Some(Outcome::Opened) } else { line.strip_prefix(REFUSED).map(refused) }
            });
            // The receiver is gone after the limit.
            let _ = outcome.map(|outcome| sender.send(outcome));
        });
    }
    let outcome = receiver.recv_timeout(LIMIT);
    // What a driver does at the end of a process is not asked for. One that has ended keeps its status.
    let _ = child.kill();
    let status = child.wait()?;
    Ok(match outcome {
        Ok(outcome) => outcome,
        Err(RecvTimeoutError::Timeout) => {
            Outcome::Ended(format!("opening it took more than {} seconds", LIMIT.as_secs()))
        }
        Err(RecvTimeoutError::Disconnected) => {
            Outcome::Ended(format!("the process that opened it ended with {status}"))
        }
    })
}

/// What the process does: it opens the library and prints a line.
pub(crate) fn child(arguments: &[OsString]) -> ExitCode {
    let [interface, library] = arguments else { return ExitCode::from(crate::USAGE) };
    let line = match open(interface, library) {
        Ok(()) => OPENED.to_owned(),
        Err(error) => REFUSED.to_owned() + &error.replace('\n', " "),
    };
    // The process that started this one may have ended.
    let _ = writeln!(std::io::stdout(), "{line}");
    ExitCode::SUCCESS
}

#[allow(unsafe_code)]
fn open(interface: &OsStr, library: &OsStr) -> Result<(), String> {
    if library.is_empty() {
        // The empty name stands for this program.
        return Err("the name is empty".to_owned());
    }
    // SAFETY: opening a library runs its initialisers. This process does nothing else, and a loader would
    // open the same library in each program.
    let library = unsafe { Library::new(library) };
    let library =
        library.map_err(|error| error.source().map_or_else(|| error.to_string(), ToString::to_string))?;
    // One of these is what the loader looks up first.
    let entries: [&[u8]; 2] = match interface.to_str() {
        Some("OpenCL") => [b"clGetExtensionFunctionAddress", b"clIcdGetPlatformIDsKHR"],
        _ => [b"vk_icdGetInstanceProcAddr", b"vkGetInstanceProcAddr"],
    };
    // SAFETY: the functions are not called, so that their types do not matter.
    let has = |name: &&[u8]| unsafe { library.get::<unsafe extern "C" fn()>(*name) }.is_ok();
    let is_driver = entries.iter().any(has);
    // Unloading would run code as well.
    std::mem::forget(library);
    if is_driver {
        return Ok(());
    }
    let names = entries.map(|name| format!("`{}`", String::from_utf8_lossy(name)));
    Err(format!("it is no driver: it has neither of the functions {}", names.join(" and ")))
}
