//! The thread of a stream: it does the work that no queue of the driver does.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use entry_points::message::panic_message;

use crate::backend::BackendError;
use crate::error::DeviceError;
use crate::runtime::device_use;
use crate::runtime::operation::Operation;
use crate::runtime::queue::Queue;
use crate::sync::{lock, wait};

impl Queue {
    /// The loop of the thread. It ends when the stream is dropped and all work is done.
    pub(super) fn work(self: Arc<Self>) {
        device_use::enter_stream_thread();
        let mut state = lock(&self.state);
        loop {
            let Some(operation) = state.queue.pop_front() else {
                if std::mem::take(&mut state.flush) {
                    drop(state);
                    // A failure is the stream's.
                    let _ = self.flush();
                    state = lock(&self.state);
                    continue;
                }
                if state.closed {
                    // The close of a device closes its default stream, which may get more work: that starts a
                    // new thread.
                    state.has_thread = false;
                    break;
                }
                state.thread_sleeps = true;
                state = wait(&self.work, state);
                continue;
            };
            state.under_way = Some(operation.name());
            let (number, call, failures) = (state.finished, operation.name(), state.failure.count());
            let skipped = state.failure.skips(number);
            let submits = self.driver.is_some() && skipped.is_none() && operation.is_submittable(self.device);
            drop(state);
            // The `drop` of a program's value may panic here.
            let outcome = catch_unwind(AssertUnwindSafe(|| match skipped {
                Some(error) => {
                    device_use::forbid(|| operation.skip(self.device.device(), error));
                    Ok(())
                }
                None => self.perform(operation, number, failures),
            }));
            let outcome = outcome.unwrap_or_else(|panic| {
                let error = BackendError::other(format_args!("it panicked: {}", panic_message(panic)));
                Err(DeviceError::Call { device: self.device.device(), call, error })
            });
            // The `drop` of a driver's memory may call the core, and would wait for this same work.
            if self.device.is_due() {
                device_use::forbid(|| self.device.drop_what_is_due());
            }
            state = lock(&self.state);
            state.flush |= submits;
            // Only after the work has run: a query must not return `true` before.
            state.finished += 1;
            state.under_way = None;
            if let Err(error) = outcome {
                state.failure.set(error);
            }
            if state.awaited.is_some_and(|number| number <= state.finished) {
                state.awaited = None;
                self.finished.notify_all();
            }
        }
        self.leave_unreported(state);
        // This may be the last handle of the queue, whose drop stores values in the device. Drop those too.
        let device = self.device;
        drop(self);
        device_use::forbid(|| device.drop_what_is_due());
    }

    /// Does the piece of work with this number, on the thread. There were this many failures when it was not
    /// skipped.
    fn perform(
        self: &Arc<Self>,
        operation: Operation,
        number: u64,
        failures: u64,
    ) -> Result<(), DeviceError> {
        let Some(driver) = self.driver.as_deref() else {
            return operation.perform(self.device);
        };
        operation.begin_awaited();
        let left_to_host = if operation.is_submittable(self.device) {
            let turn = lock(&self.submitting);
            let submitted = self.submit(driver, operation, failures);
            drop(turn);
            self.after_turn(submitted.collects, submitted.not_kept);
            submitted.left_to_host?
        } else {
            Some(operation)
        };
        let Some(operation) = left_to_host else { return Ok(()) };
        // Earlier submitted work runs first, and this wait may be the first to return its failure.
        let waited = self.device.call("synchronize", |_| self.finish_driver(driver));
        let skipped = waited.as_ref().err().cloned().or_else(|| lock(&self.state).failure.skips(number));
        match skipped {
            None => operation.perform(self.device),
            Some(error) => {
                device_use::forbid(|| operation.skip(self.device.device(), error));
                waited
            }
        }
    }
}
