//! The end of a call from the program: its status, and the report of its error.

use device_registry::backend::{BackendError, BackendErrorKind};
use device_registry::registry::{Panicked, isolate};

use crate::abi::{self, Failure, Report, Status, Str, Table};
use crate::chain;

/// Runs a call. An error or a panic in it is reported, and is the status.
///
/// # Safety
///
/// The report is valid.
// Inlined, with errors in functions of their own, so that the arguments of the call stay in registers.
#[inline]
pub unsafe fn guard(report: *const Report, run: impl FnOnce() -> Result<(), BackendError>) -> Status {
    let outcome = isolate(|| match run() {
        Ok(()) => abi::OK,
        // SAFETY: the caller promises that the report is valid.
        Err(error) => unsafe { fail(report, error) },
    });
    // SAFETY: the caller promises that the report is valid.
    outcome.unwrap_or_else(|panic| unsafe { fail_by_panic(report, &panic) })
}

/// Runs a call that has no status. A panic in it is logged: `what` says where it was.
pub(crate) fn guard_quietly(what: &str, run: impl FnOnce()) {
    if let Err(panic) = isolate(run) {
        log_isolated(what, &panic);
    }
}

/// Logs a panic, even if the logger panics: a library may have its own logger.
pub(crate) fn log_isolated(what: &str, panic: &Panicked) {
    let _ = isolate(|| log::error!("{what}: {}", panic.message()));
}

/// Reports an error. Returns its status.
///
/// # Safety
///
/// The report is valid.
#[cold]
unsafe fn fail(report: *const Report, error: BackendError) -> Status {
    with_failure(&error, |failure| {
        // SAFETY: the caller promises that the report is valid, as far as its size says.
        if let Ok(report) = unsafe { abi::take(report) }
            && let Some(fail) = report.fail
        {
            // SAFETY: the program's function copies the failure, which is valid during the call.
            unsafe { fail(report.context, failure) }
        }
    });
    status(error.kind())
}

/// Reports a panic. Returns its status.
///
/// # Safety
///
/// The report is valid.
#[cold]
unsafe fn fail_by_panic(report: *const Report, panic: &Panicked) -> Status {
    let error = BackendError::other(format_args!("the backend panicked: {}", panic.message()));
    // SAFETY: the caller promises that the report is valid.
    unsafe { fail(report, error) }
}

/// Calls a function with an error as the interface has it.
pub(crate) fn with_failure(error: &BackendError, call: impl FnOnce(&Failure)) {
    let causes = std::error::Error::source(error).map(chain::texts).unwrap_or_default();
    let causes: Vec<Str> = causes.iter().map(|cause| Str::cut(cause)).collect();
    let (asked, free) = match error.kind() {
        BackendErrorKind::OutOfMemory { asked, free } => (asked, free.unwrap_or(abi::UNKNOWN)),
        _ => (0, abi::UNKNOWN),
    };
    call(&Failure {
        message: Str::cut(error.message()),
        causes: causes.as_ptr(),
        cause_count: causes.len(),
        asked,
        free,
        ..Failure::ZEROED
    });
}

pub(crate) fn status(kind: BackendErrorKind) -> Status {
    match kind {
        BackendErrorKind::OutOfMemory { .. } => abi::OUT_OF_MEMORY,
        BackendErrorKind::Unsupported => abi::UNSUPPORTED,
        BackendErrorKind::Unavailable => abi::UNAVAILABLE,
        BackendErrorKind::Lost => abi::LOST,
        BackendErrorKind::Invalid => abi::INVALID,
        _ => abi::OTHER,
    }
}
