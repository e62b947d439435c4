//! Native handles of a device and of its streams, for programs and kernels. Nothing that the core's contract
//! protects can be reached through them.

use std::sync::Arc;

use device_registry::backend::{BackendError, ReadThread};
use parking_lot::Mutex;
use wgpu::CommandBuffer;

use crate::batch::{Batch, BegunReads};
use crate::context::{Context, Gathering};
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

    /// The native handle of the one queue. Kernels submit by [`WgpuStream::enqueue`] or
    /// [`WgpuStream::submit`], or the stream does not wait for them.
    ///
    /// The first call submits what streams have gathered, and from then on they gather nothing: whatever the
    /// caller submits comes after the work that streams have accepted before.
    #[must_use]
    pub fn queue(&self) -> &wgpu::Queue {
        self.0.submit_at_once();
        &self.0.queue
    }

    /// Announces that another library computes on the device through its native handles, such as a burn
    /// engine. Cannot be taken back, and holds until the device is closed or reset.
    ///
    /// [`Device::close`](device_registry::Device::close) then leaves the device to that library, and frees
    /// none of the memory that the library has allocated. Without this call it destroys the device, and with
    /// it mapped memory that the library may have given to the program. A reset never destroys a device.
    /// After either, this value and its handles belong to the old device, which works on, unless it was lost,
    /// until all of them are dropped. The registry's next use opens another one: compare
    /// [`device`](Self::device) to notice it.
    ///
    /// A library that sets the callback for the loss of the device replaces this crate's, as wgpu has only
    /// one. This crate then notices a loss at the first call that fails or waits, and [`check`](Self::check)
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
/// only waits for its own work. It gathers its copies and fills, and submits them together.
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
    reads: Arc<ReadThread>,
    work: Mutex<Work>,
}

/// The work of a stream.
#[derive(Default)]
struct Work {
    /// The submission of the newest work, which may only be gathered so far.
    last: Option<Arc<Submission>>,
    gathered: Option<Batch>,
    /// The failure of gathered work, until it is reported to the core.
    failure: Option<BackendError>,
}

impl WgpuStream {
    pub(crate) fn new(context: &Arc<Context>, reads: &Arc<ReadThread>) -> Arc<Self> {
        let context = Arc::clone(context);
        let reads = Arc::clone(reads);
        let stream = Arc::new(Self { context, reads, work: Mutex::default() });
        let weak = Arc::downgrade(&stream);
        stream.context.add_stream(weak);
        stream
    }

    /// Submits commands as work of this stream, so that its events and waits include them, and before them
    /// what the stream has gathered. Commands that are submitted to
    /// [`WgpuDevice::queue`](crate::WgpuDevice::queue) also run in that queue's order, but the stream does
    /// not wait for them.
    ///
    /// Does not wait. Any thread may call it.
    ///
    /// # Errors
    ///
    /// [`BackendError::invalid`] if wgpu's validation refuses the commands; then none of them runs.
    /// [`BackendError::lost`] if the device is known to be lost.
    pub fn submit(&self, commands: impl IntoIterator<Item = CommandBuffer>) -> Result<(), BackendError> {
        // Before the lock: the caller's iterator may submit to this stream itself.
        let commands: Vec<_> = commands.into_iter().collect();
        self.submit_alone(|| Ok((Some(self.context.submit(commands)?), ())))
    }

    /// Like [`submit`](Self::submit), but the commands are submitted together with other work of the stream:
    /// when the program waits for some of it, or when it is enough for a submission. A hundred kernels then
    /// are a few submissions.
    ///
    /// # Errors
    ///
    /// [`BackendError::lost`] if the device is known to be lost. Commands that cannot be submitted, such as
    /// those with a buffer that was destroyed, are a failure of the stream, and with them all work of the
    /// same submission. Encode commands within [`WgpuDevice::checked`], which finds everything else.
    pub fn enqueue(&self, commands: impl IntoIterator<Item = CommandBuffer>) -> Result<(), BackendError> {
        let commands = commands.into_iter().collect();
        self.gather(|batch| {
            batch.add(commands);
            Ok(())
        })
    }

    /// Adds work to what is submitted next.
    pub(crate) fn gather(
        &self,
        add: impl FnOnce(&mut Batch) -> Result<(), BackendError>,
    ) -> Result<(), BackendError> {
        self.context.check()?;
        let mut work = self.work.lock();
        let mut batch = work.gathered.take().unwrap_or_else(|| Batch::new(&self.context));
        let added = add(&mut batch);
        if added.is_ok() {
            work.last = Some(Arc::clone(batch.submission()));
        }
        let is_full = batch.is_full() || self.context.submits_at_once();
        work.gathered = Some(batch).filter(|batch| !batch.is_empty());
        let reads = if is_full { work.submit_gathered() } else { BegunReads::default() };
        drop(work);
        reads.hand_to(&self.reads);
        added
    }

    /// Submits the gathered work, and returns the failure of earlier work, if it was not reported yet.
    pub(crate) fn flush(&self) -> Result<(), BackendError> {
        self.flush_all().1
    }

    /// Like [`flush`](Self::flush). Returns also the submission of the newest work.
    pub(crate) fn flush_all(&self) -> (Option<Arc<Submission>>, Result<(), BackendError>) {
        let mut work = self.work.lock();
        let reads = work.submit_gathered();
        let flushed = work.failure.take().map_or(Ok(()), Err);
        let last = work.last.clone();
        drop(work);
        reads.hand_to(&self.reads);
        (last, flushed)
    }

    /// Calls a function that submits its own commands, after the gathered work, and returns their submission.
    pub(crate) fn submit_alone<T>(
        &self,
        submit: impl FnOnce() -> Result<(Option<Arc<Submission>>, T), BackendError>,
    ) -> Result<T, BackendError> {
        let mut work = self.work.lock();
        let reads = work.submit_gathered();
        let submitted = submit().map(|(last, submitted)| {
            work.last = last;
            submitted
        });
        drop(work);
        reads.hand_to(&self.reads);
        submitted
    }

    /// The submission of the newest work, which may be gathered only.
    pub(crate) fn last(&self) -> Option<Arc<Submission>> {
        self.work.lock().last.clone()
    }

    /// Notes when the newest work is done. Returns its submission.
    pub(crate) fn track_last(&self) -> Option<Arc<Submission>> {
        let work = self.work.lock();
        // Done now, before other streams submit more.
        work.last.as_ref().inspect(|last| last.track(&self.context.queue)).cloned()
    }
}

impl Gathering for WgpuStream {
    /// Submits the gathered work. The next [`flush`](WgpuStream::flush) reports its failure.
    fn submit_gathered(&self) {
        let reads = self.work.lock().submit_gathered();
        reads.hand_to(&self.reads);
    }
}

impl Work {
    fn submit_gathered(&mut self) -> BegunReads {
        let Some(batch) = self.gathered.take() else { return BegunReads::default() };
        let submission = Arc::clone(batch.submission());
        let (submitted, reads) = batch.submit();
        if let Err(failure) = submitted {
            self.failure.get_or_insert(failure);
        } else if let Some(failure) = &self.failure {
            // An event behind a failure has it.
            submission.fail(failure);
        }
        reads
    }
}
