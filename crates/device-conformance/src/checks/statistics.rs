//! Memory statistics: they count all memory that is held, and no other.
//!
//! This includes the driver, which may hold memory in a queue, in an event or in a completion, and has to
//! release it.

use std::panic::resume_unwind;

use device_registry::{Buffer, Device, MemoryStatistics, Stream};

use super::check;
use super::drops::orders;
use super::memory::{MOST, TOO_MUCH, expect_no_leak, out_of_memory};
use crate::busy::{busy_pair, hold_back, keep_busy};
use crate::check::{Check, Need};
use crate::context::{Context, bytes, expect_bytes, expect_content, filled, in_threads};
use crate::failure::{Failure, ensure};
use crate::fault_injection::{fail_next_copy, until};

pub(super) const CHECKS: &[Check] = &[
    check!(
        statistics::what_is_held_is_counted,
        "each buffer counts with its requested length, until its last handle is dropped"
    )
    .exclusive(),
    check!(
        statistics::parts_and_handles_are_not,
        "slices and clones of a buffer do not count, and keep all of it allocated"
    )
    .exclusive(),
    check!(
        statistics::the_peak_is_the_most_there_was,
        "the peak is the most memory that was allocated at once"
    )
    .exclusive(),
    check!(
        statistics::what_was_refused_is_not_counted,
        "allocations that did not fit do not change the statistics"
    )
    .exclusive(),
    check!(
        statistics::work_keeps_what_it_needs,
        "a dropped buffer counts until the work that needs it is done"
    )
    .exclusive(),
    check!(
        statistics::back_after_work_of_each_kind,
        "no memory is held after writes, reads, copies and fills in synchronized streams"
    )
    .exclusive(),
    check!(
        statistics::back_after_much_work,
        "thousands of buffers that are dropped with their work in flight are all freed"
    )
    .exclusive(),
    check!(
        statistics::back_without_waiting,
        "the memory of finished work is freed without a call that waits for the stream"
    )
    .exclusive(),
    check!(statistics::back_after_events, "events hold no memory, whether they are kept or dropped")
        .exclusive(),
    check!(
        statistics::back_after_reads_that_nobody_wants,
        "reads that are dropped before they are done hold no memory"
    )
    .exclusive(),
    check!(
        statistics::back_after_streams_that_are_gone,
        "streams that are dropped with work in them hold no memory when it is done"
    )
    .exclusive(),
    check!(
        statistics::back_in_every_order,
        "a buffer, a stream, an event and a read hold no memory after they are dropped, in any order"
    )
    .exclusive(),
    check!(statistics::back_after_copies_of_a_peer, "copies between two devices hold no memory on either")
        .needs(&[Need::Peer])
        .exclusive(),
    check!(statistics::back_after_copies_of_the_cpu, "copies to and from the cpu hold no memory on either")
        .exclusive()
        .uses_cpu(),
    check!(
        statistics::back_after_host_calls,
        "memory that a host call drops is freed at the next use of the device"
    )
    .exclusive(),
    check!(
        statistics::back_after_threads,
        "the statistics return to their values when eight threads have dropped all they allocated"
    )
    .exclusive(),
    check!(statistics::back_after_work_that_is_skipped, "skipped work behind a failure holds no memory")
        .leaves_failures(),
    check!(statistics::back_after_copies_that_fail, "failed copies hold no memory")
        .needs(&[Need::Faults])
        .leaves_failures(),
    check!(
        statistics::streams_do_not_leak,
        "as much memory is free after 200 streams with work, events and reads as before"
    )
    .needs(&[Need::FreeMemory])
    .exclusive(),
];

const LEN: usize = 3000;

/// The statistics when no work is in flight.
fn now(device: Device) -> Result<MemoryStatistics, Failure> {
    device.synchronize()?;
    Ok(device.memory_statistics()?)
}

/// Waits until the statistics are as before. Only work that is still in a stream may delay that.
fn expect_back(
    context: &Context,
    device: Device,
    before: MemoryStatistics,
    what: &str,
) -> Result<(), Failure> {
    let mut after = before;
    let back = until(context.limit() / 4, || {
        after = device.memory_statistics()?;
        Ok((after.live, after.allocated) == (before.live, before.allocated))
    })?;
    ensure!(
        back,
        "{what}: expected {} allocations of {} bytes as before, got {} of {} bytes when all were dropped",
        before.live,
        before.allocated,
        after.live,
        after.allocated
    );
    Ok(())
}

