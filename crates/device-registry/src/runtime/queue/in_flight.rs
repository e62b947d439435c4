//! The values that a driver's queue uses, kept alive until the driver reports the work as done.
//!
//! Each kept value has a number, in the order of submission. An event that is done covers all numbers below
//! the one that was reached when it was recorded. A wait or a query that succeeds covers the numbers below
//! the one at its start. The first thread that finds such an event, wait or query releases the values.

use std::any::Any;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use crate::backend::{HostBuffer, Progress, Span};
use crate::device::Device;
use crate::runtime::activity;
use crate::runtime::activity::{Activity, Clock, Id, Outcome};
use crate::runtime::open_device::{KeptMemory, OpenDevice, Timed};
use crate::runtime::operation::ended;
use crate::runtime::recorded::Recorded;

/// The core records an event after this many values, which shows later that the work is done.
const MARK_EVERY: usize = 64;

/// The core also records an event after this many bytes of host memory. Only the queue owns these bytes, so
/// releasing them frees them.
const MARK_EVERY_BYTES: usize = 16 << 20;

/// A value that must stay alive while a driver's queue uses it. The core only drops it.
pub(super) enum Keep {
    Span(Span),
    Host(Arc<HostBuffer>),
    Value(#[expect(dead_code, reason = "kept alive, and not read")] Box<dyn Any + Send>),
    /// Memory that was allocated for the stream itself: it remembers the work that uses it.
    Ordered,
    /// Work whose end is reported to observers.
    Observed(ObservedWork),
}

/// Work in a driver's queue whose end is reported to observers. If it is dropped before it is done, it has
/// failed.
pub(super) struct ObservedWork {
    pub(super) device: Device,
    pub(super) stream: Id,
    /// The drop takes it.
    pub(super) work: Option<Id>,
    pub(super) enqueued: Instant,
    /// Events before and after it, if the device's clock is wanted. Recording an event takes no time, so it
    /// has none after it.
    pub(super) times: Option<(Timed, Option<Timed>)>,
}

impl ObservedWork {
    /// The core has noticed that the work is done.
    fn done(&mut self) {
        let Some(work) = self.work.take() else { return };
        let record =
            |time, activity| activity::record_at(time, Some(self.device), Some(self.stream), activity);
        let times = self.times.take();
        let times = times.and_then(|(before, behind)| before.until(behind.as_ref(), self.enqueued));
        let Some((begin, end, error)) = times else {
            return ended(self.device, self.stream, Some(work), Clock::Noticed, Outcome::Done);
        };
        let clock = Clock::Device { error };
        record(begin, Activity::Begun { work, clock });
        record(end, Activity::Ended { work, clock, outcome: Outcome::Done });
    }
}

impl Drop for ObservedWork {
    fn drop(&mut self) {
        ended(self.device, self.stream, self.work.take(), Clock::Noticed, Outcome::Failed);
    }
}

impl Keep {
    /// The number of bytes of host memory that it owns.
    pub(super) fn host_bytes(&self) -> usize {
        match self {
            Self::Host(bytes) => bytes.len(),
            Self::Span(_) | Self::Value(_) | Self::Ordered | Self::Observed(_) => 0,
        }
    }
}

impl From<Span> for Keep {
    fn from(span: Span) -> Self {
        Self::Span(span)
    }
}

/// The values that the work in a driver's queue uses.
#[derive(Default)]
pub(super) struct InFlight {
    /// Oldest first.
    kept: VecDeque<Keep>,
    /// The count of released values, which is the number of the oldest kept one.
    released: u64,
    /// Events, oldest first. Each covers the values below its number.
    marks: VecDeque<(u64, Arc<Recorded>)>,
    /// The values kept since the last mark was due.
    pieces: usize,
    host_bytes: usize,
    progress: Arc<Progress>,
}

impl InFlight {
    /// How far it has got. The same value for as long as the queue exists.
    pub(super) fn progress(&self) -> &Arc<Progress> {
        &self.progress
    }

