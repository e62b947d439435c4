//! Calls into a library: the report of an error, on the caller's stack.

use std::panic::{AssertUnwindSafe, catch_unwind};

use device_registry::BackendErrorKind;
use device_registry::backend::{BackendError, LoadFailure};

use crate::abi::{self, Failure, Object, Report, Status, Table};
use crate::chain;

/// A chain of errors is dropped recursively, so that a chain without an end would overflow the stack.
const MOST_CAUSES: usize = 64;

/// What a library has reported.
pub(crate) struct Reported {
    /// The message, then its causes.
    messages: Vec<String>,
    asked: u64,
    free: Option<u64>,
}

/// Makes a call. `what` names the unsupported feature, if the library does not.
#[inline]
pub fn call(what: &str, run: impl FnOnce(*const Report) -> Status) -> Result<(), BackendError> {
    let mut reported = None;
    match status(&mut reported, run) {
        abi::OK => Ok(()),
        status => Err(error(status, reported, what)),
    }
}

/// The object that a call has made.
///
/// # Errors
///
/// If the library has returned `DP_OK` and no object.
#[inline]
pub(crate) fn made(object: Object, place: &str) -> Result<Object, BackendError> {
    if object.is_null() {
        return Err(BackendError::other(format_args!(
            "the plugin returned DP_OK and wrote no object to `{place}`, or NULL"
        )));
    }
    Ok(object)
}

/// Makes a call, and keeps what the library reports.
#[inline]
pub(crate) fn status(reported: &mut Option<Reported>, run: impl FnOnce(*const Report) -> Status) -> Status {
    let context = std::ptr::from_mut(reported).cast();
    run(&Report { context, fail: Some(receive), ..Report::ZEROED })
}

unsafe extern "C" fn receive(context: Object, failure: *const Failure) {
    // SAFETY: the library passes the context of the report, during the call to which the report belongs.
    let reported = unsafe { &mut *context.cast::<Option<Reported>>() };
    // SAFETY: the library passes a failure that is valid during this call.
    let _: Result<(), _> = catch_unwind(AssertUnwindSafe(|| *reported = Some(unsafe { read(failure) })));
}

/// Copies a failure.
///
/// # Safety
///
/// The pointer is null or valid.
pub(crate) unsafe fn read(failure: *const Failure) -> Reported {
    // SAFETY: the caller promises it.
    let failure = match unsafe { abi::take(failure) } {
        Ok(failure) => failure,
        Err(error) => {
            let message = format!("the report of the plugin {error}");
            return Reported { messages: vec![message], asked: 0, free: None };
        }
    };
    // SAFETY: the caller promises that the texts are valid.
    let mut messages = vec![unsafe { failure.message.shown() }];
    if !failure.causes.is_null() {
        let count = failure.cause_count.min(MOST_CAUSES);
        // SAFETY: the caller promises that there are as many causes, with valid texts.
        messages.extend((0..count).map(|at| unsafe { failure.causes.add(at).read().shown() }));
    }
    let free = (failure.free != abi::UNKNOWN).then_some(failure.free);
    Reported { messages, asked: failure.asked, free }
}

/// The error of a call, whose name the core adds. A report without a text counts as none.
#[cold]
pub(crate) fn error(status: Status, reported: Option<Reported>, what: &str) -> BackendError {
    let (asked, free) = reported.as_ref().map_or((0, None), |reported| (reported.asked, reported.free));
    let kind = match status {
        abi::OUT_OF_MEMORY => BackendErrorKind::OutOfMemory { asked, free },
        abi::UNSUPPORTED => BackendErrorKind::Unsupported,
        abi::UNAVAILABLE | abi::ABSENT => BackendErrorKind::Unavailable,
        abi::LOST => BackendErrorKind::Lost,
        abi::INVALID => BackendErrorKind::Invalid,
        _ => BackendErrorKind::Other,
    };
    match reported {
        Some(mut reported) => {
            if reported.messages[0].is_empty() {
                reported.messages[0] = match kind {
                    // The numbers say enough, and the text shows them as a linked backend's does.
                    BackendErrorKind::OutOfMemory { asked: asked @ 1.., free } => {
                        BackendError::out_of_memory(asked, free).message().to_owned()
                    }
                    _ => no_message(status),
                };
            }
            chain::error(kind, &reported.messages)
        }
        None if kind == BackendErrorKind::Unsupported => BackendError::unsupported(what),
        None => BackendError::new(kind, no_message(status)),
    }
}

/// The failure of a load, with the library's message and its causes.
pub(crate) fn failure(status: Status, reported: Option<Reported>) -> LoadFailure {
    let error = error(status, reported, "loading");
    let failure = match status {
        abi::UNAVAILABLE => LoadFailure::unavailable(error.message()),
        _ => LoadFailure::new(error.message()),
    };
    match std::error::Error::source(&error).map(chain::texts).and_then(|causes| chain::chain(&causes)) {
        Some(cause) => failure.with_source(cause),
        None => failure,
    }
}

fn no_message(status: Status) -> String {
    match abi::status_name(status) {
        Some(name) => format!("the plugin reported {name} without a message"),
        None => format!(
            "the plugin reported status {status}, which the interface does not have, without a message"
        ),
    }
}

#[cfg(test)]
mod tests {
    use device_registry::backend::samples;

    use super::*;
    use crate::export::report::guard;

    #[test]
    fn every_kind_of_error_passes_the_interface() {
        for kind in samples::error_kinds() {
            let error = BackendError::new(kind, "why").with_source(std::io::Error::other("the cause"));
            // SAFETY: the report is valid during the call.
            let run = |report| unsafe { guard(report, || Err(error.clone())) };
            let found = call("a call", run).unwrap_err();
            assert_eq!((found.kind(), found.message()), (kind, "why"));
            assert_eq!(std::error::Error::source(&found).unwrap().to_string(), "the cause");
        }
    }
}
