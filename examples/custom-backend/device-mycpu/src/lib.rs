//! The backend `mycpu`: one device, whose memory is the host's. README.md says what to change in a real one.

#![forbid(unsafe_code)]

use std::ptr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use device_registry::{
    AllocateOptions, BACKENDS, Backend, BackendDescriptor, BackendError, DeviceDriver, DeviceProperties,
    LoadFailure, Memory, MemoryInfo, Span,
};

// At the crate's root and nowhere else: a program's `autoload!()` knows the names of its dependencies and not of
// their modules, so it looks for what this block leaves at the root. Elsewhere it does not compile.
device_registry::entry_points! {
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

    // Called once for each device that is used, with an ordinal below the count.
    fn open(&self, _ordinal: usize) -> Result<Box<dyn DeviceDriver>, BackendError> {
        Ok(Box::new(MyCpuDevice))
    }
}

/// An open device. Every call may come from any thread, while others are running.
///
/// Nothing here checks a range: the core has done so, and no [`Span`] is empty or lies outside of its memory.
struct MyCpuDevice;

impl DeviceDriver for MyCpuDevice {
    fn properties(&self) -> Result<DeviceProperties, BackendError> {
        Ok(DeviceProperties::new("memory of the host"))
    }

    fn memory_info(&self) -> Result<MemoryInfo, BackendError> {
        // A real device knows: `.with_total(…).with_free(…)`. std does not tell what the host has.
        Ok(MemoryInfo::unknown())
    }

    fn allocate(&self, options: &AllocateOptions) -> Result<Arc<dyn Memory>, BackendError> {
        let mut bytes = Vec::new();
        // Not `vec![0; len]`, which ends the process when there is not enough.
        bytes
            .try_reserve_exact(options.len)
            .map_err(|error| BackendError::out_of_memory(options.len as u64, None).with_source(error))?;
        bytes.resize(options.len, 0);
        Ok(Arc::new(MyCpuMemory(Mutex::new(bytes))))
    }

    fn write(&self, destination: &Span, source: &[u8]) -> Result<(), BackendError> {
        let memory = destination.memory_as::<MyCpuMemory>()?;
        memory.bytes()[destination.range()].copy_from_slice(source);
        Ok(())
    }

    fn read(&self, source: &Span, destination: &mut [u8]) -> Result<(), BackendError> {
        let memory = source.memory_as::<MyCpuMemory>()?;
        destination.copy_from_slice(&memory.bytes()[source.range()]);
        Ok(())
    }

    fn copy(&self, source: &Span, destination: &Span) -> Result<(), BackendError> {
        let (from, to) = (source.memory_as::<MyCpuMemory>()?, destination.memory_as::<MyCpuMemory>()?);
        if ptr::eq(from, to) {
            // Parts of one memory, which has one lock: to take it twice would be to wait for oneself.
            from.bytes().copy_within(source.range(), destination.offset());
            return Ok(());
        }
        // The lower address first, whichever way the copy goes: of two copies in opposite directions, each would
        // else hold what the other waits for.
        let (source_bytes, mut destination_bytes) = if ptr::from_ref(from) < ptr::from_ref(to) {
            let first = from.bytes();
            (first, to.bytes())
        } else {
            let first = to.bytes();
            (from.bytes(), first)
        };
        destination_bytes[destination.range()].copy_from_slice(&source_bytes[source.range()]);
        Ok(())
    }
}

/// One allocation, freed when it is dropped. For a real device it would hold the driver's handle or address.
///
/// The core keeps it as an `Arc<dyn Memory>` and never looks inside. The way back is `Span::memory_as`, a downcast
/// that is checked: to name a wrong type is an error, and never undefined behaviour.
///
/// One lock for all of its bytes is enough while every operation is a copy that blocks.
struct MyCpuMemory(Mutex<Vec<u8>>);

impl Memory for MyCpuMemory {}

impl MyCpuMemory {
    fn bytes(&self) -> MutexGuard<'_, Vec<u8>> {
        // Bytes cannot be left in a state that is wrong, so a panic in another thread is no reason to stop.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
