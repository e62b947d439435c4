//! Names of codes, which come from the interface, and their descriptions, which do not.

use std::ffi::{CStr, c_char};
use std::ptr;

use crate::{Answer, INVALID_VALUE, put};

type Named = (u32, &'static CStr, &'static CStr);

const ERRORS: &[Named] = &[
    (0, c"CUDA_SUCCESS", c"no error"),
    (1, c"CUDA_ERROR_INVALID_VALUE", c"simulated: invalid argument"),
    (2, c"CUDA_ERROR_OUT_OF_MEMORY", c"simulated: out of memory"),
    (3, c"CUDA_ERROR_NOT_INITIALIZED", c"simulated: not initialized"),
    (4, c"CUDA_ERROR_DEINITIALIZED", c"simulated: driver shutting down"),
    (34, c"CUDA_ERROR_STUB_LIBRARY", c"simulated: the library is a stub"),
    (46, c"CUDA_ERROR_DEVICE_UNAVAILABLE", c"simulated: the device is busy or unavailable"),
    (100, c"CUDA_ERROR_NO_DEVICE", c"simulated: no device"),
    (101, c"CUDA_ERROR_INVALID_DEVICE", c"simulated: invalid device ordinal"),
    (218, c"CUDA_ERROR_INVALID_PTX", c"simulated: a PTX JIT compilation failed"),
    (221, c"CUDA_ERROR_JIT_COMPILER_NOT_FOUND", c"simulated: there is no PTX JIT compiler"),
    (600, c"CUDA_ERROR_NOT_READY", c"simulated: not ready"),
    (700, c"CUDA_ERROR_ILLEGAL_ADDRESS", c"simulated: an illegal memory access"),
    (709, c"CUDA_ERROR_CONTEXT_IS_DESTROYED", c"simulated: the context is destroyed"),
    (719, c"CUDA_ERROR_LAUNCH_FAILED", c"simulated: unspecified launch failure"),
    (802, c"CUDA_ERROR_SYSTEM_NOT_READY", c"simulated: the system is not yet ready"),
    (803, c"CUDA_ERROR_SYSTEM_DRIVER_MISMATCH", c"simulated: driver versions do not match"),
    (804, c"CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE", c"simulated: forward compatibility is not supported"),
    (805, c"CUDA_ERROR_MPS_CONNECTION_FAILED", c"simulated: no connection to the MPS daemon"),
    (900, c"CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED", c"simulated: not while a stream is captured"),
];

/// Finds a part of what is known about a code; null if nothing is.
pub(crate) fn find(error: u32, text: *mut *const c_char, part: fn(Named) -> &'static CStr) -> Answer {
    let found = ERRORS.iter().find(|&&(code, ..)| code == error);
    put(text, found.map_or(ptr::null(), |&found| part(found).as_ptr()));
    found.map(|_| ()).ok_or(INVALID_VALUE)
}
