//! The work that no driver's queue does: the stream's thread does it, or at once the thread that enqueues it.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use entry_points::message::panic_message;

use crate::backend::{BackendError, StreamDriver};
use crate::error::DeviceError;
use crate::runtime::activity::{Activity, Clock, Id, Outcome};
use crate::runtime::device_use;
use crate::runtime::operation::{Operation, Route, ended};
use crate::runtime::queue::{Queue, State};
use crate::runtime::waits::Ask;
use crate::sync::{MutexGuard, lock, wait};

impl Queue {
    /// The loop of the thread. It ends when the stream is dropped and all work is done.
    pub(super) fn work(self: Arc<Self>) {
        device_use::enter_stream_thread();
        let mut state = lock(&self.state);
        loop {
            let next = if state.at_once { None } else { state.queue.pop_front() };
            let Some(operation) = next else {
                if state.at_once {
                    state.thread_sleeps = true;
                    state = wait(&self.work, state);
                    continue;
                }
                if std::mem::take(&mut state.flush) {
                    drop(state);
                    // A failure belongs to the stream.
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
            let number = state.finished;
            let call = operation.name();
            let failures = state.failure.count();
            (state.under_way, state.ends_by_itself) = (Some(call), operation.ends_by_itself());
            let id = state.take_id(number);
            let skipped = state.failure.skips(number);
            drop(state);
            let mut route = Route::Thread;
            // The `drop` of a program's value may panic here.
            let outcome = catch_unwind(AssertUnwindSafe(|| match skipped {
                Some(error) => {
                    operation.skip(self.device.device(), error);
                    ended(self.device.device(), self.id, id, Clock::Host, Outcome::Skipped);
                    Ok(())
                }
                None => match self.driver.as_deref() {
                    None => self.perform_observed(id, || operation.perform(self.device)),
                    Some(driver) => {
                        operation.begin_awaited();
                        route = operation.route(self.device, true);
                        self.perform(driver, operation, route, (number, id), failures)
                    }
                },
            }));
            let outcome = outcome.unwrap_or_else(|panic| Err(self.panicked(call, panic)));
            state = self.end_of_work(outcome);
            state.flush |= route.is_submitted();
        }
        self.leave_unreported(state);
        // This may be the last handle of the queue, whose drop stores values in the device. Drops these
        // values too.
        let device = self.device;
        drop(self);
        device_use::forbid(|| device.drop_what_is_due());
    }

    /// Does a piece of work at once, on the thread that has enqueued it. The stream has no other work.
    pub(super) fn perform_at_once(
        &self,
        mut state: MutexGuard<'_, State>,
        call: &'static str,
        work: impl FnOnce() -> Result<(), DeviceError>,
    ) {
        state.accepted += 1;
        (state.under_way, state.ends_by_itself) = (Some(call), true);
        state.at_once = true;
        drop(state);
        device_use::as_stream_thread(|| {
            // The `drop` of a program's value may panic here.
            let outcome = catch_unwind(AssertUnwindSafe(work));
            let outcome = outcome.unwrap_or_else(|panic| Err(self.panicked(call, panic)));
            let mut state = self.end_of_work(outcome);
            state.at_once = false;
            // Work that other threads have enqueued meanwhile, or the end of the stream. A thread with
            // nothing to do keeps sleeping: waking it takes longer than a short kernel.
            let is_due = !state.queue.is_empty() || state.closed;
            let wake = is_due && state.has_thread && std::mem::take(&mut state.thread_sleeps);
            drop(state);
            if wake {
                self.work.notify_one();
            }
        });
    }

    /// Does work by blocking calls, and records this if it has a number.
    #[inline]
    pub(super) fn perform_observed(
        &self,
        id: Option<Id>,
        work: impl FnOnce() -> Result<(), DeviceError>,
    ) -> Result<(), DeviceError> {
        if let Some(work) = id {
            self.record(Activity::Begun { work, clock: Clock::Host });
        }
        let outcome = work();
        if let Some(work) = id {
            self.record(Activity::Ended { work, clock: Clock::Host, outcome: outcome_of(&outcome) });
        }
        outcome
    }

    fn panicked(&self, call: &'static str, panic: Box<dyn Any + Send>) -> DeviceError {
        let error = BackendError::other(format_args!("it panicked: {}", panic_message(panic)));
        DeviceError::Call { device: self.device.device(), call, error }
    }

    /// Counts a piece of work as finished, on the thread that has done it.
    #[inline]
    fn end_of_work(&self, outcome: Result<(), DeviceError>) -> MutexGuard<'_, State> {
        // The `drop` of a driver's memory may call the core, and would wait for this same work.
        if self.device.is_due() {
            device_use::forbid(|| self.device.drop_what_is_due());
        }
        let mut state = lock(&self.state);
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
        state
    }

    /// Does a piece of work by its route, on the thread of a stream with a queue of the driver. It has a
    /// number in the stream, and one for observers. There were this many failures when it was not skipped.
    fn perform(
        self: &Arc<Self>,
        driver: &dyn StreamDriver,
        operation: Operation,
        route: Route,
        (number, id): (u64, Option<Id>),
        failures: u64,
    ) -> Result<(), DeviceError> {
        let left_to_host = if route.is_submitted() {
            let turn = lock(&self.submitting);
            let submitted = self.submit(driver, operation, route, failures, id);
            drop(turn);
            self.after_turn(submitted.collects, submitted.not_kept);
            let left_to_host = submitted.left_to_host;
            if left_to_host.is_err() {
                ended(self.device.device(), self.id, id, Clock::Host, Outcome::Failed);
            }
            left_to_host?
        } else {
            Some(operation)
        };
        let Some(operation) = left_to_host else { return Ok(()) };
        // Earlier submitted work runs first, and this wait may be the first to return its failure.
        let waited = self.device.call("synchronize", |_| self.finish_driver(driver));
        if waited.is_ok() {
            self.ask_awaited(Ask::Wait);
        }
        let skipped = waited.as_ref().err().cloned().or_else(|| lock(&self.state).failure.skips(number));
        match skipped {
            None => self.perform_observed(id, || operation.perform(self.device)),
            Some(error) => {
                operation.skip(self.device.device(), error);
                ended(self.device.device(), self.id, id, Clock::Host, Outcome::Skipped);
                waited
            }
        }
    }
}

#[cold]
fn outcome_of(done: &Result<(), DeviceError>) -> Outcome {
    if done.is_ok() { Outcome::Done } else { Outcome::Failed }
}
