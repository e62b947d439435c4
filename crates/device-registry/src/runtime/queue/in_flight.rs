//! What a driver's queue works on: kept alive until the driver says that the work is done.
//!
//! Each piece that is kept has a number, in the order of the submissions. An event that is done, or a wait or a query
//! that succeeds, covers all numbers up to the one that was reached when it was recorded or begun; those are released,
//! whichever thread finds out first.

use std::any::Any;
use std::collections::VecDeque;
use std::sync::Arc;

use crate::backend::{EventDriver, HostBuffer, Span};
use crate::runtime::open_device::OpenDevice;

/// After so many pieces an event is recorded, which shows later that the work is done.
const MARK_EVERY: usize = 64;

/// Or after so many bytes of host memory: those are the queue's alone, and are free as soon as it releases them.
const MARK_EVERY_BYTES: usize = 16 << 20;

/// What has to stay alive while a driver's queue works on it. It is only ever dropped.
#[expect(dead_code, reason = "kept, and not looked at")]
pub(crate) enum Keep {
    Span(Span),
    Host(Arc<HostBuffer>),
    Value(Box<dyn Any + Send>),
}

impl Keep {
    /// How much memory of the host it holds.
    pub(crate) fn host_bytes(&self) -> usize {
        match self {
            Self::Host(bytes) => bytes.len(),
            Self::Span(_) | Self::Value(_) => 0,
        }
    }
}

impl From<Span> for Keep {
    fn from(span: Span) -> Self {
        Self::Span(span)
    }
}

/// What the work in a driver's queue uses.
#[derive(Default)]
pub(crate) struct InFlight {
    /// Oldest first.
    kept: VecDeque<Keep>,
    /// How many were released, which is the number of the oldest that is kept.
    released: u64,
    /// Events, oldest first, each with the number up to which it covers what is kept.
    marks: VecDeque<(u64, Arc<dyn EventDriver>)>,
    /// Since the last look at the marks.
    pieces: usize,
    host_bytes: usize,
}

impl InFlight {
    /// Adds what a submission uses. Returns whether it is time to mark what is here and to look at the marks.
    pub(crate) fn keep(&mut self, kept: Vec<Keep>) -> bool {
        self.pieces += kept.len();
        self.host_bytes += kept.iter().map(Keep::host_bytes).fold(0, usize::saturating_add);
        self.kept.extend(kept);
        let full = self.pieces >= MARK_EVERY || self.host_bytes >= MARK_EVERY_BYTES;
        if full {
            (self.pieces, self.host_bytes) = (0, 0);
        }
        full
    }

    /// The number that all that is here lies below.
    pub(crate) fn reached(&self) -> u64 {
        self.released + self.kept.len() as u64
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.kept.is_empty()
    }

    /// Whether something is here that no mark covers.
    pub(crate) fn is_unmarked(&self) -> bool {
        self.marks.back().map_or(self.released, |(number, _)| *number) < self.reached()
    }

    /// An event was recorded behind all below `number`. Returns it if there is nothing left that it would cover: the caller
    /// drops it without a lock.
    #[must_use = "its drop is the driver's code"]
    pub(crate) fn mark(&mut self, number: u64, event: Arc<dyn EventDriver>) -> Option<Arc<dyn EventDriver>> {
        if !self.is_unmarked() {
            return Some(event);
        }
        self.marks.push_back((number, event));
        None
    }

    pub(crate) fn oldest_mark(&self) -> Option<(u64, Arc<dyn EventDriver>)> {
        self.marks.front().map(|(number, event)| (*number, Arc::clone(event)))
    }

    pub(crate) fn newest_mark(&self) -> Option<(u64, Arc<dyn EventDriver>)> {
        self.marks.back().map(|(number, event)| (*number, Arc::clone(event)))
    }

    /// Takes out all below `number`, whose work is done. It is to be dropped without a lock: memory may be a plug-in's.
    pub(crate) fn release(&mut self, number: u64) -> Released {
        let count = number.saturating_sub(self.released).min(self.kept.len() as u64);
        self.released += count;
        let marks = self.marks.iter().take_while(|(covered, _)| *covered <= number).count();
        let marks = self.marks.drain(..marks).map(|(_, event)| event).collect();
        Released { kept: self.kept.drain(..count as usize).collect(), marks }
    }

    /// Takes out everything, done or not.
    pub(crate) fn release_all(&mut self) -> Released {
        self.release(self.reached())
    }
}

/// What is no longer kept.
pub(crate) struct Released {
    kept: Vec<Keep>,
    marks: Vec<Arc<dyn EventDriver>>,
}

impl Released {
    pub(crate) fn is_empty(&self) -> bool {
        self.kept.is_empty() && self.marks.is_empty()
    }

    /// Drops it but for host memory, which is leaked: the device may still write into what it was given, and cannot say when
    /// it no longer does.
    pub(crate) fn leak_host_memory(self, device: &OpenDevice) {
        for kept in self.kept {
            match kept {
                Keep::Host(bytes) => std::mem::forget(bytes),
                other => device.drop_when_allowed(other),
            }
        }
        device.drop_when_allowed(self.marks);
    }
}
