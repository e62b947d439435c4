//! One open device.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cudarc::driver::sys::CUcontext;
use device_registry::{
    AllocateOptions, BackendError, DeviceDriver, Memory, MemoryInfo, Pattern, PinnedMemory, Span,
    StreamDriver, StreamOptions,
};

use crate::context::Context;
use crate::library::Functions;
use crate::memory::{CudaMemory, CudaPinned};
use crate::stream::CudaStream;

/// A device `cuda:…` that is open: what a kernel gets from
/// [`Launch::driver_as`](device_registry::Launch::driver_as).
pub struct CudaDevice {
    ordinal: usize,
    /// `None` once it is closed.
    context: Mutex<Option<Arc<Context>>>,
    /// Streams for the functions that block, of which each is lent to one of them at a time.
    idle: Mutex<Vec<CudaStream>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing is half changed under these locks.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl CudaDevice {
    pub(crate) fn open(cuda: &'static Functions, ordinal: usize) -> Result<Self, BackendError> {
        let context = Arc::new(Context::retain(cuda, ordinal)?);
        Ok(Self { ordinal, context: Mutex::new(Some(context)), idle: Mutex::default() })
    }

    fn shared(&self) -> Result<Arc<Context>, BackendError> {
        let context = lock(&self.context);
        context.clone().ok_or_else(|| BackendError::invalid("the device is closed"))
    }

    /// The ordinal of the device in the driver: 1 for `cuda:1`.
    #[must_use]
    pub fn ordinal(&self) -> usize {
        self.ordinal
    }

    /// The primary context of the device, or null once it is closed. Modules are loaded into it; it is the one that the
    /// CUDA runtime and the libraries above it use as well.
    #[must_use]
    pub fn context(&self) -> CUcontext {
        self.shared().map_or(std::ptr::null_mut(), |context| context.handle())
    }

    /// Makes the context current to this thread and leaves it so, as functions of the driver want it that a kernel
    /// calls. What else is current on a thread is left alone here: all other functions put back what they find.
    ///
    /// # Errors
    ///
    /// If the device is lost or closed.
    pub fn make_current(&self) -> Result<(), BackendError> {
        self.shared()?.make_current()
    }

    /// Submits work to a stream of the device's own, and waits for it.
    ///
    /// The driver's functions that block work in the null stream, which waits for the streams of other libraries in the
    /// process and holds them up, and which the streams of this crate take no notice of.
    fn perform(
        &self,
        work: impl FnOnce(&CudaStream) -> Result<(), BackendError>,
    ) -> Result<(), BackendError> {
        let lent = lock(&self.idle).pop();
        let stream = match lent {
            Some(stream) => stream,
            None => CudaStream::create(&self.shared()?, &StreamOptions::new())?,
        };
        // What was submitted before something was refused may still be at work on bytes that are only borrowed.
        let submitted = work(&stream);
        let finished = stream.synchronize();
        lock(&self.idle).push(stream);
        submitted.and(finished)
    }
}

impl DeviceDriver for CudaDevice {
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
        // SAFETY: `perform` waits, and the bytes are borrowed until it returns.
        self.perform(|stream| unsafe { stream.write_from(destination, source.as_ptr()) })
    }

    fn read(&self, source: &Span, destination: &mut [u8]) -> Result<(), BackendError> {
        // SAFETY: as above.
        self.perform(|stream| unsafe { stream.read_into(source, destination.as_mut_ptr()) })
    }

    fn copy(&self, source: &Span, destination: &Span) -> Result<(), BackendError> {
        self.perform(|stream| stream.copy(source, destination))
    }

    fn fill(&self, destination: &Span, pattern: &Pattern) -> Result<(), BackendError> {
        self.perform(|stream| stream.fill(destination, pattern))
    }

    fn copy_from_peer(&self, source: &Span, destination: &Span) -> Result<(), BackendError> {
        self.perform(|stream| stream.copy_from_peer(source, destination))
    }

    fn create_stream(&self, options: &StreamOptions) -> Result<Box<dyn StreamDriver>, BackendError> {
        Ok(Box::new(CudaStream::create(&self.shared()?, options)?))
    }

    fn allocate_host(&self, len: usize) -> Result<Box<dyn PinnedMemory>, BackendError> {
        Ok(Box::new(CudaPinned::allocate(&self.shared()?, len)?))
    }

    /// The context is released when the last thing in it has been dropped, such as pinned memory that a program holds.
    fn close(&self) -> Result<(), BackendError> {
        lock(&self.idle).clear();
        *lock(&self.context) = None;
        Ok(())
    }
}
