//! A reset gives a new device, and leaves the handles of the old one lost.

use device_registry::{BackendErrorKind, EventOptions, StreamGuard};

use super::{LEN, Things, works};
use crate::check::Check;
use crate::checks::check;
use crate::context::{Context, bytes, expect_bytes, expect_content};
use crate::failure::{Failure, ensure};
use crate::fault_injection::{expect_error, expect_lost, kind, lose, reset};

pub(super) const CHECKS: &[Check] = &[
    check!(
        loss::what_is_not_lost_is_not_reset,
        "a reset of a device that is not lost is an error of its own, and changes nothing"
    ),
    loss_check!(
        a_reset_opens_it_afresh,
        "a device that was reset does its work, with all of its memory free"
    ),
    loss_check!(
        what_is_old_stays_lost,
        "what belonged to a device before a reset says that it is lost, and does not touch what is new"
    ),
    loss_check!(
        the_current_stream_is_a_new_one,
        "functions that block use the new device after a reset, whatever stream was the current one before"
    ),
    loss_check!(again_and_again, "a device that was reset can be lost and reset again, many times"),
];

fn what_is_not_lost_is_not_reset(context: &Context) -> Result<(), Failure> {
    let (expected, device) = (bytes(1, LEN), context.device());
    let (buffer, stream) = (context.filled(&expected)?, context.stream()?);
    for _ in 0..3 {
        let error = expect_error(device.reset(), "a reset of a device that is not lost")?;
        ensure!(
            kind(&error) == Some(BackendErrorKind::Invalid),
            "expected an error of kind `Invalid`, got: {error}"
        );
        expect_content(&buffer, &expected, "after a reset that was refused")?;
        let read = stream.read(&buffer, 0..LEN)?.wait()?;
        expect_bytes(&read, &expected, "by a stream, after a reset that was refused")?;
    }
    Ok(())
}

fn a_reset_opens_it_afresh(context: &Context) -> Result<(), Failure> {
    let device = context.device();
    works(device, "before the loss")?;
    let free = device.memory_info()?.free;
    let held = context.filled(&vec![1; 1 << 20])?;
    lose(device)?;
    reset(device)?;
    let statistics = device.memory_statistics()?;
    ensure!(
        statistics.live == 0 && statistics.allocated == 0,
        "the new device has allocations: {statistics:?}"
    );
    works(device, "after a reset")?;
    let memory = device.memory_info()?;
    if let (Some(before), Some(now)) = (free, memory.free) {
        // What is held of the old one counts for it, where the memory is the same.
        let slack = held.len() as u64 + (4 << 20);
        ensure!(
            now + slack >= before,
            "{before} bytes were free before the loss, and {now} are after the reset"
        );
    }
    drop(held);
    works(device, "when the last of the old one is dropped")
}

fn what_is_old_stays_lost(context: &Context) -> Result<(), Failure> {
    let old = Things::new(context.device())?;
    let timed =
        if context.properties().timed_events { EventOptions::new().timed() } else { EventOptions::new() };
    let old_time = old.stream.record_with(&timed)?;
    old.stream.synchronize()?;
    lose(context.device())?;
    reset(context.device())?;
    let (new, expected) = (Things::new(context.device())?, bytes(6, LEN));
    new.buffer.write(0, &expected)?;
    for (name, outcome) in old.ask() {
        expect_lost(outcome, &format!("{name}, after a reset"))?;
    }
    for (name, outcome) in [
        ("an old stream with a new buffer", old.stream.write(&new.buffer, 0, vec![7; LEN])),
        ("a new stream with an old buffer", new.stream.write(&old.buffer, 0, vec![7; LEN])),
        ("a copy to an old buffer", old.buffer.copy_from(0, &new.buffer, 0..LEN)),
        ("a time from an old event", old_time.elapsed_since(&old_time).map(drop)),
    ] {
        expect_lost(outcome, name)?;
    }
    // How it is said is the driver's, which may see memory of another device in it.
    expect_error(new.buffer.copy_from(0, &old.buffer, 0..LEN), "a copy from an old buffer")?;
    new.buffer.write(0, &expected)?;
    // A new stream that waits for what never comes is told, and goes on.
    let waits = new.stream.wait(&old.event).and_then(|()| new.stream.synchronize());
    expect_lost(waits, "a new stream that waits for an old event")?;
    let read = new.stream.read(&new.buffer, 0..LEN)?.wait()?;
    expect_bytes(&read, &expected, "new memory beside what is old")?;
    works(context.device(), "beside what is old")
}

fn the_current_stream_is_a_new_one(context: &Context) -> Result<(), Failure> {
    let device = context.device();
    let (old, old_default) = (context.stream()?, device.default_stream()?);
    let _guard = StreamGuard::new(&old);
    lose(device)?;
    reset(device)?;
    let expected = bytes(8, LEN);
    expect_content(&context.filled(&expected)?, &expected, "with an old stream as the current one")?;
    let (current, default) = (device.current_stream()?, device.default_stream()?);
    ensure!(current != old && default != old_default, "a stream of the lost device is the new one's");
    let buffer = context.allocate(LEN)?;
    current.write(&buffer, 0, expected.clone())?;
    expect_content(&buffer, &expected, "behind the new device's current stream")
}

fn again_and_again(context: &Context) -> Result<(), Failure> {
    let mut kept = Vec::new();
    for round in 0..10 {
        let things = Things::new(context.device())?;
        works(context.device(), &format!("before loss {round}"))?;
        lose(context.device())?;
        expect_lost(things.stream.synchronize(), &format!("the stream, after loss {round}"))?;
        kept.push(things);
        reset(context.device())?;
    }
    works(context.device(), "after ten losses")?;
    for things in &kept {
        expect_lost(things.buffer.read(0, &mut [0; LEN]), "memory of any of the devices that were")?;
    }
    Ok(())
}
