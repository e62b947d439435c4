//! Queued reads, and the one thread that finishes them.
//!
//! wgpu tells that a buffer is mapped on whichever thread polls or submits next, if any does. So there is one that polls
//! for as long as a read is under way, and it alone copies the bytes and says that they are there: what a program runs
//! then, such as the waker of a task, never runs in the middle of another thread's call.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};

use device_registry::backend::{BackendError, Completion, HostBuffer};

use crate::context::Context;
use crate::transfer::Reading;

/// A read that was submitted.
pub(crate) struct Read {
    pub(crate) reading: Reading,
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
    reads: VecDeque<Read>,
    closed: bool,
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next read. `None` when there will be none any more.
    fn next(&self) -> Option<Read> {
        let mut state = self.lock();
        loop {
            if let Some(read) = state.reads.pop_front() {
                return Some(read);
            }
            if state.closed {
                return None;
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
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

    pub(crate) fn add(&self, read: Read) -> Result<(), BackendError> {
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

    /// Ends the thread, when it has finished what there is. Waits for it.
    pub(crate) fn close(&self) {
        self.end();
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread
            && thread.join().is_err()
        {
            log::error!("the polling thread has panicked");
        }
    }
}

impl Drop for Reads {
    /// Without a wait: what is dropped last may be a stream.
    fn drop(&mut self) {
        self.end();
    }
}

fn finish(context: &Context, read: Read) {
    let Read { reading, mut destination, completion } = read;
    let read = || context.finish_read(reading, &mut destination);
    // Nothing is above this thread that would catch it, and the reads behind this one are to be finished too.
    let finished = catch_unwind(AssertUnwindSafe(read))
        .unwrap_or_else(|_| Err(BackendError::other("wgpu panicked while a read was finished")));
    // After a failure the destination is just dropped: only the thread itself writes to it.
    let told = AssertUnwindSafe(|| completion.finish(finished.map(|()| destination)));
    if catch_unwind(told).is_err() {
        log::error!("a panic where a read was finished");
    }
}
