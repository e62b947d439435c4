//! The driver's streams and events.

use std::ffi::c_void;
use std::ptr;
use std::sync::{Arc, Weak};

use cudarc::driver::sys::{CUevent, CUevent_flags, CUstream, CUstream_flags};
use device_registry::backend::{BackendError, Priority};

use super::context::Current;
use super::{DeviceRange, PrimaryContext};
use crate::error::CudaError;

/// A stream of the driver's. Dropping it destroys the stream, which does not wait: queued work is still done.
pub(crate) struct Stream {
    context: Arc<PrimaryContext>,
    handle: CUstream,
}

// SAFETY: the reference allows calls on a stream from any thread, and its handle is an address without data
// of a thread.
unsafe impl Send for Stream {}
// SAFETY: the reference allows calls on one stream from several threads at once.
unsafe impl Sync for Stream {}

/// Work that the driver runs on its own thread, in a stream's order.
pub(crate) trait HostFunction: Send + 'static {
    /// Runs the work. It calls nothing of CUDA, which the driver does not allow here.
    fn run(self);
}

/// What becomes of a [`HostFunction`] that the driver does not take.
pub(crate) struct Refused<T> {
    pub(crate) error: BackendError,
    /// `None` if the driver may still call it: the error is one of earlier work. Then it is leaked.
    pub(crate) function: Option<T>,
}

impl Stream {
    pub(crate) fn create(context: &Arc<PrimaryContext>, priority: Priority) -> Result<Self, CudaError> {
        let current = context.enter()?;
        // A smaller number is more urgent. Both are 0 where there is nothing to choose.
        let mut least = 0;
        let mut greatest = 0;
        // SAFETY: the context is current, and `least` and `greatest` are places for one number each.
        unsafe { current.functions().cuCtxGetStreamPriorityRange(&mut least, &mut greatest) }?;
        let priority = match priority {
            Priority::Low => least,
            Priority::High => greatest,
            // The default of the driver's streams, including other libraries'.
            _ => 0,
        };
        // Not blocking: a blocking stream waits for everything that others enqueue in the context's null
        // stream.
        let flags = CUstream_flags::CU_STREAM_NON_BLOCKING as u32;
        let mut handle = ptr::null_mut();
        // SAFETY: the context is current, and `handle` is a place for one pointer.
        unsafe { current.functions().cuStreamCreateWithPriority(&mut handle, flags, priority) }?;
        Ok(Self { context: Arc::clone(context), handle })
    }

    pub(crate) fn handle(&self) -> CUstream {
        self.handle
    }

    pub(crate) fn context(&self) -> &Arc<PrimaryContext> {
        &self.context
    }

    /// Identifies the stream for as long as it exists.
    pub(crate) fn address(&self) -> usize {
        self.handle.addr()
    }

    /// Enqueues a copy from the host.
    ///
    /// # Errors
    ///
    /// [`BackendError::invalid`] if the lengths differ or the range is of another context; else the driver's
    /// refusal.
    ///
    /// # Safety
    ///
    /// The bytes neither move nor change until the work is done.
    pub(crate) unsafe fn copy_from_host(&self, from: &[u8], to: DeviceRange<'_>) -> Result<(), BackendError> {
        let current = self.enter_for(&[to])?;
        same_length(from.len(), to.len())?;
        let from = from.as_ptr().cast();
        let len = to.len();
        // SAFETY: the context is current. `to` lies inside memory of this context that stays until the work
        // is done, and `from` has as many bytes, which the caller keeps.
        Ok(unsafe { current.functions().cuMemcpyHtoDAsync_v2(to.pointer(), from, len, self.handle) }?)
    }

    /// Enqueues a copy to the host.
    ///
    /// # Errors
    ///
    /// [`BackendError::invalid`] if the lengths differ or the range is of another context; else the driver's
    /// refusal.
    ///
    /// # Safety
    ///
    /// The bytes are not moved, freed, read or written until the work is done.
    pub(crate) unsafe fn copy_to_host(
        &self,
        from: DeviceRange<'_>,
        to: &mut [u8],
    ) -> Result<(), BackendError> {
        let current = self.enter_for(&[from])?;
        same_length(to.len(), from.len())?;
        let to = to.as_mut_ptr().cast();
        let len = from.len();
        // SAFETY: the context is current. `from` lies inside memory of this context that stays until the work
        // is done, and `to` has as many bytes, which the caller leaves to the driver.
        Ok(unsafe { current.functions().cuMemcpyDtoHAsync_v2(to, from.pointer(), len, self.handle) }?)
    }

    /// Enqueues a copy within the device.
    ///
    /// # Errors
    ///
    /// [`BackendError::invalid`] if the lengths differ or a range is of another context; else the driver's
    /// refusal.
    pub(crate) fn copy(&self, from: DeviceRange<'_>, to: DeviceRange<'_>) -> Result<(), BackendError> {
        let current = self.enter_for(&[from, to])?;
        same_length(from.len(), to.len())?;
        let len = to.len();
        // SAFETY: the context is current. Both ranges have `len` bytes inside memory of this context that
        // stays until the work is done.
        Ok(unsafe {
            current.functions().cuMemcpyDtoDAsync_v2(to.pointer(), from.pointer(), len, self.handle)
        }?)
    }

