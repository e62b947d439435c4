//! Errors of OpenCL as errors of a backend.

use std::error::Error;
use std::fmt;

use device_registry::backend::{BackendError, BackendErrorKind};

use crate::sys::*;

/// A function of OpenCL that failed, or a command that did. It is for kernels, which call OpenCL themselves:
/// `?` turns it into a [`BackendError`] of one of these kinds.
///
/// | status | kind |
/// |---|---|
/// | `CL_DEVICE_NOT_AVAILABLE`, `CL_CONTEXT_TERMINATED_KHR` | [`Lost`](BackendErrorKind::Lost) |
/// | no compiler, or no status, because the loader lacks the function | [`Unsupported`](BackendErrorKind::Unsupported) |
/// | arguments that are invalid, a program that does not build | [`Invalid`](BackendErrorKind::Invalid) |
/// | anything else | [`Other`](BackendErrorKind::Other) |
///
/// `CL_INVALID_CONTEXT` is an invalid argument here: a launch returns it if its program was built before the
/// device was closed, or for another device. In the backend's own calls, whose arguments belong together, an
/// invalid context, device or queue is a loss.
///
/// ```
/// use device_opencl::OpenClError;
/// use device_opencl::sys::{CL_DEVICE_NOT_AVAILABLE, CL_INVALID_KERNEL_ARGS};
/// use device_registry::BackendErrorKind;
/// use device_registry::backend::BackendError;
///
/// let error = OpenClError::new("clEnqueueNDRangeKernel", CL_INVALID_KERNEL_ARGS);
/// assert_eq!(error.to_string(), "clEnqueueNDRangeKernel: CL_INVALID_KERNEL_ARGS (-52)");
/// assert_eq!(BackendError::from(error).kind(), BackendErrorKind::Invalid);
/// let lost = OpenClError::new("clFlush", CL_DEVICE_NOT_AVAILABLE);
/// assert_eq!(BackendError::from(lost).kind(), BackendErrorKind::Lost);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenClError {
    call: &'static str,
    /// `None` if the loader lacks the function.
    status: Option<cl_int>,
}

impl OpenClError {
    /// The error of the function `call` that returned `status`, or of a command that it enqueued and whose
    /// event has this negative status.
    #[must_use]
    pub const fn new(call: &'static str, status: cl_int) -> Self {
        Self { call, status: Some(status) }
    }

    /// The loader does not have the function.
    pub(crate) const fn missing(call: &'static str) -> Self {
        Self { call, status: None }
    }

    pub(crate) fn is_missing(&self) -> bool {
        self.status.is_none()
    }

    pub(crate) fn check(call: &'static str, status: cl_int) -> Result<(), Self> {
        if status == CL_SUCCESS { Ok(()) } else { Err(Self::new(call, status)) }
    }

    /// The status. `None` if the loader lacks the function, which was not called then.
    #[must_use]
    pub fn status(&self) -> Option<cl_int> {
        self.status
    }

    /// The error of a backend that says `what` in place of the function's name.
    #[must_use]
    pub fn named(self, what: impl fmt::Display) -> BackendError {
        self.of_kind(self.kind(), what)
    }

    /// The error of one of the backend's own calls. Their device, context and queue are valid unless the
    /// device is lost.
    pub(crate) fn own(self) -> BackendError {
        let kind = match self.status {
            Some(CL_INVALID_DEVICE | CL_INVALID_CONTEXT | CL_INVALID_COMMAND_QUEUE) => BackendErrorKind::Lost,
            _ => self.kind(),
        };
        self.of_kind(kind, self.call)
    }

    /// The error of one of the backend's own calls that needs `len` bytes of memory.
    pub(crate) fn own_of(self, len: usize) -> BackendError {
        match self.status {
            Some(CL_MEM_OBJECT_ALLOCATION_FAILURE | CL_OUT_OF_HOST_MEMORY) => self.out_of_memory(len),
            _ => self.own(),
        }
    }

    /// The error of an allocation of `len` bytes. `CL_OUT_OF_RESOURCES`, which kernels may return as well,
    /// and a size that no device has, are *out of memory* here.
    pub(crate) fn own_allocation(self, len: usize) -> BackendError {
        match self.status {
            Some(CL_OUT_OF_RESOURCES | CL_INVALID_BUFFER_SIZE) => self.out_of_memory(len),
            _ => self.own_of(len),
        }
    }

    fn out_of_memory(self, len: usize) -> BackendError {
        BackendError::out_of_memory(len as u64, None).with_source(self)
    }

    fn kind(self) -> BackendErrorKind {
        match self.status {
            Some(CL_DEVICE_NOT_AVAILABLE | CL_CONTEXT_TERMINATED_KHR) => BackendErrorKind::Lost,
            None | Some(CL_COMPILER_NOT_AVAILABLE | CL_LINKER_NOT_AVAILABLE) => BackendErrorKind::Unsupported,
            Some(CL_BUILD_PROGRAM_FAILURE | CL_COMPILE_PROGRAM_FAILURE | CL_LINK_PROGRAM_FAILURE) => {
                BackendErrorKind::Invalid
            }
            Some(CL_MAX_SIZE_RESTRICTION_EXCEEDED..=CL_INVALID_VALUE) => BackendErrorKind::Invalid,
            _ => BackendErrorKind::Other,
        }
    }

