//! The backend `mycpu`: one device, whose memory is the host's. README.md says what to change in a real one.

#![forbid(unsafe_code)]

use std::sync::Arc;

use device_registry::backend::{
    AllocateOptions, BACKENDS, Backend, BackendDescriptor, BackendError, DeviceDriver, DeviceProperties,
    HostMemory, LoadFailure, Memory, MemoryInfo, OpenedDevice, Span, open_windows,
};

// At the crate's root and nowhere else: a program's `autoload!()` knows the names of its dependencies and not of
// their modules, so it looks for what this block leaves at the root. Elsewhere it does not compile.
device_registry::backend::entry_points! {
    /// The backend `mycpu`, for programs that register it by hand.
    #[distributed_slice(BACKENDS)]
    pub static MYCPU: BackendDescriptor = BackendDescriptor::new("mycpu", load);
}

/// Runs when a program first asks for a device of this name, and then no more; never before `main`, and not at all
/// in a program that only has the backend linked. To list all devices loads every backend, so this has to be
/// cheap: look for the driver, and start no device.
///
/// A driver that is not there is no failure, and reports and test runs tell the two apart. To say so:
/// `Err(LoadFailure::unavailable("no driver: looked for libmycpu.so.1"))`. Any other error, by `?`, is a failure.
fn load() -> Result<Box<dyn Backend>, LoadFailure> {
    Ok(Box::new(MyCpu))
}

struct MyCpu;

impl Backend for MyCpu {
    // Asked at every listing and at the first use of a device: to count opens none, and takes no memory.
    fn device_count(&self) -> Result<usize, BackendError> {
        Ok(1)
    }

    // Asked before the device is opened, for listings too.
    fn properties(&self, _ordinal: usize) -> Result<DeviceProperties, BackendError> {
        Ok(DeviceProperties::new("memory of the host"))
    }

    // Called once for each device that is used, with an ordinal below the count.
    fn open(&self, _ordinal: usize) -> Result<OpenedDevice, BackendError> {
        Ok(OpenedDevice::new(MyCpuDevice))
    }
}

/// An open device. Every call may come from any thread, while others are running.
///
/// Nothing here checks a range: the core has done so, and no [`Span`] is empty or lies outside of its memory.
struct MyCpuDevice;

impl DeviceDriver for MyCpuDevice {
    fn memory_info(&self) -> Result<MemoryInfo, BackendError> {
        // A real device knows: `.with_total(…).with_free(…)`. std does not tell what the host has.
        Ok(MemoryInfo::unknown())
    }

    fn allocate(&self, options: &AllocateOptions) -> Result<Arc<dyn Memory>, BackendError> {
        // A real device has a type of its own here, with the driver's handle in it, which is freed when it is dropped.
        Ok(Arc::new(HostMemory::zeroed(options.len)?))
    }

    // The core keeps memory as an `Arc<dyn Memory>` and never looks inside. `memory_as` is the way back, a downcast
    // that is checked: to name a wrong type is an error, and never undefined behaviour.
    //
    // `HostMemory` is reached through windows, each of which locks a range, so that any number of threads may come.
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
        // Both at once: a thread that has a window open gets no other, for two copies in opposite directions would wait
        // for each other. They may also be parts of one memory.
        let ([from], [mut to]) = open_windows([(from, source.range())], [(to, destination.range())])?;
        to.copy_from_slice(&from);
        Ok(())
    }
}
