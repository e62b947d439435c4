//! Submitting to a driver's queue, and freeing the values that its work has used.
//!
//! # Why a free waits for an event
//!
//! A driver's queue uses memory after the submission has returned, and owns no handles of it. So the core
//! keeps the values of each piece of work ([`InFlight`]). It drops them when the driver reports the work as
//! done: an event behind it [is over](crate::backend::EventDriver::is_over), or a query or a wait for the
//! whole queue succeeds. The core records such an event after every 64 values or 16 MiB of host memory, and
//! uses a program's own events too.

use std::sync::Arc;

use crate::backend::{BackendError, EventOptions, StreamDriver};
use crate::error::DeviceError;
use crate::runtime::isolation::drop_isolated;
use crate::runtime::operation::Operation;
use crate::runtime::queue::in_flight::KeptMemory;
use crate::runtime::queue::{Keep, Queue, Recorded};
use crate::sync::lock;

/// The result of a submission.
pub(super) struct Submitted {
    /// The work itself, if only the host can do it.
    pub(super) left_to_host: Result<Option<Operation>, DeviceError>,
    /// Whether so many values are in flight that the core should collect finished work, [after the
    /// turn](Queue::after_turn).
    pub(super) collects: bool,
    /// Values that the queue does not keep. Their drop may free memory.
    pub(super) not_kept: Vec<Keep>,
}

impl Queue {
    /// Submits work to the driver's queue, and keeps its values until the driver has done it. The caller
    /// holds `submitting`, and gives the count of failures at which it decided not to skip the work.
    pub(super) fn submit(
        self: &Arc<Self>,
        driver: &dyn StreamDriver,
        operation: Operation,
        failures: u64,
    ) -> Submitted {
        let event = match &operation {
            Operation::Record { event, .. } => Some(event.clone()),
            _ => None,
        };
        let mut kept = Vec::new();
        let left_to_host = operation.submit(self, driver, &mut kept, failures);
        // Before the lock, under which no other is taken.
        let event = event.and_then(|event| event.submitted());
        let mut in_flight = lock(&self.in_flight);
        let collects = in_flight.keep(&mut kept, left_to_host.is_ok());
        // A program's event covers the values in flight, as one of the core does.
        let reached = in_flight.reached();
        let needless = event.and_then(|event| in_flight.mark(reached, event));
        let unmarked = in_flight.is_unmarked();
        drop(in_flight);
        drop(needless);
        if collects {
            if unmarked {
                self.mark(driver);
            }
            self.flush_in_turn(driver);
        }
        Submitted { left_to_host, collects, not_kept: kept }
    }

    /// Completes a submission after `submitting` is released. It may run foreign code, which may submit work
    /// itself.
    pub(super) fn after_turn(&self, collects: bool, not_kept: Vec<Keep>) {
        drop(not_kept);
        self.device.announce_loss();
        if collects {
            self.collect_marked();
        }
    }

    /// Records an event behind the work in flight. The caller holds `submitting`.
    fn mark(self: &Arc<Self>, driver: &dyn StreamDriver) {
        let reached = lock(&self.in_flight).reached();
        let event = self.device.call_in_turn("record", |_| driver.record(&EventOptions::new()));
        // Without the event, the next release happens after a query or a wait for all work.
        if let Ok(event) = event {
            let event = self.recorded(event);
            let needless = lock(&self.in_flight).mark(reached, event);
            drop_isolated(self.device.device(), needless);
        }
    }

    /// Flushes the driver's queue for the events that show the core what is done. The caller holds
    /// `submitting`.
    fn flush_in_turn(&self, driver: &dyn StreamDriver) {
        let flushed = self.device.call_in_turn("flush", |_| self.flush_driver(driver));
        if let Err(error) = flushed
            && !self.device.has_ended()
        {
            self.fail(error);
        }
    }

    /// Flushes the driver's queue: what it has accepted begins without further calls.
    pub(super) fn flush_driver(&self, driver: &dyn StreamDriver) -> Result<(), BackendError> {
        let reached = self.flushes.accepted();
        driver.flush()?;
        self.flushes.cover(reached);
        Ok(())
    }

    /// Whether a driver's queue is done. Flushes it first: otherwise its work might never begin.
    pub(super) fn query_driver(&self, driver: &dyn StreamDriver) -> Result<bool, BackendError> {
        self.flush_driver(driver)?;
        driver.query()
    }

