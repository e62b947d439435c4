//! The primary context of a device: retained, and current to a thread for the length of a call.

use std::ffi::c_int;
use std::marker::PhantomData;
use std::ptr;
use std::sync::OnceLock;

use cudarc::driver::sys::{CUcontext, CUdevice, CUdevice_attribute, CUevent};
use parking_lot::Mutex;

use super::functions::Functions;
use super::pool::Pool;
use super::{Device, Library};
use crate::error::CudaError;

/// The device's primary context, which all users of CUDA in the process share, so that handles of one fit the
/// others.
///
/// Memory, streams, events and pinned memory each hold it. So what a program keeps after the device is closed
/// stays valid, and the context is released with the last of them.
pub(crate) struct PrimaryContext {
    device: Device,
    handle: CUcontext,
    /// What temporary memory is from.
    pool: OnceLock<Pool>,
    /// Events that were dropped, for the next ones: without times, and with them. Making and destroying one
    /// takes longer than recording it.
    events: [Mutex<Vec<CUevent>>; 2],
}

/// How many events of a kind are kept.
const MOST_EVENTS: usize = 64;

// SAFETY: the reference lets a context be current to any thread, and its handle is an address without data of
// a thread.
unsafe impl Send for PrimaryContext {}
// SAFETY: the reference allows calls on one context from several threads at once.
unsafe impl Sync for PrimaryContext {}

impl PrimaryContext {
    /// Retains the context, which creates it unless another user of the process has it.
    pub(crate) fn retain(device: Device) -> Result<Self, CudaError> {
        let mut handle = ptr::null_mut();
        // SAFETY: the driver gave the device's handle, and `handle` is a place for one pointer.
        unsafe { device.library.0.cuDevicePrimaryCtxRetain(&mut handle, device.device) }?;
        Ok(Self { device, handle, pool: OnceLock::new(), events: Default::default() })
    }

    /// A number that the driver knows of the device.
    pub(crate) fn attribute(&self, attribute: CUdevice_attribute) -> Result<c_int, CudaError> {
        self.device.attribute(attribute)
    }

    pub(crate) fn device(&self) -> CUdevice {
        self.device.device
    }

    pub(crate) fn handle(&self) -> CUcontext {
        self.handle
    }

    pub(crate) fn library(&self) -> Library {
        self.device.library
    }

    /// Makes the context current to this thread, and leaves it current.
    pub(crate) fn make_current(&self) -> Result<(), CudaError> {
        // SAFETY: `self` retains the context, and a driver's context is not dropped while its device is open.
        unsafe { self.library().0.cuCtxSetCurrent(self.handle) }
    }

    /// Temporary memory's pool, which is made at the first call. The next one tries again after an error.
    pub(super) fn pool(&self) -> Result<&Pool, CudaError> {
        if let Some(pool) = self.pool.get() {
            return Ok(pool);
        }
        // Of two threads, one keeps its pool.
        let pool = Pool::create(self.device)?;
        Ok(self.pool.get_or_init(|| pool))
    }

    /// An event that was kept. It still says what it was recorded for last.
    pub(super) fn kept_event(&self, timed: bool) -> Option<CUevent> {
        self.events[usize::from(timed)].lock().pop()
    }

    /// Keeps an event for the next one, or destroys it. Streams that wait for it still do, by the reference
    /// of `cudaEventRecord`: a wait uses what the event was recorded for when the wait was submitted.
    pub(super) fn keep_event(&self, timed: bool, event: CUevent) {
        let mut events = self.events[usize::from(timed)].lock();
        if events.len() < MOST_EVENTS {
            return events.push(event);
        }
        drop(events);
        self.destroy_event(event);
    }

    /// Destroys an event, which the caller gives away.
    pub(super) fn destroy_event(&self, event: CUevent) {
        // SAFETY: the caller has the event for itself. The reference lets an event be destroyed before it is
        // reached, and releases it then.
        self.dispose(|cuda| unsafe { cuda.cuEventDestroy_v2(event) });
    }

    /// Free and total memory of the device, in bytes.
    pub(crate) fn memory_info(&self) -> Result<(usize, usize), CudaError> {
        let current = self.enter()?;
        let mut free = 0;
        let mut total = 0;
        // SAFETY: the context is current, and `free` and `total` are places for one number each.
        unsafe { current.functions().cuMemGetInfo_v2(&mut free, &mut total) }?;
        Ok((free, total))
    }

    /// Makes the context current to this thread until the result is dropped, which restores the former one.
    ///
    /// Each call does so. The crate cannot remember which context a thread has, because others set it as
    /// well: a kernel of the program's, or a library that uses the CUDA runtime, for which the current
    /// context is the current device. For their sake it is restored, too. Pushing and popping change a stack
    /// of the thread's, and never wait for the device.
    pub(super) fn enter(&self) -> Result<Current<'_>, CudaError> {
        // SAFETY: `self` retains the context, and the result borrows `self`.
        unsafe { self.library().0.cuCtxPushCurrent_v2(self.handle) }?;
        Ok(Current { context: self, _of_this_thread: PhantomData })
    }

    /// Releases something in a `drop`, which cannot return an error.
    pub(super) fn dispose(&self, dispose: impl FnOnce(&Functions) -> Result<(), CudaError>) {
        log_failure(self.enter().and_then(|current| dispose(current.functions())));
    }
}

impl Drop for PrimaryContext {
    fn drop(&mut self) {
        drop(self.pool.take());
        let events: Vec<_> =
            self.events.iter_mut().flat_map(|events| std::mem::take(events.get_mut())).collect();
        events.into_iter().for_each(|event| self.destroy_event(event));
        // SAFETY: `retain` retained it once for this value, and everything made in it holds this value, so
        // nothing is left.
        log_failure(unsafe { self.library().0.cuDevicePrimaryCtxRelease_v2(self.device.device) });
    }
}

/// Logs an error that no caller receives. A lost device has nothing to release, and its loss is reported
/// elsewhere; the driver of a process that ends has released everything.
pub(super) fn log_failure(outcome: Result<(), CudaError>) {
    if let Err(error) = outcome
        && !error.is_loss()
    {
        log::error!("a handle was not released: {error}");
    }
}

/// Proof that a context is current to this thread.
pub(super) struct Current<'a> {
    context: &'a PrimaryContext,
    /// Keeps the value on the thread whose stack it changed.
    _of_this_thread: PhantomData<*const ()>,
}

impl Current<'_> {
    /// The driver's functions that need a current context.
    pub(super) fn functions(&self) -> &'static Functions {
        self.context.library().0
    }
}

impl Drop for Current<'_> {
    fn drop(&mut self) {
        let mut popped = ptr::null_mut();
        // SAFETY: `enter` pushed a context on this thread, which this value cannot leave; `popped` is a place
        // for a pointer.
        log_failure(unsafe { self.functions().cuCtxPopCurrent_v2(&mut popped) });
    }
}
