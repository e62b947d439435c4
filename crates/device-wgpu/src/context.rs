//! A device of wgpu that is open, with its one queue: calls whose errors are caught, and waits that end.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};

use device_registry::backend::BackendError;
use wgpu::{
    CommandEncoder, CommandEncoderDescriptor, DeviceDescriptor, ErrorFilter, Features, PollError, PollType,
};

use crate::error;
use crate::loss::Loss;
use crate::mapping::Mapping;
use crate::ready::ready;
use crate::staging::Staging;
use crate::submission::Submission;

/// What makes a timestamp between two submissions.
pub(crate) const TIMESTAMPS: Features =
    Features::TIMESTAMP_QUERY.union(Features::TIMESTAMP_QUERY_INSIDE_ENCODERS);

/// Asked for where the adapter has it, so that kernels can use it. What is only for drawing is left out.
const FOR_KERNELS: Features = Features::SHADER_F16
    .union(Features::SHADER_F64)
    .union(Features::SHADER_I16)
    .union(Features::SHADER_INT64)
    .union(Features::SHADER_INT64_ATOMIC_MIN_MAX)
    .union(Features::SHADER_INT64_ATOMIC_ALL_OPS)
    .union(Features::SHADER_FLOAT32_ATOMIC)
    .union(Features::SUBGROUP)
    .union(Features::SUBGROUP_BARRIER)
    .union(Features::IMMEDIATES)
    .union(Features::TIMESTAMP_QUERY_INSIDE_PASSES)
    .union(Features::PIPELINE_CACHE);

/// What the device, its streams and its events share.
pub(crate) struct Context {
    pub(crate) adapter: wgpu::Adapter,
    pub(crate) device: wgpu::Device,
    pub(crate) queue: wgpu::Queue,
    pub(crate) staging: Staging,
    /// What copies within one buffer go through. The queue's order lets all streams share it.
    pub(crate) between: Mutex<Option<wgpu::Buffer>>,
    pub(crate) loss: Arc<Loss>,
}

impl Context {
    pub(crate) fn open(adapter: &wgpu::Adapter) -> Result<Self, BackendError> {
        let descriptor = DeviceDescriptor {
            label: Some("device-wgpu"),
            required_features: adapter.features() & (TIMESTAMPS | FOR_KERNELS),
            // Its default has no buffer above 256 MiB.
            required_limits: adapter.limits(),
            ..DeviceDescriptor::default()
        };
        let (device, queue) = ready(adapter.request_device(&descriptor))
            .ok_or_else(|| BackendError::other("wgpu has not opened the device when it returned"))?
            .map_err(|error| BackendError::other("the adapter gives no device").with_source(error))?;
        let loss = Arc::new(Loss::default());
        let told = Arc::clone(&loss);
        device.set_device_lost_callback(move |reason, message| told.set(reason, &message));
        // Without it, what no scope has caught ends in a panic: the mistakes of a kernel that makes its calls outside.
        device.on_uncaptured_error(Arc::new(|error| log::error!("wgpu: {error}")));
        let (staging, between) = Default::default();
        Ok(Self { adapter: adapter.clone(), device, queue, staging, between, loss })
    }

    /// Whether it is not known to be lost.
    pub(crate) fn check(&self) -> Result<(), BackendError> {
        self.loss.check()
    }

    /// Looks whether it was destroyed by its native handle, of which wgpu speaks to nobody who does not poll.
    pub(crate) fn look(&self) -> Result<(), BackendError> {
        self.poll(PollType::Poll)?;
        self.loss.check()
    }

