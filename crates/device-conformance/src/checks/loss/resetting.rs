//! A reset gives a new device, and leaves the handles of the old one lost.

use device_registry::{BackendErrorKind, EventOptions, StreamGuard};

use super::{Handles, LEN, works};
use crate::check::Check;
use crate::checks::check;
use crate::context::{Context, bytes, expect_bytes, expect_content};
use crate::failure::{Failure, ensure};
use crate::fault_injection::{expect_error, expect_lost, lose, reset};

pub(super) const CHECKS: &[Check] = &[
    check!(
        loss::what_is_not_lost_is_not_reset,
        "a reset of a device that is not lost returns an error, and changes nothing"
    ),
    loss_check!(a_reset_opens_it_afresh, "a device does its work after a reset, with all of its memory free"),
    loss_check!(
        what_is_old_stays_lost,
        "handles from before a reset return that the device is lost, and do not touch new memory"
    ),
    loss_check!(
        the_current_stream_is_a_new_one,
        "blocking calls use the new device after a reset, even if an old stream is the current one"
    ),
    loss_check!(again_and_again, "a device can be lost and reset many times"),
];

fn what_is_not_lost_is_not_reset(context: &Context) -> Result<(), Failure> {
    let expected = bytes(1, LEN);
    let device = context.device();
    let buffer = context.filled(&expected)?;
    let stream = context.stream()?;
    for _ in 0..3 {
        let error = expect_error(device.reset(), "a reset of a device that is not lost")?;
        ensure!(
            error.kind() == Some(BackendErrorKind::Invalid),
            "expected an error of kind `Invalid`, got: {error}"
        );
        expect_content(&buffer, &expected, "after a refused reset")?;
        let read = stream.read(&buffer, 0..LEN)?.wait()?;
        expect_bytes(&read, &expected, "by a stream, after a refused reset")?;
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
        "expected no allocations on the new device, got: {statistics:?}"
    );
    works(device, "after a reset")?;
    let memory = device.memory_info()?;
    if let (Some(before), Some(now)) = (free, memory.free) {
        // Memory that is still held of the old device may be part of the same memory.
        let slack = held.len() as u64 + (4 << 20);
        ensure!(
            now + slack >= before,
            "expected about {before} free bytes as before the loss, got {now} after the reset"
        );
    }
    drop(held);
    works(device, "when the last handle of the old device was dropped")
}

fn what_is_old_stays_lost(context: &Context) -> Result<(), Failure> {
    let old = Handles::new(context.device())?;
    let timed = context.properties().timed_events;
    let options = if timed { EventOptions::new().timed() } else { EventOptions::new() };
    let old_time = old.stream.record_with(&options)?;
    old.stream.synchronize()?;
    lose(context.device())?;
    reset(context.device())?;
    let new = Handles::new(context.device())?;
    let expected = bytes(6, LEN);
    new.buffer.write(0, &expected)?;
    for (name, outcome) in old.call_all() {
        expect_lost(outcome, &format!("{name}, after a reset"))?;
    }
    for (name, outcome) in [
        ("an old stream with a new buffer", old.stream.write(&new.buffer, 0, vec![7; LEN])),
        ("a new stream with an old buffer", new.stream.write(&old.buffer, 0, vec![7; LEN])),
        ("a copy to an old buffer", old.buffer.copy_from(&new.buffer)),
    ] {
        expect_lost(outcome, name)?;
    }
    // An event without a timestamp has another error, on a device that works too.
    if timed {
        expect_lost(old_time.elapsed_since(&old_time).map(drop), "a time from an old event")?;
    }
    // The kind of error is the driver's choice. It may see the old memory as memory of another device.
    expect_error(new.buffer.copy_from(&old.buffer), "a copy from an old buffer")?;
    new.buffer.write(0, &expected)?;
    // A new stream that waits for an old event returns the error, and continues.
    let waits = new.stream.wait_event(&old.event).and_then(|()| new.stream.synchronize());
    expect_lost(waits, "a new stream that waits for an old event")?;
    let read = new.stream.read(&new.buffer, 0..LEN)?.wait()?;
    expect_bytes(&read, &expected, "new memory beside old handles")?;
    works(context.device(), "beside old handles")
}

fn the_current_stream_is_a_new_one(context: &Context) -> Result<(), Failure> {
    let device = context.device();
    let old = context.stream()?;
    let old_default = device.default_stream()?;
    let _guard = StreamGuard::new(&old);
    lose(device)?;
    reset(device)?;
    let expected = bytes(8, LEN);
    expect_content(&context.filled(&expected)?, &expected, "with an old stream as the current one")?;
    let current = device.current_stream()?;
    let default = device.default_stream()?;
    ensure!(
        current != old && default != old_default,
        "the current stream or the default stream belongs to the lost device"
    );
    let buffer = context.allocate(LEN)?;
    current.write(&buffer, 0, expected.clone())?;
    expect_content(&buffer, &expected, "written by the new device's current stream")
}

fn again_and_again(context: &Context) -> Result<(), Failure> {
    let mut kept = Vec::new();
    for round in 0..10 {
        let handles = Handles::new(context.device())?;
        works(context.device(), &format!("before loss {round}"))?;
        lose(context.device())?;
        expect_lost(handles.stream.synchronize(), &format!("the stream, after loss {round}"))?;
        kept.push(handles);
        reset(context.device())?;
    }
    works(context.device(), "after ten losses")?;
    for handles in &kept {
        expect_lost(handles.buffer.read(0, &mut [0; LEN]), "memory from before a reset")?;
    }
    Ok(())
}
