//! Calls into code of others: a panic in it becomes an error, or a line in the log, and goes no further.

use std::panic::{AssertUnwindSafe, catch_unwind};

use entry_points::message::panic_message;

use crate::backend::BackendError;
use crate::device::Device;
use crate::error::DeviceError;
use crate::runtime::device_use;

/// Runs a backend's code. Every call into a backend goes through here, so that one that panics harms only the
/// call. (With `panic = "abort"` nothing can be caught, and the program ends.)
#[inline]
pub(crate) fn isolated<T>(
    device: Device,
    call: &'static str,
    run: impl FnOnce() -> Result<T, BackendError>,
) -> Result<T, DeviceError> {
    // No state of the core's can be seen half changed: the closures only borrow.
    match catch_unwind(AssertUnwindSafe(run)) {
        Ok(result) => result.map_err(|error| DeviceError::Call { device, call, error }),
        Err(panic) => Err(panicked(device, call, &panic_message(panic))),
    }
}

pub(crate) fn panicked(device: Device, call: &'static str, message: &str) -> DeviceError {
    let error = BackendError::other(format_args!("the backend panicked: {message}"));
    DeviceError::Call { device, call, error }
}

/// Drops what a backend or a user made, whose `drop` may panic, where nobody is left to take an error.
pub(crate) fn drop_isolated<T>(device: Device, value: T) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| drop(value))) {
        let message = panic_message(panic);
        log_isolated(|| log::error!("`{device}`: a panic while freeing memory: {message}"));
    }
}

/// Writes to the log. A logger is a program's code: it may panic, which is caught, and it may not use devices, whose locks
/// the caller may hold. It comes last, after all that others wait for.
pub(crate) fn log_isolated(log: impl FnOnce()) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| device_use::forbid(log))) {
        // To drop it may panic again, and there is no other way to report it.
        std::mem::forget(panic);
    }
}
