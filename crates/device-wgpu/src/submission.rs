//! Submissions, and whether they are done.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use device_registry::backend::BackendError;
use wgpu::SubmissionIndex;

/// A submission: a place in the order of the queue, which it gets when its commands are submitted.
#[derive(Default)]
pub(crate) struct Submission {
    index: OnceLock<SubmissionIndex>,
    /// Why its commands, or earlier ones of its stream, were refused.
    failure: OnceLock<BackendError>,
    done: Arc<AtomicBool>,
    /// Whether a callback sets `done`, or will as soon as there is an index.
    tracked: AtomicBool,
}

impl Submission {
    /// One that is in the queue.
    pub(crate) fn new(index: SubmissionIndex) -> Arc<Self> {
        Arc::new(Self { index: OnceLock::from(index), ..Self::default() })
    }

    /// The place in the queue. `None` while the commands are only gathered, and if they never got there.
    pub(crate) fn index(&self) -> Option<&SubmissionIndex> {
        self.index.get()
    }

    /// Notes its place. Nothing else is submitted meanwhile.
    pub(crate) fn set_index(&self, index: SubmissionIndex, queue: &wgpu::Queue) {
        if self.index.set(index).is_ok() && self.tracked.load(Ordering::Acquire) {
            self.call_back(queue);
        }
    }

    /// Fails if its commands were refused.
    pub(crate) fn check(&self) -> Result<(), BackendError> {
        self.failure.get().map_or(Ok(()), |failure| Err(failure.clone()))
    }

    /// Notes why its commands were refused. The first reason stays.
    pub(crate) fn fail(&self, failure: &BackendError) {
        self.failure.get_or_init(|| failure.clone());
    }

    /// Whether it is known to be done.
    pub(crate) fn is_done(&self) -> bool {
        self.done.load(Ordering::Acquire)
    }

    /// Notes that a wait for it has ended.
    pub(crate) fn set_done(&self) {
        self.done.store(true, Ordering::Release);
    }

    /// Lets a later poll note that this is done. The note may come late, because it also waits for work
    /// submitted since. Nothing sets the index meanwhile.
    pub(crate) fn track(&self, queue: &wgpu::Queue) {
        if !self.tracked.swap(true, Ordering::AcqRel) && self.index.get().is_some() {
            self.call_back(queue);
        }
    }

    fn call_back(&self, queue: &wgpu::Queue) {
        let done = Arc::clone(&self.done);
        queue.on_submitted_work_done(move || done.store(true, Ordering::Release));
    }
}
