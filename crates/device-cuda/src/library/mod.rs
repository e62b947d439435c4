//! A safe layer over the functions of the driver's library.
//!
//! [`functions`] has the raw table, which only this folder calls. The types here own what they wrap, release
//! it when they are dropped, and hold the context that it belongs to. Each call makes the context current and
//! checks lengths, bounds and contexts. What no type can check is an `unsafe fn` with its contract: that
//! memory stays where it is until queued work no longer touches it.

mod context;
mod functions;
mod kernel;
mod memory;
mod pool;
mod stream;

use std::ffi::{CStr, OsString, c_char, c_int};
use std::ptr;
use std::sync::OnceLock;

use cudarc::driver::sys;
use cudarc::driver::sys::{CUdevice, CUdevice_attribute, CUstreamCaptureMode, CUuuid};
use device_registry::backend::{BackendError, DeviceUuid, ElevatedProcess, LoadFailure, path_variable};

use crate::error::CudaError;

pub(crate) use self::context::PrimaryContext;
use self::functions::Functions;
pub use self::kernel::{CudaBatch, CudaKernel, CudaTemporary};
pub(crate) use self::memory::{DeviceMemory, DeviceRange, PinnedMemory};
pub(crate) use self::stream::{Event, HostFunction, Refused, Stream};

/// The oldest driver that has all [`Functions`]. `cuDeviceGetUuid_v2` is the youngest of them.
pub(crate) const OLDEST_DRIVER: &str = "470 (CUDA 11.4)";

/// Names under which `cudarc` looks for the library. It also tries these names with version numbers.
const LIBRARY_NAMES: &str = if cfg!(windows) { "nvcuda.dll, cuda.dll" } else { "libcuda.so.1, libcuda.so" };

