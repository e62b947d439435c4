//! One open device.

use std::any::Any;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use device_registry::backend::{
    AllocateOptions, BackendError, DeviceDriver, FillPattern, Memory, MemoryInfo, Span, StreamDriver,
    StreamOptions,
};

use crate::context::Context;
use crate::memory::WgpuMemory;
use crate::native::WgpuDevice;
use crate::reads::Reads;
use crate::stream::Queue;

/// The driver of an open device.
pub(crate) struct Driver(Mutex<Option<Open>>);

/// What it has until it is closed or reset.
#[derive(Clone)]
struct Open {
    /// What programs and kernels get.
    native: Arc<WgpuDevice>,
    reads: Arc<Reads>,
}

impl Driver {
    pub(crate) fn open(adapter: &wgpu::Adapter, ordinal: usize) -> Result<Self, BackendError> {
        let context = Arc::new(Context::open(adapter)?);
        let reads = Arc::new(Reads::new(&context, &format!("wgpu:{ordinal}"))?);
        Ok(Self(Mutex::new(Some(Open { native: Arc::new(WgpuDevice::new(context)), reads }))))
    }

    fn lock(&self) -> MutexGuard<'_, Option<Open>> {
        // Nothing is half changed under the lock.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn get(&self) -> Result<Open, BackendError> {
        self.lock().clone().ok_or_else(|| BackendError::invalid("the device is closed"))
    }

    fn context(&self) -> Result<Arc<Context>, BackendError> {
        let open = self.lock();
        let open = open.as_ref().ok_or_else(|| BackendError::invalid("the device is closed"))?;
        Ok(Arc::clone(open.native.context()))
    }

    /// Takes everything out, ends the thread that finishes reads, and frees what is kept for the next copy.
    fn end(&self) -> Option<Open> {
        let open = self.lock().take()?;
        open.reads.close();
        open.native.context().staging.clear();
        Some(open)
    }
}

impl DeviceDriver for Driver {
    fn native(&self) -> Option<Arc<dyn Any + Send + Sync>> {
        self.lock().as_ref().map(|open| Arc::clone(&open.native) as _)
    }

    /// wgpu does not tell.
    fn memory_info(&self) -> Result<MemoryInfo, BackendError> {
        self.context()?.check()?;
        Ok(MemoryInfo::unknown())
    }

    fn allocate(&self, options: &AllocateOptions) -> Result<Arc<dyn Memory>, BackendError> {
        Ok(Arc::new(WgpuMemory::new(self.context()?.allocate(options.len)?)))
    }

    fn write(&self, destination: &Span, source: &[u8]) -> Result<(), BackendError> {
        let context = self.context()?;
        context.wait(&*context.write(destination, source)?)
    }

    fn read(&self, source: &Span, destination: &mut [u8]) -> Result<(), BackendError> {
        self.context()?.read(source, destination)
    }

    fn copy(&self, source: &Span, destination: &Span) -> Result<(), BackendError> {
        let context = self.context()?;
        context.wait(&*context.copy(source, destination)?)
    }

    fn fill(&self, destination: &Span, pattern: &FillPattern) -> Result<(), BackendError> {
        let context = self.context()?;
        context.wait(&*context.fill(destination, pattern)?)
    }

    /// They take no priority.
    fn create_stream(&self, _options: &StreamOptions) -> Result<Box<dyn StreamDriver>, BackendError> {
        let Open { native, reads } = self.get()?;
        native.context().check()?;
        Ok(Box::new(Queue::new(native.context(), &reads)))
    }

    fn reset(&self) -> Result<(), BackendError> {
        // Not destroyed, if it was not: calls of other threads may still copy from what is mapped, which that frees.
        self.end();
        Ok(())
    }

    fn close(&self) -> Result<(), BackendError> {
        if let Some(open) = self.end() {
            let context = open.native.context();
            context.device.destroy();
            // All work is done, so that this frees what the device has. What it returns is the end of the device.
            let _ = context.look();
        }
        Ok(())
    }
}
