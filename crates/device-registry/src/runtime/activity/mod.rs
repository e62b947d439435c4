//! Records of what devices do, for observers. Without an observer, a call only reads one atomic value.

mod exit;
mod hub;
mod observers;
mod record;
mod rings;
mod span;

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use crate::device::Device;
use crate::runtime::activity::hub::HUB;
pub(crate) use crate::runtime::activity::hub::{is_on, wants_device_times};
pub(crate) use crate::runtime::activity::observers::begin_linked;
pub use crate::runtime::activity::observers::{
    OBSERVERS, Observation, Observer, ObserverDescriptor, flush, observe, observers,
};
pub use crate::runtime::activity::record::{
    Activity, Batch, Clock, Id, MemoryInUse, Name, Outcome, Place, Record, Thread, WaitFor, Work,
};
use crate::runtime::activity::rings::Added;
pub use crate::runtime::activity::span::{SpanGuard, span};

/// Makes a record, now.
#[cold]
pub(crate) fn record(device: Option<Device>, stream: Option<Id>, activity: Activity) {
    record_at(Instant::now(), device, stream, activity);
}

/// Makes a record of what happened at another time.
#[cold]
pub(crate) fn record_at(time: Instant, device: Option<Device>, stream: Option<Id>, activity: Activity) {
    let hub = HUB.current();
    // A child of `fork` has no observers.
    if !hub.is_active() {
        return;
    }
    let make = |span| Record { time, device, stream, span, activity };
    if rings::add(|ring| hub.add_ring(ring), make) == Added::WakesCollector {
        hub.wake_collector();
    }
}

/// A number for a piece of work, an allocation or a span; `None` without an observer, and while
/// the thread ends.
#[cold]
pub(crate) fn next_id() -> Option<Id> {
    let hub = HUB.current();
    if hub.is_active() { rings::next_id(|ring| hub.add_ring(ring)) } else { None }
}

/// A number for a stream, with or without an observer.
pub(crate) fn stream_id() -> Id {
    /// These numbers are below all others, which have a thread's number in their upper bits.
    static NEXT: AtomicU64 = AtomicU64::new(1);

    Id::new(NEXT.fetch_add(1, Ordering::Relaxed)).expect("no process creates so many streams")
}

/// Makes a span the innermost one of this thread. Returns the one before it.
fn replace_span(span: Option<Id>) -> Option<Id> {
    rings::enter(|ring| HUB.current().add_ring(ring), span)
}

/// How many observations have begun in this process.
#[cold]
pub(crate) fn observations() -> u64 {
    HUB.current().begun()
}

/// Runs a call that blocks, and records when it began and returned.
#[inline]
pub(crate) fn call<T, E>(
    what: impl FnOnce() -> (Device, Work),
    run: impl FnOnce() -> Result<T, E>,
) -> Result<T, E> {
    if is_on() { observed_call(what, run) } else { run() }
}

#[cold]
#[inline(never)]
fn observed_call<T, E>(
    what: impl FnOnce() -> (Device, Work),
    run: impl FnOnce() -> Result<T, E>,
) -> Result<T, E> {
    let (device, what) = what();
    let Some(call) = next_id() else { return run() };
    record(Some(device), None, Activity::Called { call, what });
    let result = run();
    record(Some(device), None, Activity::Returned { call, failed: result.is_err() });
    result
}