/// Runs work that drops all its handles, and expects the statistics to be as before.
fn leaves_nothing(
    context: &Context,
    what: &str,
    work: impl Fn() -> Result<(), Failure>,
) -> Result<(), Failure> {
    let before = now(context.device())?;
    for _ in 0..3 {
        work()?;
        context.device().synchronize()?;
        expect_back(context, context.device(), before, what)?;
    }
    Ok(())
}

fn what_is_held_is_counted(context: &Context) -> Result<(), Failure> {
    let before = now(context.device())?;
    let mut held: Vec<Buffer> = Vec::new();
    let mut bytes = 0;
    let mut live = 0;
    for len in [1, 0, 63, 64, 4097, 100_000, 1 << 20] {
        held.push(context.allocate(len)?);
        // A buffer without bytes allocates nothing.
        (bytes, live) = (bytes + len as u64, live + u64::from(len > 0));
        let counted = context.device().memory_statistics()?;
        ensure!(
            counted.allocated == before.allocated + bytes && counted.live == before.live + live,
            "expected {live} allocations of {bytes} bytes more than {before:?}, got {counted:?}"
        );
    }
    while let Some(buffer) = held.pop() {
        bytes -= buffer.len() as u64;
        drop(buffer);
        let counted = context.device().memory_statistics()?;
        ensure!(
            counted.allocated == before.allocated + bytes,
            "expected {bytes} bytes more than {before:?}, got {counted:?}"
        );
    }
    expect_back(context, context.device(), before, "after each was dropped")
}

fn parts_and_handles_are_not(context: &Context) -> Result<(), Failure> {
    let before = now(context.device())?;
    let whole = context.filled(&bytes(1, LEN))?;
    let unit = context.alignment();
    let parts: Vec<_> = (0..10).map(|index| whole.slice(index * unit..LEN)).collect::<Result<_, _>>()?;
    let last = parts[9].clone();
    let counted = context.device().memory_statistics()?;
    ensure!(
        counted.live == before.live + 1 && counted.allocated == before.allocated + LEN as u64,
        "expected one buffer of {LEN} bytes more than {before:?}, got {counted:?}"
    );
    drop((whole, parts));
    expect_content(&last, &bytes(1, LEN)[9 * unit..], "a slice of a dropped buffer")?;
    let counted = context.device().memory_statistics()?;
    ensure!(
        counted.live == before.live + 1,
        "expected a slice to keep its buffer allocated, got {counted:?}"
    );
    drop(last);
    expect_back(context, context.device(), before, "after the last slice was dropped")
}

fn the_peak_is_the_most_there_was(context: &Context) -> Result<(), Failure> {
    let before = now(context.device())?;
    ensure!(before.peak >= before.allocated, "the peak is below the current value: {before:?}");
    // More than was ever allocated, in pieces, so that the peak grows.
    let missing = usize::try_from(before.peak - before.allocated).unwrap_or(usize::MAX);
    // Unless an earlier check has allocated all memory. Then there is no more to allocate.
    let free = context.device().memory_info()?.free.and_then(|free| usize::try_from(free).ok());
    let piece = free.map_or(usize::MAX, |free| free / 5).clamp(LEN, missing / 4 + LEN);
    let mut held = Vec::new();
    for _ in 0..4 {
        held.push(context.allocate(piece)?);
        let counted = context.device().memory_statistics()?;
        let most = before.peak.max(counted.allocated);
        ensure!(counted.peak == most, "expected a peak of {most} bytes, got {counted:?}");
    }
    let top = context.device().memory_statistics()?.peak;
    drop(held);
    drop(context.allocate(LEN)?);
    let after = now(context.device())?;
    ensure!(
        after.peak == top,
        "expected a peak of {top} bytes after all buffers were dropped, got {after:?}"
    );
    expect_back(context, context.device(), before, "after the peak")
}

fn what_was_refused_is_not_counted(context: &Context) -> Result<(), Failure> {
    let before = now(context.device())?;
    for len in [TOO_MUCH, MOST, usize::MAX] {
        out_of_memory(context.device(), len)?;
        let after = context.device().memory_statistics()?;
        // It empties the core's cache, which other fields count.
        let counted = |counted: MemoryStatistics| (counted.allocated, counted.peak, counted.live);
        ensure!(
            counted(after) == counted(before),
            "a refused allocation of {len} bytes changed the statistics from {before:?} to {after:?}"
        );
    }
    Ok(())
}