    /// Enqueues a copy from any context's memory.
    ///
    /// # Errors
    ///
    /// [`BackendError::invalid`] if the lengths differ or `to` is of another context; else the driver's
    /// refusal.
    pub(crate) fn copy_from_peer(
        &self,
        from: DeviceRange<'_>,
        to: DeviceRange<'_>,
    ) -> Result<(), BackendError> {
        let current = self.enter_for(&[to])?;
        same_length(from.len(), to.len())?;
        // SAFETY: the context is current. Each range has as many bytes inside memory of the context that is
        // passed with it, which the memory retains, and stays until the work is done.
        Ok(unsafe {
            current.functions().cuMemcpyPeerAsync(
                to.pointer(),
                to.context(),
                from.pointer(),
                from.context(),
                to.len(),
                self.handle,
            )
        }?)
    }

    /// Enqueues a fill with a pattern of 1, 2 or 4 bytes.
    ///
    /// # Errors
    ///
    /// [`BackendError::unsupported`] for a longer pattern. [`BackendError::invalid`] if the range does not
    /// consist of whole patterns or is of another context; else the driver's refusal.
    pub(crate) fn fill(&self, to: DeviceRange<'_>, pattern: &[u8]) -> Result<(), BackendError> {
        let current = self.enter_for(&[to])?;
        let cuda = current.functions();
        let stream = self.handle;
        let start = to.pointer();
        let len = to.len();
        if !len.is_multiple_of(pattern.len()) || !start.is_multiple_of(pattern.len() as u64) {
            return Err(BackendError::invalid(format_args!(
                "expected whole patterns of {} bytes, found {len} bytes at {start:#x}",
                pattern.len()
            )));
        }
        // SAFETY: the context is current. The range lies inside memory of this context that stays until the
        // work is done, and each call writes `len` bytes at a multiple of its pattern.
        Ok(unsafe {
            match *pattern {
                [a] => cuda.cuMemsetD8Async(start, a, len, stream),
                [a, b] => cuda.cuMemsetD16Async(start, u16::from_ne_bytes([a, b]), len / 2, stream),
                [a, b, c, d] => {
                    cuda.cuMemsetD32Async(start, u32::from_ne_bytes([a, b, c, d]), len / 4, stream)
                }
                _ => return Err(BackendError::unsupported("filling with more than 4 bytes")),
            }
        }?)
    }

    /// Enqueues a function of the host. After a failure of the context the driver never calls it, and it is
    /// leaked.
    pub(crate) fn launch_host_function<T: HostFunction>(&self, function: T) -> Result<(), Refused<T>> {
        let current = match self.context.enter() {
            Ok(current) => current,
            Err(error) => return Err(Refused { error: error.into(), function: Some(function) }),
        };
        let data = Box::into_raw(Box::new(function));
        // SAFETY: the context is current. `call::<T>` gets this box, once, and `T` may be sent to the
        // driver's thread.
        let launched =
            unsafe { current.functions().cuLaunchHostFunc(self.handle, Some(call::<T>), data.cast()) };
        launched.map_err(|error| {
            // An error of earlier work does not say that the driver has refused the function.
            let function = (!error.is_loss()).then(|| {
                // SAFETY: the driver refused the function, so that it does not have the box that `into_raw`
                // made above.
                *unsafe { Box::from_raw(data) }
            });
            Refused { error: error.into(), function }
        })
    }

    /// Enqueues an event, which is new to the caller.
    pub(crate) fn record(self: &Arc<Self>, timed: bool) -> Result<Event, CudaError> {
        let current = self.context.enter()?;
        let handle = match self.context.kept_event(timed) {
            Some(kept) => kept,
            None => {
                let flags = match timed {
                    true => CUevent_flags::CU_EVENT_DEFAULT,
                    false => CUevent_flags::CU_EVENT_DISABLE_TIMING,
                };
                let mut handle = ptr::null_mut();
                // SAFETY: the context is current, and `handle` is a place for one pointer.
                unsafe { current.functions().cuEventCreate(&mut handle, flags as u32) }?;
                handle
            }
        };
        // SAFETY: the event was made in the stream's context, which is current.
        if let Err(error) = unsafe { current.functions().cuEventRecord(handle, self.handle) } {
            // Not for the next one.
            self.context.destroy_event(handle);
            return Err(error);
        }
        Ok(Event { context: Arc::clone(&self.context), stream: Arc::downgrade(self), handle, timed })
    }

    /// Holds later work back until an event is reached, which may be of any context.
    pub(crate) fn wait_event(&self, event: &Event) -> Result<(), CudaError> {
        let current = self.context.enter()?;
        // SAFETY: the context is current, and both values own their handles. Only recording asks for the same
        // context.
        unsafe { current.functions().cuStreamWaitEvent(self.handle, event.handle, 0) }
    }