    /// Waits for a driver's queue. Flushes it first: otherwise its work might never begin.
    pub(super) fn finish_driver(&self, driver: &dyn StreamDriver) -> Result<(), BackendError> {
        self.flush_driver(driver)?;
        driver.synchronize()
    }

    /// Releases the values of finished work in a driver's queue, as far as events show it. Does not wait.
    /// Returns whether it has released any.
    pub(crate) fn collect_marked(&self) -> bool {
        // The newest first: often all work is done, and one query is enough.
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

    /// Releases the values that an event covers, if all work before it has ended.
    fn release_if_over(&self, mark: Option<(u64, Arc<Recorded>)>) -> bool {
        let Some((number, event)) = mark else { return false };
        // It causes no flush: this is no wait for the event.
        let over = event.has_begun()
            && matches!(self.device.call("query an event", |_| event.event().is_over()), Ok(true));
        if over {
            self.release(number);
        }
        drop_isolated(self.device.device(), event);
        over
    }

    /// Releases the values of all finished work in a driver's queue. Does not wait. Returns whether it has
    /// released any.
    ///
    /// It queries the driver where events are not enough, which may cost a command.
    pub(crate) fn collect(&self) -> bool {
        let mut any = self.collect_marked();
        let in_flight = lock(&self.in_flight);
        let (left, reached) = (!in_flight.is_empty(), in_flight.reached());
        drop(in_flight);
        if left && let Some(driver) = self.driver.as_deref() {
            match self.device.call("query", |_| self.query_driver(driver)) {
                Ok(true) => any |= self.release(reached),
                Ok(false) => {}
                // The driver may report the failure only once. A device that is closed now is not a failure
                // of the work.
                Err(error) if !self.device.has_ended() => self.fail(error),
                Err(_) => {}
            }
        }
        any
    }

    /// The memory of the queue's device that the driver's queue may still use.
    pub(crate) fn memory_in_flight(&self) -> Vec<KeptMemory> {
        lock(&self.in_flight).memory_of(self.device)
    }

    /// Waits for the driver's queue alone, and releases the values of its work. It does not wait for the
    /// stream's thread. Keeps a failure for a later report.
    pub(crate) fn settle_submitted(&self) {
        if let Some(driver) = self.driver.as_deref()
            && let Err(error) = self.settle_driver(|| self.device.call("synchronize", |_| self.finish_driver(driver)))
            // The end of the device is not a failure of the work.
            && !self.device.has_ended()
        {
            self.fail(error);
        }
    }

    /// Drops the values below a number, whose work the driver has reported as done. Returns whether there
    /// were any.
    pub(super) fn release(&self, number: u64) -> bool {
        // The driver may have returned because of the loss, while the work runs on.
        if self.device.is_lost() {
            return false;
        }
        let released = lock(&self.in_flight).release(number);
        let any = !released.is_empty();
        if any {
            drop_isolated(self.device.device(), released);
        }
        self.device.settle_memory(&self.progress);
        any
    }

    /// Runs a wait for the driver's queue, and frees the values of its work.
    pub(super) fn settle_driver(
        &self,
        finish: impl FnOnce() -> Result<(), DeviceError>,
    ) -> Result<(), DeviceError> {
        // Before the wait: it does not cover work that is submitted meanwhile, whose values must be kept.
        let reached = lock(&self.in_flight).reached();
        let finished = finish();
        if finished.is_ok() {
            self.release(reached);
        }
        finished
    }

    /// Waits until all work below a number of the driver's queue is done. A failure of the work stays the
    /// stream's.
    pub(crate) fn wait_until_done(&self, number: u64) -> Result<(), DeviceError> {
        const CALL: &str = "wait for memory";

        // A driver reports a failure once, and then says whether all is done.
        for _ in 0..3 {
            // Events first: the wait is for later work too.
            if self.progress.is_done(number) || (self.collect_marked() && self.progress.is_done(number)) {
                return Ok(());
            }
            self.settle_submitted();
            self.device.check(CALL)?;
        }
        let error = BackendError::other("the driver does not say whether earlier work that uses it is done");
        Err(DeviceError::Call { device: self.device.device(), call: CALL, error })
    }
}