fn work_keeps_what_it_needs(context: &Context) -> Result<(), Failure> {
    let stream = context.stream()?;
    let before = now(context.device())?;
    for round in 0..5 {
        let source = context.filled(&bytes(round, LEN))?;
        let copy = context.allocate(LEN)?;
        let release = hold_back(&stream)?;
        stream.copy(&source, &copy)?;
        let read = stream.read(&copy, 0..LEN)?;
        drop((source, copy));
        let counted = context.device().memory_statistics()?;
        ensure!(
            counted.live == before.live + 2,
            "expected two buffers of waiting work more than {before:?}, got {counted:?}"
        );
        drop(release);
        expect_bytes(&read.wait()?, &bytes(round, LEN), "by work whose buffers were dropped")?;
        stream.synchronize()?;
        expect_back(context, context.device(), before, "after work whose buffers were dropped")?;
    }
    Ok(())
}

/// Enqueues work of each kind, and drops its buffers.
fn each_kind(stream: &Stream, seed: u8) -> Result<(), Failure> {
    let device = stream.device();
    let [a, b] = [device.allocate(LEN)?, device.allocate(LEN)?];
    stream.write(&a, 0, bytes(seed, LEN))?;
    stream.copy(&a, &b)?;
    stream.fill(&a, 0..LEN, &[seed])?;
    drop(stream.read(&b, 0..LEN)?);
    stream.launch(&[&a, &b], |_| Ok(()))?;
    Ok(())
}

fn back_after_work_of_each_kind(context: &Context) -> Result<(), Failure> {
    let stream = context.stream()?;
    leaves_nothing(context, "after work of each kind", || {
        each_kind(&stream, 1)?;
        Ok(stream.synchronize()?)
    })
}

fn back_after_much_work(context: &Context) -> Result<(), Failure> {
    let stream = context.stream()?;
    leaves_nothing(context, "after 600 buffers with work in flight", || {
        (0..300).try_for_each(|index| each_kind(&stream, index as u8))
    })
}

fn back_without_waiting(context: &Context) -> Result<(), Failure> {
    let stream = context.stream()?;
    // Enough that it does not matter if the completion of a few is not noticed yet.
    const BUFFERS: u64 = 1000;
    let before = now(context.device())?;
    for index in 0..BUFFERS {
        stream.fill(&context.allocate(LEN)?, 0..LEN, &[index as u8])?;
    }
    let mut held = 0;
    let freed = until(context.limit() / 4, || {
        held = context.device().memory_statistics()?.live - before.live;
        Ok(held <= BUFFERS / 5)
    })?;
    ensure!(
        freed,
        "{BUFFERS} buffers were dropped, and {held} are held without a call that waits for the stream"
    );
    stream.synchronize()?;
    expect_back(context, context.device(), before, "after the stream was synchronized")
}

fn back_after_events(context: &Context) -> Result<(), Failure> {
    let stream = context.stream()?;
    let other = context.stream()?;
    let mut kept = Vec::new();
    let before = now(context.device())?;
    for index in 0..50 {
        each_kind(&stream, index)?;
        let event = stream.record()?;
        match index % 4 {
            0 => other.wait_event(&event)?,
            1 => event.synchronize()?,
            2 => kept.push(event),
            _ => {}
        }
        each_kind(&other, index)?;
    }
    stream.synchronize()?;
    other.synchronize()?;
    // The events of the work are not dropped yet.
    expect_back(context, context.device(), before, "with events that are kept")?;
    for event in &kept {
        ensure!(event.query()?, "an event of a synchronized stream is not done");
    }
    drop(kept);
    expect_back(context, context.device(), before, "without the events")
}

fn back_after_reads_that_nobody_wants(context: &Context) -> Result<(), Failure> {
    let stream = context.stream()?;
    leaves_nothing(context, "after reads that were dropped", || {
        for index in 0..50 {
            let buffer = context.filled(&bytes(index, LEN))?;
            drop(stream.read(&buffer, 0..LEN)?);
            let wanted = stream.read(&buffer, 0..LEN)?;
            drop(stream.read(&buffer, 0..LEN)?);
            drop(buffer);
            expect_bytes(&wanted.wait()?, &bytes(index, LEN), "a read between two that were dropped")?;
        }
        Ok(())
    })
}

fn back_after_streams_that_are_gone(context: &Context) -> Result<(), Failure> {
    leaves_nothing(context, "after 50 streams that were dropped", || {
        for index in 0..50 {
            let stream = context.stream()?;
            each_kind(&stream, index)?;
            drop(stream.record()?);
        }
        Ok(())
    })
}

fn back_in_every_order(context: &Context) -> Result<(), Failure> {
    let pair = busy_pair(context)?;
    for order in orders(4) {
        leaves_nothing(context, &format!("dropped in order {order:?}"), || {
            let stream = context.stream()?;
            let buffer = context.filled(&bytes(1, LEN))?;
            keep_busy(&stream, &pair, 2)?;
            let read = stream.read(&buffer, 0..LEN)?;
            let event = stream.record()?;
            let mut buffer = Some(buffer);
            let mut stream = Some(stream);
            let mut event = Some(event);
            let mut read = Some(read);
            for which in &order {
                match which {
                    0 => drop(buffer.take()),
                    1 => drop(stream.take()),
                    2 => drop(event.take()),
                    _ => drop(read.take()),
                }
            }
            Ok(())
        })?;
    }
    Ok(())
}

