//! The observer that makes events of the crate `tracing`.

use std::collections::HashMap;
use std::time::Instant;

use device_registry::activity::{Activity, Batch, Clock, Id, Name, Observer, Outcome, Record, Thread, Work};
use device_registry::backend::LoadFailure;
use parking_lot::Mutex;
use tracing::field::display;
use tracing::level_filters::LevelFilter;
use tracing::{debug, error, trace, warn};

use crate::order::{Entry, Order};

/// Loads the observer. Whether its events are wanted is up to the program's subscriber.
pub(crate) fn load() -> Result<Box<dyn Observer>, LoadFailure> {
    Ok(Box::new(Events(Mutex::default())))
}

struct Events(Mutex<State>);

#[derive(Default)]
struct State {
    order: Order,
    /// Work that is enqueued, and calls that have not returned.
    pending: HashMap<Id, Pending>,
    /// The names of the spans that the program is in.
    spans: HashMap<Id, Name>,
}

struct Pending {
    what: Work,
    /// When it was enqueued or called.
    since: Instant,
    begun: Option<Instant>,
    span: Option<Name>,
}

impl Observer for Events {
    fn observe(&self, batch: &Batch) {
        if LevelFilter::current() == LevelFilter::OFF {
            // The program has no subscriber.
            return;
        }
        let mut state = self.0.lock();
        state.order.add(batch);
        while let Some((_, thread, entry)) = state.order.next() {
            state.tell(&thread, entry);
        }
    }

    fn flush(&self) {
        let mut state = self.0.lock();
        while let Some((_, thread, entry)) = state.order.take() {
            state.tell(&thread, entry);
        }
    }

    fn wants_device_times(&self) -> bool {
        true
    }
}

impl State {
    fn tell(&mut self, thread: &Thread, entry: Entry) {
        match entry {
            Entry::Record(record) => self.record(thread, &record),
            Entry::Lost(count) => warn!(target: "device", thread = name(thread), count, "lost records"),
        }
    }

    fn record(&mut self, thread: &Thread, record: &Record) {
        let device = record.device.map(display);
        let span = record.span.and_then(|span| self.spans.get(&span)).copied();
        match record.activity {
            Activity::Loaded { took, failed: false, .. } => {
                debug!(target: "device", device, took = ?took, "loaded");
            }
            Activity::Loaded { took, .. } => warn!(target: "device", device, took = ?took, "not loaded"),
            Activity::Opened { took, failed: false, .. } => {
                debug!(target: "device", device, took = ?took, "opened");
            }
            Activity::Opened { took, .. } => warn!(target: "device", device, took = ?took, "not opened"),
            Activity::Closed => debug!(target: "device", device, "closed"),
            Activity::Reset => debug!(target: "device", device, "reset"),
            Activity::Lost => error!(target: "device", device, "lost"),
            Activity::Allocated { bytes, reused, memory, .. } => {
                let allocated = memory.allocated;
                let span = span.map(display);
                trace!(target: "device::memory", device, bytes, reused, allocated, span, "allocated");
            }
            Activity::Freed { bytes, memory, .. } => {
                trace!(target: "device::memory", device, bytes, allocated = memory.allocated, "freed");
            }
            Activity::AllocationFailed { bytes, memory, .. } => {
                let allocated = memory.allocated;
                let span = span.map(display);
                warn!(target: "device::memory", device, bytes, allocated, span, "out of memory");
            }
            Activity::Enqueued { work: id, what, .. } | Activity::Called { call: id, what, .. } => {
                self.pending.insert(id, Pending { what, since: record.time, begun: None, span });
            }
            Activity::Begun { work, .. } => {
                if let Some(pending) = self.pending.get_mut(&work) {
                    pending.begun = Some(record.time);
                }
            }
            Activity::Ended { work, clock, outcome, .. } => {
                let Some(Pending { what, since, begun, span }) = self.pending.remove(&work) else { return };
                let stream = record.stream.map(Id::get);
                let span = span.map(display);
                // Without a beginning, only the time since it was enqueued is known.
                let waited = begun.map(|begun| begun - since);
                let took = record.time - begun.unwrap_or(since);
                let outcome = match outcome {
                    Outcome::Done => None,
                    Outcome::Skipped => Some("skipped"),
                    _ => Some("failed"),
                };
                let clock = match clock {
                    Clock::Host => "host",
                    Clock::Noticed => "noticed",
                    _ => "device",
                };
                trace!(
                    target: "device::work", device, stream, bytes = what.bytes(), waited = waited.map(tracing::field::debug),
                    took = ?took, clock, outcome, span, "{what}"
                );
            }
            Activity::Returned { call, failed, .. } => {
                let Some(Pending { what, since, span, .. }) = self.pending.remove(&call) else { return };
                let thread = name(thread);
                let took = record.time - since;
                let span = span.map(display);
                let bytes = what.bytes();
                trace!(target: "device::host", device, thread, bytes, took = ?took, failed, span, "{what}");
            }
            Activity::Entered { span, name, .. } => drop(self.spans.insert(span, name)),
            Activity::Left { span, .. } => drop(self.spans.remove(&span)),
            Activity::StreamCreated { .. } | Activity::StreamLabeled { .. } => {}
            // From a later version of the core.
            _ => {}
        }
    }
}

fn name(thread: &Thread) -> &str {
    thread.name.as_deref().unwrap_or_default()
}
