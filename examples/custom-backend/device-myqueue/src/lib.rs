//! The backend `myqueue`: two devices with queues of their own, as hardware has them. Each queue is a thread
//! here.
//!
//! Read `device-mycpu` first: it explains the parts that every backend has. docs/new-backend.md says what to
//! change in a real one, such as where to look for a driver.

// A backend that calls a library in C takes this line out.
#![forbid(unsafe_code)]

mod event;
mod memory;
mod stream;

use std::sync::Arc;

use device_registry::backend::{
    AllocateOptions, BACKENDS, Backend, BackendDescriptor, BackendError, DeviceDriver, DeviceKind,
    DeviceProperties, LoadFailure, Memory, MemoryInfo, OpenedDevice, StreamDriver, StreamOptions,
};

use crate::stream::QueueStream;

pub use crate::memory::QueueMemory;
pub use crate::stream::NativeStream;

device_registry::backend::entry_points! {
    /// The backend `myqueue`, for programs that register it by hand.
    #[distributed_slice(BACKENDS)]
    pub static MYQUEUE: BackendDescriptor = BackendDescriptor::new("myqueue", load);
}

fn load() -> Result<Box<dyn Backend>, LoadFailure> {
    Ok(Box::new(QueueBackend))
}

struct QueueBackend;

impl Backend for QueueBackend {
    fn device_count(&self) -> Result<usize, BackendError> {
        Ok(2)
    }

    fn properties(&self, _ordinal: usize) -> Result<DeviceProperties, BackendError> {
        // By default: copies at any offset, streams that run concurrently, events with timestamps, no pinned
        // memory.
        Ok(DeviceProperties::new("a thread for each stream").with_kind(DeviceKind::Simulated))
    }

    fn open(&self, _ordinal: usize) -> Result<OpenedDevice, BackendError> {
        Ok(OpenedDevice::new(self, QueueDevice))
    }
}

/// An open device. It has queues, so it leaves out the blocking calls (`write`, `read`, `copy`): the core
/// enqueues such work in a stream of its own and waits.
///
/// Only the core can call it, because the type is private and moves into [`OpenedDevice`]. So a driver for
/// hardware may rely on the core's checks in its `unsafe` blocks.
struct QueueDevice;

impl DeviceDriver for QueueDevice {
    fn memory_info(&self) -> Result<MemoryInfo, BackendError> {
        Ok(MemoryInfo::unknown())
    }

    fn allocate(&self, options: &AllocateOptions) -> Result<Arc<dyn Memory>, BackendError> {
        Ok(Arc::new(QueueMemory::new(options.len)?))
    }

    // The core enqueues all work through here.
    fn create_stream(&self, _options: &StreamOptions) -> Result<Box<dyn StreamDriver>, BackendError> {
        Ok(Box::new(QueueStream::new()?))
    }
}
