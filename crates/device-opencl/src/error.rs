//! Errors of OpenCL as errors of a backend.

use std::error::Error;
use std::fmt;

use cl3::error_codes::*;
use cl3::types::cl_int;
use device_registry::backend::{BackendError, BackendErrorKind};

/// The error of a call to OpenCL that returned `status`, or of a command whose event has this negative status. It is for
/// kernels, which call OpenCL themselves.
///
/// `call` is the function's name.
///
/// | status | kind |
/// |---|---|
/// | `CL_DEVICE_NOT_AVAILABLE`, `CL_CONTEXT_TERMINATED_KHR` | [`Lost`](BackendErrorKind::Lost) |
/// | a function that the loader does not have, no compiler | [`Unsupported`](BackendErrorKind::Unsupported) |
/// | arguments that are invalid, a program that does not build | [`Invalid`](BackendErrorKind::Invalid) |
/// | anything else | [`Other`](BackendErrorKind::Other) |
///
/// `CL_INVALID_CONTEXT` is an invalid argument here: a launch returns it if its program was built before the device was
/// closed, or for another device. In the backend's own calls, whose arguments belong together, an invalid context, device
/// or queue is a loss.
///
/// ```
/// use device_opencl::cl3::error_codes::{CL_DEVICE_NOT_AVAILABLE, CL_INVALID_KERNEL_ARGS};
/// use device_opencl::native_error;
/// use device_registry::BackendErrorKind;
///
/// let error = native_error("clEnqueueNDRangeKernel", CL_INVALID_KERNEL_ARGS);
/// assert_eq!(error.to_string(), "clEnqueueNDRangeKernel: CL_INVALID_KERNEL_ARGS (-52)");
/// assert_eq!(error.kind(), BackendErrorKind::Invalid);
/// assert_eq!(native_error("clFlush", CL_DEVICE_NOT_AVAILABLE).kind(), BackendErrorKind::Lost);
/// ```
#[must_use]
pub fn native_error(call: &str, status: cl_int) -> BackendError {
    of_kind(kind(status), call, status)
}

fn of_kind(kind: BackendErrorKind, call: &str, status: cl_int) -> BackendError {
    BackendError::new(kind, format_args!("{call}: {}", Status(status))).with_source(Status(status))
}

/// The error of one of the backend's own calls. Their device, context and queue are valid unless the device is lost.
pub(crate) fn call_error(call: &str, status: cl_int) -> BackendError {
    match status {
        CL_INVALID_DEVICE | CL_INVALID_CONTEXT | CL_INVALID_COMMAND_QUEUE => {
            of_kind(BackendErrorKind::Lost, call, status)
        }
        _ => native_error(call, status),
    }
}

/// The error of an own call that needs `len` bytes of memory.
pub(crate) fn error_of(call: &str, status: cl_int, len: usize) -> BackendError {
    match status {
        CL_MEM_OBJECT_ALLOCATION_FAILURE | CL_OUT_OF_HOST_MEMORY => out_of_memory(call, status, len),
        _ => call_error(call, status),
    }
}

/// The error of an allocation of `len` bytes. `CL_OUT_OF_RESOURCES`, which kernels may return as well, and a size that no
/// device has, are *out of memory* here.
pub(crate) fn allocation_error(call: &str, status: cl_int, len: usize) -> BackendError {
    match status {
        CL_OUT_OF_RESOURCES | CL_INVALID_BUFFER_SIZE => out_of_memory(call, status, len),
        _ => error_of(call, status, len),
    }
}

fn out_of_memory(call: &str, status: cl_int, len: usize) -> BackendError {
    let source = format!("{call}: {}", Status(status));
    BackendError::out_of_memory(len as u64, None).with_source(source)
}

