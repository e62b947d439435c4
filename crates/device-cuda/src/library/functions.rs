//! The raw table of the driver's functions, looked up by name.
//!
//! `cudarc` has a function for each of these as well. This crate does not call them, for two reasons. A
//! symbol that an older driver lacks is a panic at the first call, where it should be a reason why the
//! backend is unavailable. And their results are a Rust enum of the codes that one version of CUDA knows, so
//! that a newer driver with a newer code is undefined behaviour. Here each symbol is looked up before the
//! first call, and results are numbers.

use std::ffi::{c_char, c_int, c_uchar, c_uint, c_ushort, c_void};

use cudarc::driver::sys;
use cudarc::driver::sys::{
    CUcontext, CUdevice, CUdevice_attribute, CUdeviceptr, CUevent, CUfunction, CUhostFn, CUjit_option,
    CUmemoryPool, CUmodule, CUresult, CUstream, CUuuid,
};

use crate::error::{CudaError, SUCCESS};

/// `CUmemPoolProps` of the CUDA driver API reference, 11.2 to 13.0.
#[repr(C)]
pub(super) struct PoolProperties {
    /// `CU_MEM_ALLOCATION_TYPE_PINNED`.
    pub(super) allocation_type: c_int,
    pub(super) handle_types: c_int,
    /// `CU_MEM_LOCATION_TYPE_DEVICE`.
    pub(super) location_type: c_int,
    pub(super) location: c_int,
    pub(super) security_attributes: *mut c_void,
    pub(super) largest: usize,
    pub(super) usage: c_ushort,
    pub(super) reserved: [c_uchar; 54],
}

/// A table of function pointers, with a method for each. The method makes an error of a result, with the
/// function's name.
macro_rules! functions {
    (
        $(fn $name:ident($($argument:ident: $type:ty),*);)*
        // Functions that not all versions of `cudarc` have, or that write an enum where this table has a
        // number.
        unchecked: $(fn $other:ident($($other_argument:ident: $other_type:ty),*);)*
    ) => {
        #[allow(non_snake_case, reason = "the names are the driver's")]
        pub(super) struct Functions {
            $($name: unsafe extern "C" fn($($type),*) -> u32,)*
            $($other: unsafe extern "C" fn($($other_type),*) -> u32,)*
        }

        // Arguments that differ from the driver's do not compile. Only the result differs: it is a number
        // here and an enum of the same size there.
        $(const _: unsafe fn($($type),*) -> CUresult = sys::$name;)*

        #[allow(non_snake_case, reason = "the names are the driver's")]
        #[allow(clippy::too_many_arguments, reason = "the arguments are the driver's")]
        impl Functions {
            /// Looks all functions up in the library, which can be opened. The error is the name of the first
            /// that is missing.
            pub(super) fn look_up() -> Result<Self, &'static str> {
                // SAFETY: opening the library runs its initialisers, which are the NVIDIA driver's own and
                // make no demands of the program. The library is never closed.
                let library = unsafe { sys::culib() };
                Ok(Self {
                    $($name: {
                        // SAFETY: the constants above compare this type with the type of the driver's
                        // function.
                        *unsafe { library.get(concat!(stringify!($name), "\0").as_bytes()) }
                            .map_err(|_| stringify!($name))?
                    },)*
                    $($other: {
                        // SAFETY: the CUDA driver API reference gives the function this type.
                        *unsafe { library.get(concat!(stringify!($other), "\0").as_bytes()) }
                            .map_err(|_| stringify!($other))?
                    },)*
                })
            }

            $(
                /// # Safety
                ///
                /// The arguments are as the CUDA driver API reference requires.
                pub(super) unsafe fn $name(&self $(, $argument: $type)*) -> Result<(), CudaError> {
                    // SAFETY: the caller passes arguments that the reference allows, and the pointer is of
                    // this function.
                    outcome(stringify!($name), unsafe { (self.$name)($($argument),*) })
                }
            )*
            $(
                /// # Safety
                ///
                /// The arguments are as the CUDA driver API reference requires.
                pub(super) unsafe fn $other(&self $(, $other_argument: $other_type)*) -> Result<(), CudaError> {
                    // SAFETY: the caller passes arguments that the reference allows, and the pointer is of
                    // this function.
                    outcome(stringify!($other), unsafe { (self.$other)($($other_argument),*) })
                }
            )*
        }
    };
}

// One that is younger than the oldest driver raises `OLDEST_DRIVER`, and the version in the README.
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
    fn cuModuleLoadDataEx(
        module: *mut CUmodule,
        image: *const c_void,
        count: c_uint,
        options: *mut CUjit_option,
        values: *mut *mut c_void
    );
    fn cuModuleUnload(module: CUmodule);
    fn cuModuleGetFunction(function: *mut CUfunction, module: CUmodule, name: *const c_char);
    fn cuLaunchKernel(
        function: CUfunction,
        blocks_x: c_uint,
        blocks_y: c_uint,
        blocks_z: c_uint,
        threads_x: c_uint,
        threads_y: c_uint,
        threads_z: c_uint,
        shared_len: c_uint,
        stream: CUstream,
        arguments: *mut *mut c_void,
        extra: *mut *mut c_void
    );
    fn cuMemAllocFromPoolAsync(pointer: *mut CUdeviceptr, len: usize, pool: CUmemoryPool, stream: CUstream);
    fn cuMemFreeAsync(pointer: CUdeviceptr, stream: CUstream);
    fn cuMemPoolDestroy(pool: CUmemoryPool);
    unchecked:
    // CUDA 11.2. Versions of `cudarc` differ in the names of what the properties have.
    fn cuMemPoolCreate(pool: *mut CUmemoryPool, properties: *const PoolProperties);
    fn cuMemPoolSetAttribute(pool: CUmemoryPool, attribute: c_int, value: *mut c_void);
    // The first version, which every driver has. Drivers of CUDA 12.8 and later have a second one as well.
    fn cuEventElapsedTime(milliseconds: *mut f32, start: CUevent, end: CUevent);
    // CUDA 10.1. The driver writes the thread's former mode over the new one.
    fn cuThreadExchangeStreamCaptureMode(mode: *mut u32);
    // CUDA 10.0. The status is an enum there.
    fn cuStreamIsCapturing(stream: CUstream, status: *mut u32);
    fn cuGetErrorName(error: u32, text: *mut *const c_char);
    fn cuGetErrorString(error: u32, text: *mut *const c_char);
}

fn outcome(call: &'static str, code: u32) -> Result<(), CudaError> {
    match code {
        SUCCESS => Ok(()),
        code => Err(CudaError { call, code }),
    }
}
