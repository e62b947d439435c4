//! How far a driver's queue was flushed, and its events that wait for a flush.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use crate::backend::EventDriver;
use crate::error::DeviceError;
use crate::runtime::origin::Origin;
use crate::runtime::waits::Before;
use crate::sync::AtomicU64;

/// How many events and reads a driver's queue has accepted, and how many of them a flush has covered.
///
/// A flush may cost the driver a submission. So the core flushes when a thread looks at an event or a read,
/// not when the driver accepts it.
#[derive(Default)]
pub(crate) struct Flushes {
    accepted: AtomicU64,
    covered: AtomicU64,
}

impl Flushes {
    /// Counts an event or a read, after the driver has accepted it: a flush that began before does not cover
    /// it.
    pub(crate) fn accept(&self) -> u64 {
        self.accepted.fetch_add(1, Ordering::AcqRel) + 1
    }

    /// The number of the last event or read. A flush that begins after this call covers it.
    pub(crate) fn accepted(&self) -> u64 {
        self.accepted.load(Ordering::Acquire)
    }

    pub(crate) fn cover(&self, number: u64) {
        self.covered.fetch_max(number, Ordering::AcqRel);
    }

    pub(crate) fn is_covered(&self, number: u64) -> bool {
        number <= self.covered.load(Ordering::Acquire)
    }
}

/// An event in a driver's queue.
pub(crate) struct Recorded {
    event: Box<dyn EventDriver>,
    /// The queue of a dropped stream may be freed first.
    origin: Weak<dyn Origin>,
    flushes: Arc<Flushes>,
    number: u64,
    /// The waits before it, whose failures the driver's event may not have.
    waits: Option<Before>,
}

impl Recorded {
    /// An event that the driver has just recorded.
    pub(crate) fn new(
        event: Box<dyn EventDriver>,
        origin: Weak<dyn Origin>,
        flushes: &Arc<Flushes>,
        waits: Option<Before>,
    ) -> Arc<Self> {
        let number = flushes.accept();
        Arc::new(Self { event, origin, flushes: Arc::clone(flushes), number, waits })
    }

    /// The driver's event. The core calls none of its functions before the event [has
    /// begun](Self::has_begun).
    pub(crate) fn event(&self) -> &dyn EventDriver {
        &*self.event
    }

    /// The waits before it.
    pub(crate) fn waits(&self) -> Option<&Before> {
        self.waits.as_ref()
    }

    /// Whether a flush has covered the event, so that the work before it runs without further calls.
    pub(crate) fn has_begun(&self) -> bool {
        self.flushes.is_covered(self.number)
    }

    /// Flushes the event's queue, unless that was done. A failure is also the failure of the stream.
    pub(crate) fn begin(&self) -> Result<(), DeviceError> {
        if self.has_begun() {
            return Ok(());
        }
        // A queue is flushed before it is freed.
        self.origin.upgrade().map_or(Ok(()), |queue| queue.begin(self.number))
    }
}
