//! The driver's result codes as errors of a backend.

use std::fmt;

use cudarc::driver::sys::CUresult;
use device_registry::backend::BackendError;

use crate::library::describe;

pub(crate) const SUCCESS: u32 = 0;
const OUT_OF_MEMORY: u32 = 2;
pub(crate) const DEINITIALIZED: u32 = 4;
pub(crate) const DEVICE_UNAVAILABLE: u32 = 46;
const NOT_READY: u32 = 600;
/// The driver refuses a query with these while a stream is captured: this one or, in the global mode, any in
/// the process.
const CAPTURE: std::ops::RangeInclusive<u32> = 900..=908;
const CONTEXT_IS_DESTROYED: u32 = 709;

/// Codes after which the process cannot use the device any more.
///
/// The CUDA driver API reference (enum `CUresult`, 13.0) documents those marked *inconsistent* in one way:
/// they leave the process in an inconsistent state, all further work returns the same error, and the process
/// has to be terminated and relaunched. Of the others it says what the rest of the line says.
const LOST: [(u32, &str); 19] = [
    (4, "DEINITIALIZED: the driver is shutting down, at the end of the process"),
    (214, "ECC_UNCORRECTABLE: memory is broken; contexts that had it cannot be used any more"),
    (220, "NVLINK_UNCORRECTABLE: a link is broken; contexts that had it cannot be used any more"),
    (226, "CONTAINED: inconsistent"),
    (700, "ILLEGAL_ADDRESS: inconsistent"),
    (702, "LAUNCH_TIMEOUT: inconsistent"),
    (709, "CONTEXT_IS_DESTROYED: other code in the process has reset the primary context"),
    (710, "ASSERT: the context cannot be used any more, and its memory is invalid"),
    (714, "HARDWARE_STACK_ERROR: inconsistent"),
    (715, "ILLEGAL_INSTRUCTION: inconsistent"),
    (716, "MISALIGNED_ADDRESS: inconsistent"),
    (717, "INVALID_ADDRESS_SPACE: inconsistent"),
    (718, "INVALID_PC: inconsistent"),
    (719, "LAUNCH_FAILED: inconsistent"),
    (721, "TENSOR_MEMORY_LEAK: inconsistent"),
    (806, "MPS_RPC_FAILURE: the server that has the context has ended"),
    (810, "MPS_CLIENT_TERMINATED: the server has ended this client"),
    (911, "EXTERNAL_DEVICE: inconsistent"),
    (999, "UNKNOWN: an internal error of the driver, after which nothing is certain"),
];

/// Codes that newer drivers may use for exceptions in a kernel. Each counts as a loss: otherwise threads that
/// wait for later work would wait forever.
const LATER_EXCEPTIONS: std::ops::RangeInclusive<u32> = 722..=799;

fn is_loss(code: u32) -> bool {
    LOST.iter().any(|&(lost, _)| lost == code) || LATER_EXCEPTIONS.contains(&code)
}

/// Codes for calls that this system does not support: NOT_SUPPORTED, PEER_ACCESS_UNSUPPORTED.
const UNSUPPORTED: [u32; 2] = [801, 217];

/// A function of the driver that has returned another code than success.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CudaError {
    pub(crate) call: &'static str,
    pub(crate) code: u32,
}

impl CudaError {
    /// Whether the device is lost.
    pub(crate) fn is_loss(self) -> bool {
        is_loss(self.code)
    }

    pub(crate) fn is_out_of_memory(self) -> bool {
        self.code == OUT_OF_MEMORY
    }

    /// Whether it means that work is not done yet.
    pub(crate) fn is_not_ready(self) -> bool {
        self.code == NOT_READY
    }

    /// Whether a capture of a stream is the reason.
    pub(crate) fn is_of_capture(self) -> bool {
        CAPTURE.contains(&self.code)
    }
}

