//! What a device gives back when it is closed or reset. A driver is never dropped, so it has to do so itself.
//!
//! What the process has is counted, in a process of its own, since other checks would change it.

use std::thread;
use std::time::{Duration, Instant};

use device_registry::{Buffer, Event, EventOptions, HostBuffer, Stream};

use super::check;
use crate::alone;
use crate::check::{Check, Need};
use crate::context::{Context, expect_bytes};
use crate::failure::Failure;
use crate::faults::{lose, reset};
use crate::possessions::Possessions;

const CLOSE: &str = "closing::a_close_leaves_nothing_behind";
const RESET: &str = "closing::a_reset_leaves_nothing_behind";

pub(super) const CHECKS: &[Check] = &[
    check!(
        closing::a_close_leaves_nothing_behind,
        "a device can be opened, used and closed again and again, and the process does not grow by threads, memory or files"
    ),
    check!(
        closing::a_reset_leaves_nothing_behind,
        "a device can be lost and reset again and again, and the process does not grow by threads, memory or files"
    )
    .needs(&[Need::Faults]),
];

/// How much memory a cycle has on the device and on the host: so much that it shows if it is not given back.
const LEN: usize = 1 << 20;

/// How long all cycles take, unless so few of them take longer.
const TIME: Duration = Duration::from_millis(1500);

/// How many cycles each half has: so many that growth by chance is less than half of it, and no more than are needed.
const FEWEST: usize = 8;
const MOST: usize = 200;

fn a_close_leaves_nothing_behind(context: &Context) -> Result<(), Failure> {
    alone::run(context, CLOSE, || {
        again_and_again(context, |held, before| drop_if(before, held, || Ok(context.device().close()?)))
    })
}

fn a_reset_leaves_nothing_behind(context: &Context) -> Result<(), Failure> {
    alone::run(context, RESET, || {
        again_and_again(context, |held, before| {
            lose(context.device())?;
            drop_if(before, held, || reset(context.device()))
        })
    })
}

/// Drops what a program has of a device before the device is taken away, or after that.
fn drop_if(before: bool, held: Held, take_away: impl FnOnce() -> Result<(), Failure>) -> Result<(), Failure> {
    // Dropped here unless it is kept.
    let held = (!before).then_some(held);
    take_away()?;
    drop(held);
    Ok(())
}

/// What a program has of a device that it has used.
struct Held {
    _stream: Stream,
    _buffer: Buffer,
    _event: Event,
    _bytes: HostBuffer,
}

/// Uses the device as programs do: memory, a stream with work, an event, bytes that are read.
fn used(context: &Context) -> Result<Held, Failure> {
    let (stream, buffer) = (context.stream()?, context.allocate(LEN)?);
    buffer.write(0, &[1; LEN])?;
    stream.fill(&buffer, .., &[7])?;
    let event = match context.properties().timed_events {
        true => stream.record_with(&EventOptions::new().timed())?,
        false => stream.record()?,
    };
    let mut bytes = match context.properties().pinned_memory {
        true => context.device().allocate_host(LEN)?,
        false => vec![0; LEN].into(),
    };
    bytes.fill(1);
    let bytes = stream.read_to(&buffer, 0, bytes)?.wait()?;
    expect_bytes(&bytes, &[7; LEN], "what was filled")?;
    event.synchronize()?;
    Ok(Held { _stream: stream, _buffer: buffer, _event: event, _bytes: bytes })
}

/// Opens and uses the device, and takes it away by `take_away`, with what the program has of it and whether that is to be
/// dropped before; and all this until it is known whether something is left behind each time.
fn again_and_again(
    context: &Context,
    take_away: impl Fn(Held, bool) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let cycles = |count: usize| (0..count).try_for_each(|number| take_away(used(context)?, number % 2 == 0));
    // What is made once and kept: libraries, caches, threads that serve all devices.
    cycles(4)?;
    let start = Instant::now();
    cycles(2)?;
    let each = start.elapsed() / 2;
    let half = (TIME.as_secs_f64() / 2.0 / each.as_secs_f64()) as usize;
    let half = half.clamp(FEWEST, MOST);

    let first = Possessions::now()?;
    cycles(half)?;
    let second = Possessions::now()?;
    cycles(half)?;
    // Threads that have ended are listed for a moment.
    let settled = Instant::now() + context.limit() / 10;
    while let Some(growth) = Possessions::now()?.growth_since(&[first, second], half) {
        if Instant::now() > settled {
            return Err(Failure::new(growth));
        }
        thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}
