//! The backend `myfence`: devices with queues, batches of commands and a timeline, as Vulkan and other
//! interfaces have them. The device calls nothing back, so a thread of the core's waits for reads.
//!
//! Read `device-mycpu` first: it explains the parts that every backend has. docs/new-backend.md says what to
//! change in a real one. Take `device-myqueue` instead if your driver has callbacks, and no batches.

#![forbid(unsafe_code)]

mod hardware;
mod memory;
mod stream;

use std::any::Any;
use std::sync::Arc;

use device_registry::backend::testing::{FaultCounter, FaultPoint};
use device_registry::backend::{
    AllocateOptions, BACKENDS, Backend, BackendDescriptor, BackendError, DeviceDriver, DeviceKind,
    DeviceProperties, FaultInjector, LoadFailure, LossReporter, Memory, MemoryInfo, OpenedDevice,
    ReadThreads, StreamDriver, StreamOptions,
};

use crate::hardware::Hardware;
use crate::memory::FenceMemory;
use crate::stream::FenceStream;

device_registry::backend::entry_points! {
    /// The backend `myfence`, for programs that register it by hand.
    #[distributed_slice(BACKENDS)]
    pub static MYFENCE: BackendDescriptor = BackendDescriptor::new("myfence", load);
}

fn load() -> Result<Box<dyn Backend>, LoadFailure> {
    Ok(Box::new(MyFence))
}

struct MyFence;

impl Backend for MyFence {
    fn device_count(&self) -> Result<usize, BackendError> {
        Ok(2)
    }

    fn properties(&self, _ordinal: usize) -> Result<DeviceProperties, BackendError> {
        Ok(DeviceProperties::new("queues with a timeline").with_kind(DeviceKind::Simulated))
    }

    fn open(&self, ordinal: usize) -> Result<OpenedDevice, BackendError> {
        let reporter = LossReporter::new();
        let (hardware, reports) = (Arc::new(Hardware::default()), reporter.clone());
        // Injected faults, so that the suite tests errors, loss and reset. Work cannot stall in a queue of
        // hardware.
        let lost = Arc::clone(&hardware);
        let faults = FaultCounter::new().without_stalls().on_loss(move || {
            let error = BackendError::lost("the device was lost by an injected fault");
            reports.report(error.clone());
            // The waits of all threads end.
            lost.lose(error);
        });
        let reads = ReadThreads::new(format_args!("myfence:{ordinal}"));
        let driver = FenceDevice { hardware, faults: Arc::new(faults), reads };
        Ok(OpenedDevice::new(self, driver).with_loss_reporter(reporter))
    }
}

/// An open device. It leaves out the blocking calls (`write`, `read`, `copy`): the core enqueues such work in
/// a stream of its own and waits.
struct FenceDevice {
    hardware: Arc<Hardware>,
    faults: Arc<FaultCounter>,
    /// Waits for the reads of all streams.
    reads: ReadThreads,
}

/// The native handle of a device: what programs may see of it.
pub struct MyFenceDevice(Arc<Hardware>);

impl MyFenceDevice {
    /// How many batches the device has got.
    #[must_use]
    pub fn submissions(&self) -> usize {
        self.0.submissions()
    }
}

impl DeviceDriver for FenceDevice {
    fn native(&self) -> Option<Arc<dyn Any + Send + Sync>> {
        Some(Arc::new(MyFenceDevice(Arc::clone(&self.hardware))))
    }

    fn memory_info(&self) -> Result<MemoryInfo, BackendError> {
        Ok(MemoryInfo::unknown())
    }

    fn allocate(&self, options: &AllocateOptions) -> Result<Arc<dyn Memory>, BackendError> {
        self.faults.before(FaultPoint::Allocate { len: options.len })?;
        self.hardware.check()?;
        Ok(Arc::new(FenceMemory::new(options.len)?))
    }

    fn create_stream(&self, _options: &StreamOptions) -> Result<Box<dyn StreamDriver>, BackendError> {
        Ok(Box::new(FenceStream::new(&self.hardware, &self.faults, self.reads.start()?)?))
    }

    // The waits of the threads for reads have ended with the loss.
    fn reset(&self) -> Result<(), BackendError> {
        self.faults.lose("the device was reset");
        self.reads.close();
        Ok(())
    }

    fn close(&self) -> Result<(), BackendError> {
        self.faults.close();
        self.reads.close();
        Ok(())
    }

    fn faults(&self) -> Option<&dyn FaultInjector> {
        Some(&*self.faults)
    }
}
