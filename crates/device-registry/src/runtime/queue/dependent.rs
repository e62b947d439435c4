//! A queue as its device sees it, and as its reads and events see it.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::backend::{BackendError, BackendErrorKind, Progress};
use crate::error::DeviceError;
use crate::runtime::deadline::Deadline;
use crate::runtime::device_use;
use crate::runtime::open_device::{KeptMemory, StreamQueue, log_unreported};
use crate::runtime::origin::Origin;
use crate::runtime::queue::Queue;
use crate::runtime::waits::Ask;
use crate::sync::{AtomicBool, lock, wait_timeout};

impl Origin for Queue {
    fn begin(self: Arc<Self>, number: u64) -> Result<(), DeviceError> {
        if self.flushes.is_covered(number) {
            return Ok(());
        }
        if device_use::is_forbidden() {
            // A task is polled where no driver may be called. The end of a device finishes its reads.
            if !self.device.has_ended() {
                self.flush_on_thread();
            }
            return Ok(());
        }
        self.flush()
    }

    fn fail_read(&self, error: DeviceError, finished: Option<&AtomicBool>) {
        // Both happen under one lock. So an event that the driver records returns the failure unless it was
        // reported: either the flag is not set, and the driver fails the event; or the queue has the failure,
        // and skips the event; or the event is being recorded, and `failed_since` finds the failure.
        let mut state = lock(&self.state);
        if let Some(finished) = finished {
            finished.store(true, Ordering::Release);
        }
        state.failure.set(error);
    }
}

impl StreamQueue for Queue {
    fn progress(&self) -> Option<&Arc<Progress>> {
        self.driver.is_some().then_some(&self.progress)
    }

    fn settle(&self) {
        let state = lock(&self.state);
        let all = state.accepted;
        drop(self.wait_for_thread(state, all));
        if let Some(driver) = self.driver.as_deref()
            && let Err(error) = self
                .settle_driver(Ask::Wait, || self.device.call("synchronize", |_| self.finish_driver(driver)))
        {
            self.fail(error);
        }
    }

    fn settle_until(&self, deadline: &Deadline) -> Result<(), DeviceError> {
        let mut state = lock(&self.state);
        let all = state.accepted;
        while state.finished < all && !self.device.is_lost() {
            let Some(left) = deadline.left() else {
                let pending = state.pending();
                drop(state);
                return Err(deadline.timed_out(self.device.device(), &pending));
            };
            state.awaited = Some(state.awaited.map_or(all, |other| other.min(all)));
            state = wait_timeout(&self.finished, state, left);
        }
        drop(state);
        let Some(driver) = self.driver.as_deref() else { return Ok(()) };
        let mut in_time = true;
        let settled = self.settle_driver(Ask::Query, || {
            let query = || {
                let done = self.device.call("query", |_| self.query_driver(driver))?;
                Ok(done && self.ask_awaited(Ask::Query))
            };
            in_time = deadline.poll(query)?;
            // No work is known to be done.
            if in_time {
                Ok(())
            } else {
                Err(deadline.timed_out(self.device.device(), "work in a queue of the driver"))
            }
        });
        match settled {
            // The failure of the work, which a later call reports.
            Err(error) if in_time => self.fail(error),
            other => other?,
        }
        Ok(())
    }

    fn settle_submitted(&self) {
        if self.driver.is_none() {
            let state = lock(&self.state);
            let number = state.finished + state.that_end_by_themselves();
            drop(self.wait_for_thread(state, number));
        }
        if let Some(driver) = self.driver.as_deref()
            && let Err(error) = self.settle_driver(Ask::Query, || {
                self.device.call("synchronize", |_| self.finish_driver(driver))
            })
            // The end of the device is not a failure of the work.
            && !self.device.has_ended()
        {
            self.fail(error);
        }
    }

    fn settle_closed(&self) {
        let Some(driver) = self.driver.as_deref() else { return };
        // A driver reports a failure, and then says that all is done. Without that, what the work uses would
        // be leaked.
        for _ in 0..3 {
            let finish = || self.device.isolated("synchronize", || self.finish_driver(driver));
            let Err(error) = self.settle_driver(Ask::Query, finish) else { return };
            let is_loss = error.kind() == Some(BackendErrorKind::Lost);
            self.fail(error);
            if is_loss {
                return;
            }
        }
    }

    fn wait_until_done(&self, number: u64) -> Result<(), DeviceError> {
        const CALL: &str = "wait for memory";

        // A driver reports a failure once, and then says whether all is done.
        for _ in 0..3 {
            // Events come first, as the wait is also for later work.
            if self.progress.is_done(number) || (self.collect_marked() && self.progress.is_done(number)) {
                return Ok(());
            }
            self.settle_submitted();
            self.device.check(CALL)?;
        }
        let error = BackendError::other("the driver does not say whether earlier work that uses it is done");
        Err(DeviceError::Call { device: self.device.device(), call: CALL, error })
    }

    fn take_failure(&self) -> Result<(), DeviceError> {
        lock(&self.state).take_failure()
    }

    fn collect(&self) -> bool {
        let mut any = self.collect_marked();
        let in_flight = lock(&self.in_flight);
        let left = !in_flight.is_empty();
        let reached = in_flight.reached();
        drop(in_flight);
        if left && let Some(driver) = self.driver.as_deref() {
            match self.device.call("query", |_| self.query_driver(driver)) {
                Ok(true) => {
                    any |= self.release(reached);
                    self.ask_awaited(Ask::Query);
                }
                Ok(false) => {}
                // The driver may report the failure only once. A device that is closed now is not a failure
                // of the work.
                Err(error) if !self.device.has_ended() => self.fail(error),
                Err(_) => {}
            }
        }
        any
    }

    fn collect_marked(&self) -> bool {
        // Starts with the newest: often all work is done, and one query is enough.
        let newest = lock(&self.in_flight).newest_mark();
        if self.release_if_over(newest) {
            return true;
        }
        let mut any = false;
        loop {
            let oldest = lock(&self.in_flight).oldest_mark();
            if !self.release_if_over(oldest) {
                return any;
            }
            any = true;
        }
    }

    fn memory_in_flight(&self) -> Vec<KeptMemory> {
        if self.driver.is_some() {
            return lock(&self.in_flight).memory_of(self.device);
        }
        let state = lock(&self.state);
        let mut memory = Vec::new();
        for operation in state.before_the_first_that_may_not_end() {
            operation.add_memory(self.device, &mut memory);
        }
        memory
    }

    fn under_way(&self) -> Option<u64> {
        let state = lock(&self.state);
        let is_waited_for = self.driver.is_none() && state.under_way.is_some() && state.ends_by_itself;
        is_waited_for.then_some(state.finished + 1)
    }

    fn settle_under_way(&self, number: u64) {
        drop(self.wait_for_thread(lock(&self.state), number));
    }

    fn is_done(&self) -> bool {
        self.leave_unreported(lock(&self.state));
        match self.query() {
            Ok(done) => done,
            Err(_) if self.device.has_ended() => self.device.is_settled(),
            Err(error) => {
                self.device.report_later(error.clone());
                log_unreported(&error);
                false
            }
        }
    }

    fn wake_waiting_threads(&self) {
        // Under the lock: a thread that is about to wait has looked for the loss.
        let state = lock(&self.state);
        self.finished.notify_all();
        drop(state);
    }
}
