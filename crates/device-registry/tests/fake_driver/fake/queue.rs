//! Queues of the fake driver: each is a thread, and has its own gate.

use std::any::Any;
use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use device_registry::backend::{
    BackendError, Completion, EventDriver, EventOptions, FillPattern, HostBuffer, Span, StreamDriver,
};

use super::device::{PinnedBytes, Place};
use super::{Control, Moment};
use crate::LONG;

type Work = Box<dyn FnOnce() + Send>;

/// A queue. While its gate or its device's gate is closed, no work begins. It is the native handle of a
/// stream.
pub(crate) struct Queue {
    control: &'static Control,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// The work that begins with the next flush.
    batch: VecDeque<Work>,
    work: VecDeque<Work>,
    submitted: u64,
    done: u64,
    closed: bool,
    ended: bool,
    /// How many waits of the core for work that is not done have begun.
    waits: usize,
    /// The failure of the work, which the queue reports once.
    failure: Option<BackendError>,
}

impl Queue {
    pub(super) fn new(control: &'static Control) -> Arc<Self> {
        Arc::new(Self { control, state: Mutex::default(), changed: Condvar::new() })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let result = change(&mut self.state());
        self.changed.notify_all();
        result
    }

    pub(crate) fn close(&self) {
        self.change(|state| state.closed = true);
    }

    pub(crate) fn open(&self) {
        self.change(|state| state.closed = false);
    }

    /// The work fails, which the queue reports once, and ends.
    pub(crate) fn fail(&self, error: BackendError) {
        self.change(|state| (state.failure, state.closed) = (Some(error), false));
    }

    pub(crate) fn waits(&self) -> usize {
        self.state().waits
    }

    /// Returns when this many waits have begun.
    #[track_caller]
    pub(crate) fn await_waits(&self, waits: usize) {
        let state = self.state();
        let (state, timeout) =
            self.changed.wait_timeout_while(state, LONG, |state| state.waits < waits).unwrap();
        assert!(!timeout.timed_out(), "{} waits have begun, and not {waits}", state.waits);
    }

    /// Submits native work, as a kernel does. Only the gate of the queue stops it. Returns
    /// its number.
    pub(crate) fn submit(&self, work: impl FnOnce() + Send + 'static) -> u64 {
        let batches = self.control.batches.load(Ordering::SeqCst);
        self.change(|state| {
            let queue = if batches { &mut state.batch } else { &mut state.work };
            queue.push_back(Box::new(work));
            state.submitted += 1;
            state.submitted
        })
    }

    /// Submits native work that waits while the gate of the device is closed.
    pub(crate) fn submit_gated(&self) {
        let control = self.control;
        self.submit(move || drop(control.begin()));
    }

    /// Submits a kernel that fills the bytes.
    pub(crate) fn submit_fill(&self, span: &Span, byte: u8) -> Result<(), BackendError> {
        let (place, len) = (Place::of(span)?, span.len());
        self.submit(move || place.write(&vec![byte; len]));
        Ok(())
    }

    fn begin_batch(&self) {
        self.change(|state| {
            self.control.batches_begun.fetch_add(usize::from(!state.batch.is_empty()), Ordering::SeqCst);
            state.work.append(&mut state.batch);
        });
    }

    /// Waits until this many pieces of work are done.
    fn await_done(&self, number: u64) {
        drop(self.changed.wait_while(self.state(), |state| state.done < number).unwrap());
    }

    /// An event behind all work.
    fn point(self: &Arc<Self>) -> FakeEvent {
        let (control, outcome) = (self.control, Arc::<OnceLock<_>>::default());
        let (reached, queue) = (Arc::clone(&outcome), Arc::downgrade(self));
        let number = self.submit(move || {
            let begun = control.begin().and_then(|()| match queue.upgrade() {
                Some(queue) if control.waits_fail.load(Ordering::SeqCst) => {
                    queue.state().failure.clone().map_or(Ok(()), Err)
                }
                _ => Ok(()),
            });
            reached.set(begun.map(|()| Instant::now())).unwrap();
        });
        FakeEvent { queue: Arc::clone(self), number, outcome }
    }

    /// The queue's thread.
    fn run(&self) {
        let idle = |state: &mut State| (state.closed || state.work.is_empty()) && !state.ended;
        loop {
            let mut state = self.changed.wait_while(self.state(), idle).unwrap();
            let Some(work) = state.work.pop_front() else { return };
            drop(state);
            work();
            self.change(|state| state.done += 1);
        }
    }
}

pub(super) struct QueueDriver(Arc<Queue>);

impl QueueDriver {
    pub(super) fn begin(queue: Arc<Queue>) -> Self {
        queue.control.live_queues.fetch_add(1, Ordering::SeqCst);
        let runs = Arc::clone(&queue);
        thread::spawn(move || runs.run());
        Self(queue)
    }

    /// The work gets the outcome of its beginning.
    fn enqueue(
        &self,
        call: &'static str,
        work: impl FnOnce(Result<(), BackendError>) + Send + 'static,
    ) -> Result<(), BackendError> {
        let control = self.0.control;
        control.submit(call)?;
        self.0.submit(move || work(control.begin()));
        Ok(())
    }
}

impl Drop for QueueDriver {
    fn drop(&mut self) {
        // The core keeps it until its work is done. Otherwise the device is lost, and does no more.
        let rest = self.0.change(|state| {
            state.ended = true;
            (std::mem::take(&mut state.work), std::mem::take(&mut state.batch))
        });
        drop(rest);
        self.0.control.live_queues.fetch_sub(1, Ordering::SeqCst);
    }
}

