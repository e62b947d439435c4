//! What was submitted, and whether it is done.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use wgpu::SubmissionIndex;

/// A place in the order of the queue.
pub(crate) struct Submission {
    index: SubmissionIndex,
    done: Arc<AtomicBool>,
    /// wgpu was asked to say when it is done.
    asked: AtomicBool,
}

impl Submission {
    pub(crate) fn new(index: SubmissionIndex) -> Arc<Self> {
        Arc::new(Self { index, done: Arc::default(), asked: AtomicBool::new(false) })
    }

    pub(crate) fn index(&self) -> &SubmissionIndex {
        &self.index
    }

    /// Whether it is known to be done.
    pub(crate) fn is_done(&self) -> bool {
        self.done.load(Ordering::Acquire)
    }

    /// It was waited for.
    pub(crate) fn set_done(&self) {
        self.done.store(true, Ordering::Release);
    }

    /// Has wgpu say when it is done, to whoever polls then. It may say so later, as it counts what was submitted since.
    pub(crate) fn ask(&self, queue: &wgpu::Queue) {
        if !self.asked.swap(true, Ordering::AcqRel) {
            let done = Arc::clone(&self.done);
            queue.on_submitted_work_done(move || done.store(true, Ordering::Release));
        }
    }
}
