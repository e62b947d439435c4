//! Queued reads, and the one thread that finishes them.
//!
//! wgpu reports that a buffer is mapped on any thread that polls or submits next, if there is one. So one thread polls
//! while reads are pending. It alone copies the bytes and finishes the reads: code of the program that runs then, such as
//! the waker of a task, never runs within another thread's call.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};

use device_registry::backend::{BackendError, Completion, HostBuffer};
use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::context::Context;
use crate::transfer::StagedRead;

/// A read that was submitted.
pub(crate) struct PendingRead {
    pub(crate) staged: StagedRead,
    pub(crate) destination: HostBuffer,
    pub(crate) completion: Completion,
}

/// The reads of one device, in the order of their submission.
pub(crate) struct Reads {
    queue: Arc<Queue>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Default)]
struct Queue {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    reads: VecDeque<PendingRead>,
    closed: bool,
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// Waits for the next read. `None` after the last one.
    fn next(&self) -> Option<PendingRead> {
        let mut state = self.lock();
        loop {
            if let Some(read) = state.reads.pop_front() {
                return Some(read);
            }
            if state.closed {
                return None;
            }
            self.changed.wait(&mut state);
        }
    }
}

impl Reads {
    /// Starts the thread.
    pub(crate) fn new(context: &Arc<Context>, name: &str) -> Result<Self, BackendError> {
        let queue = Arc::new(Queue::default());
        let (context, next) = (Arc::clone(context), Arc::clone(&queue));
        let thread = Builder::new()
            .name(format!("{name} reads"))
            .spawn(move || {
                while let Some(read) = next.next() {
                    finish(&context, read);
                }
            })
            .map_err(|error| BackendError::other("the polling thread does not start").with_source(error))?;
        Ok(Self { queue, thread: Mutex::new(Some(thread)) })
    }

    pub(crate) fn add(&self, read: PendingRead) -> Result<(), BackendError> {
        let mut state = self.queue.lock();
        if state.closed {
            return Err(BackendError::invalid("the device is closed"));
        }
        state.reads.push_back(read);
        drop(state);
        self.queue.changed.notify_one();
        Ok(())
    }

    fn end(&self) {
        self.queue.lock().closed = true;
        self.queue.changed.notify_one();
    }

    /// Ends the thread after it has finished all reads. Waits for it.
    pub(crate) fn close(&self) {
        self.end();
        let thread = self.thread.lock().take();
        if let Some(thread) = thread
            && thread.join().is_err()
        {
            log::error!("the polling thread panicked");
        }
    }
}

impl Drop for Reads {
    /// Does not wait: a stream may hold the last reference.
    fn drop(&mut self) {
        self.end();
    }
}

fn finish(context: &Context, read: PendingRead) {
    let PendingRead { staged, mut destination, completion } = read;
    let read = || context.finish_read(staged, &mut destination);
    // A panic must not end the thread, which has the other reads to finish.
    let finished = catch_unwind(AssertUnwindSafe(read))
        .unwrap_or_else(|_| Err(BackendError::other("wgpu panicked while a read was finished")));
    // After a failure the destination is dropped: only this thread writes to it.
    completion.finish(finished.map(|()| destination));
}
