//! Failures: a code for C++, and the text of the exception.

use std::cell::RefCell;
use std::ffi::{CStr, CString};
use std::fmt;
use std::sync::Once;

use device_kernels::RunError;
use device_registry::backend::BackendError;
use device_registry::{BackendErrorKind, Device, DeviceError, ErrorChain};

use crate::counts::{Policy, policy};
use crate::devices::forked;

/// Why a call failed, or why the CPU has to compute.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) code: Code,
    pub(crate) message: String,
}

/// The codes of `device_torch.h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub(crate) enum Code {
    Ok = 0,
    Declined = 1,
    Failed = 2,
    OutOfMemory = 3,
    Unsupported = 4,
    Lost = 5,
}

impl Failure {
    pub(crate) fn new(message: impl fmt::Display) -> Self {
        Self { code: Code::Failed, message: message.to_string() }
    }

    /// A backend's error about a device.
    pub(crate) fn of_device(device: Device, error: BackendError) -> Self {
        let failure = Self::of_backend(error);
        Self { message: format!("`{device}`: {}", failure.message), ..failure }
    }

    /// An error that is of no device.
    pub(crate) fn of_backend(error: BackendError) -> Self {
        Self { code: Code::of(Some(error.kind())), message: ErrorChain::new(&error).to_string() }
    }

    /// No kernel is for this: the CPU computes it. Where it may do so silently, the reason is not needed.
    pub(crate) fn declined(why: impl fmt::Display) -> Self {
        let message = if *policy() == Ok(Policy::Allow) { String::new() } else { why.to_string() };
        Self { code: Code::Declined, message }
    }
}

impl Code {
    fn of(kind: Option<BackendErrorKind>) -> Self {
        match kind {
            Some(BackendErrorKind::OutOfMemory { .. }) => Self::OutOfMemory,
            Some(BackendErrorKind::Unsupported) => Self::Unsupported,
            Some(BackendErrorKind::Lost) => Self::Lost,
            _ => Self::Failed,
        }
    }
}

impl From<DeviceError> for Failure {
    fn from(error: DeviceError) -> Self {
        if let DeviceError::Forked { .. } = error {
            return forked();
        }
        Self { code: Code::of(error.kind()), message: ErrorChain::new(&error).to_string() }
    }
}

/// What a kernel set refuses, the CPU computes. What a device refuses is an error.
impl From<RunError> for Failure {
    fn from(error: RunError) -> Self {
        match error {
            RunError::Device { error, .. } => error.into(),
            RunError::Load(error) => {
                // Without it, nothing says why all operators are slow.
                static WARNED: Once = Once::new();
                let message = ErrorChain::new(&error).to_string();
                WARNED.call_once(|| {
                    eprintln!("device_torch: {message}; the CPU computes in the place of its kernels")
                });
                Self::declined(message)
            }
            other => Self::declined(ErrorChain::new(&other)),
        }
    }
}

thread_local! {
    static LAST: RefCell<CString> = RefCell::default();
}

/// Keeps the text of a failure for the thread.
pub(crate) fn set_last(message: &str) {
    // C ends a text at the first zero.
    let text = CString::new(message.replace('\0', "\u{fffd}")).unwrap_or_default();
    let _ = LAST.try_with(|last| *last.borrow_mut() = text);
}

/// The text of the thread's last failure, for as long as `use_it` runs.
pub(crate) fn last<T>(use_it: impl FnOnce(&CStr) -> T) -> T {
    LAST.with(|last| use_it(&last.borrow()))
}
