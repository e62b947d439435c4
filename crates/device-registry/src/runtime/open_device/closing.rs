//! The end of an open device: its loss, its reset and its close.

use std::sync::Weak;
use std::sync::atomic::Ordering;

use crate::backend::{BackendError, BackendErrorKind};
use crate::error::DeviceError;
use crate::runtime::activity;
use crate::runtime::activity::Activity;
use crate::runtime::isolation::{isolated, log_isolated};
use crate::runtime::open_device::{Awaited, End, OpenDevice};
use crate::sync::{lock, pause};

/// Adds a value to a list, and removes those that were dropped at each doubling: a program that makes a
/// million streams looks at each a few times.
pub(super) fn push_weak<T: ?Sized>(list: &mut Vec<Weak<T>>, value: Weak<T>) {
    if list.len() == list.capacity() {
        list.retain(|other| other.strong_count() > 0);
    }
    list.push(value);
}

impl OpenDevice {
    /// Records what became of the device.
    fn record(&self, activity: Activity) {
        if activity::is_on() {
            activity::record(Some(self.device), None, activity);
        }
    }

    /// Marks the device as lost if the error of a call says so.
    pub(super) fn note<T>(&self, result: &Result<T, DeviceError>) {
        if let Err(DeviceError::Call { error, .. }) = result {
            self.note_loss(error);
        }
    }

    /// Marks the device as lost if an error of the backend says so.
    pub(crate) fn note_loss(&self, error: &BackendError) {
        if error.kind() == BackendErrorKind::Lost {
            self.end_by(End::Lost(error.clone()));
        }
    }

    /// Announces that the device is lost, once.
    pub(crate) fn announce_loss(&self) {
        let Some(End::Lost(error)) = self.end() else { return };
        if self.announced.swap(true, Ordering::AcqRel) {
            return;
        }
        self.record(Activity::Lost);
        // The work that threads wait for may never end: a driver may never finish reads that it has
        // accepted, and a stream's thread may hang in a call. The log comes last, since a slow logger would
        // delay those threads.
        let lost = DeviceError::Call { device: self.device, call: "read", error: error.clone() };
        self.fail_open_reads(&lost);
        self.queues().iter().for_each(|queue| queue.wake_waiting_threads());
        let awaited = std::mem::take(&mut *lock(&self.awaited));
        awaited.iter().filter_map(Weak::upgrade).for_each(|event| event.device_ended(&lost));
        // Only after the threads were woken, as this is the driver's own code, and may hang.
        self.end_own_streams();
        self.release_closed();
        self.close_cache();
        self.pass_on_deferred();
        log_isolated(|| log::error!("`{}` is lost: {}", self.device, error.message()));
    }

    /// Adds a read that is about to be enqueued, which fails when the device is lost.
    pub(crate) fn add_open_read(&self, read: Weak<dyn Awaited>) {
        push_weak(&mut lock(&self.open_reads), read);
        // The loss may have been announced since the caller's check, without this read.
        if let Some(End::Lost(error)) = self.end()
            && self.announced.load(Ordering::Acquire)
        {
            self.fail_open_reads(&DeviceError::Call {
                device: self.device,
                call: "read",
                error: error.clone(),
            });
        }
    }

    /// Adds an event that a thread is about to wait for, which wakes it when the device is lost. The caller
    /// looks afterwards whether that has happened.
    pub(crate) fn add_awaited(&self, event: Weak<dyn Awaited>) {
        push_weak(&mut lock(&self.awaited), event);
    }

    /// Ends the open reads, which the driver may never finish.
    fn fail_open_reads(&self, error: &DeviceError) {
        let reads = std::mem::take(&mut *lock(&self.open_reads));
        for read in reads.iter().filter_map(Weak::upgrade) {
            read.device_ended(error);
        }
    }

    /// Closes the device after its work is done. An error does not prevent the close, except a loss.
    pub(crate) fn close(&self) -> Result<(), DeviceError> {
        const CALL: &str = "close";
        self.check(CALL)?;
        if self.leaving.swap(true, Ordering::AcqRel) {
            return Err(DeviceError::Closed { device: self.device, call: CALL });
        }
        let work = self.synchronize();
        let lost = self.check(CALL);
        if !self.end_by(End::Closed) {
            // The device was lost meanwhile. Clear the flag, or it could never be reset.
            self.leaving.store(false, Ordering::Release);
            if let Err(error) = work {
                log_isolated(|| log::error!("while `{}` was closed: {error}", self.device));
            }
            return lost.and(self.check(CALL));
        }
        self.end_own_streams();
        // Wait for calls of other threads that passed the check before: they may still use the driver and
        // enqueue work.
        while self.calls.load(Ordering::SeqCst) > 0 {
            pause();
        }
        let queues = self.queues();
        queues.iter().for_each(|queue| queue.settle_closed());
        // Earlier, the drop of a queue could free memory that its work still uses.
        self.settled.store(true, Ordering::Release);
        let mut late: Vec<_> = queues.iter().filter_map(|queue| queue.take_failure().err()).collect();
        self.release_closed();
        // The last handles of dropped streams: the driver's queues are dropped before its close.
        drop(queues);
        // A separate statement, to release this lock: a stream that ends takes it while holding its own.
        let unreported = std::mem::take(&mut *lock(&self.unreported));
        late.extend(unreported);
        self.close_cache();
        self.drop_when_allowed(self.values.end());
        self.pass_on_deferred();
        self.drop_what_is_due();
        let closed = isolated(self.device, CALL, || self.driver.close());
        self.fail_open_reads(&DeviceError::Closed { device: self.device, call: "read" });
        self.record(Activity::Closed);
        let mut errors = work.err().into_iter().chain(late).chain(closed.err());
        let first = errors.next();
        // The call can return one error. It logs the others, since no later call can return them.
        errors.for_each(|error| log_isolated(|| log::error!("while `{}` was closed: {error}", self.device)));
        first.map_or(Ok(()), Err)
    }

    /// Resets the driver of a lost device, so that the next use can open it again.
    pub(crate) fn reset(&self) -> Result<(), DeviceError> {
        let fail = |error| Err(DeviceError::Call { device: self.device, call: "reset", error });
        match self.check("reset") {
            Ok(()) => return fail(BackendError::invalid("expected a lost device, found one that works")),
            Err(DeviceError::Call { .. }) => {}
            Err(other) => return Err(other),
        }
        if self.leaving.swap(true, Ordering::AcqRel) {
            return fail(BackendError::invalid(
                "another thread has already reset the device, or is resetting it",
            ));
        }
        // A kernel that is still under way has its own reference.
        self.drop_when_allowed(self.values.end());
        let outcome = isolated(self.device, "reset", || self.driver.reset());
        self.leaving.store(outcome.is_ok(), Ordering::Release);
        if outcome.is_ok() {
            self.record(Activity::Reset);
            self.end_own_streams();
            self.drop_what_is_due();
        }
        outcome
    }

    /// Ends the device's own streams: the default stream, to which a program may have handles, and the
    /// streams for blocking calls.
    pub(super) fn end_own_streams(&self) {
        let stream = lock(&self.default_stream).take();
        // A separate statement, to release the lock: their drop calls the driver.
        let idle = std::mem::take(&mut *lock(&self.idle_streams));
        if !idle.is_empty() {
            self.drop_when_allowed(idle);
        }
        if let Some(stream) = stream {
            // A program's handles keep the queue alive, and its thread with it, unless it is closed here.
            stream.close();
        }
    }
}