/// Copies both ways by blocking calls and by streams, and compares the statistics of both devices.
fn back_after_copies_with(context: &Context, other: Device) -> Result<(), Failure> {
    let [here, there] = [context.stream()?, other.create_stream()?];
    let before = [now(context.device())?, now(other)?];
    for index in 0..20 {
        let near = context.filled(&bytes(index, LEN))?;
        let far = other.allocate(LEN)?;
        far.copy_from(&near)?;
        there.copy(&near, &far)?;
        here.wait_event(&there.record()?)?;
        here.copy(&far, &near)?;
        drop(here.read(&near, 0..LEN)?);
    }
    // Synchronizes both first, because a queue of one device may hold memory of the other.
    here.synchronize()?;
    there.synchronize()?;
    for (stream, before) in [here, there].into_iter().zip(before) {
        let device = stream.device();
        expect_back(context, device, before, &format!("on `{device}`, after copies both ways"))?;
    }
    Ok(())
}

fn back_after_copies_of_a_peer(context: &Context) -> Result<(), Failure> {
    back_after_copies_with(context, context.peer()?)
}

fn back_after_copies_of_the_cpu(context: &Context) -> Result<(), Failure> {
    back_after_copies_with(context, Device::cpu())
}

fn back_after_host_calls(context: &Context) -> Result<(), Failure> {
    let stream = context.stream()?;
    leaves_nothing(context, "after host calls that drop buffers", || {
        for index in 0..20 {
            let buffer = context.filled(&bytes(index, LEN))?;
            stream.fill(&buffer, 0..LEN, &[index])?;
            stream.host_call(move || drop(buffer))?;
        }
        stream.synchronize()?;
        // Any call on the device would do.
        Ok(context.device().memory_info().map(drop)?)
    })
}

fn back_after_threads(context: &Context) -> Result<(), Failure> {
    leaves_nothing(context, "after eight threads", || {
        in_threads(8, |index| {
            let stream = context.stream()?;
            for round in 0..20 {
                let kept = filled(context.device(), &bytes((index + round) as u8, LEN))?;
                each_kind(&stream, round as u8)?;
                drop(stream.read(&kept, 0..LEN)?);
            }
            Ok(())
        })
    })
}

fn back_after_work_that_is_skipped(context: &Context) -> Result<(), Failure> {
    let stream = context.stream()?;
    leaves_nothing(context, "after work that was skipped", || {
        stream.host_call(|| resume_unwind(Box::new("a panic of the check's own")))?;
        for index in 0..20 {
            each_kind(&stream, index)?;
            drop(stream.record()?);
        }
        ensure!(stream.synchronize().is_err(), "expected an error for the panic of a host call, got success");
        Ok(())
    })
}

fn back_after_copies_that_fail(context: &Context) -> Result<(), Failure> {
    let stream = context.stream()?;
    leaves_nothing(context, "after copies that failed", || {
        for index in 0..20 {
            let buffer = context.filled(&bytes(index, LEN))?;
            fail_next_copy(context.device())?;
            ensure!(
                buffer.write(0, &[1; LEN]).is_err(),
                "a write with an injected failure: expected an error, got success"
            );
            fail_next_copy(context.device())?;
            let enqueued = each_kind(&stream, index).is_ok();
            ensure!(
                stream.synchronize().is_err() || !enqueued,
                "a copy with an injected failure: expected an error, got success"
            );
        }
        Ok(())
    })
}

fn streams_do_not_leak(context: &Context) -> Result<(), Failure> {
    // 120 MB in total.
    const LONG: usize = 200_000;
    expect_no_leak(context, 4 << 20, || {
        for index in 0..200 {
            let stream = context.stream()?;
            let [a, b, c] = [context.allocate(LONG)?, context.allocate(LONG)?, context.allocate(LONG)?];
            stream.fill(&a, 0..LONG, &[index as u8])?;
            stream.copy(&a, &b)?;
            stream.copy(&b, &c)?;
            drop((stream.read(&c, 0..LONG)?, stream.record()?));
        }
        context.device().synchronize()?;
        // Finished work may release its memory a moment later.
        until(context.limit() / 8, || Ok(context.device().memory_statistics()?.live == 0))?;
        Ok(())
    })
}