    /// Whether all work is done. `false` while a program captures the stream: the driver's query would end
    /// the capture.
    pub(crate) fn is_done(&self) -> Result<bool, CudaError> {
        let current = self.context.enter()?;
        if self.is_captured(&current)? {
            return Ok(false);
        }
        // SAFETY: the context is current, and `self` owns the stream.
        done(unsafe { current.functions().cuStreamQuery(self.handle) })
    }

    /// Waits until all work is done.
    pub(crate) fn synchronize(&self) -> Result<(), CudaError> {
        let current = self.context.enter()?;
        // SAFETY: the context is current, and `self` owns the stream.
        unsafe { current.functions().cuStreamSynchronize(self.handle) }
    }

    /// Whether a program captures the stream into a graph, or has to end a capture that failed.
    fn is_captured(&self, current: &Current<'_>) -> Result<bool, CudaError> {
        let mut status = 0;
        // SAFETY: the context is current, `self` owns the stream, and `status` is a place for one number.
        unsafe { current.functions().cuStreamIsCapturing(self.handle, &mut status) }?;
        Ok(status != 0)
    }

    /// Makes the context current for work on ranges that have to belong to it.
    fn enter_for(&self, ranges: &[DeviceRange<'_>]) -> Result<Current<'_>, BackendError> {
        if ranges.iter().any(|range| range.context() != self.context.handle()) {
            return Err(BackendError::invalid(
                "expected memory of the stream's device, found memory of another",
            ));
        }
        Ok(self.context.enter()?)
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        // SAFETY: `create` made the stream once for this value.
        self.context.dispose(|cuda| unsafe { cuda.cuStreamDestroy_v2(self.handle) });
    }
}

/// Calls a function that [`Stream::launch_host_function`] enqueued.
///
/// # Safety
///
/// `data` is a box of a `T` that no other code has any more.
unsafe extern "C" fn call<T: HostFunction>(data: *mut c_void) {
    // SAFETY: the caller gives this box away.
    let function = *unsafe { Box::from_raw(data.cast::<T>()) };
    function.run();
}

fn same_length(found: usize, expected: usize) -> Result<(), BackendError> {
    if found == expected {
        return Ok(());
    }
    Err(BackendError::invalid(format_args!("expected {expected} bytes, found {found}")))
}

/// The result of a query, for which *not ready* is not an error.
fn done(outcome: Result<(), CudaError>) -> Result<bool, CudaError> {
    match outcome {
        Ok(()) => Ok(true),
        Err(error) if error.is_not_ready() => Ok(false),
        Err(error) => Err(error),
    }
}

/// An event that was recorded once, when it was made. Dropping it leaves it to the next one; streams that
/// wait for it still do.
pub(crate) struct Event {
    context: Arc<PrimaryContext>,
    /// The stream that recorded it, unless that was dropped.
    stream: Weak<Stream>,
    handle: CUevent,
    timed: bool,
}

// SAFETY: the reference allows calls on an event from any thread, and its handle is an address without data
// of a thread.
unsafe impl Send for Event {}
// SAFETY: the reference allows calls on one event from several threads at once.
unsafe impl Sync for Event {}

impl Event {
    pub(crate) fn handle(&self) -> CUevent {
        self.handle
    }

    /// Whether the event is reached. `false` while a program captures its stream: the driver's query would
    /// end the capture.
    pub(crate) fn is_done(&self) -> Result<bool, CudaError> {
        let stream = self.stream.upgrade();
        let current = self.context.enter()?;
        if let Some(stream) = &stream
            && stream.is_captured(&current)?
        {
            return Ok(false);
        }
        // SAFETY: the context is current, and `self` owns the event.
        done(unsafe { current.functions().cuEventQuery(self.handle) })
    }

    /// Waits until the event is reached.
    pub(crate) fn synchronize(&self) -> Result<(), CudaError> {
        let current = self.context.enter()?;
        // SAFETY: the context is current, and `self` owns the event.
        unsafe { current.functions().cuEventSynchronize(self.handle) }
    }

    /// Milliseconds from `start` to this event.
    ///
    /// # Errors
    ///
    /// [`BackendError::invalid`] if the events are of two contexts; else the driver's refusal.
    pub(crate) fn milliseconds_since(&self, start: &Self) -> Result<f32, BackendError> {
        if start.context.handle() != self.context.handle() {
            return Err(BackendError::invalid("expected two events of one device, found events of two"));
        }
        let current = self.context.enter()?;
        let mut milliseconds = 0.0;
        // SAFETY: the context is current, both values own their events, which are of this context, and
        // `milliseconds` is a place for one number.
        unsafe { current.functions().cuEventElapsedTime(&mut milliseconds, start.handle, self.handle) }?;
        Ok(milliseconds)
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        self.context.keep_event(self.timed, self.handle);
    }
}
