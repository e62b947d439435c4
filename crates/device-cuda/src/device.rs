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
use crate::stream::CudaQueue;

/// The driver of an open device.
pub(crate) struct CudaDriver {
    /// The native handle for programs and kernels. `None` once the device is closed.
    native: Mutex<Option<Arc<CudaDevice>>>,
    /// Idle streams for blocking calls. Each running call has a stream to itself.
    idle: Mutex<Vec<CudaQueue>>,
}

impl CudaDriver {
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
    /// The driver's own blocking functions work in the null stream. That stream waits for the streams of
    /// other libraries in the process and holds them back, and is not ordered with the streams of this crate.
    fn perform(&self, work: impl FnOnce(&CudaQueue) -> Result<(), BackendError>) -> Result<(), BackendError> {
        let lent = self.idle.lock().pop();
        let stream = match lent {
            Some(stream) => stream,
            None => CudaQueue::create(&self.context()?, &StreamOptions::new())?,
        };
        // After a refusal too, earlier work may still use borrowed bytes.
        let submitted = work(&stream);
        let finished = finish(&stream)?;
        self.idle.lock().push(stream);
        submitted.and(finished)
    }
}

/// Waits until all work of a stream is done. The inner result is the work's.
///
/// # Errors
///
/// [`BackendError::lost`] if the wait itself fails: the work may still use its memory.
fn finish(stream: &CudaQueue) -> Result<Result<(), BackendError>, BackendError> {
    const TRIES: u32 = 1000;

    let mut tried = 0;
    loop {
        match stream.synchronize() {
            // Other code in the process can make the driver refuse the wait for a while, such as by capturing
            // a stream.
            Err(error) if error.kind() != BackendErrorKind::Lost && tried < TRIES => {
                tried += 1;
                thread::sleep(Duration::from_millis(1));
                if stream.query().is_ok_and(|done| done) {
                    return Ok(Err(error));
                }
            }
            Err(error) if error.kind() != BackendErrorKind::Lost => {
                let message = "waiting for work on memory of the caller failed";
                return Err(BackendError::lost(message).with_source(error));
            }
            outcome => return Ok(outcome),
        }
    }
}

impl DeviceDriver for CudaDriver {
    fn native(&self) -> Option<Arc<dyn Any + Send + Sync>> {
        self.native.lock().clone().map(|native| native as _)
    }

    fn native_handle(&self, kind: &str) -> Option<u64> {
        let native = self.native.lock();
        match kind {
            "cuda.CUcontext" => Some(native.as_ref()?.context().expose_provenance() as u64),
            "cuda.CUdevice" => Some(native.as_ref()?.shared_context().primary.device() as u64),
            _ => None,
        }
    }

    fn memory_info(&self) -> Result<MemoryInfo, BackendError> {
        let (free, total) = self.context()?.primary.memory_info()?;
        Ok(MemoryInfo::unknown().with_total(total as u64).with_free(free as u64))
    }

    fn allocate(&self, options: &AllocateOptions) -> Result<Arc<dyn Memory>, BackendError> {
        let memory = CudaMemory::allocate(&self.context()?.primary, options.len)?;
        // The reference does not specify what new memory holds. It may be data of another library in the
        // process, if not of another process. SAFETY: `perform` waits for the work, or returns that the
        // device is lost. `memory` is dropped after that.
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
        Ok(Box::new(CudaQueue::create(&self.context()?, options)?))
    }

    fn allocate_host(&self, len: usize) -> Result<HostBuffer, BackendError> {
        Ok(PinnedMemory::allocate(&self.context()?.primary, len)?.into_host_buffer())
    }

    /// The context is released when the last thing in it has been dropped, such as pinned memory that a
    /// program holds.
    fn close(&self) -> Result<(), BackendError> {
        self.idle.lock().clear();
        self.native.lock().take();
        Ok(())
    }
}