/// The driver's library, open, with all functions that this crate calls.
#[derive(Clone, Copy)]
pub(crate) struct Library(&'static Functions);

static FUNCTIONS: OnceLock<Functions> = OnceLock::new();

/// Variables of the driver's that name a library, which it opens when it starts, and folders.
const PATHS: [&str; 5] = [
    "CUDA_INJECTION64_PATH",
    "CUDA_INJECTION32_PATH",
    "CUDA_CACHE_PATH",
    "CUDA_MPS_PIPE_DIRECTORY",
    "CUDA_MPS_LOG_DIRECTORY",
];

/// Refuses these variables in an elevated process, since the driver does not say that it ignores them there.
fn check_environment(
    variable: impl Fn(&str) -> Result<Option<OsString>, ElevatedProcess>,
) -> Result<(), LoadFailure> {
    for name in PATHS {
        variable(name).map_err(|elevated| {
            LoadFailure::unavailable(format_args!(
                "CUDA is not used while {name} is set: {elevated}; unset it"
            ))
        })?;
    }
    Ok(())
}

impl Library {
    /// Opens the library, if it is not open yet, and looks all functions up. Calls none of them.
    pub(crate) fn open() -> Result<Self, LoadFailure> {
        if let Some(functions) = FUNCTIONS.get() {
            return Ok(Self(functions));
        }
        check_environment(path_variable)?;
        // SAFETY: this opens and closes the library. Its initialisers and finalisers are the NVIDIA driver's
        // own and make no demands of the program.
        if !unsafe { sys::is_culib_present() } {
            return Err(LoadFailure::unavailable(format_args!(
                "no NVIDIA driver: none of its libraries could be opened (tried {LIBRARY_NAMES} and other spellings); \
                 install the NVIDIA driver, {OLDEST_DRIVER} or newer (the CUDA toolkit is not needed)"
            )));
        }
        let functions = Functions::look_up().map_err(|missing| {
            LoadFailure::unavailable(format_args!(
                "the NVIDIA driver is too old: its library has no `{missing}`; install {OLDEST_DRIVER} or newer"
            ))
        })?;
        Ok(Self(FUNCTIONS.get_or_init(|| functions)))
    }

    /// Starts the driver. Any number of calls are fine.
    pub(crate) fn start(self) -> Result<(), CudaError> {
        // SAFETY: `cuInit` takes no pointers, and 0 is the only value that its argument may have.
        unsafe { self.0.cuInit(0) }
    }

    /// The newest version of CUDA that the driver offers: 1000 times the major and 10 times the minor number.
    pub(crate) fn version(self) -> Result<c_int, CudaError> {
        let mut version = 0;
        // SAFETY: `version` is a place for one number.
        unsafe { self.0.cuDriverGetVersion(&mut version) }?;
        Ok(version)
    }

    pub(crate) fn device_count(self) -> Result<usize, BackendError> {
        let mut count = 0;
        // SAFETY: `count` is a place for one number.
        unsafe { self.0.cuDeviceGetCount(&mut count) }?;
        usize::try_from(count)
            .map_err(|_| BackendError::other(format_args!("the driver counts {count} devices")))
    }

    /// The device with this ordinal, which the driver refuses if it does not exist.
    pub(crate) fn device(self, ordinal: usize) -> Result<Device, CudaError> {
        let mut device = 0;
        // An ordinal beyond the type's range is one that the driver does not know either.
        let ordinal = c_int::try_from(ordinal).unwrap_or(c_int::MAX);
        // SAFETY: the driver refuses unknown ordinals, and `device` is a place for one handle.
        unsafe { self.0.cuDeviceGet(&mut device, ordinal) }?;
        Ok(Device { library: self, device })
    }

    /// Sets the capture mode of this thread to *relaxed*: its calls neither fail because of captures on other
    /// threads nor end them.
    pub(crate) fn relax_capture_mode(self) -> Result<(), CudaError> {
        let mut mode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED as u32;
        // SAFETY: `mode` holds one of the driver's modes, and is a place for another.
        unsafe { self.0.cuThreadExchangeStreamCaptureMode(&mut mode) }
    }

    /// The driver's name of a code, and its text about it.
    fn describe(self, code: u32) -> Option<(String, String)> {
        let text = |get: unsafe fn(&Functions, u32, *mut *const c_char) -> Result<(), CudaError>| {
            let mut text = ptr::null();
            // SAFETY: both functions take any number, and `text` is a place for one pointer.
            let found = unsafe { get(self.0, code, &mut text) }.is_ok() && !text.is_null();
            // SAFETY: after a success the pointer is to a constant text in the driver, which ends with a
            // zero.
            found.then(|| unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
        };
        Some((text(Functions::cuGetErrorName)?, text(Functions::cuGetErrorString)?))
    }
}

/// The newest version of CUDA that this machine's driver offers, as the major and the minor number. `None` if
/// there is no driver.
#[must_use]
pub fn driver_version() -> Option<(i32, i32)> {
    let version = Library::open().ok()?.version().ok()?;
    Some((version / 1000, version % 1000 / 10))
}

/// A code as errors show it: `CUDA_ERROR_OUT_OF_MEMORY (2): out of memory`.
pub(crate) fn describe(code: u32) -> String {
    match FUNCTIONS.get().and_then(|functions| Library(functions).describe(code)) {
        Some((name, text)) => format!("{name} ({code}): {text}"),
        None => format!("error {code}, which this driver has no name for"),
    }
}

/// A device that the driver knows. All queries work without a context.
#[derive(Clone, Copy)]
pub(crate) struct Device {
    library: Library,
    device: CUdevice,
}

impl Device {
    pub(crate) fn attribute(self, attribute: CUdevice_attribute) -> Result<c_int, CudaError> {
        let mut value = 0;
        // SAFETY: the driver gave the device's handle, and `value` is a place for one number.
        unsafe { self.library.0.cuDeviceGetAttribute(&mut value, attribute, self.device) }?;
        Ok(value)
    }

    /// In bytes.
    pub(crate) fn total_memory(self) -> Result<usize, CudaError> {
        let mut total = 0;
        // SAFETY: the driver gave the device's handle, and `total` is a place for one number.
        unsafe { self.library.0.cuDeviceTotalMem_v2(&mut total, self.device) }?;
        Ok(total)
    }

    pub(crate) fn name(self) -> Result<String, BackendError> {
        // SAFETY: `text` passes a buffer together with its length, and the driver gave the device's handle.
        text(|text, len| unsafe { self.library.0.cuDeviceGetName(text, len, self.device) })
    }

    /// In the driver's form, such as `0000:01:00.0`.
    pub(crate) fn pci_bus_id(self) -> Result<String, BackendError> {
        // SAFETY: `text` passes a buffer together with its length, and the driver gave the device's handle.
        text(|text, len| unsafe { self.library.0.cuDeviceGetPCIBusId(text, len, self.device) })
    }

    /// By the second version of the driver's function, which distinguishes the parts of a card (MIG).
    pub(crate) fn uuid(self) -> Result<DeviceUuid, CudaError> {
        let mut uuid = CUuuid { bytes: [0; 16] };
        // SAFETY: the driver gave the device's handle, and `uuid` is a place for one UUID.
        unsafe { self.library.0.cuDeviceGetUuid_v2(&mut uuid, self.device) }?;
        Ok(DeviceUuid::from_bytes(uuid.bytes.map(|byte| byte as u8)))
    }
}

/// A text that the driver writes into a buffer of the given length, with a zero at its end.
fn text(write: impl FnOnce(*mut c_char, c_int) -> Result<(), CudaError>) -> Result<String, BackendError> {
    let mut buffer = [0_u8; 256];
    write(buffer.as_mut_ptr().cast(), buffer.len() as c_int)?;
    let text = CStr::from_bytes_until_nul(&buffer)
        .map_err(|_| BackendError::other("the driver wrote a text without an end"))?;
    Ok(text.to_string_lossy().into_owned())
}