    fn of_kind(self, kind: BackendErrorKind, what: impl fmt::Display) -> BackendError {
        // It has no source, as the message already says everything.
        BackendError::new(kind, format_args!("{what}: {}", Reason(self.status)))
    }
}

impl fmt::Display for OpenClError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.call, Reason(self.status))
    }
}

impl Error for OpenClError {}

impl From<OpenClError> for BackendError {
    fn from(error: OpenClError) -> Self {
        error.named(error.call)
    }
}

/// Why a call failed: its status, as its name in the headers of OpenCL with its number, or that there is
/// none.
struct Reason(Option<cl_int>);

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(status) => write!(f, "{} ({status})", status_name(status).unwrap_or("UNKNOWN_ERROR")),
            None => f.write_str("the OpenCL loader does not have this function"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(status: cl_int) -> OpenClError {
        OpenClError::new("clFinish", status)
    }

    #[test]
    fn each_status_has_the_kind_that_callers_act_on() {
        for (status, kind) in [
            (CL_DEVICE_NOT_AVAILABLE, BackendErrorKind::Lost),
            (CL_CONTEXT_TERMINATED_KHR, BackendErrorKind::Lost),
            (CL_INVALID_CONTEXT, BackendErrorKind::Invalid),
            (CL_INVALID_DEVICE, BackendErrorKind::Invalid),
            (CL_INVALID_COMMAND_QUEUE, BackendErrorKind::Invalid),
            (CL_COMPILER_NOT_AVAILABLE, BackendErrorKind::Unsupported),
            (CL_INVALID_VALUE, BackendErrorKind::Invalid),
            (CL_MAX_SIZE_RESTRICTION_EXCEEDED, BackendErrorKind::Invalid),
            (CL_BUILD_PROGRAM_FAILURE, BackendErrorKind::Invalid),
            (CL_OUT_OF_RESOURCES, BackendErrorKind::Other),
            (CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST, BackendErrorKind::Other),
            (-7777, BackendErrorKind::Other),
        ] {
            assert_eq!(BackendError::from(error(status)).kind(), kind, "{}", error(status));
        }
    }

    #[test]
    fn a_missing_function_is_unsupported_and_named() {
        let missing = OpenClError::missing("clEnqueueFillBuffer");
        assert_eq!(missing.status(), None);
        for error in [missing.into(), missing.own(), missing.own_of(1), missing.own_allocation(1)] {
            assert_eq!(error.kind(), BackendErrorKind::Unsupported);
            let text = "clEnqueueFillBuffer: the OpenCL loader does not have this function";
            assert_eq!(error.message(), text);
        }
    }

    #[test]
    fn another_name_takes_the_place_of_the_functions() {
        let error = error(CL_INVALID_ARG_SIZE).named("argument 6 of `add`");
        assert_eq!(error.message(), "argument 6 of `add`: CL_INVALID_ARG_SIZE (-51)");
        assert!(error.source().is_none(), "a report would say the status twice");
        assert_eq!(error.kind(), BackendErrorKind::Invalid);
    }

    #[test]
    fn an_invalid_handle_of_the_backend_is_a_loss() {
        for status in [CL_INVALID_CONTEXT, CL_INVALID_DEVICE, CL_INVALID_COMMAND_QUEUE] {
            let failed = error(status);
            for error in [failed.own(), failed.own_of(1), failed.own_allocation(1)] {
                assert_eq!(error.kind(), BackendErrorKind::Lost, "{failed}");
                assert_eq!(error.message(), failed.to_string());
            }
        }
        for status in [CL_INVALID_VALUE, CL_OUT_OF_RESOURCES, CL_DEVICE_NOT_AVAILABLE] {
            assert_eq!(error(status).own().kind(), BackendError::from(error(status)).kind());
        }
    }

    #[test]
    fn an_out_of_memory_error_names_the_length() {
        let asked = |asked| BackendErrorKind::OutOfMemory { asked, free: None };
        for status in [CL_MEM_OBJECT_ALLOCATION_FAILURE, CL_OUT_OF_HOST_MEMORY] {
            assert_eq!(error(status).own_of(7).kind(), asked(7));
            assert_eq!(error(status).own_allocation(7).kind(), asked(7));
        }
        // A queued command may return it for any reason.
        assert_eq!(error(CL_OUT_OF_RESOURCES).own_of(7).kind(), BackendErrorKind::Other);
        assert_eq!(error(CL_OUT_OF_RESOURCES).own_allocation(7).kind(), asked(7));
        assert_eq!(error(CL_DEVICE_NOT_AVAILABLE).own_allocation(7).kind(), BackendErrorKind::Lost);
    }
}
