//! Native handles of a device and of its streams, for programs and kernels. Nothing that the core's contract
//! protects can be reached through them.

use std::sync::Arc;

use device_registry::backend::BackendError;
use parking_lot::{Mutex, MutexGuard};
use wgpu::CommandBuffer;

use crate::context::Context;
use crate::submission::Submission;

/// An open device of `wgpu`, with its native handles: for programs and kernels.
///
/// Its handles are Rust types of `wgpu`, and so have no
/// [kind](device_registry::backend::DeviceDriver::native_handle): a kernel works only where this crate is
/// linked.
///
/// It is not the driver: functions that rely on the core's checks cannot be called through it.
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

    /// The instance that has the adapter. All devices of this process share it, and it stays until the
    /// process ends.
    #[must_use]
    pub fn instance(&self) -> &wgpu::Instance {
        &self.0.instance
    }

    /// The adapter that opened the device.
    #[must_use]
    pub fn adapter(&self) -> &wgpu::Adapter {
        &self.0.adapter
    }

    /// The native handle, with the limits of the adapter, and of its features those that kernels use.
    ///
    /// This crate has set its callbacks for errors and for the loss of the device. Destroying it loses the
    /// device. Do not destroy it while other threads copy: wgpu then frees memory that they copy from.
    #[must_use]
    pub fn device(&self) -> &wgpu::Device {
        &self.0.device
    }

    /// The native handle of the one queue. Kernels submit by [`WgpuStream::submit`], or the stream does not
    /// wait for them.
    #[must_use]
    pub fn queue(&self) -> &wgpu::Queue {
        &self.0.queue
    }

    /// Announces that another library computes on the device by its native handles, such as an engine of
    /// burn's. Cannot be taken back, and holds until the device is closed or reset.
    ///
    /// [`Device::close`](device_registry::Device::close) then leaves the device to that library, and frees
    /// none of the memory that the library has allocated. Without this call it destroys the device, and with
    /// it mapped memory that the library may have given to the program. A reset never destroys a device.
    /// After either, this value and its handles belong to the old device, which works on, unless it was lost,
    /// until all of them are dropped. The registry's next use opens another one: compare
    /// [`device`](Self::device) to notice it.
    ///
    /// A library that sets the callback for the loss of the device takes it from this crate, as wgpu has one.
    /// This crate then notices a loss by the first call that fails or waits, and [`check`](Self::check)
    /// notices it at once.
    pub fn share(&self) {
        self.0.share();
    }

    /// Whether the device still accepts work. Submits nothing to do and waits for it, and so for all work
    /// before it.
    ///
    /// # Errors
    ///
    /// [`BackendError::lost`] if it is lost.
    pub fn check(&self) -> Result<(), BackendError> {
        self.0.probe()
    }

    /// Runs calls of wgpu on this thread, and returns their first error, which wgpu itself passes to a
    /// callback only. The error of a shader that does not compile has the compiler's message.
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
    /// [`BackendError::invalid`] for calls that wgpu's validation refuses, out of memory, and
    /// [`BackendError::lost`] if the device is known to be lost.
    pub fn checked<T>(&self, run: impl FnOnce(&wgpu::Device) -> T) -> Result<T, BackendError> {
        self.0.checked(run)
    }
}

/// A stream on a device of `wgpu`, for kernels that submit to it.
///
/// All streams of a device share its one queue, which does their work in the order of submission. Each stream
/// only waits for its own work.
///
/// It is not the driver: work whose memory the core has to keep is enqueued by a
/// [`Stream`](device_registry::Stream) only.
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

    /// Submits commands as work of this stream, so that its events and waits include them. Commands that are
    /// submitted to [`WgpuDevice::queue`](crate::WgpuDevice::queue) also run in that queue's order, but the
    /// stream does not wait for them.
    ///
    /// Does not wait. Any thread may call it.
    ///
    /// # Errors
    ///
    /// [`BackendError::invalid`] if wgpu's validation refuses the commands, of which none runs then.
    /// [`BackendError::lost`] if the device is known to be lost.
    pub fn submit(&self, commands: impl IntoIterator<Item = CommandBuffer>) -> Result<(), BackendError> {
        // Before the lock: the caller's iterator may submit to this stream itself.
        let commands: Vec<_> = commands.into_iter().collect();
        let mut last = self.last();
        *last = Some(self.context.submit(commands)?);
        Ok(())
    }

    pub(crate) fn last(&self) -> MutexGuard<'_, Option<Arc<Submission>>> {
        self.last.lock()
    }
}