fn kind(status: cl_int) -> BackendErrorKind {
    match status {
        CL_DEVICE_NOT_AVAILABLE | CL_CONTEXT_TERMINATED_KHR => BackendErrorKind::Lost,
        DLOPEN_FUNCTION_NOT_AVAILABLE | CL_COMPILER_NOT_AVAILABLE | CL_LINKER_NOT_AVAILABLE => {
            BackendErrorKind::Unsupported
        }
        CL_BUILD_PROGRAM_FAILURE | CL_COMPILE_PROGRAM_FAILURE | CL_LINK_PROGRAM_FAILURE => {
            BackendErrorKind::Invalid
        }
        CL_MAX_SIZE_RESTRICTION_EXCEEDED..=CL_INVALID_VALUE => BackendErrorKind::Invalid,
        _ => BackendErrorKind::Other,
    }
}

/// A status. It is shown as its name in the headers of OpenCL, with its number.
#[derive(Debug)]
pub(crate) struct Status(pub(crate) cl_int);

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", error_text(self.0), self.0)
    }
}

impl Error for Status {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_status_has_the_kind_that_callers_act_on() {
        for (status, kind) in [
            (CL_DEVICE_NOT_AVAILABLE, BackendErrorKind::Lost),
            (CL_CONTEXT_TERMINATED_KHR, BackendErrorKind::Lost),
            (CL_INVALID_CONTEXT, BackendErrorKind::Invalid),
            (CL_INVALID_DEVICE, BackendErrorKind::Invalid),
            (CL_INVALID_COMMAND_QUEUE, BackendErrorKind::Invalid),
            (CL_COMPILER_NOT_AVAILABLE, BackendErrorKind::Unsupported),
            (DLOPEN_FUNCTION_NOT_AVAILABLE, BackendErrorKind::Unsupported),
            (CL_INVALID_VALUE, BackendErrorKind::Invalid),
            (CL_MAX_SIZE_RESTRICTION_EXCEEDED, BackendErrorKind::Invalid),
            (CL_BUILD_PROGRAM_FAILURE, BackendErrorKind::Invalid),
            (CL_OUT_OF_RESOURCES, BackendErrorKind::Other),
            (CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST, BackendErrorKind::Other),
            (-7777, BackendErrorKind::Other),
        ] {
            assert_eq!(native_error("clFinish", status).kind(), kind, "{}", Status(status));
        }
    }

    #[test]
    fn an_invalid_handle_of_the_backend_is_a_loss() {
        for status in [CL_INVALID_CONTEXT, CL_INVALID_DEVICE, CL_INVALID_COMMAND_QUEUE] {
            for error in [
                call_error("clFinish", status),
                error_of("clFinish", status, 1),
                allocation_error("clFinish", status, 1),
            ] {
                assert_eq!(error.kind(), BackendErrorKind::Lost, "{}", Status(status));
                assert!(error.to_string().ends_with(&format!("clFinish: {}", Status(status))), "{error}");
            }
        }
        for status in [CL_INVALID_VALUE, CL_OUT_OF_RESOURCES, CL_DEVICE_NOT_AVAILABLE] {
            assert_eq!(call_error("clFinish", status).kind(), native_error("clFinish", status).kind());
        }
    }

    #[test]
    fn an_out_of_memory_error_names_the_length() {
        let asked = |asked| BackendErrorKind::OutOfMemory { asked, free: None };
        for status in [CL_MEM_OBJECT_ALLOCATION_FAILURE, CL_OUT_OF_HOST_MEMORY] {
            assert_eq!(error_of("clEnqueueFillBuffer", status, 7).kind(), asked(7));
            assert_eq!(allocation_error("clCreateBuffer", status, 7).kind(), asked(7));
        }
        // A queued command may return it for any reason.
        assert_eq!(error_of("clEnqueueFillBuffer", CL_OUT_OF_RESOURCES, 7).kind(), BackendErrorKind::Other);
        assert_eq!(allocation_error("clCreateBuffer", CL_OUT_OF_RESOURCES, 7).kind(), asked(7));
        assert_eq!(
            allocation_error("clCreateBuffer", CL_DEVICE_NOT_AVAILABLE, 7).kind(),
            BackendErrorKind::Lost
        );
    }
}
