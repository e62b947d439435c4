//! The driver's library, and all of its functions that are called here.
//!
//! `cudarc` opens it, and has a function for each of the driver's. They are not used for two reasons. A symbol that an
//! older driver lacks is a panic at the first call, where it should be a reason why the backend is unavailable. And the
//! results are a Rust enum of the codes that one version of CUDA knows, so that a newer driver with a newer code is
//! undefined behaviour. Here each symbol is looked up before anything is called, and results are numbers.

use std::ffi::{CStr, c_char, c_int, c_uchar, c_uint, c_ushort, c_void};
use std::ptr;
use std::sync::OnceLock;

use cudarc::driver::sys;
use cudarc::driver::sys::{
    CUcontext, CUdevice, CUdevice_attribute, CUdeviceptr, CUevent, CUhostFn, CUresult, CUstream, CUuuid,
};
use device_registry::backend::LoadFailure;

use crate::error::{CudaError, SUCCESS};

/// The oldest driver that has all of [`Functions`]. `cuDeviceGetUuid_v2` is the youngest of them.
pub(crate) const OLDEST_DRIVER: &str = "470 (CUDA 11.4)";

/// Names under which `cudarc` looks for the library; it tries some more spellings of them, with versions.
pub(crate) const LIBRARY_NAMES: &str =
    if cfg!(windows) { "nvcuda.dll, cuda.dll" } else { "libcuda.so.1, libcuda.so" };

/// A table of functions: their pointers, and a method for each that turns its result into an error with its name.
macro_rules! functions {
    (
        $(fn $name:ident($($argument:ident: $type:ty),*);)*
        // What `cudarc` has not in all of its versions, or not with numbers for what it returns.
        unchecked: $(fn $other:ident($($other_argument:ident: $other_type:ty),*);)*
    ) => {
        #[allow(non_snake_case, reason = "the names are the driver's")]
        pub(crate) struct Functions {
            $($name: unsafe extern "C" fn($($type),*) -> u32,)*
            $($other: unsafe extern "C" fn($($other_type),*) -> u32,)*
        }

        // That the arguments are the driver's: it does not compile else. All that differs is the result, which is a
        // number here and an enum of the same size there.
        $(const _: unsafe fn($($type),*) -> CUresult = sys::$name;)*

        #[allow(non_snake_case, reason = "the names are the driver's")]
        #[allow(clippy::too_many_arguments, reason = "as the driver has them")]
        impl Functions {
            /// Looks for all of them in the library, which is there; the name of the first that is not.
            fn look_up() -> Result<Self, &'static str> {
                // SAFETY: the library is opened once and never closed. To open it runs its initialisers, which a program
                // that asks for the backend `cuda` wants.
                let library = unsafe { sys::culib() };
                Ok(Self {
                    $($name: {
                        // SAFETY: the type is that of the driver's function, as is checked above.
                        *unsafe { library.get(concat!(stringify!($name), "\0").as_bytes()) }
                            .map_err(|_| stringify!($name))?
                    },)*
                    $($other: {
                        // SAFETY: the type is that of the driver's function in the reference.
                        *unsafe { library.get(concat!(stringify!($other), "\0").as_bytes()) }
                            .map_err(|_| stringify!($other))?
                    },)*
                })
            }

            $(
                /// # Safety
                ///
                /// That of the driver's function.
                pub(crate) unsafe fn $name(&self $(, $argument: $type)*) -> Result<(), CudaError> {
                    // SAFETY: the caller's.
                    outcome(stringify!($name), unsafe { (self.$name)($($argument),*) })
                }
            )*
            $(
                /// # Safety
                ///
                /// That of the driver's function.
                pub(crate) unsafe fn $other(&self $(, $other_argument: $other_type)*) -> Result<(), CudaError> {
                    // SAFETY: the caller's.
                    outcome(stringify!($other), unsafe { (self.$other)($($other_argument),*) })
                }
            )*
        }
    };
}

