//! Submissions, and whether they are done.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use wgpu::SubmissionIndex;

/// A submission: a place in the order of the queue.
pub(crate) struct Submission {
    index: SubmissionIndex,
    done: Arc<AtomicBool>,
    /// Whether the callback is registered that sets `done`.
    tracked: AtomicBool,
}

impl Submission {
    pub(crate) fn new(index: SubmissionIndex) -> Arc<Self> {
        Arc::new(Self { index, done: Arc::default(), tracked: AtomicBool::new(false) })
    }

    pub(crate) fn index(&self) -> &SubmissionIndex {
        &self.index
    }

    /// Whether it is known to be done.
    pub(crate) fn is_done(&self) -> bool {
        self.done.load(Ordering::Acquire)
    }

    /// Notes that a wait for it has ended.
    pub(crate) fn set_done(&self) {
        self.done.store(true, Ordering::Release);
    }

    /// Registers a callback that a later poll calls once this is done. It may come later than that, because
    /// it also waits for work that was submitted since.
    pub(crate) fn track(&self, queue: &wgpu::Queue) {
        if !self.tracked.swap(true, Ordering::AcqRel) {
            let done = Arc::clone(&self.done);
            queue.on_submitted_work_done(move || done.store(true, Ordering::Release));
        }
    }
}
