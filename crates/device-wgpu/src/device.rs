//! One open device.

use std::sync::Arc;

use device_registry::{
    AllocateOptions, BackendError, DeviceDriver, Memory, MemoryInfo, Pattern, Span, StreamDriver,
    StreamOptions,
};

use crate::context::Context;
use crate::memory::WgpuMemory;
use crate::reads::Reads;
use crate::stream::WgpuStream;

/// A device of `wgpu` that is open, for kernels: the native handles.
pub struct WgpuDevice {
    context: Arc<Context>,
    reads: Arc<Reads>,
}

impl WgpuDevice {
    pub(crate) fn open(adapter: &wgpu::Adapter, ordinal: usize) -> Result<Self, BackendError> {
        let context = Arc::new(Context::open(adapter)?);
        let reads = Arc::new(Reads::new(&context, &format!("wgpu:{ordinal}"))?);
        Ok(Self { context, reads })
    }

    /// What the device was asked of.
    #[must_use]
    pub fn adapter(&self) -> &wgpu::Adapter {
        &self.context.adapter
    }

    /// The native handle, with the limits of the adapter, and of its features those that kernels use.
    ///
    /// Its callbacks for errors and for the loss of the device are in use. To destroy it loses the device; not while other
    /// threads copy, as wgpu frees memory then that they copy from.
    #[must_use]
    pub fn device(&self) -> &wgpu::Device {
        &self.context.device
    }

    /// The native handle of the one queue. Kernels submit by [`WgpuStream::submit`], or nobody waits for them.
    #[must_use]
    pub fn queue(&self) -> &wgpu::Queue {
        &self.context.queue
    }

    /// Runs calls of wgpu, on this thread, and returns the first error that they leave behind, which wgpu itself does
    /// not: those of a shader that does not compile have the compiler's message.
    ///
    /// ```no_run
    /// # use device_registry::BackendError;
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
        self.context.checked(run)
    }

    /// Ends the thread, and lets go of what is kept for the next copy.
    fn end(&self) {
        self.reads.close();
        self.context.staging.clear();
    }
}

impl DeviceDriver for WgpuDevice {
    /// wgpu does not tell.
    fn memory_info(&self) -> Result<MemoryInfo, BackendError> {
        self.context.check()?;
        Ok(MemoryInfo::unknown())
    }

    fn allocate(&self, options: &AllocateOptions) -> Result<Arc<dyn Memory>, BackendError> {
        Ok(Arc::new(WgpuMemory::new(self.context.allocate(options.len)?)))
    }

    fn write(&self, destination: &Span, source: &[u8]) -> Result<(), BackendError> {
        self.context.wait(&*self.context.write(destination, source)?)
    }

    fn read(&self, source: &Span, destination: &mut [u8]) -> Result<(), BackendError> {
        self.context.read(source, destination)
    }

    fn copy(&self, source: &Span, destination: &Span) -> Result<(), BackendError> {
        self.context.wait(&*self.context.copy(source, destination)?)
    }

    fn fill(&self, destination: &Span, pattern: &Pattern) -> Result<(), BackendError> {
        self.context.wait(&*self.context.fill(destination, pattern)?)
    }

    /// They take no priority.
    fn create_stream(&self, _options: &StreamOptions) -> Result<Box<dyn StreamDriver>, BackendError> {
        self.context.check()?;
        Ok(Box::new(WgpuStream::new(&self.context, &self.reads)))
    }

    fn reset(&self) -> Result<(), BackendError> {
        // Not destroyed, if it was not: calls of other threads may still copy from what is mapped, which that frees.
        self.end();
        Ok(())
    }

    fn close(&self) -> Result<(), BackendError> {
        self.end();
        self.context.device.destroy();
        // All work is done, so that this frees what the device has. What it returns is the end of the device.
        let _ = self.context.look();
        Ok(())
    }
}
