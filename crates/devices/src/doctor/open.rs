//! Opening a driver's library in its own process, as its initialisers may crash or never end.

use std::error::Error;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
#[cfg(unix)]
use std::os::fd::AsFd;
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use libloading::Library;

/// The first argument of the process that opens a library. The interface and the library follow.
pub(crate) const CHILD: &str = "--open-driver";

/// How long a library may take. A library as large as LLVM takes a second from a slow disk.
const LIMIT: Duration = Duration::from_secs(20);

/// What the process's line begins with.
const OPENED: &str = "devices: opened";
const REFUSED: &str = "devices: refused ";

/// How much of the line is read.
const KEPT: u64 = 1 << 16;

/// How often the process is looked at that has not written its line.
const STEP: Duration = Duration::from_millis(10);

/// How long the line of a process that has ended may take.
const LINE: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(super) enum Outcome {
    Opened,
    /// With the dynamic linker's words.
    Refused(String),
    /// How the process ended, or that it did not.
    Ended(String),
    /// Why there was no process.
    NotTried(io::Error),
}

/// Starts this program once more, which opens the library there.
pub(super) fn in_a_process(interface: &str, library: &Path) -> Outcome {
    try_in_a_process(interface, library).unwrap_or_else(Outcome::NotTried)
}

fn try_in_a_process(interface: &str, library: &Path) -> io::Result<Outcome> {
    // The file that runs, and not what has its path by now. Only Linux gets here.
    let mut child = Command::new("/proc/self/exe")
        .args([OsStr::new(CHILD), interface.as_ref(), library.as_os_str()])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()?;
    let (sender, receiver) = mpsc::channel();
    if let Some(output) = child.stdout.take() {
        thread::spawn(move || {
            let mut line = Vec::new();
            let read = BufReader::new(output.take(KEPT)).read_until(b'\n', &mut line);
            if read.is_ok() && !line.is_empty() {
                // The receiver is gone after the limit.
                let _ = sender.send(String::from_utf8_lossy(&line).trim_end().to_owned());
            }
        });
    }
    let outcome = wait(&mut child, &receiver);
    // What a driver does at the end of a process is not asked for. One that has ended keeps its status.
    let _ = child.kill();
    child.wait()?;
    outcome
}

/// Waits for the process's line, or its end without one. The end of the pipe says neither: a library may
/// close it, and a process that it has started may keep it open.
fn wait(child: &mut Child, line: &Receiver<String>) -> io::Result<Outcome> {
    let start = Instant::now();
    while start.elapsed() < LIMIT {
        let ended = child.try_wait()?;
        let outcome = match line.recv_timeout(if ended.is_some() { LINE } else { STEP }) {
            Ok(line) if line == OPENED => Some(Outcome::Opened),
            Ok(line) => line.strip_prefix(REFUSED).map(|reason| Outcome::Refused(reason.to_owned())),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => {
                thread::sleep(STEP);
                None
            }
        };
        let ended =
            ended.map(|status| Outcome::Ended(format!("the process that opened it ended with {status}")));
        if let Some(outcome) = outcome.or(ended) {
            return Ok(outcome);
        }
    }
    Ok(Outcome::Ended(format!("opening it took more than {} seconds", LIMIT.as_secs())))
}

/// What the process does: it opens the library and prints a line.
pub(crate) fn child(arguments: &[OsString]) -> ExitCode {
    let [interface, library] = arguments else { return ExitCode::from(crate::USAGE) };
    let Ok(mut output) = output() else { return ExitCode::FAILURE };
    let line = match open(interface, library) {
        Ok(()) => OPENED.to_owned(),
        Err(error) => REFUSED.to_owned() + &error.replace('\n', " "),
    };
    // The process that started this one may have ended.
    let _ = writeln!(output, "{line}");
    ExitCode::SUCCESS
}

/// What was the standard output of this process. From now on, the library prints to the standard error.
#[cfg(unix)]
fn output() -> io::Result<File> {
    let output = io::stdout().as_fd().try_clone_to_owned()?;
    rustix::stdio::dup2_stdout(io::stderr())?;
    Ok(output.into())
}

#[cfg(not(unix))]
fn output() -> io::Result<File> {
    Err(io::ErrorKind::Unsupported.into())
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
