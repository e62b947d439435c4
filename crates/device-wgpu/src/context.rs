//! An open device of wgpu with its one queue: calls that return their errors, and waits that end.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Once, Weak};

use device_registry::backend::BackendError;
use device_registry::backend::testing::FaultPoint;
use parking_lot::Mutex;
use wgpu::{BufferDescriptor, DeviceDescriptor, ErrorFilter, Features, PollError, PollType};

use crate::error;
use crate::faults::Faults;
use crate::loss::Loss;
use crate::mapping::Mapping;
use crate::pool::StagingPool;
use crate::ready::ready;
use crate::submission::Submission;

/// The features that a timestamp between two submissions needs.
pub(crate) const TIMESTAMPS: Features =
    Features::TIMESTAMP_QUERY.union(Features::TIMESTAMP_QUERY_INSIDE_ENCODERS);

/// The features that kernels can use, requested where the adapter has them. Features only for drawing are
/// left out.
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

/// A stream, which may gather work before it submits it.
pub(crate) trait Gathering: Send + Sync {
    /// Submits the gathered work.
    fn submit_gathered(&self);
}

/// What the device, its streams and its events share.
pub(crate) struct Context {
    pub(crate) instance: wgpu::Instance,
    pub(crate) adapter: wgpu::Adapter,
    pub(crate) device: wgpu::Device,
    pub(crate) queue: wgpu::Queue,
    pub(crate) staging: StagingPool,
    /// The buffer that copies within one buffer go through. All streams share it, which is safe in the order
    /// of one queue.
    pub(crate) between: Mutex<Option<wgpu::Buffer>>,
    pub(crate) loss: Arc<Loss>,
    pub(crate) faults: Faults,
    /// Whether another library computes on the device.
    shared: AtomicBool,
    /// Whether streams gather no work, as other code submits to the queue.
    submits_at_once: AtomicBool,
    submitted_gathered: Once,
    streams: Mutex<Vec<Weak<dyn Gathering>>>,
}

impl Context {
    pub(crate) fn open(
        instance: &wgpu::Instance,
        adapter: &wgpu::Adapter,
        faults: &Faults,
    ) -> Result<Self, BackendError> {
        let descriptor = DeviceDescriptor {
            label: Some("device-wgpu"),
            required_features: adapter.features() & (TIMESTAMPS | FOR_KERNELS),
            // Its default has no buffer above 256 MiB.
            required_limits: adapter.limits(),
            ..DeviceDescriptor::default()
        };
        let (device, queue) = ready(adapter.request_device(&descriptor))
            .ok_or_else(|| BackendError::other("wgpu returned before the device was open"))?
            .map_err(|error| BackendError::other("the adapter did not open a device").with_source(error))?;
        let loss = Arc::new(Loss::default());
        let reported = Arc::clone(&loss);
        device.set_device_lost_callback(move |reason, message| reported.set(reason, &message));
        // The default panics on an error outside any scope, such as one of a kernel that does not use
        // `checked`.
        device.on_uncaptured_error(Arc::new(|error| log::error!("wgpu: {error}")));
        let (staging, between) = Default::default();
        let instance = instance.clone();
        let adapter = adapter.clone();
        Ok(Self {
            instance,
            adapter,
            device,
            queue,
            staging,
            between,
            loss,
            faults: faults.clone(),
            shared: AtomicBool::new(false),
            submits_at_once: AtomicBool::new(false),
            submitted_gathered: Once::new(),
            streams: Mutex::default(),
        })
    }

    /// From now on another library computes on the device.
    pub(crate) fn share(&self) {
        self.shared.store(true, Ordering::Relaxed);
        self.submit_at_once();
    }

    /// From now on other code may submit to the queue: what streams have accepted before is in the queue when
    /// this returns, and what they accept later at once.
    pub(crate) fn submit_at_once(&self) {
        self.submitted_gathered.call_once(|| {
            self.submits_at_once.store(true, Ordering::Release);
            let streams: Vec<_> = self.streams.lock().iter().filter_map(Weak::upgrade).collect();
            streams.iter().for_each(|stream| stream.submit_gathered());
        });
    }

    /// Whether streams gather no work.
    pub(crate) fn submits_at_once(&self) -> bool {
        self.submits_at_once.load(Ordering::Acquire)
    }

    /// Notes a new stream, which may gather work.
    pub(crate) fn add_stream(&self, stream: Weak<dyn Gathering>) {
        let mut streams = self.streams.lock();
        // At each doubling, so that a device with a million streams looks at each a few times.
        if streams.len() == streams.capacity() {
            streams.retain(|stream| stream.strong_count() > 0);
        }
        streams.push(stream);
    }

    pub(crate) fn is_shared(&self) -> bool {
        self.shared.load(Ordering::Relaxed)
    }

    /// Counts an operation that is about to be submitted: see [`Faults::before`].
    pub(crate) fn before(&self, operation: FaultPoint) -> Result<(), BackendError> {
        self.faults.before(operation, &self.loss)
    }

    /// Fails if the device is known to be lost.
    pub(crate) fn check(&self) -> Result<(), BackendError> {
        self.loss.check()
    }

    /// Polls, then fails if the device is lost. wgpu reports a device that its native handle has destroyed
    /// only in a poll.
    pub(crate) fn poll_loss(&self) -> Result<(), BackendError> {
        self.poll(PollType::Poll)?;
        self.loss.check()
    }