impl fmt::Display for CudaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` returned {}", self.call, describe(self.code))
    }
}

impl std::error::Error for CudaError {}

impl From<CudaError> for BackendError {
    fn from(error: CudaError) -> Self {
        match error.code {
            code if is_loss(code) => Self::lost(error),
            code if UNSUPPORTED.contains(&code) => Self::unsupported(error),
            _ => Self::other(error),
        }
    }
}

/// The result of a function of [`cudarc::driver::sys`] that a kernel has called, as an error of a backend. It
/// is a loss if the driver cannot continue after it. `call` is the function's name.
///
/// A destroyed context (709) is invalid here, and a loss only in the backend's own calls. A kernel may have
/// another context current to its thread, such as one from before the device was closed and opened again.
///
/// ```
/// use device_cuda::cudarc::driver::sys::CUresult;
/// use device_registry::BackendErrorKind;
///
/// assert!(device_cuda::check("cuLaunchKernel", CUresult::CUDA_SUCCESS).is_ok());
/// let error = device_cuda::check("cuLaunchKernel", CUresult::CUDA_ERROR_ILLEGAL_ADDRESS).unwrap_err();
/// assert_eq!(error.kind(), BackendErrorKind::Lost);
/// ```
///
/// # Errors
///
/// For any result but success.
pub fn check(call: &'static str, result: CUresult) -> Result<(), BackendError> {
    match result as u32 {
        SUCCESS => Ok(()),
        code @ CONTEXT_IS_DESTROYED => Err(BackendError::invalid(format_args!(
            "{}; a former context may be current to the thread: call `CudaDevice::make_current` first",
            CudaError { call, code }
        ))),
        code => Err(CudaError { call, code }.into()),
    }
}

#[cfg(test)]
mod tests {
    use device_registry::BackendErrorKind;

    use super::*;

    fn kind(code: CUresult) -> BackendErrorKind {
        check("cuSomething", code).unwrap_err().kind()
    }

    /// The kind of an error in one of the backend's own calls.
    fn own(code: CUresult) -> BackendErrorKind {
        BackendError::from(CudaError { call: "cuSomething", code: code as u32 }).kind()
    }

    #[test]
    fn codes_that_end_the_process_are_losses_and_no_others() {
        use CUresult::*;
        for lost in [
            CUDA_ERROR_DEINITIALIZED,
            CUDA_ERROR_ECC_UNCORRECTABLE,
            CUDA_ERROR_NVLINK_UNCORRECTABLE,
            CUDA_ERROR_CONTAINED,
            CUDA_ERROR_ILLEGAL_ADDRESS,
            CUDA_ERROR_LAUNCH_TIMEOUT,
            CUDA_ERROR_ASSERT,
            CUDA_ERROR_HARDWARE_STACK_ERROR,
            CUDA_ERROR_ILLEGAL_INSTRUCTION,
            CUDA_ERROR_MISALIGNED_ADDRESS,
            CUDA_ERROR_INVALID_ADDRESS_SPACE,
            CUDA_ERROR_INVALID_PC,
            CUDA_ERROR_LAUNCH_FAILED,
            CUDA_ERROR_TENSOR_MEMORY_LEAK,
            CUDA_ERROR_MPS_RPC_FAILURE,
            CUDA_ERROR_MPS_CLIENT_TERMINATED,
            CUDA_ERROR_EXTERNAL_DEVICE,
            CUDA_ERROR_UNKNOWN,
        ] {
            assert_eq!([kind(lost), own(lost)], [BackendErrorKind::Lost; 2], "{lost:?}");
        }
        for continues in [
            CUDA_ERROR_INVALID_VALUE,
            CUDA_ERROR_OUT_OF_MEMORY,
            CUDA_ERROR_INVALID_PTX,
            CUDA_ERROR_INVALID_HANDLE,
            CUDA_ERROR_NOT_READY,
            CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES,
            CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE,
            CUDA_ERROR_NOT_PERMITTED,
        ] {
            assert_eq!(kind(continues), BackendErrorKind::Other, "{continues:?}");
        }
        assert_eq!(kind(CUDA_ERROR_NOT_SUPPORTED), BackendErrorKind::Unsupported);
        assert_eq!(LOST.len(), 18 + 1, "each is tested above, and one below");
        assert!(is_loss(727) && !is_loss(800), "a newer driver's exception");
    }

    #[test]
    fn a_destroyed_context_is_a_loss_in_own_calls_and_invalid_in_those_of_kernels() {
        let code = CUresult::CUDA_ERROR_CONTEXT_IS_DESTROYED;
        assert_eq!([kind(code), own(code)], [BackendErrorKind::Invalid, BackendErrorKind::Lost]);
        let error = check("cuSomething", code).unwrap_err().to_string();
        assert!(error.contains("`cuSomething` returned") && error.contains("make_current"), "{error}");
    }

    #[test]
    fn an_error_names_the_call_and_the_code() {
        let error = check("cuSomething", CUresult::CUDA_ERROR_INVALID_VALUE).unwrap_err().to_string();
        assert!(error.starts_with("`cuSomething` returned ") && error.contains('1'), "{error}");
    }
}
