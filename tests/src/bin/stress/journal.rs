//! Possible failures, reports, and their times.
//!
//! Which of two calls on two threads came first is known only if one ended before the other began. Each entry
//! therefore has an [`Interval`], and what overlaps may have come in either order.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use device_registry::Event;

use crate::failure::Identity;

/// A call, from before it to after it, by a clock that all threads share.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Interval {
    pub(crate) start: u64,
    pub(crate) end: u64,
}

static CLOCK: AtomicU64 = AtomicU64::new(1);

fn now() -> u64 {
    CLOCK.fetch_add(1, Ordering::SeqCst)
}

impl Interval {
    /// The time of a call, and what it returns.
    pub(crate) fn of<T>(call: impl FnOnce() -> T) -> (Self, T) {
        let start = now();
        let value = call();
        (Self { start, end: now() }, value)
    }

    pub(crate) const NEVER: Self = Self { start: u64::MAX, end: u64::MAX };

    pub(crate) fn surely_before(self, other: Self) -> bool {
        self.end < other.start
    }
}

/// A stream, by the thread that made it and its number there.
pub(crate) type StreamKey = (usize, u64);

/// Work that may fail.
pub(crate) struct Failing {
    pub(crate) stream: StreamKey,
    pub(crate) device: usize,
    pub(crate) enqueued: Interval,
    pub(crate) cause: Cause,
}

pub(crate) enum Cause {
    /// A call or a kernel that fails, and whether it was run.
    Work { identity: Identity, ran: Arc<AtomicBool> },
    /// A wait for an event, which fails if the event has an error.
    Wait(Event),
}

/// The object that returned an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reporter {
    Stream(StreamKey),
    /// One of the device's streams, by its place in the list of devices.
    Device(usize),
}

#[derive(Default)]
pub(crate) struct Journal {
    pub(crate) failing: Vec<Failing>,
    pub(crate) reports: Vec<(Identity, Reporter, Interval)>,
    /// Times when a stream or device said that all is well.
    pub(crate) clear: Vec<(Reporter, Interval)>,
    /// Streams that were dropped while others could have reported their errors.
    pub(crate) dropped: HashSet<StreamKey>,
    /// Work that was refused with its own error, and never enqueued.
    pub(crate) refused: u64,
}

impl Journal {
    pub(crate) fn failing(&mut self, failing: Failing) {
        self.failing.push(failing);
    }

    pub(crate) fn refused(&mut self) {
        self.refused += 1;
    }

    pub(crate) fn report(&mut self, identity: Identity, by: Reporter, at: Interval) {
        self.reports.push((identity, by, at));
    }

    pub(crate) fn clear(&mut self, by: Reporter, at: Interval) {
        self.clear.push((by, at));
    }

    pub(crate) fn dropped(&mut self, stream: StreamKey) {
        self.dropped.insert(stream);
    }

    pub(crate) fn merge(&mut self, other: Self) {
        self.failing.extend(other.failing);
        self.reports.extend(other.reports);
        self.clear.extend(other.clear);
        self.dropped.extend(other.dropped);
        self.refused += other.refused;
    }
}
