//! One open device.

use std::any::Any;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use device_registry::backend::{
    AllocateOptions, BackendError, BackendErrorKind, DeviceDriver, FillPattern, HostBuffer, Memory,
    MemoryInfo, Span, StreamDriver, StreamOptions,
};

use crate::context::Context;
use crate::library::Functions;
use crate::memory::{CudaMemory, CudaPinned, same_length};
use crate::native::CudaDevice;
use crate::stream::Queue;

/// The driver of an open device.
pub(crate) struct Driver {
    /// What programs and kernels get; `None` once the device is closed.
    native: Mutex<Option<Arc<CudaDevice>>>,
    /// Streams for the functions that block, of which each is lent to one of them at a time.
    idle: Mutex<Vec<Queue>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing is half changed under these locks.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Driver {
    pub(crate) fn open(cuda: &'static Functions, ordinal: usize) -> Result<Self, BackendError> {
        let native = Arc::new(CudaDevice::new(ordinal, Context::retain(cuda, ordinal)?));
        Ok(Self { native: Mutex::new(Some(native)), idle: Mutex::default() })
    }

    fn shared(&self) -> Result<Arc<Context>, BackendError> {
        let native = lock(&self.native);
        let native = native.as_ref().ok_or_else(|| BackendError::invalid("the device is closed"))?;
        Ok(Arc::clone(native.shared_context()))
    }

    /// Submits work to a stream of the device's own, and waits for it.
    ///
    /// The driver's functions that block work in the null stream, which waits for the streams of other libraries in the
    /// process and holds them up, and which the streams of this crate take no notice of.
    fn perform(&self, work: impl FnOnce(&Queue) -> Result<(), BackendError>) -> Result<(), BackendError> {
        let lent = lock(&self.idle).pop();
        let stream = match lent {
            Some(stream) => stream,
            None => Queue::create(&self.shared()?, &StreamOptions::new())?,
        };
        // What was submitted before something was refused may still be at work on bytes that are only borrowed.
        let submitted = work(&stream);
        let finished = finish(&stream)?;
        lock(&self.idle).push(stream);
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
        lock(&self.native).clone().map(|native| native as _)
    }

    fn memory_info(&self) -> Result<MemoryInfo, BackendError> {
        let context = self.shared()?;
        let current = context.enter()?;
        let (mut free, mut total) = (0, 0);
        // SAFETY: the context is current, and the places are there.
        unsafe { current.cuda().cuMemGetInfo_v2(&mut free, &mut total) }?;
        Ok(MemoryInfo::unknown().with_total(total as u64).with_free(free as u64))
    }

    fn allocate(&self, options: &AllocateOptions) -> Result<Arc<dyn Memory>, BackendError> {
        let memory = CudaMemory::allocate(&self.shared()?, options.len)?;
        // The reference does not promise that new memory holds nothing of others: of another library in the process
        // which had it before, if not of another process.
        self.perform(|stream| stream.clear(memory.pointer(), options.len))?;
        Ok(Arc::new(memory))
    }

    fn write(&self, destination: &Span, source: &[u8]) -> Result<(), BackendError> {
        same_length(source.len(), destination.len())?;
        // SAFETY: `perform` waits, and the bytes, which are as many, are borrowed until it returns.
        self.perform(|stream| unsafe { stream.write_from(destination, source.as_ptr()) })
    }

    fn read(&self, source: &Span, destination: &mut [u8]) -> Result<(), BackendError> {
        same_length(destination.len(), source.len())?;
        // SAFETY: `perform` waits, and the bytes, which are as many, are borrowed for writing until it returns.
        self.perform(|stream| unsafe { stream.read_into(source, destination.as_mut_ptr()) })
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
        Ok(Box::new(Queue::create(&self.shared()?, options)?))
    }

    fn allocate_host(&self, len: usize) -> Result<HostBuffer, BackendError> {
        Ok(CudaPinned::allocate(&self.shared()?, len)?.into_host_buffer())
    }

    /// The context is released when the last thing in it has been dropped, such as pinned memory that a program holds.
    fn close(&self) -> Result<(), BackendError> {
        lock(&self.idle).clear();
        lock(&self.native).take();
        Ok(())
    }
}
