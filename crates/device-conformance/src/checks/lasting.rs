//! Work that lasts, so that an event or a query that is done too early differs from one that is done in time.

use std::time::{Duration, Instant};

use device_registry::backend::BackendErrorKind;
use device_registry::{Buffer, Device, DeviceError, Stream};

use crate::busy::keep_busy;
use crate::context::Context;
use crate::failure::Failure;

/// How long the work lasts after it was enqueued, at least.
const LASTS: Duration = Duration::from_millis(50);

/// How often to measure. A thread of a busy machine may come too late to see anything, so one good
/// measurement passes.
pub(super) const ATTEMPTS: usize = 5;

/// A device does its work while it is enqueued if little was left, this many times in a row, when few copies
/// were enqueued. One time may be a thread of a busy machine that comes too late.
const AT_ONCE: usize = 3;

/// A stream, and so many copies between two buffers that they last.
pub(super) struct LastingWork {
    pub(super) stream: Stream,
    pair: [Buffer; 2],
    copies: usize,
}

/// How long a wait took, and how long the work that was left after it.
pub(super) struct Waited {
    pub(super) until: Duration,
    pub(super) rest: Duration,
}

impl LastingWork {
    /// Finds out how many copies last, and of which length. The check is unsupported if the device is too
    /// fast, or does its work while it is enqueued.
    pub(super) fn new(context: &Context) -> Result<Self, Failure> {
        Self::of_at_most(context, 8192, LASTS)
    }

    /// So few copies that a driver which gathers work submits them together.
    pub(super) fn of_few_copies(context: &Context) -> Result<Self, Failure> {
        Self::of_at_most(context, 24, LASTS / 4)
    }

    fn of_at_most(context: &Context, most: usize, lasts: Duration) -> Result<Self, Failure> {
        const FEW: usize = 4;
        let many = if most < 512 { FEW } else { 512 };
        let mut len = 1 << 20;
        let mut longest = longest(context)?;
        let pair = [context.allocate(len)?, context.allocate(len)?];
        let mut work = Self { stream: context.stream()?, pair, copies: FEW };
        let mut done_at_once = 0;
        loop {
            let begun = Instant::now();
            let (enqueuing, mut lasted) = work.measure()?;
            // Many copies may fill a queue, which then blocks.
            let is_at_once = enqueuing >= lasts && lasted < enqueuing / 4 && work.copies <= 8 * FEW;
            done_at_once = if is_at_once { done_at_once + 1 } else { 0 };
            if lasted >= lasts {
                // The first time, the device may have prepared its memory.
                lasted = work.measure()?.1;
            }
            if lasted >= lasts {
                return Ok(work);
            }
            let is_too_slow = begun.elapsed() > context.limit() / 20;
            if done_at_once >= AT_ONCE || is_too_slow || work.copies >= most {
                return Err(Failure::unsupported(format_args!(
                    "the device is too fast, or works while work is enqueued: {} copies of {len} bytes lasted \
                     {lasted:?} after that, and the check needs {lasts:?}",
                    work.copies
                )));
            }
            // A queue that is full blocks: more copies do not last longer then, and longer ones do.
            if (enqueuing >= lasted || work.copies >= many) && len * 2 <= longest {
                if let Some(pair) = pair_that_fits(context.device(), len * 2)? {
                    len *= 2;
                    work.pair = pair;
                    work.copies = (work.copies / 2).max(FEW);
                    continue;
                }
                longest = len;
            }
            work.copies = (work.copies * 2).min(most);
        }
    }

    pub(super) fn enqueue(&self) -> Result<(), Failure> {
        keep_busy(&self.stream, &self.pair, self.copies)
    }

    /// How long it takes to enqueue the work, and how long it lasts after that.
    fn measure(&self) -> Result<(Duration, Duration), Failure> {
        let begun = Instant::now();
        self.enqueue()?;
        let enqueuing = begun.elapsed();
        self.stream.synchronize()?;
        Ok((enqueuing, begun.elapsed() - enqueuing))
    }

    /// Waits for something, and then for the work that is left in the stream.
    pub(super) fn time(&self, wait: impl FnOnce() -> Result<(), Failure>) -> Result<Waited, Failure> {
        let begun = Instant::now();
        wait()?;
        let until = begun.elapsed();
        self.stream.synchronize()?;
        Ok(Waited { until, rest: begun.elapsed() - until })
    }

    /// Enqueues the work and makes a call. Expects that it takes no longer than the work that is left then.
    pub(super) fn expect_does_not_wait<C: FnOnce() -> Result<(), Failure>>(
        &self,
        what: &str,
        prepare: impl Fn(&Stream) -> Result<C, Failure>,
    ) -> Result<(), Failure> {
        let mut calls = Vec::new();
        for _ in 0..ATTEMPTS {
            self.enqueue()?;
            let Waited { until, rest } = self.time(prepare(&self.stream)?)?;
            if until <= rest {
                return Ok(());
            }
            calls.push(format!("it took {until:.1?}, and {rest:.1?} of work were left"));
        }
        Err(Failure::new(format_args!("expected {what} not to wait for work, got that {}", calls.join("; "))))
    }

    /// Enqueues the work and waits. Expects that no more than a quarter of the work is left then.
    pub(super) fn expect_waits(
        &self,
        what: &str,
        wait: impl Fn(&Stream) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let mut waits = Vec::new();
        for _ in 0..ATTEMPTS {
            self.enqueue()?;
            let Waited { until, rest } = self.time(|| wait(&self.stream))?;
            if rest <= (until / 3).max(LASTS / 10) {
                return Ok(());
            }
            waits.push(format!("after {until:.1?}, with work for {rest:.1?} left"));
        }
        Err(Failure::new(format_args!(
            "expected {what} when the work before it is done, got that {}",
            waits.join("; ")
        )))
    }
}

/// Two buffers, or `None` if the device has no memory for them.
fn pair_that_fits(device: Device, len: usize) -> Result<Option<[Buffer; 2]>, Failure> {
    match device.allocate(len).and_then(|first| Ok([first, device.allocate(len)?])) {
        Ok(pair) => Ok(Some(pair)),
        Err(DeviceError::Call { error, .. })
            if matches!(error.kind(), BackendErrorKind::OutOfMemory { .. }) =>
        {
            Ok(None)
        }
        Err(error) => Err(error.into()),
    }
}

/// The length of the longest buffers that the check allocates, if they fit.
fn longest(context: &Context) -> Result<usize, Failure> {
    let free = context.device().memory_info()?.free.unwrap_or(1 << 30);
    let largest = context.properties().largest_allocation.unwrap_or(u64::MAX);
    Ok((free / 8).min(largest).min(256 << 20) as usize)
}
