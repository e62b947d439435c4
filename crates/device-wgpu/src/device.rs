//! One open device.

use std::any::Any;
use std::sync::Arc;

use device_registry::backend::{
    AllocateOptions, BackendError, DeviceDriver, FaultInjector, FillPattern, Memory, MemoryInfo, ReadThread,
    ReadThreads, Span, StreamDriver, StreamOptions,
};
use parking_lot::{Mutex, MutexGuard};

use crate::context::Context;
use crate::faults::Faults;
use crate::memory::WgpuMemory;
use crate::native::WgpuDevice;
use crate::stream::WgpuQueue;

/// The driver of an open device.
pub(crate) struct WgpuDriver {
    open: Mutex<Option<Open>>,
    faults: Faults,
}

/// The parts of an open device, until it is closed or reset.
#[derive(Clone)]
struct Open {
    /// What programs and kernels get.
    native: Arc<WgpuDevice>,
    threads: Arc<ReadThreads>,
    /// Finishes the reads of all streams. They are submitted to one queue, so it finishes them in that order.
    reads: Arc<ReadThread>,
}

impl WgpuDriver {
    pub(crate) fn open(
        instance: &wgpu::Instance,
        adapter: &wgpu::Adapter,
        ordinal: usize,
        faults: Faults,
    ) -> Result<Self, BackendError> {
        let context = Arc::new(Context::open(instance, adapter, &faults)?);
        let threads = Arc::new(ReadThreads::new(format_args!("wgpu:{ordinal}")));
        let native = Arc::new(WgpuDevice::new(context));
        let reads = Arc::new(threads.start()?);
        Ok(Self { open: Mutex::new(Some(Open { native, threads, reads })), faults })
    }

    fn lock(&self) -> MutexGuard<'_, Option<Open>> {
        self.open.lock()
    }

    fn get(&self) -> Result<Open, BackendError> {
        self.lock().clone().ok_or_else(|| BackendError::invalid("the device is closed"))
    }

    fn context(&self) -> Result<Arc<Context>, BackendError> {
        let open = self.lock();
        let open = open.as_ref().ok_or_else(|| BackendError::invalid("the device is closed"))?;
        Ok(Arc::clone(open.native.context()))
    }

    /// Takes everything out, ends the thread that finishes reads, and frees the kept staging buffers.
    fn end(&self) -> Option<Open> {
        let open = self.lock().take()?;
        open.threads.close();
        open.native.context().staging.clear();
        Some(open)
    }
}

impl DeviceDriver for WgpuDriver {
    fn native(&self) -> Option<Arc<dyn Any + Send + Sync>> {
        self.lock().as_ref().map(|open| Arc::clone(&open.native) as _)
    }

    /// wgpu has no query for memory.
    fn memory_info(&self) -> Result<MemoryInfo, BackendError> {
        self.context()?.check()?;
        Ok(MemoryInfo::unknown())
    }

    fn allocate(&self, options: &AllocateOptions) -> Result<Arc<dyn Memory>, BackendError> {
        Ok(Arc::new(WgpuMemory::new(self.context()?.allocate(options.len)?)))
    }

    fn write(&self, destination: &Span, source: &[u8]) -> Result<(), BackendError> {
        self.context()?.write(destination, source)
    }

    fn read(&self, source: &Span, destination: &mut [u8]) -> Result<(), BackendError> {
        self.context()?.read(source, destination)
    }

    fn copy(&self, source: &Span, destination: &Span) -> Result<(), BackendError> {
        self.context()?.copy(source, destination)
    }

    fn fill(&self, destination: &Span, pattern: &FillPattern) -> Result<(), BackendError> {
        self.context()?.fill(destination, pattern)
    }

    /// Streams share one queue, which has no priorities.
    fn create_stream(&self, _options: &StreamOptions) -> Result<Box<dyn StreamDriver>, BackendError> {
        let Open { native, reads, .. } = self.get()?;
        native.context().check()?;
        Ok(Box::new(WgpuQueue::new(native.context(), &reads)))
    }

    fn reset(&self) -> Result<(), BackendError> {
        // This does not destroy the device: calls of other threads may still copy from mapped memory, which
        // that would free.
        self.end();
        Ok(())
    }

    fn close(&self) -> Result<(), BackendError> {
        if let Some(open) = self.end() {
            let context = open.native.context();
            // Another library may have given out mapped memory, which this would free.
            if context.is_shared() {
                return Ok(());
            }
            context.device.destroy();
            // All work is done, so that this poll frees the memory of the device. It returns the destruction
            // as a loss.
            let _ = context.poll_loss();
        }
        Ok(())
    }

    fn faults(&self) -> Option<&dyn FaultInjector> {
        self.faults.injector()
    }
}
