//! Events of a twin's queues.

use std::any::Any;
use std::sync::Arc;
use std::time::{Duration, Instant};

use device_registry::backend::{BackendError, EventDriver, EventOptions};
use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::defect::Defect::*;
use crate::misqueue as wrongly;
use crate::wrong::wrong;

/// A point in the work of a queue.
#[derive(Default)]
pub(crate) struct Point {
    reached: Mutex<Option<Result<Instant, BackendError>>>,
    changed: Condvar,
}

impl Point {
    fn reached(&self) -> MutexGuard<'_, Option<Result<Instant, BackendError>>> {
        self.reached.lock()
    }

    /// Marks the point as reached by the queue.
    pub(crate) fn reach(&self, work_before: Result<(), BackendError>) {
        *self.reached() = Some(work_before.map(|()| Instant::now()));
        if wrong(EventsWakeOneWaiter) {
            self.changed.notify_one();
        } else {
            self.changed.notify_all();
        }
    }

    /// Marks the point as not reached.
    pub(crate) fn start_again(&self) {
        *self.reached() = None;
    }

    pub(crate) fn query(&self) -> Result<bool, BackendError> {
        self.reached().clone().transpose().map(|time| time.is_some())
    }

    /// Waits until the point is reached, or for a while.
    pub(crate) fn wait_for(&self, a_while: Duration) -> Result<(), BackendError> {
        let mut reached = self.reached();
        self.changed.wait_while_for(&mut reached, |reached| reached.is_none(), a_while);
        reached.clone().transpose().map(|_| ())
    }

    /// Waits until the point is reached. Returns the time when it was.
    pub(crate) fn synchronize(&self) -> Result<Instant, BackendError> {
        let mut reached = self.reached();
        loop {
            match &*reached {
                Some(time) => return time.clone(),
                None => self.changed.wait(&mut reached),
            }
        }
    }
}

/// A recorded event.
pub(crate) struct TwinEvent {
    point: Arc<Point>,
    timed: bool,
    pub(crate) record: wrongly::Record,
}

impl TwinEvent {
    pub(crate) fn new(point: Arc<Point>, options: &EventOptions, record: wrongly::Record) -> Self {
        Self { point, timed: options.timed, record }
    }

    pub(crate) fn point(&self) -> Arc<Point> {
        Arc::clone(&self.point)
    }
}

impl EventDriver for TwinEvent {
    fn query(&self) -> Result<bool, BackendError> {
        if wrong(EventQueriesWait) {
            return self.point.synchronize().map(|_| true);
        }
        match self.record.query() {
            Some(done) => Ok(done),
            None => self.point.query(),
        }
    }

    fn synchronize(&self) -> Result<(), BackendError> {
        if wrong(EventsAreNotWaitedFor) || wrong(EventsAreDoneAtOnce) {
            return Ok(());
        }
        if wrong(EventsAreWaitedForAWhile) {
            return self.point.wait_for(wrongly::A_WHILE);
        }
        self.point.synchronize().map(|_| ())
    }

    fn elapsed_since(&self, start: &dyn EventDriver) -> Result<Duration, BackendError> {
        let start: &dyn Any = start;
        let start: &Self =
            start.downcast_ref().ok_or_else(|| BackendError::invalid("an event of another backend"))?;
        if !self.timed || !start.timed {
            return Err(BackendError::invalid("an event without a timestamp"));
        }
        let (from, to) = (start.point.synchronize()?, self.point.synchronize()?);
        match self.record.elapsed(&start.record, from, to) {
            Some(elapsed) => Ok(elapsed),
            None => Err(BackendError::invalid("the start was reached after the end")),
        }
    }
}
