//! A failure in one stream, and the streams and devices beside it.

use std::sync::mpsc;

use device_registry::{Device, Fault};

use super::{LEN, Scene, is_about, is_the_same, is_well, scene, works};
use crate::busy::hold_back;
use crate::check::{Check, Need};
use crate::context::{Context, bytes, content, expect_bytes, expect_content, filled, in_threads};
use crate::failure::{Failure, ensure};
use crate::fault_injection::{expect_error, expect_failed, failing_write, inject};

pub(super) const CHECKS: &[Check] = &[
    fault_check!(
        another_stream_goes_on,
        "a stream does its work while another stream of the device has failed"
    ),
    fault_check!(another_device_goes_on, "a peer does its work while a stream of this device has failed")
        .needs(&[Need::Faults, Need::Peer]),
    fault_check!(
        a_stream_that_waits_for_it,
        "a stream that waits for an event with an error fails with that error"
    ),
    fault_check!(
        a_peer_that_waits_for_it,
        "a peer's stream that waits for an event with an error fails with it"
    )
    .needs(&[Need::Faults, Need::Peer]),
    fault_check!(
        the_cpu_that_waits_for_it,
        "a stream of the cpu that waits for an event with an error fails with it"
    )
    .uses_cpu(),
    fault_check!(
        one_of_many_threads,
        "when one copy fails, one of eight threads with a stream each gets the error"
    ),
];

fn another_stream_goes_on(context: &Context) -> Result<(), Failure> {
    let Scene { stream, buffer, .. } = scene(context)?;
    let other = context.stream()?;
    failing_write(&stream, &buffer, 1)?;
    let _ = stream.record()?.synchronize();
    for _ in 0..5 {
        works(&other, "while another stream has failed")?;
    }
    works(&context.stream()?, "a stream that was made while another one had failed")?;
    let fresh = context.filled(&bytes(1, LEN))?;
    expect_content(&fresh, &bytes(1, LEN), "by blocking calls, while a stream has failed")?;
    expect_failed(stream.synchronize(), "the stream that failed")?;
    Ok(())
}

fn another_device_goes_on(context: &Context) -> Result<(), Failure> {
    let peer = context.peer()?;
    let Scene { stream, buffer, .. } = scene(context)?;
    let other = peer.create_stream()?;
    failing_write(&stream, &buffer, 1)?;
    let _ = stream.record()?.synchronize();
    for _ in 0..5 {
        works(&other, "on a peer, while a stream of this device has failed")?;
    }
    peer.synchronize()?;
    let there = filled(peer, &bytes(1, LEN))?;
    expect_content(&there, &bytes(1, LEN), "by blocking calls, on a peer")?;
    expect_failed(stream.synchronize(), "the stream that failed")?;
    Ok(())
}

/// Another stream waits for an event behind a failure: rule D14. The core may wait where the work before the
/// event is held back, and a driver that can wait does so where it is not. Work that is enqueued when the
/// failure is known is skipped as well: no call returns it but those that wait.
fn waits_for_it(context: &Context, other: Device) -> Result<(), Failure> {
    for (is_held_back, is_known) in [(true, false), (false, false), (false, true)] {
        let Scene { stream, buffer, drivers_queue } = scene(context)?;
        let waiting = other.create_stream()?;
        let there = filled(other, &[3; LEN])?;
        let release = is_held_back.then(|| hold_back(&stream)).transpose()?;
        failing_write(&stream, &buffer, 1)?;
        waiting.wait_event(&stream.record()?)?;
        if is_known {
            expect_error(
                waiting.record()?.synchronize(),
                "an event behind a wait for an event with an error",
            )?;
        }
        waiting.write(&there, 0, vec![1; LEN])?;
        let read = waiting.read(&there, ..)?;
        let behind = waiting.record()?;
        drop(release);
        let waited = expect_failed(waiting.synchronize(), "a stream that waits for an event with an error")?;
        expect_error(read.wait(), "a read behind a wait for an event with an error")?;
        for _ in 0..2 {
            expect_error(behind.synchronize(), "an event behind a wait for an event with an error")?;
        }
        // Synchronizing the device would report this one too. So this synchronizes each stream.
        let reported = expect_failed(stream.synchronize(), "the stream that failed")?;
        if drivers_queue {
            // With a driver's own event, another call may have failed than in the first stream, and a
            // driver's queue that waits by itself fails itself.
            is_about(&waited, context.device()).or_else(|_| is_about(&waited, other))?;
        } else {
            is_the_same(&waited, &reported, "a stream that waits for an event with an error")?;
        }
        // A driver's queue may run the work.
        if !drivers_queue || !content(&there)?.iter().all(|byte| *byte == 1) {
            expect_content(&there, &[3; LEN], "behind the event of a failure")?;
        }
        is_well(&waiting, "after both have reported it")?;
        [&waiting, &stream]
            .into_iter()
            .try_for_each(|stream| works(stream, "after both have reported it"))?;
    }
    Ok(())
}

fn a_stream_that_waits_for_it(context: &Context) -> Result<(), Failure> {
    waits_for_it(context, context.device())
}

fn a_peer_that_waits_for_it(context: &Context) -> Result<(), Failure> {
    waits_for_it(context, context.peer()?)
}

fn the_cpu_that_waits_for_it(context: &Context) -> Result<(), Failure> {
    waits_for_it(context, Device::cpu())
}

fn one_of_many_threads(context: &Context) -> Result<(), Failure> {
    for round in 1..=3 {
        inject(context.device(), Fault::FailCopy { nth: 20 * round })?;
        let (sender, errors) = mpsc::channel();
        in_threads(8, |index| {
            let sender = sender.clone();
            let stream = context.stream()?;
            let buffer = context.allocate(500)?;
            for time in 0..20 {
                let value = (index * 20 + time) as u8;
                // A refusal on submission is a report as well.
                let outcome = stream
                    .write(&buffer, 0, vec![value; 500])
                    .and_then(|()| stream.read(&buffer, 0..500)?.wait())
                    .and_then(|read| stream.synchronize().map(|()| read));
                match outcome {
                    Ok(read) => {
                        expect_bytes(&read, &[value; 500], "on a thread whose stream has not failed")?
                    }
                    Err(error) => {
                        let _ = stream.synchronize();
                        let _ = sender.send(error);
                    }
                }
            }
            Ok(())
        })?;
        drop(sender);
        let errors: Vec<_> = errors.into_iter().map(|error| error.to_string()).collect();
        ensure!(
            errors.len() == 1,
            "expected one error for one failed copy, got {}: {errors:?}",
            errors.len()
        );
    }
    Ok(())
}
