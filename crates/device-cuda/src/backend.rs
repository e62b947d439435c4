//! The backend: how many devices there are, and how one is opened.

use device_registry::backend::{Backend, BackendError, DeviceProperties, LoadFailure, OpenedDevice};

use crate::device::Driver;
use crate::error::CudaError;
use crate::library::{Library, OLDEST_DRIVER, describe};
use crate::properties;

pub(crate) struct Cuda {
    library: Library,
    /// The driver's, as a text.
    version: String,
}

impl Cuda {
    /// Opens the driver's library and starts the driver. Makes no context, and takes nothing on any device.
    pub(crate) fn load() -> Result<Self, LoadFailure> {
        let library = Library::open()?;
        // Here and not when devices are counted: a driver that does not start, or has no device, is one more reason to be
        // unavailable, and a child of `fork` is kept from using a backend that was loaded before.
        library.start().map_err(start_failure)?;
        Ok(Self { library, version: properties::version(library)? })
    }
}

impl Backend for Cuda {
    fn device_count(&self) -> Result<usize, BackendError> {
        self.library.device_count()
    }

    fn properties(&self, ordinal: usize) -> Result<DeviceProperties, BackendError> {
        properties::properties(self.library, ordinal, &self.version)
    }

    fn open(&self, ordinal: usize) -> Result<OpenedDevice, BackendError> {
        Ok(OpenedDevice::new(Driver::open(self.library, ordinal)?))
    }
}

/// Why `cuInit` fails: what somebody has to do about the machine is unavailable, all else is a failure.
fn start_failure(error: CudaError) -> LoadFailure {
    let visible = || match std::env::var("CUDA_VISIBLE_DEVICES") {
        Ok(list) => format!("; CUDA_VISIBLE_DEVICES is `{list}`, which may hide them"),
        Err(_) => String::new(),
    };
    let reason = match error.code {
        34 => format!(
            "the library that was found is the stub of the CUDA toolkit; install the NVIDIA driver, {OLDEST_DRIVER} or \
             newer, or take the stub's folder out of the library path"
        ),
        46 => "the device is taken by another process, or set to be used by none".to_owned(),
        100 => format!("the NVIDIA driver is installed and shows no device{}", visible()),
        101 => format!("the NVIDIA driver is installed and takes no device for usable{}", visible()),
        802 => "the system is not ready for CUDA; a service that the driver needs is not running".to_owned(),
        803 => "the driver's library and its kernel module are of different versions; start the machine again, or \
                install both from one package"
            .to_owned(),
        804 => format!("the forward compatibility package does not support this device{}", visible()),
        805..=809 => "the multi-process service (MPS) cannot be reached, or takes no more clients".to_owned(),
        999 => {
            let hint = "the NVIDIA driver does not start; is the kernel module nvidia-uvm loaded, and /dev/nvidia-uvm there?";
            return LoadFailure::new(hint).with_source(error);
        }
        _ => return LoadFailure::new("the NVIDIA driver does not start").with_source(error),
    };
    LoadFailure::unavailable(format_args!("{reason} (`{}`: {})", error.call, describe(error.code)))
}