    /// Runs calls of wgpu, and returns the first error that they leave behind.
    pub(crate) fn checked<T>(&self, run: impl FnOnce(&wgpu::Device) -> T) -> Result<T, BackendError> {
        self.loss.check()?;
        // Scopes are the thread's own, and one that is dropped while a panic unwinds is taken down too.
        let out_of_memory = self.device.push_error_scope(ErrorFilter::OutOfMemory);
        let internal = self.device.push_error_scope(ErrorFilter::Internal);
        let validation = self.device.push_error_scope(ErrorFilter::Validation);
        let value = run(&self.device);
        let errors = [
            ready(validation.pop()).flatten(),
            ready(internal.pop()).flatten(),
            ready(out_of_memory.pop()).flatten(),
        ];
        // What made the others is the last: a buffer that there was no memory for is also an invalid one.
        let error = errors.into_iter().flatten().last();
        // A loss is no error of wgpu's; it is told by the callback.
        self.loss.check()?;
        error.map_or(Ok(value), |error| Err(error::caught(error)))
    }

    /// Submits finished commands.
    pub(crate) fn submit(
        &self,
        commands: impl IntoIterator<Item = wgpu::CommandBuffer>,
    ) -> Result<Arc<Submission>, BackendError> {
        self.checked(|_| self.queue.submit(commands)).map(Submission::new)
    }

    /// Submits what is encoded by `encode`.
    pub(crate) fn encode(
        &self,
        encode: impl FnOnce(&mut CommandEncoder),
    ) -> Result<Arc<Submission>, BackendError> {
        self.encode_then(encode, || ()).map(|(submission, ())| submission)
    }

    /// The same, and makes the calls that come behind it, in the same scopes: to take others costs time.
    pub(crate) fn encode_then<T>(
        &self,
        encode: impl FnOnce(&mut CommandEncoder),
        then: impl FnOnce() -> T,
    ) -> Result<(Arc<Submission>, T), BackendError> {
        self.checked(|device| {
            let mut encoder = device.create_command_encoder(&CommandEncoderDescriptor::default());
            encode(&mut encoder);
            let index = self.queue.submit([encoder.finish()]);
            (Submission::new(index), then())
        })
    }

    /// Whether a submission is done. Does not wait.
    pub(crate) fn is_done(&self, submission: &Submission) -> Result<bool, BackendError> {
        if !submission.is_done() {
            submission.ask(&self.queue);
            // Not a wait that lasts no time. It looks at the device and then at wgpu's list, and panics if another thread
            // has cleared the list in between; gfx-rs/wgpu#9958, which 30.0.1 does not have.
            self.poll(PollType::Poll)?;
        }
        Ok(submission.is_done())
    }

    /// Waits for a submission. Any number of threads may do so at once; each is woken by the device itself.
    ///
    /// When the device is lost the wait ends, which all of the interfaces promise.
    pub(crate) fn wait(&self, submission: &Submission) -> Result<(), BackendError> {
        let index = submission.index().clone();
        // OpenGL gives up after some seconds.
        while !self.poll(PollType::Wait { submission_index: Some(index.clone()), timeout: None })? {}
        submission.set_done();
        Ok(())
    }

    /// Waits for bytes that `submission` copies and that are mapped then.
    pub(crate) fn wait_mapped(&self, submission: &Submission, mapping: &Mapping) -> Result<(), BackendError> {
        self.wait(submission)?;
        // The callback was called by this poll, or is being called by another thread's.
        mapping.wait(&self.loss)
    }

    /// Returns whether what was waited for is done.
    fn poll(&self, poll: PollType) -> Result<bool, BackendError> {
        self.loss.check()?;
        // On a device that turns out to be lost it panics, once it has told the callback.
        match catch_unwind(AssertUnwindSafe(|| self.device.poll(poll))) {
            Ok(Ok(_)) => Ok(true),
            Ok(Err(PollError::Timeout)) => Ok(false),
            // What was submitted without an error, and yet was not, met a loss: the one failure that no scope catches.
            Ok(Err(PollError::WrongSubmissionIndex(..))) => {
                self.look_once_more();
                Err(self.loss.infer("it takes no work any more"))
            }
            Err(_) => {
                self.loss.check().and(Err(BackendError::other("a callback panicked while wgpu was polled")))
            }
        }
    }

    /// Has the callback of the loss called, which knows the reason.
    fn look_once_more(&self) {
        // What it returns or panics with is the loss.
        let _ = catch_unwind(AssertUnwindSafe(|| self.device.poll(PollType::Poll)));
    }
}
