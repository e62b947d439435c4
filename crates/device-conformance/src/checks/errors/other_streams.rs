//! A failure in one stream, and the streams and devices beside it.

use std::sync::mpsc;

use device_registry::{Device, Fault};

use super::{LEN, Scene, is_about, is_the_same, is_well, scene, works};
use crate::check::{Check, Need};
use crate::checks::events::hold_back;
use crate::context::{Context, bytes, expect_bytes, expect_content, filled, in_threads};
use crate::failure::{Failure, ensure};
use crate::fault_injection::{expect_failed, failing_write, inject};

pub(super) const CHECKS: &[Check] = &[
    fault_check!(another_stream_goes_on, "a stream does its work while another one of the device has failed"),
    fault_check!(another_device_goes_on, "a peer does its work while a stream here has failed")
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
        "of eight threads with a stream each, one is told of a copy that fails"
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
    expect_content(&fresh, &bytes(1, LEN), "by functions that block, while a stream has failed")?;
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
        works(&other, "on a peer, while a stream here has failed")?;
    }
    peer.synchronize()?;
    let there = filled(peer, &bytes(1, LEN))?;
    expect_content(&there, &bytes(1, LEN), "by functions that block, on a peer")?;
    expect_failed(stream.synchronize(), "the stream that failed")?;
    Ok(())
}

/// A stream of another device, or of this one, that waits for the event behind a failure.
fn waits_for_it(context: &Context, other: Device) -> Result<(), Failure> {
    let Scene { stream, buffer, drivers_queue } = scene(context)?;
    let (waiting, there) = (other.create_stream()?, filled(other, &[3; LEN])?);
    let release = hold_back(&stream)?;
    failing_write(&stream, &buffer, 1)?;
    waiting.wait(&stream.record()?)?;
    waiting.write(&there, 0, vec![1; LEN])?;
    drop(release);
    match waiting.synchronize() {
        Err(error) => {
            // Where a driver's queue waits by itself, it is that queue that failed.
            is_about(&error, context.device())
                .or_else(|failure| if drivers_queue { is_about(&error, other) } else { Err(failure) })?;
            expect_content(&there, &[3; LEN], "behind the event of a failure")?;
            is_well(&waiting, "after the stream that waited has told it")?;
        }
        // The event may be done, and then the work has to be.
        Ok(()) if drivers_queue => expect_content(&there, &[1; LEN], "behind an event that is done")?,
        Ok(()) => {
            return Err(Failure::new("a stream that waits for an event with an error says that all is well"));
        }
    }
    works(&waiting, "by the stream that waited")?;
    expect_failed(stream.synchronize(), "the stream that failed has not told it itself, which")?;
    works(&stream, "by the stream that failed")
}

fn a_stream_that_waits_for_it(context: &Context) -> Result<(), Failure> {
    // What synchronizes the device also tells the first one's, so that the stream is asked by itself.
    let Scene { stream, buffer, drivers_queue } = scene(context)?;
    let (waiting, there) = (context.stream()?, context.filled(&[3; LEN])?);
    let release = hold_back(&stream)?;
    failing_write(&stream, &buffer, 1)?;
    waiting.wait(&stream.record()?)?;
    waiting.write(&there, 0, vec![1; LEN])?;
    drop(release);
    let waited = waiting.synchronize();
    let told = expect_failed(stream.synchronize(), "the stream that failed")?;
    match waited {
        Err(error) => {
            // A driver's own event may be asked by another call than the stream.
            if drivers_queue {
                is_about(&error, context.device())?;
            } else {
                is_the_same(&error, &told, "a stream that waits for an event with an error")?;
            }
            expect_content(&there, &[3; LEN], "behind the event of a failure")?;
        }
        Ok(()) if drivers_queue => expect_content(&there, &[1; LEN], "behind an event that is done")?,
        Ok(()) => {
            return Err(Failure::new("a stream that waits for an event with an error says that all is well"));
        }
    }
    is_well(&waiting, "after both have told it")?;
    [&waiting, &stream].into_iter().try_for_each(|stream| works(stream, "after both have told it"))
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
        let (tell, told) = mpsc::channel();
        in_threads(8, |index| {
            let tell = tell.clone();
            let (stream, buffer) = (context.stream()?, context.allocate(500)?);
            for time in 0..20 {
                let value = (index * 20 + time) as u8;
                // A refusal is told as well.
                let outcome = stream
                    .write(&buffer, 0, vec![value; 500])
                    .and_then(|()| stream.read(&buffer, 0..500)?.wait())
                    .and_then(|read| stream.synchronize().map(|()| read));
                match outcome {
                    Ok(read) => expect_bytes(&read, &[value; 500], "on a thread whose stream is well")?,
                    Err(error) => {
                        let _ = stream.synchronize();
                        let _ = tell.send(error);
                    }
                }
            }
            Ok(())
        })?;
        drop(tell);
        let told: Vec<_> = told.into_iter().map(|error| error.to_string()).collect();
        ensure!(told.len() == 1, "one copy was to fail, and the threads were told {}: {told:?}", told.len());
    }
    Ok(())
}
