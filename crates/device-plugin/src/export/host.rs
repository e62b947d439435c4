//! The program, as the library sees it: where logs and panics go.

use std::panic::PanicHookInfo;
use std::sync::OnceLock;

use device_registry::backend::BackendError;
use log::{LevelFilter, Log, Metadata, Record};

use crate::abi::{self, Host, Str};

/// The program's table.
struct Program(Host);

// SAFETY: the table is never changed, and its functions may be called on any thread.
unsafe impl Send for Program {}
// SAFETY: the table is never changed, and its functions may be called on any thread.
unsafe impl Sync for Program {}

static PROGRAM: OnceLock<Program> = OnceLock::new();

/// Keeps the program's table. From then on logs and panics of this library go to the program.
///
/// # Errors
///
/// If the program has another version of the interface.
///
/// # Safety
///
/// The pointer is null, or valid forever.
pub(crate) unsafe fn connect(host: *const Host) -> Result<(), BackendError> {
    // SAFETY: the caller promises that the table is valid.
    let host = unsafe { abi::take(host) };
    let host = host.map_err(|error| BackendError::invalid(format_args!("the program's table {error}")))?;
    if host.major != abi::MAJOR {
        return Err(BackendError::invalid(format_args!(
            "expected version {} of the interface, found {}",
            abi::MAJOR,
            host.major
        )));
    }
    let level = level(host.log_level);
    if PROGRAM.set(Program(host)).is_ok() {
        // A logger that the library's author has set stays.
        if log::set_logger(&ProgramLog).is_ok() {
            log::set_max_level(level);
        }
        std::panic::set_hook(Box::new(panicked));
    }
    Ok(())
}

fn level(level: u32) -> LevelFilter {
    LevelFilter::iter().nth(level as usize).unwrap_or(LevelFilter::Trace)
}

/// Sends what the library logs to the program.
struct ProgramLog;

impl Log for ProgramLog {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &Record<'_>) {
        let Some(Program(host)) = PROGRAM.get() else { return };
        if let Some(log) = host.log {
            let level = record.level() as u32;
            let target = record.target();
            let message = record.args().to_string();
            // SAFETY: the table is valid forever, and the texts are valid during the call.
            unsafe { log(host.context, level, Str::of(target), Str::cut(&message)) }
        }
    }

    fn flush(&self) {}
}

/// Sends a panic of the library to the program, in place of a line on standard error.
fn panicked(info: &PanicHookInfo<'_>) {
    let Some(Program(host)) = PROGRAM.get() else { return };
    let message = info.payload_as_str().unwrap_or("a value that is no text");
    let place = info.location().map(ToString::to_string).unwrap_or_default();
    if let Some(panicked) = host.panicked {
        // SAFETY: the table is valid forever, and the texts are valid during the call.
        unsafe { panicked(host.context, Str::cut(message), Str::of(&place)) }
    }
}