    /// Adds the values that a submission uses. Returns whether a new mark and a check of the marks are due.
    /// The spans of memory that was allocated for this stream are not kept: they stay in `kept`, for the
    /// caller to drop without a lock.
    ///
    /// The driver may have refused the work instead of accepting it.
    pub(super) fn keep(&mut self, kept: &mut Vec<Keep>, accepted: bool) -> bool {
        self.pieces += kept.len();
        self.host_bytes += kept.iter().map(Keep::host_bytes).fold(0, usize::saturating_add);
        let mut ordered = Vec::new();
        for value in kept.drain(..) {
            let number = self.released + self.kept.len() as u64;
            match &value {
                Keep::Span(span) if span.used_in(&self.progress, number, accepted) => {
                    self.kept.push_back(Keep::Ordered);
                    ordered.push(value);
                }
                _ => self.kept.push_back(value),
            }
        }
        *kept = ordered;
        let full = self.pieces >= MARK_EVERY || self.host_bytes >= MARK_EVERY_BYTES;
        if full {
            (self.pieces, self.host_bytes) = (0, 0);
        }
        full
    }

    /// The number of the next value. All kept values have lower numbers.
    pub(super) fn reached(&self) -> u64 {
        self.released + self.kept.len() as u64
    }

    pub(super) fn is_empty(&self) -> bool {
        self.kept.is_empty()
    }

    /// The memory of a device that the values keep, once for each span of it.
    pub(super) fn memory_of(&self, device: &OpenDevice) -> Vec<KeptMemory> {
        let memory = self.kept.iter().filter_map(|kept| match kept {
            Keep::Span(span) => KeptMemory::of(span, device),
            Keep::Host(_) | Keep::Value(_) | Keep::Ordered | Keep::Observed(_) => None,
        });
        memory.collect()
    }

    /// Whether there is a value that no mark covers.
    pub(super) fn is_unmarked(&self) -> bool {
        self.marks.back().map_or(self.released, |(number, _)| *number) < self.reached()
    }

    /// Adds an event that was recorded after the work of all values below `number`. Returns it if it would
    /// cover none: the caller drops it without the lock.
    #[must_use = "its drop is the driver's code"]
    pub(super) fn mark(&mut self, number: u64, event: Arc<Recorded>) -> Option<Arc<Recorded>> {
        if !self.is_unmarked() {
            return Some(event);
        }
        self.marks.push_back((number, event));
        None
    }

    pub(super) fn oldest_mark(&self) -> Option<(u64, Arc<Recorded>)> {
        self.marks.front().map(|(number, event)| (*number, Arc::clone(event)))
    }

    pub(super) fn newest_mark(&self) -> Option<(u64, Arc<Recorded>)> {
        self.marks.back().map(|(number, event)| (*number, Arc::clone(event)))
    }

    /// Takes all values below `number`, whose work is done. Drop them without a lock: the `drop` of a
    /// driver's memory is foreign code.
    pub(super) fn release(&mut self, number: u64) -> Released {
        let count = number.saturating_sub(self.released).min(self.kept.len() as u64);
        self.released += count;
        self.progress.reach(self.released);
        let marks = self.marks.iter().take_while(|(covered, _)| *covered <= number).count();
        let marks = self.marks.drain(..marks).map(|(_, event)| event).collect();
        Released { kept: self.kept.drain(..count as usize).collect(), marks }
    }

    /// Takes all values, whether or not their work is done.
    pub(super) fn release_all(&mut self) -> Released {
        self.release(self.reached())
    }
}

/// The values that are no longer kept.
pub(super) struct Released {
    kept: Vec<Keep>,
    marks: Vec<Arc<Recorded>>,
}

impl Released {
    pub(super) fn is_empty(&self) -> bool {
        self.kept.is_empty() && self.marks.is_empty()
    }

    /// Reports the ends of the work that has used the values to observers. Call it without a lock.
    pub(super) fn note_done(&mut self) {
        for kept in &mut self.kept {
            if let Keep::Observed(work) = kept {
                work.done();
            }
        }
    }

    /// Drops the values, and leaks their host memory: the device may still access it, and cannot report when
    /// it has finished.
    pub(super) fn leak_host_memory(self, device: &OpenDevice) {
        for kept in self.kept {
            match kept {
                Keep::Host(bytes) => std::mem::forget(bytes),
                other => device.drop_when_allowed(other),
            }
        }
        device.drop_when_allowed(self.marks);
    }
}
