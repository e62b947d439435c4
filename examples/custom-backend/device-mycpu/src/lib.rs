//! The backend `mycpu`: one device, whose memory is the host's. README.md says what to change in a real one.

// A backend that calls a library in C takes this line out.
#![forbid(unsafe_code)]

use std::sync::Arc;

use device_registry::backend::{
    AllocateOptions, BACKENDS, Backend, BackendDescriptor, BackendError, DeviceDriver, DeviceProperties,
    HostMemory, LoadFailure, Memory, MemoryInfo, OpenedDevice, Span, open_windows,
};

// The block stands at the root of the crate, where `autoload!()` of a program finds it. Elsewhere it does not
// compile.
device_registry::backend::entry_points! {
    /// The backend `mycpu`, for programs that register it by hand.
    #[distributed_slice(BACKENDS)]
    pub static MYCPU: BackendDescriptor = BackendDescriptor::new("mycpu", load);
}

/// Runs when a program first uses a device of this name or lists all devices; never before `main`, and never
/// in a program that only links the backend. It has to be cheap: look for the driver, and start no device.
/// Once it has succeeded, it does not run again.
///
/// A missing driver is *unavailable*, which reports and test runs distinguish from a failure. Return
/// `LoadFailure::unavailable("no driver: looked for libmycpu.so.1")`, and add the error of the library that
/// did not open by `with_source(error)`: it has the reason. A use looks again after
/// `LoadFailure::UNAVAILABLE_FOR`. Any other error, by `?`, is a failure, which stays until the program
/// retries. A driver that is there and has no device at the moment is neither: load it, and return 0 from
/// `device_count`.
fn load() -> Result<Box<dyn Backend>, LoadFailure> {
    Ok(Box::new(HostBackend))
}

struct HostBackend;

impl Backend for HostBackend {
    // Called at every listing and at the first use of a device. It must open no device, and take no memory.
    fn device_count(&self) -> Result<usize, BackendError> {
        Ok(1)
    }

    // Called before the device is opened, for listings too.
    fn properties(&self, _ordinal: usize) -> Result<DeviceProperties, BackendError> {
        Ok(DeviceProperties::new("memory of the host"))
    }

    // Called once for each device that is used, with an ordinal below the count.
    fn open(&self, _ordinal: usize) -> Result<OpenedDevice, BackendError> {
        Ok(OpenedDevice::new(self, HostDevice))
    }
}

/// An open device. Every call may come from any thread, while others are running.
///
/// Nothing here checks a range: the core has done so, and no [`Span`] is empty or lies outside of its memory.
struct HostDevice;

impl DeviceDriver for HostDevice {
    fn memory_info(&self) -> Result<MemoryInfo, BackendError> {
        // A real device adds `.with_total(…).with_free(…)`. std cannot query the memory of the host.
        Ok(MemoryInfo::unknown())
    }

    fn allocate(&self, options: &AllocateOptions) -> Result<Arc<dyn Memory>, BackendError> {
        // A real device has its own type here, which holds the driver's handle and frees it in `Drop`.
        Ok(Arc::new(HostMemory::zeroed(options.len)?))
    }

    // The core keeps memory as an `Arc<dyn Memory>`. `memory_as` is a checked downcast: a wrong type is an
    // error, and never undefined behaviour.
    //
    // Any number of threads may use `HostMemory`: it is reached through windows, each of which locks a range.
    fn write(&self, destination: &Span, source: &[u8]) -> Result<(), BackendError> {
        let memory = destination.memory_as::<HostMemory>()?;
        memory.write(destination.range())?.copy_from_slice(source);
        Ok(())
    }

    fn read(&self, source: &Span, destination: &mut [u8]) -> Result<(), BackendError> {
        let memory = source.memory_as::<HostMemory>()?;
        destination.copy_from_slice(&memory.read(source.range())?);
        Ok(())
    }

    fn copy(&self, source: &Span, destination: &Span) -> Result<(), BackendError> {
        let (from, to) = (source.memory_as::<HostMemory>()?, destination.memory_as::<HostMemory>()?);
        // In one call, as a thread with an open window gets no other: two copies in opposite directions would
        // deadlock. Both may be parts of one memory.
        let ([from], [mut to]) = open_windows([(from, source.range())], [(to, destination.range())])?;
        to.copy_from_slice(&from);
        Ok(())
    }
}