    /// Runs calls of wgpu in error scopes, and returns the first error.
    pub(crate) fn checked<T>(&self, run: impl FnOnce(&wgpu::Device) -> T) -> Result<T, BackendError> {
        self.loss.check()?;
        // Scopes belong to the thread. One that a panic drops is removed too.
        let out_of_memory = self.device.push_error_scope(ErrorFilter::OutOfMemory);
        let internal = self.device.push_error_scope(ErrorFilter::Internal);
        let validation = self.device.push_error_scope(ErrorFilter::Validation);
        let value = run(&self.device);
        let errors = [
            ready(validation.pop()).flatten(),
            ready(internal.pop()).flatten(),
            ready(out_of_memory.pop()).flatten(),
        ];
        // The outermost scope has the cause of the others: a buffer that ran out of memory is also an invalid
        // one.
        let error = errors.into_iter().flatten().last();
        // wgpu reports a loss to the callback only, and not as an error.
        self.loss.check()?;
        let Some(error) = error else { return Ok(value) };
        if self.is_shared() {
            self.probe()?;
        }
        Err(error::caught(error))
    }

    /// Creates a buffer.
    pub(crate) fn create_buffer(
        &self,
        descriptor: &BufferDescriptor<'_>,
    ) -> Result<wgpu::Buffer, BackendError> {
        let created = self.checked(|device| device.create_buffer(descriptor));
        created.map_err(|error| error::for_len(error, descriptor.size))
    }

    /// Submits finished commands.
    pub(crate) fn submit(
        &self,
        commands: impl IntoIterator<Item = wgpu::CommandBuffer>,
    ) -> Result<Arc<Submission>, BackendError> {
        self.checked(|_| self.queue.submit(commands)).map(Submission::new)
    }

    /// Whether a submission is done. Does not wait.
    pub(crate) fn is_done(&self, submission: &Submission) -> Result<bool, BackendError> {
        submission.check()?;
        if submission.index().is_none() {
            return Ok(false);
        }
        if !submission.is_done() {
            submission.track(&self.queue);
            // It is not a wait with the time limit 0. Such a wait reads the device and then wgpu's list, and
            // panics if another thread has cleared the list in between. gfx-rs/wgpu#9958 fixes that, which
            // 30.0.1 does not have.
            self.poll(PollType::Poll)?;
        }
        Ok(submission.is_done())
    }

    /// Waits for a submission. Any number of threads may wait at once; the device itself wakes each.
    ///
    /// The wait ends when the device is lost, which all interfaces promise.
    ///
    /// # Errors
    ///
    /// If the commands were refused, after a wait for those that were submitted before.
    pub(crate) fn wait(&self, submission: &Submission) -> Result<(), BackendError> {
        let refused = submission.check();
        let index = match (&refused, submission.index()) {
            (Ok(()), Some(index)) => index.clone(),
            (Ok(()), None) => return Err(BackendError::other("the work was not submitted")),
            // wgpu knows no index of refused commands.
            (Err(_), _) => self.queue.submit([]),
        };
        // On OpenGL a wait ends after some seconds.
        while !self.poll(PollType::Wait { submission_index: Some(index.clone()), timeout: None })? {}
        if refused.is_ok() {
            submission.set_done();
        }
        refused
    }

    /// Waits for bytes that `submission` copies, and for their mapping.
    pub(crate) fn wait_mapped(&self, submission: &Submission, mapping: &Mapping) -> Result<(), BackendError> {
        self.wait(submission)?;
        // This poll has called the callback, or another thread's poll is calling it.
        mapping.wait(&self.loss)
    }

    /// Polls wgpu. Returns whether the awaited work is done.
    fn poll(&self, poll: PollType) -> Result<bool, BackendError> {
        self.loss.check()?;
        // A poll that finds the device lost calls the callback, then panics.
        match catch_unwind(AssertUnwindSafe(|| self.device.poll(poll))) {
            Ok(Ok(_)) => Ok(true),
            Ok(Err(PollError::Timeout)) => Ok(false),
            Ok(Err(PollError::WrongSubmissionIndex(..))) => Err(self.refused()),
            Err(_) => {
                self.probe()?;
                Err(BackendError::other("a callback panicked while wgpu was polled"))
            }
        }
    }

    /// Fails if the device is lost, whether or not the callback has said so: another library may have taken
    /// its place.
    pub(crate) fn probe(&self) -> Result<(), BackendError> {
        // The second turn is after a wait that panicked: it found the loss, which the next submission shows.
        for _ in 0..2 {
            self.loss.check()?;
            let wait = PollType::Wait { submission_index: Some(self.queue.submit([])), timeout: None };
            match catch_unwind(AssertUnwindSafe(|| self.device.poll(wait))) {
                Ok(Err(PollError::WrongSubmissionIndex(..))) => return Err(self.refused()),
                Ok(_) => return Ok(()),
                Err(_) => {}
            }
        }
        self.loss.check()
    }

    /// The loss that shows in a submission that wgpu did not make, although it returned an index. No scope
    /// catches it.
    fn refused(&self) -> BackendError {
        self.poll_again();
        self.loss.infer("it no longer accepts work")
    }

    /// Polls, so that wgpu calls the callback of the loss, which gets the reason.
    fn poll_again(&self) {
        // The result or panic of this poll is the loss itself.
        let _ = catch_unwind(AssertUnwindSafe(|| self.device.poll(PollType::Poll)));
    }
}
