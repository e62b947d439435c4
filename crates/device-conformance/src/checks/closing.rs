//! What a device releases when it is closed or reset. A driver is never dropped, so it has to release
//! everything itself.
//!
//! Each check counts the resources of its own process, because other checks would change them.

use std::time::{Duration, Instant};

use device_registry::{Buffer, Event, EventOptions, HostBuffer, Stream};

use super::check;
use crate::check::{Check, Need};
use crate::context::{Context, expect_bytes};
use crate::failure::Failure;
use crate::fault_injection::{lose, reset};
use crate::process_resources::{ProcessResources, SuspectedLeaks};
use crate::subprocess;

const CLOSE: &str = "closing::a_close_leaves_nothing_behind";
const RESET: &str = "closing::a_reset_leaves_nothing_behind";

pub(super) const CHECKS: &[Check] = &[
    check!(
        closing::a_close_leaves_nothing_behind,
        "a device can be opened, used and closed many times without a leak of threads, memory or files"
    ),
    check!(
        closing::a_reset_leaves_nothing_behind,
        "a device can be lost and reset many times without a leak of threads, memory or files"
    )
    .needs(&[Need::Faults]),
];

/// The memory that a cycle uses on the device and on the host: enough to notice if it leaks.
const LEN: usize = 1 << 20;

/// How long a round takes, unless `FEWEST` cycles take longer.
const ROUND: Duration = Duration::from_millis(400);

/// How many cycles a round has: enough that growth by chance is less than half of it, and no more than are
/// needed.
const FEWEST: usize = 6;
const MOST: usize = 200;

/// Growth in each of this many rounds is a leak. An allocator that caches memory for each thread stops
/// growing earlier.
const ROUNDS: usize = 8;

fn a_close_leaves_nothing_behind(context: &Context) -> Result<(), Failure> {
    subprocess::run(context, CLOSE, || {
        again_and_again(context, |held, before| drop_if(before, held, || Ok(context.device().close()?)))
    })
}

fn a_reset_leaves_nothing_behind(context: &Context) -> Result<(), Failure> {
    subprocess::run(context, RESET, || {
        again_and_again(context, |held, before| {
            lose(context.device())?;
            drop_if(before, held, || reset(context.device()))
        })
    })
}

/// Closes or resets a device, and drops the handles either before that or after it.
fn drop_if(before: bool, held: Held, take_away: impl FnOnce() -> Result<(), Failure>) -> Result<(), Failure> {
    // Drops the handles here if `before` is true.
    let held = (!before).then_some(held);
    take_away()?;
    drop(held);
    Ok(())
}

/// The handles that a program has of a device.
struct Held {
    _stream: Stream,
    _buffer: Buffer,
    _event: Event,
    _bytes: HostBuffer,
}

/// Uses the device as programs do: memory, a stream with work, an event and a read.
fn used(context: &Context) -> Result<Held, Failure> {
    let stream = context.stream()?;
    let buffer = context.filled(&vec![1; LEN])?;
    // The device keeps its default stream, and has to end it.
    context.device().default_stream()?.fill(&buffer, .., &[2])?;
    context.device().default_stream()?.synchronize()?;
    // The driver has the bytes of the host until it has done the work.
    stream.write(&buffer, 0, vec![3; LEN])?;
    stream.fill(&buffer, .., &[7])?;
    let event = if context.properties().timed_events {
        stream.record_with(&EventOptions::new().timed())?
    } else {
        stream.record()?
    };
    let bytes = if context.properties().pinned_memory {
        context.device().allocate_host(LEN)?
    } else {
        vec![0; LEN].into()
    };
    let bytes = stream.read_into(&buffer, 0, bytes)?.wait()?;
    expect_bytes(&bytes, &vec![7; LEN], "filled bytes")?;
    event.synchronize()?;
    // After a loss, bytes of the host that work may still use are never freed.
    stream.synchronize()?;
    Ok(Held { _stream: stream, _buffer: buffer, _event: event, _bytes: bytes })
}

/// Opens the device, uses it and calls `take_away`, many times. Fails if the resources of the process grow in
/// each round.
///
/// `take_away` closes or resets the device. It gets the handles, and whether to drop them before or after
/// that.
fn again_and_again(
    context: &Context,
    take_away: impl Fn(Held, bool) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let cycles = |count: usize| (0..count).try_for_each(|number| take_away(used(context)?, number % 2 == 0));
    // The first cycles create what the process keeps: libraries, caches, threads that serve all devices.
    cycles(3)?;
    let start = Instant::now();
    cycles(2)?;
    let each = start.elapsed() / 2;
    let count = (ROUND.as_secs_f64() / each.as_secs_f64()) as usize;
    let count = count.clamp(FEWEST, MOST);

    let mut suspects = SuspectedLeaks::new(count, ProcessResources::now()?);
    for round in 0..ROUNDS {
        cycles(count)?;
        if !suspects.round(ProcessResources::now()?) {
            return Ok(());
        }
        // On a slow device, two rounds have to suffice, in which caches still fill.
        if round > 0 && start.elapsed() > context.limit() / 2 {
            if !suspects.grow_steadily() {
                return Ok(());
            }
            break;
        }
    }
    Err(Failure::new(suspects))
}
