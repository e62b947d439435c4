//! One open device.

use std::any::Any;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use device_registry::backend::{
    AllocateOptions, BackendError, BackendErrorKind, DeviceDriver, FillPattern, HostBuffer, Memory,
    MemoryInfo, Span, StreamDriver, StreamOptions,
};
use parking_lot::Mutex;

use crate::context::Context;
use crate::library::{DeviceRange, Library, PinnedMemory};
use crate::memory::CudaMemory;
use crate::native::CudaDevice;
use crate::stream::Queue;

/// The driver of an open device.
pub(crate) struct Driver {
    /// What programs and kernels get; `None` once the device is closed.
    native: Mutex<Option<Arc<CudaDevice>>>,
    /// Streams for the functions that block, of which each is lent to one of them at a time.
    idle: Mutex<Vec<Queue>>,
}

impl Driver {
    pub(crate) fn open(library: Library, ordinal: usize) -> Result<Self, BackendError> {
        let native = Arc::new(CudaDevice::new(ordinal, Context::retain(library, ordinal)?));
        Ok(Self { native: Mutex::new(Some(native)), idle: Mutex::default() })
    }

    fn context(&self) -> Result<Context, BackendError> {
        let native = self.native.lock();
        let native = native.as_ref().ok_or_else(|| BackendError::invalid("the device is closed"))?;
        Ok(native.shared_context().clone())
    }

    /// Submits work to a stream of the device's own, and waits for it.
    ///
    /// The driver's functions that block work in the null stream, which waits for the streams of other libraries in the
    /// process and holds them up, and which the streams of this crate take no notice of.
    fn perform(&self, work: impl FnOnce(&Queue) -> Result<(), BackendError>) -> Result<(), BackendError> {
        let lent = self.idle.lock().pop();
        let stream = match lent {
            Some(stream) => stream,
            None => Queue::create(&self.context()?, &StreamOptions::new())?,
        };
        // What was submitted before something was refused may still be at work on bytes that are only borrowed.
        let submitted = work(&stream);
        let finished = finish(&stream)?;
        self.idle.lock().push(stream);
        submitted.and(finished)
    }
}

/// Waits until a stream has nothing to do. The inner result is that of the work.
///
/// # Errors
///
/// If it cannot be waited for: then what the work uses may still be in use, and the device counts as lost.
fn finish(stream: &Queue) -> Result<Result<(), BackendError>, BackendError> {
    const TRIES: u32 = 1000;

    let mut tried = 0;
    loop {
        match stream.synchronize() {
            // Others in the process, such as those who capture a stream, can have the wait refused for a while.
            Err(error) if error.kind() != BackendErrorKind::Lost && tried < TRIES => {
                tried += 1;
                thread::sleep(Duration::from_millis(1));
                if stream.query().is_ok_and(|done| done) {
                    return Ok(Err(error));
                }
            }
            Err(error) if error.kind() != BackendErrorKind::Lost => {
                let message = format_args!("work on memory of the caller cannot be waited for: {error}");
                return Err(BackendError::lost(message).with_source(error));
            }
            outcome => return Ok(outcome),
        }
    }
}

impl DeviceDriver for Driver {
    fn native(&self) -> Option<Arc<dyn Any + Send + Sync>> {
        self.native.lock().clone().map(|native| native as _)
    }

    fn memory_info(&self) -> Result<MemoryInfo, BackendError> {
        let (free, total) = self.context()?.primary.memory_info()?;
        Ok(MemoryInfo::unknown().with_total(total as u64).with_free(free as u64))
    }

    fn allocate(&self, options: &AllocateOptions) -> Result<Arc<dyn Memory>, BackendError> {
        let memory = CudaMemory::allocate(&self.context()?.primary, options.len)?;
        // The reference does not promise that new memory holds nothing of others: of another library in the process
        // which had it before, if not of another process.
        // SAFETY: `perform` waits for the work or declares the device lost, and `memory` is dropped after that.
        let all = unsafe { DeviceRange::new(memory.memory(), 0, options.len) }?;
        self.perform(|stream| stream.stream().fill(all, &[0]))?;
        Ok(Arc::new(memory))
    }

    fn write(&self, destination: &Span, source: &[u8]) -> Result<(), BackendError> {
        let destination = DeviceRange::of(destination)?;
        // SAFETY: `perform` waits for the work, and the bytes are borrowed until it returns.
        self.perform(|stream| unsafe { stream.stream().copy_from_host(source, destination) })
    }

    fn read(&self, source: &Span, destination: &mut [u8]) -> Result<(), BackendError> {
        let source = DeviceRange::of(source)?;
        // SAFETY: `perform` waits for the work, and the bytes are borrowed for writing until it returns.
        self.perform(|stream| unsafe { stream.stream().copy_to_host(source, destination) })
    }

    fn copy(&self, source: &Span, destination: &Span) -> Result<(), BackendError> {
        self.perform(|stream| stream.copy(source, destination))
    }

    fn fill(&self, destination: &Span, pattern: &FillPattern) -> Result<(), BackendError> {
        self.perform(|stream| stream.fill(destination, pattern))
    }

    fn copy_from_peer(&self, source: &Span, destination: &Span) -> Result<(), BackendError> {
        self.perform(|stream| stream.copy_from_peer(source, destination))
    }

    fn create_stream(&self, options: &StreamOptions) -> Result<Box<dyn StreamDriver>, BackendError> {
        Ok(Box::new(Queue::create(&self.context()?, options)?))
    }

    fn allocate_host(&self, len: usize) -> Result<HostBuffer, BackendError> {
        Ok(PinnedMemory::allocate(&self.context()?.primary, len)?.into_host_buffer())
    }

    /// The context is released when the last thing in it has been dropped, such as pinned memory that a program holds.
    fn close(&self) -> Result<(), BackendError> {
        self.idle.lock().clear();
        self.native.lock().take();
        Ok(())
    }
}
