//! The backend: how many devices there are, and how one is opened.

use device_registry::backend::{Backend, BackendError, DeviceProperties, LoadFailure, OpenedDevice, Version};

use crate::device::CudaDriver;
use crate::error::CudaError;
use crate::library::{Library, OLDEST_DRIVER, describe};
use crate::properties;

pub(crate) struct Cuda {
    library: Library,
    /// The newest version of CUDA that the driver offers.
    version: Version,
}

impl Cuda {
    /// Opens the driver's library and starts the driver. Creates no context, and allocates nothing on any
    /// device.
    pub(crate) fn load() -> Result<Self, LoadFailure> {
        let library = Library::open()?;
        // Here and not when devices are counted: a driver that does not start, or has no device, makes the
        // backend unavailable. And the core stops a child of `fork` from using a backend that was loaded
        // before.
        library.start().map_err(start_failure)?;
        Ok(Self { library, version: properties::version(library)? })
    }
}

impl Backend for Cuda {
    fn device_count(&self) -> Result<usize, BackendError> {
        self.library.device_count()
    }

    fn properties(&self, ordinal: usize) -> Result<DeviceProperties, BackendError> {
        properties::properties(self.library, ordinal, self.version)
    }

    fn open(&self, ordinal: usize) -> Result<OpenedDevice, BackendError> {
        let opened = OpenedDevice::new(self, CudaDriver::open(self.library, ordinal)?);
        // SAFETY: device, memory and streams return the kinds of `docs/plugins/names.md` only, each for the
        // object that they own, which lives as long as they do.
        Ok(unsafe { opened.with_native_handles() })
    }
}

/// The reason why `cuInit` fails: *unavailable* where a person can change the machine, else a failure.
fn start_failure(error: CudaError) -> LoadFailure {
    let visible = || match std::env::var("CUDA_VISIBLE_DEVICES") {
        Ok(list) => format!("; CUDA_VISIBLE_DEVICES is `{list}`, which may hide devices"),
        Err(_) => String::new(),
    };
    let reason = match error.code {
        34 => format!(
            "found the stub of the CUDA toolkit in place of the driver's library; install the NVIDIA driver, \
             {OLDEST_DRIVER} or newer, or remove the stub's folder from the library path"
        ),
        46 => "another process has exclusive use of the device, or its compute mode prohibits all use"
            .to_owned(),
        100 => format!("the NVIDIA driver is installed and finds no device{}", visible()),
        101 => format!("the NVIDIA driver is installed and finds no usable device{}", visible()),
        802 => "the system is not ready for CUDA; a service that the driver needs is not running".to_owned(),
        803 => {
            "the driver's library and its kernel module are of different versions; restart the machine, or \
                install both from one package"
                .to_owned()
        }
        804 => format!("the forward compatibility package does not support this device{}", visible()),
        805..=809 => {
            "the multi-process service (MPS) cannot be reached, or accepts no more clients".to_owned()
        }
        999 => {
            let hint = "the NVIDIA driver does not start; check that the kernel module nvidia-uvm is loaded, and that /dev/nvidia-uvm exists";
            return LoadFailure::new(hint).with_source(error);
        }
        _ => return LoadFailure::new("the NVIDIA driver does not start").with_source(error),
    };
    LoadFailure::unavailable(format_args!("{reason} (`{}`: {})", error.call, describe(error.code)))
}
