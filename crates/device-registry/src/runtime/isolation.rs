//! Calls into foreign code: a panic in it becomes an error, or a line in the log.

use std::panic::{AssertUnwindSafe, catch_unwind};

use entry_points::isolate;
use entry_points::message::panic_message;

use crate::backend::BackendError;
use crate::device::Device;
use crate::error::DeviceError;
use crate::runtime::device_use::InBackend;
use crate::runtime::{call_watch, device_use};

/// Runs a backend's code. Every call into a backend goes through this function, so that a panic fails that
/// call only. (With `panic = "abort"` it catches nothing, and the program ends.)
#[inline]
pub(crate) fn isolated<T>(
    device: Device,
    call: &'static str,
    run: impl FnOnce() -> Result<T, BackendError>,
) -> Result<T, DeviceError> {
    let _under_way = call_watch::enter(device, call);
    let _in_backend = InBackend::enter();
    // `isolate` asserts unwind safety: the closures only borrow the core's state, and leave none of it half
    // changed.
    match isolate(run) {
        Ok(result) => result.map_err(|error| DeviceError::Call { device, call, error }),
        Err(panic) => Err(panicked(device, call, panic.message())),
    }
}

pub(crate) fn panicked(device: Device, call: &'static str, message: &str) -> DeviceError {
    let error = BackendError::other(format_args!("the backend panicked: {message}"));
    DeviceError::Call { device, call, error }
}

/// Drops a value of a backend or a program, where no caller can get an error. Logs a panic of its `drop`.
pub(crate) fn drop_isolated<T>(device: Device, value: T) {
    let _under_way = call_watch::enter(device, "drop");
    let _in_backend = InBackend::enter();
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| drop(value))) {
        let message = panic_message(panic);
        log_isolated(|| log::error!("`{device}`: a panic while freeing memory: {message}"));
    }
}

/// Writes to the log. A logger is foreign code: a panic in it is caught, and it may not use devices, whose
/// locks the caller may hold. Call it last, since a slow logger would delay every waiting thread.
pub(crate) fn log_isolated(log: impl FnOnce()) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| device_use::forbid(log))) {
        // Its drop could panic again, and no other way to report it is left.
        std::mem::forget(panic);
    }
}