impl StreamDriver for QueueDriver {
    fn native(&self) -> Option<Arc<dyn Any + Send + Sync>> {
        Some(Arc::clone(&self.0) as _)
    }

    fn write(&self, destination: &Span, source: &Arc<HostBuffer>) -> Result<(), BackendError> {
        // It finds its own memory again in a program's buffer.
        assert_eq!(source.is_pinned(), source.owner_as::<PinnedBytes>().is_some());
        // Like hardware, it relies on the core to keep the bytes alive.
        let (place, source) = (Place::of(destination)?, Arc::downgrade(source));
        self.enqueue("queue write", move |_| {
            place.write(&source.upgrade().expect("the core keeps it until the work is done"));
        })
    }

    fn read(
        &self,
        source: &Span,
        mut destination: HostBuffer,
        completion: Completion,
    ) -> Result<(), BackendError> {
        let (place, control) = (Place::of(source)?, self.0.control);
        if control.holds_reads.load(Ordering::SeqCst) {
            control.submit("queue read")?;
            control.change(|state| state.held_reads.push((completion, destination)));
            return Ok(());
        }
        self.enqueue("queue read", move |begun| {
            completion.finish(begun.map(|()| {
                place.read(&mut destination);
                destination
            }));
        })?;
        if control.waits_for_reads.load(Ordering::SeqCst) {
            let all = self.0.state().submitted;
            self.0.await_done(all);
        }
        Ok(())
    }

    fn copy(&self, source: &Span, destination: &Span) -> Result<(), BackendError> {
        let (from, to) = (Place::of(source)?, Place::of(destination)?);
        self.enqueue("queue copy", move |_| from.copy_to(&to))
    }

    fn copy_from_peer(&self, source: &Span, destination: &Span) -> Result<(), BackendError> {
        self.copy(source, destination)
    }

    fn fill(&self, destination: &Span, pattern: &FillPattern) -> Result<(), BackendError> {
        // Like some hardware, it supports short patterns only. The core then derives it from writes and
        // copies.
        let multiple = self.0.control.fills_multiples_of.load(Ordering::SeqCst);
        if pattern.as_bytes().len() > 4 || !destination.len().is_multiple_of(multiple) {
            return Err(BackendError::unsupported("such fills"));
        }
        let mut bytes = vec![0; destination.len()];
        pattern.fill(&mut bytes);
        let place = Place::of(destination)?;
        self.enqueue("queue fill", move |_| place.write(&bytes))
    }

    fn record(&self, _options: &EventOptions) -> Result<Box<dyn EventDriver>, BackendError> {
        self.0.control.submit("queue record")?;
        self.0.control.reach(Moment::Record)?;
        Ok(Box::new(self.0.point()))
    }

    fn wait_event(&self, event: &dyn EventDriver) -> Result<(), BackendError> {
        let FakeEvent { queue, number, outcome } = event.downcast_ref()?;
        let (queue, number, outcome) = (Arc::clone(queue), *number, Arc::clone(outcome));
        let (waits, control) = (Arc::downgrade(&self.0), self.0.control);
        control.submit("queue wait")?;
        self.0.submit(move || {
            queue.await_done(number);
            if control.waits_fail.load(Ordering::SeqCst)
                && let (Some(Err(error)), Some(waits)) = (outcome.get(), waits.upgrade())
            {
                waits.state().failure = Some(error.clone());
            }
        });
        Ok(())
    }

    fn launched(&self) {
        self.0.control.note("launched");
    }

    fn flush(&self) -> Result<(), BackendError> {
        self.0.control.note("queue flush");
        self.0.control.reach(Moment::Flush)?;
        self.0.begin_batch();
        Ok(())
    }

    fn query(&self) -> Result<bool, BackendError> {
        self.0.control.reach(Moment::Query)?;
        let mut state = self.0.state();
        if state.done < state.submitted {
            return Ok(false);
        }
        state.failure.take().map_or(Ok(true), Err)
    }

    fn synchronize(&self) -> Result<(), BackendError> {
        self.0.begin_batch();
        let submitted = self.0.change(|state| {
            state.waits += usize::from(state.done < state.submitted);
            state.submitted
        });
        self.0.await_done(submitted);
        self.0.control.begin()?;
        self.0.state().failure.take().map_or(Ok(()), Err)
    }
}

/// It is reached when this many pieces of work of the queue are done.
struct FakeEvent {
    queue: Arc<Queue>,
    number: u64,
    outcome: Arc<OnceLock<Result<Instant, BackendError>>>,
}

impl FakeEvent {
    fn time(&self) -> Result<Instant, BackendError> {
        self.queue.await_done(self.number);
        self.outcome.get().unwrap().clone()
    }
}

impl EventDriver for FakeEvent {
    fn query(&self) -> Result<bool, BackendError> {
        if self.is_over()? { self.time().map(|_| true) } else { Ok(false) }
    }

    fn is_over(&self) -> Result<bool, BackendError> {
        Ok(self.queue.state().done >= self.number)
    }

    fn synchronize(&self) -> Result<(), BackendError> {
        self.time().map(|_| ())
    }

    fn elapsed_since(&self, start: &dyn EventDriver) -> Result<Duration, BackendError> {
        let start = start.downcast_ref::<Self>()?.time()?;
        let passed = self
            .time()?
            .checked_duration_since(start)
            .ok_or_else(|| BackendError::invalid("the start came later"))?;
        Ok(passed * self.queue.control.clock_percent.load(Ordering::SeqCst) / 100)
    }
}
