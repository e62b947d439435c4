//! What becomes of the driver's result codes.

use std::fmt;

use cudarc::driver::sys::CUresult;
use device_registry::backend::BackendError;

use crate::library::describe;

pub(crate) const SUCCESS: u32 = 0;
const OUT_OF_MEMORY: u32 = 2;
pub(crate) const DEINITIALIZED: u32 = 4;
pub(crate) const DEVICE_UNAVAILABLE: u32 = 46;
const NOT_READY: u32 = 600;
/// The driver refuses a query with these while a stream is captured: this one or, in the global mode, any in the process.
const CAPTURE: std::ops::RangeInclusive<u32> = 900..=908;
const CONTEXT_IS_DESTROYED: u32 = 709;

/// Codes after which the process gets nothing more out of the device.
///
/// The CUDA driver API reference (enum `CUresult`, 13.0) says of those that are marked that they leave the process in an
/// inconsistent state, that all further work returns the same error, and that the process has to be ended and started again.
/// Of the others it says the rest of the line.
const LOST: [(u32, &str); 19] = [
    (4, "DEINITIALIZED: the driver is shutting down, at the end of the process"),
    (214, "ECC_UNCORRECTABLE: memory is broken; contexts that had it do not go on"),
    (220, "NVLINK_UNCORRECTABLE: as 214, for a link"),
    (226, "CONTAINED: marked"),
    (700, "ILLEGAL_ADDRESS: marked"),
    (702, "LAUNCH_TIMEOUT: marked"),
    (709, "CONTEXT_IS_DESTROYED: somebody in the process has reset the primary context"),
    (710, "ASSERT: the context cannot be used any more, and its memory is invalid"),
    (714, "HARDWARE_STACK_ERROR: marked"),
    (715, "ILLEGAL_INSTRUCTION: marked"),
    (716, "MISALIGNED_ADDRESS: marked"),
    (717, "INVALID_ADDRESS_SPACE: marked"),
    (718, "INVALID_PC: marked"),
    (719, "LAUNCH_FAILED: marked"),
    (721, "TENSOR_MEMORY_LEAK: marked"),
    (806, "MPS_RPC_FAILURE: the server that has the context is gone"),
    (810, "MPS_CLIENT_TERMINATED: the server has ended this client"),
    (911, "EXTERNAL_DEVICE: marked"),
    (999, "UNKNOWN: an internal error of the driver, after which nothing is certain"),
];

/// Codes among which a newer driver's would be one of an exception in a kernel. Not to take that for a loss would leave
/// those waiting who wait for work behind it.
const LATER_EXCEPTIONS: std::ops::RangeInclusive<u32> = 722..=799;

fn is_loss(code: u32) -> bool {
    LOST.iter().any(|&(lost, _)| lost == code) || LATER_EXCEPTIONS.contains(&code)
}

/// Codes by which the driver says that what it was asked for cannot be done here at all: NOT_SUPPORTED,
/// PEER_ACCESS_UNSUPPORTED.
const UNSUPPORTED: [u32; 2] = [801, 217];

/// A function of the driver's has returned something else than success.
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

    /// Whether it is the answer that work is not done yet.
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

/// The result of a function of [`cudarc::driver::sys`] that a kernel has called, as an error of a backend: lost where
/// the driver does not go on after it. `call` is the function's name.
///
/// That the context is destroyed (709) is no loss here, as it is where the backend is told so: it may be any context that
/// the thread has, one of before the device was closed and opened again, say.
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
/// Unless the result is success.
pub fn check(call: &'static str, result: CUresult) -> Result<(), BackendError> {
    match result as u32 {
        SUCCESS => Ok(()),
        code @ CONTEXT_IS_DESTROYED => Err(BackendError::invalid(format_args!(
            "{}; a context of before is current to the thread: `CudaDevice::make_current` has the device's take its place",
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

    /// Of a call of the backend's own.
    fn own(code: CUresult) -> BackendErrorKind {
        BackendError::from(CudaError { call: "cuSomething", code: code as u32 }).kind()
    }

    #[test]
    fn what_the_reference_calls_the_end_of_the_process_is_a_loss_and_nothing_else_is() {
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
        for goes_on in [
            CUDA_ERROR_INVALID_VALUE,
            CUDA_ERROR_OUT_OF_MEMORY,
            CUDA_ERROR_INVALID_PTX,
            CUDA_ERROR_INVALID_HANDLE,
            CUDA_ERROR_NOT_READY,
            CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES,
            CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE,
            CUDA_ERROR_NOT_PERMITTED,
        ] {
            assert_eq!(kind(goes_on), BackendErrorKind::Other, "{goes_on:?}");
        }
        assert_eq!(kind(CUDA_ERROR_NOT_SUPPORTED), BackendErrorKind::Unsupported);
        assert_eq!(LOST.len(), 18 + 1, "each is tested above, and one below");
        assert!(is_loss(727) && !is_loss(800), "a newer driver's exception");
    }

    #[test]
    fn a_destroyed_context_is_a_loss_where_it_is_the_devices_and_else_the_callers_mistake() {
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
