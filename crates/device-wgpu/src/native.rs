//! What programs and kernels get of a device and of its streams: native handles, and nothing that the core's contract
//! protects.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use device_registry::backend::BackendError;
use wgpu::CommandBuffer;

use crate::context::Context;
use crate::submission::Submission;

/// A device of `wgpu` that is open, for kernels: the native handles.
///
/// It is not the driver: the functions that rely on the checks of the core are out of reach.
///
/// ```compile_fail,E0277
/// fn is_driver<D: device_registry::backend::DeviceDriver>() {}
/// is_driver::<device_wgpu::WgpuDevice>();
/// ```
pub struct WgpuDevice(Arc<Context>);

impl WgpuDevice {
    pub(crate) fn new(context: Arc<Context>) -> Self {
        Self(context)
    }

    pub(crate) fn context(&self) -> &Arc<Context> {
        &self.0
    }

    /// What the device was asked of.
    #[must_use]
    pub fn adapter(&self) -> &wgpu::Adapter {
        &self.0.adapter
    }

    /// The native handle, with the limits of the adapter, and of its features those that kernels use.
    ///
    /// Its callbacks for errors and for the loss of the device are in use. To destroy it loses the device; not while other
    /// threads copy, as wgpu frees memory then that they copy from.
    #[must_use]
    pub fn device(&self) -> &wgpu::Device {
        &self.0.device
    }

    /// The native handle of the one queue. Kernels submit by [`WgpuStream::submit`], or the stream does not wait for them.
    #[must_use]
    pub fn queue(&self) -> &wgpu::Queue {
        &self.0.queue
    }

    /// Runs calls of wgpu, on this thread, and returns the first error that they leave behind, which wgpu itself does
    /// not: those of a shader that does not compile have the compiler's message.
    ///
    /// ```no_run
    /// # use device_registry::backend::BackendError;
    /// # use device_wgpu::{WgpuDevice, wgpu};
    /// fn compile(device: &WgpuDevice, wgsl: &str) -> Result<wgpu::ShaderModule, BackendError> {
    ///     let source = wgpu::ShaderSource::Wgsl(wgsl.into());
    ///     let descriptor = wgpu::ShaderModuleDescriptor { label: Some("add"), source };
    ///     device.checked(|device| device.create_shader_module(descriptor))
    /// }
    /// ```
    ///
    /// # Errors
    ///
    /// [`BackendError::invalid`] for what wgpu refuses, out of memory, and [`BackendError::lost`] if the device is known
    /// to be lost.
    pub fn checked<T>(&self, run: impl FnOnce(&wgpu::Device) -> T) -> Result<T, BackendError> {
        self.0.checked(run)
    }
}

/// A stream on a device of `wgpu`, for kernels that submit to it.
///
/// All streams of a device share its one queue, and their work is done in the order of the submissions; but each waits
/// for its own only.
///
/// It is not the driver: work whose memory the core has to keep is enqueued by a [`Stream`](device_registry::Stream) only.
///
/// ```compile_fail,E0277
/// fn is_driver<D: device_registry::backend::StreamDriver>() {}
/// is_driver::<device_wgpu::WgpuStream>();
/// ```
pub struct WgpuStream {
    context: Arc<Context>,
    last: Mutex<Option<Arc<Submission>>>,
}

impl WgpuStream {
    pub(crate) fn new(context: &Arc<Context>) -> Self {
        Self { context: Arc::clone(context), last: Mutex::default() }
    }

    /// Submits commands as the work of this stream, so that events and waits of the stream know of them. What is
    /// submitted by [`WgpuDevice::queue`](crate::WgpuDevice::queue) runs in its order too, and the stream does not wait for it.
    ///
    /// Does not wait. It may be called from any thread.
    ///
    /// # Errors
    ///
    /// What wgpu has against the commands; none of them runs then. [`BackendError::lost`] if the device is known to be
    /// lost.
    pub fn submit(&self, commands: impl IntoIterator<Item = CommandBuffer>) -> Result<(), BackendError> {
        let mut last = self.last();
        *last = Some(self.context.submit(commands)?);
        Ok(())
    }

    pub(crate) fn last(&self) -> MutexGuard<'_, Option<Arc<Submission>>> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
