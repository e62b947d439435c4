//! The primary context of a device: kept for as long as anybody has something in it, and made current for each call.

use std::ffi::c_int;
use std::marker::PhantomData;
use std::ptr;
use std::sync::Arc;

use cudarc::driver::sys::{CUcontext, CUdevice};
use device_registry::backend::{BackendError, BackendErrorKind};

use crate::error::{CudaError, DEVICE_UNAVAILABLE};
use crate::library::Functions;
use crate::reads::Reads;

/// The device's primary context, which all users of CUDA in the process share, so that handles of one fit the others.
///
/// Memory, streams, events and pinned memory each hold it. So what a program still has after the device was closed stays
/// valid, and the context is released with the last of them.
pub(crate) struct Context {
    cuda: &'static Functions,
    device: CUdevice,
    handle: CUcontext,
    reads: Arc<Reads>,
}

// SAFETY: a context is no thread's own: the reference has it current to any number of threads at a time.
unsafe impl Send for Context {}
// SAFETY: the driver's functions may be called for one context from several threads at once.
unsafe impl Sync for Context {}

impl Context {
    /// Retains it, which makes it if nobody in the process has it.
    pub(crate) fn retain(cuda: &'static Functions, ordinal: usize) -> Result<Self, BackendError> {
        let device = device(cuda, ordinal)?;
        let mut handle = ptr::null_mut();
        // SAFETY: the device is one of the driver's, and the place is there.
        unsafe { cuda.cuDevicePrimaryCtxRetain(&mut handle, device) }.map_err(|error| match error.code {
            DEVICE_UNAVAILABLE => BackendError::unavailable(format_args!(
                "another process has the device for itself, or none may use it ({error}); `nvidia-smi -q -d COMPUTE` \
                 shows its compute mode, and `nvidia-smi -c DEFAULT` sets one that all share"
            )),
            _ => error.into(),
        })?;
        Ok(Self { cuda, device, handle, reads: Arc::default() })
    }

    pub(crate) fn handle(&self) -> CUcontext {
        self.handle
    }

    /// The reads in its streams that are not done.
    pub(crate) fn reads(&self) -> &Arc<Reads> {
        &self.reads
    }

    /// The driver, for functions that want no current context.
    pub(crate) fn cuda(&self) -> &'static Functions {
        self.cuda
    }

    /// Makes it current to this thread until the result is dropped, and then what was current before.
    ///
    /// Each call does so. What a thread had last cannot be remembered, since others set it as well: a kernel of the
    /// program's, or a library that uses the CUDA runtime, for which the current context is the current device. For their
    /// sake it is put back, too. Pushing and popping change a stack of the thread's, and never wait for the device.
    pub(crate) fn enter(&self) -> Result<Current<'_>, BackendError> {
        Ok(self.try_enter()?)
    }

    /// The same, for those who look at the code.
    pub(crate) fn try_enter(&self) -> Result<Current<'_>, CudaError> {
        // SAFETY: the context is retained until `self` is dropped.
        unsafe { self.cuda.cuCtxPushCurrent_v2(self.handle) }?;
        Ok(Current { context: self, _of_this_thread: PhantomData })
    }

    /// Makes it current to this thread, and leaves it so.
    pub(crate) fn make_current(&self) -> Result<(), BackendError> {
        // SAFETY: the context is retained until `self` is dropped. A device is not dropped before its process.
        Ok(unsafe { self.cuda.cuCtxSetCurrent(self.handle) }?)
    }

    /// Gives something back where nobody takes an error.
    pub(crate) fn dispose(&self, dispose: impl FnOnce(&Functions) -> Result<(), CudaError>) {
        report(self.enter().and_then(|current| Ok(dispose(current.cuda())?)));
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: it was retained once, and all that was made in it has been given back.
        report(unsafe { self.cuda.cuDevicePrimaryCtxRelease_v2(self.device) }.map_err(BackendError::from));
    }
}

/// Logs an error that nobody takes. A device that is lost has nothing to give back, and its loss is told elsewhere; the
/// driver of a process that ends has given back everything.
fn report(outcome: Result<(), BackendError>) {
    match outcome {
        Err(error) if error.kind() != BackendErrorKind::Lost => log::error!("while giving back: {error}"),
        _ => {}
    }
}

/// The driver's handle of a device.
pub(crate) fn device(cuda: &Functions, ordinal: usize) -> Result<CUdevice, BackendError> {
    let ordinal = c_int::try_from(ordinal)
        .map_err(|_| BackendError::invalid(format_args!("there is no device with the ordinal {ordinal}")))?;
    let mut device = 0;
    // SAFETY: the driver refuses ordinals of devices that are not there; the place is there.
    unsafe { cuda.cuDeviceGet(&mut device, ordinal) }?;
    Ok(device)
}

/// The context is current to this thread.
pub(crate) struct Current<'a> {
    context: &'a Context,
    /// It is not to be dropped on another.
    _of_this_thread: PhantomData<*const ()>,
}

impl Current<'_> {
    /// The driver, of which functions are called that want a current context.
    pub(crate) fn cuda(&self) -> &'static Functions {
        self.context.cuda
    }
}

impl Drop for Current<'_> {
    fn drop(&mut self) {
        let mut popped = ptr::null_mut();
        // SAFETY: this thread has pushed one; the place is there.
        report(unsafe { self.context.cuda.cuCtxPopCurrent_v2(&mut popped) }.map_err(BackendError::from));
    }
}
