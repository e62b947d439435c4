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
use std::time::Instant;

use crate::backend::{BackendError, EventOptions, FillPattern, HostBuffer, Span, StreamDriver};
use crate::error::DeviceError;
use crate::runtime::activity;
use crate::runtime::activity::Id;
use crate::runtime::isolation::drop_isolated;
use crate::runtime::open_device::{OpenDevice, StreamQueue, Timed, is_unsupported};
use crate::runtime::operation::{Operation, Route, launch};
use crate::runtime::queue::Queue;
use crate::runtime::queue::in_flight::{Keep, ObservedWork};
use crate::runtime::recorded::Recorded;
use crate::runtime::transfer::{FillPlan, doublings};
use crate::runtime::waits::Ask;
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
        route: Route,
        failures: u64,
        id: Option<Id>,
    ) -> Submitted {
        let event = match &operation {
            Operation::Record { event, .. } => Some(event.clone()),
            _ => None,
        };
        let mut kept = Vec::new();
        let observed = id.map(|id| (id, Instant::now()));
        let begin = if observed.is_some() { self.timed(driver) } else { None };
        let left_to_host = self.submit_operation(driver, operation, route, &mut kept, failures);
        if let (Ok(None), Some((id, enqueued))) = (&left_to_host, observed) {
            let times = begin.and_then(|begin| match &event {
                // The program's event shows that the work before it is done, but not that an event after it
                // is.
                Some(_) => Some((begin, None)),
                None => Some((begin, Some(self.timed(driver)?))),
            });
            kept.push(Keep::Observed(ObservedWork {
                device: self.device.device(),
                stream: self.id,
                work: Some(id),
                enqueued,
                times,
            }));
        }
        // Done before the lock, under which no other is taken.
        let event = event.and_then(|event| event.submitted());
        let mut in_flight = lock(&self.in_flight);
        let collects = in_flight.keep(&mut kept, left_to_host.is_ok());
        // A program's event covers the values in flight, as one of the core's does.
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

    /// Submits the work to the driver's queue. Returns the work itself if its route allows the thread and the
    /// driver does not support it. `keep` gets all values that must stay alive until the queue has
    /// finished, even after an error: part of refused work may have begun. The queue had this many
    /// `failures` when the work was not skipped.
    fn submit_operation(
        self: &Arc<Self>,
        stream: &dyn StreamDriver,
        operation: Operation,
        route: Route,
        keep: &mut Vec<Keep>,
        failures: u64,
    ) -> Result<Option<Operation>, DeviceError> {
        let device = self.device;
        match operation {
            Operation::Write { source, destination } => {
                let written = device.call_in_turn("write", |_| stream.write(&destination, &source));
                keep.extend([Keep::Host(source), destination.into()]);
                written?;
            }
            Operation::Read { source, destination, read } => {
                let (outcome, completion) = read.into_parts();
                let read = device.call_in_turn("read", |_| stream.read(&source, destination, completion));
                keep.push(source.into());
                if let Err(error) = read {
                    outcome.set(Err(error.clone()));
                    return Err(error);
                }
                outcome.accept(self.flushes.accept(), self.waits.before(failures))?;
            }
            Operation::Copy { from, source, destination } => {
                let copied = if std::ptr::eq(from, device) {
                    device.call_in_turn("copy", |_| stream.copy(&source, &destination))
                } else {
                    from.check("copy").and_then(|()| {
                        device.call_in_turn("copy from a peer", |_| {
                            stream.copy_from_peer(&source, &destination)
                        })
                    })
                };
                if route.may_be_left() && is_unsupported(&copied) {
                    return Ok(Some(Operation::Copy { from, source, destination }));
                }
                keep.extend([source.into(), destination.into()]);
                copied?;
            }
            Operation::Fill { destination, pattern } => {
                let mut filled = device.call_in_turn("fill", |_| stream.fill(&destination, &pattern));
                if is_unsupported(&filled) {
                    filled = submit_fill(device, stream, &destination, &pattern, keep);
                }
                keep.push(destination.into());
                filled?;
            }
            Operation::Launch { spans, kernel, .. } => {
                let (launched, kept) = launch(device, &spans, kernel, Some(stream));
                keep.extend(kept.into_iter().map(Keep::Value));
                keep.extend(spans.into_iter().flatten().map(Keep::from));
                launched?;
            }
            Operation::Record { event, options } => {
                match device.call_in_turn("record", |_| stream.record(&options)) {
                    Ok(recorded) => {
                        // Before the failure: a wait that fails meanwhile is found in one of the two.
                        let recorded = self.recorded(recorded, self.waits.before(failures));
                        // A driver does not fail the events behind a read whose failure the core has.
                        match self.failed_since(failures) {
                            None => event.submit(recorded),
                            Some(error) => {
                                event.fail(error);
                                drop_isolated(device.device(), recorded);
                            }
                        }
                    }
                    Err(error) => {
                        event.fail(error.clone());
                        return Err(error);
                    }
                }
            }
            Operation::Wait(event) => {
                event.open_device().check("wait for an event")?;
                let Some(recorded) = event.submitted() else {
                    return Ok(Some(Operation::Wait(event)));
                };
                let waits = device.call_in_turn("wait for an event", |_| stream.wait_event(recorded.event()));
                if route.may_be_left() && is_unsupported(&waits) {
                    return Ok(Some(Operation::Wait(event)));
                }
                if waits.is_ok() {
                    self.waits.add(event.clone(), failures);
                }
                keep.push(Keep::Value(Box::new(event)));
                waits?;
            }
            // A host call never takes this route.
            call @ Operation::Call(_) => return Ok(Some(call)),
        }
        Ok(None)
    }

    /// An event with a timestamp, for observers that want the device's clock. The caller holds `submitting`.
    #[cold]
    fn timed(&self, driver: &dyn StreamDriver) -> Option<Timed> {
        let alignment = self.device.known_alignment()?;
        let record = self.device.call_in_turn("record", |_| driver.record(&EventOptions::new().timed()));
        Some(Timed::new(record.ok()?, &alignment))
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

    /// Records an event after the work in flight. The caller holds `submitting`.
    fn mark(self: &Arc<Self>, driver: &dyn StreamDriver) {
        let reached = lock(&self.in_flight).reached();
        let event = self.device.call_in_turn("record", |_| driver.record(&EventOptions::new()));
        // Without the event, the next release happens after a query or a wait for all work.
        if let Ok(event) = event {
            let event = self.recorded(event, None);
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

    /// Releases the values that an event covers, if all work before it has ended.
    pub(super) fn release_if_over(&self, mark: Option<(u64, Arc<Recorded>)>) -> bool {
        let Some((number, event)) = mark else { return false };
        // It causes no flush, as this does not wait for the event.
        let over = event.has_begun()
            && matches!(self.device.call("query an event", |_| event.event().is_over()), Ok(true));
        if over {
            self.release(number);
        }
        drop_isolated(self.device.device(), event);
        over
    }

    /// Drops the values below a number, whose work the driver has reported as done. Returns whether there
    /// were any.
    pub(super) fn release(&self, number: u64) -> bool {
        // The driver may have returned because of the loss, while the work runs on.
        if self.device.is_lost() {
            return false;
        }
        // Whatever they return: the driver's report of its own failure comes first.
        let _ = self.waits.ask(Ask::Query);
        let mut released = lock(&self.in_flight).release(number);
        let any = !released.is_empty();
        if any {
            if activity::is_on() {
                released.note_done();
            }
            drop_isolated(self.device.device(), released);
        }
        self.device.settle_memory(&self.progress);
        any
    }

    /// Runs a wait for the driver's queue, frees the values of its work, and asks the events that it waited
    /// for.
    pub(super) fn settle_driver(
        &self,
        ask: Ask,
        finish: impl FnOnce() -> Result<(), DeviceError>,
    ) -> Result<(), DeviceError> {
        // Read before the wait, which does not cover work submitted meanwhile, whose values must be kept.
        let reached = lock(&self.in_flight).reached();
        let finished = finish();
        if finished.is_ok() {
            self.release(reached);
            self.ask_awaited(ask);
        }
        finished
    }
}

/// Submits a fill as a write of its first part and copies that double it.
fn submit_fill(
    device: &'static OpenDevice,
    stream: &dyn StreamDriver,
    destination: &Span,
    pattern: &FillPattern,
    keep: &mut Vec<Keep>,
) -> Result<(), DeviceError> {
    let plan = FillPlan::new(device, destination, pattern);
    let [first, tail] = [plan.first, plan.tail].map(|bytes| Arc::new(HostBuffer::from(bytes)));
    keep.extend([&first, &tail].map(|bytes| Keep::Host(Arc::clone(bytes))));
    device.call_in_turn("fill", |_| {
        stream.write(&destination.part(0..first.len()), &first)?;
        for (from, to) in doublings(first.len(), destination.len() - tail.len()) {
            stream.copy(&destination.part(from), &destination.part(to))?;
        }
        if tail.is_empty() {
            Ok(())
        } else {
            stream.write(&destination.part(destination.len() - tail.len()..destination.len()), &tail)
        }
    })
}