functions! {
    fn cuInit(flags: c_uint);
    fn cuDriverGetVersion(version: *mut c_int);
    fn cuDeviceGetCount(count: *mut c_int);
    fn cuDeviceGet(device: *mut CUdevice, ordinal: c_int);
    fn cuDeviceGetName(name: *mut c_char, len: c_int, device: CUdevice);
    fn cuDeviceGetUuid_v2(uuid: *mut CUuuid, device: CUdevice);
    fn cuDeviceGetPCIBusId(text: *mut c_char, len: c_int, device: CUdevice);
    fn cuDeviceGetAttribute(value: *mut c_int, attribute: CUdevice_attribute, device: CUdevice);
    fn cuDeviceTotalMem_v2(bytes: *mut usize, device: CUdevice);
    fn cuDevicePrimaryCtxRetain(context: *mut CUcontext, device: CUdevice);
    fn cuDevicePrimaryCtxRelease_v2(device: CUdevice);
    fn cuCtxPushCurrent_v2(context: CUcontext);
    fn cuCtxPopCurrent_v2(context: *mut CUcontext);
    fn cuCtxSetCurrent(context: CUcontext);
    fn cuCtxGetStreamPriorityRange(least: *mut c_int, greatest: *mut c_int);
    fn cuMemGetInfo_v2(free: *mut usize, total: *mut usize);
    fn cuMemAlloc_v2(pointer: *mut CUdeviceptr, len: usize);
    fn cuMemFree_v2(pointer: CUdeviceptr);
    fn cuMemHostAlloc(pointer: *mut *mut c_void, len: usize, flags: c_uint);
    fn cuMemFreeHost(pointer: *mut c_void);
    fn cuMemcpyHtoDAsync_v2(to: CUdeviceptr, from: *const c_void, len: usize, stream: CUstream);
    fn cuMemcpyDtoHAsync_v2(to: *mut c_void, from: CUdeviceptr, len: usize, stream: CUstream);
    fn cuMemcpyDtoDAsync_v2(to: CUdeviceptr, from: CUdeviceptr, len: usize, stream: CUstream);
    fn cuMemcpyPeerAsync(
        to: CUdeviceptr,
        to_context: CUcontext,
        from: CUdeviceptr,
        from_context: CUcontext,
        len: usize,
        stream: CUstream
    );
    fn cuMemsetD8Async(to: CUdeviceptr, value: c_uchar, count: usize, stream: CUstream);
    fn cuMemsetD16Async(to: CUdeviceptr, value: c_ushort, count: usize, stream: CUstream);
    fn cuMemsetD32Async(to: CUdeviceptr, value: c_uint, count: usize, stream: CUstream);
    fn cuStreamCreateWithPriority(stream: *mut CUstream, flags: c_uint, priority: c_int);
    fn cuStreamDestroy_v2(stream: CUstream);
    fn cuStreamQuery(stream: CUstream);
    fn cuStreamSynchronize(stream: CUstream);
    fn cuStreamWaitEvent(stream: CUstream, event: CUevent, flags: c_uint);
    fn cuLaunchHostFunc(stream: CUstream, function: CUhostFn, data: *mut c_void);
    fn cuEventCreate(event: *mut CUevent, flags: c_uint);
    fn cuEventDestroy_v2(event: CUevent);
    fn cuEventRecord(event: CUevent, stream: CUstream);
    fn cuEventQuery(event: CUevent);
    fn cuEventSynchronize(event: CUevent);
    unchecked:
    // The first version of it, which every driver has; those of CUDA 12.8 and later have a second as well.
    fn cuEventElapsedTime(milliseconds: *mut f32, start: CUevent, end: CUevent);
    // CUDA 10.1. The mode that was there is written over the one that is given.
    fn cuThreadExchangeStreamCaptureMode(mode: *mut u32);
    fn cuGetErrorName(error: u32, text: *mut *const c_char);
    fn cuGetErrorString(error: u32, text: *mut *const c_char);
}

fn outcome(call: &'static str, code: u32) -> Result<(), CudaError> {
    match code {
        SUCCESS => Ok(()),
        code => Err(CudaError { call, code }),
    }
}

static FUNCTIONS: OnceLock<Functions> = OnceLock::new();

impl Functions {
    /// Opens the library, if that has not been done, and looks for all functions. Calls none.
    pub(crate) fn load() -> Result<&'static Self, LoadFailure> {
        if let Some(functions) = FUNCTIONS.get() {
            return Ok(functions);
        }
        // SAFETY: it opens the library and closes it, with the initialisers that `look_up` speaks of.
        if !unsafe { sys::is_culib_present() } {
            return Err(LoadFailure::unavailable(format_args!(
                "no NVIDIA driver: none of its libraries could be opened (tried {LIBRARY_NAMES} and other spellings); \
                 install the NVIDIA driver, {OLDEST_DRIVER} or newer (the CUDA toolkit is not needed)"
            )));
        }
        let functions = Self::look_up().map_err(|missing| {
            LoadFailure::unavailable(format_args!(
                "the NVIDIA driver is too old: its library has no `{missing}`; install {OLDEST_DRIVER} or newer"
            ))
        })?;
        Ok(FUNCTIONS.get_or_init(|| functions))
    }

    /// What the driver calls a code, and says of it.
    fn describe(&self, code: u32) -> Option<(String, String)> {
        let text = |get: unsafe fn(&Self, u32, *mut *const c_char) -> Result<(), CudaError>| {
            let mut text = ptr::null();
            // SAFETY: it takes any number, and a place for a pointer.
            let found = unsafe { get(self, code, &mut text) }.is_ok() && !text.is_null();
            // SAFETY: the driver returns a text of its own, which ends with a zero and stays as it is.
            found.then(|| unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
        };
        Some((text(Self::cuGetErrorName)?, text(Self::cuGetErrorString)?))
    }
}

/// A code as errors show it: `CUDA_ERROR_OUT_OF_MEMORY (2): out of memory`.
pub(crate) fn describe(code: u32) -> String {
    match FUNCTIONS.get().and_then(|functions| functions.describe(code)) {
        Some((name, text)) => format!("{name} ({code}): {text}"),
        None => format!("error {code}, which this driver has no name for"),
    }
}
