//! Which call returns the error of work that failed in a stream, and that only one call does.

use std::panic::resume_unwind;
use std::thread;
use std::time::Duration;

use device_registry::{BackendError, Buffer, DeviceError, Stream, StreamGuard};

use super::{LEN, Scene, is_about, is_well, scene, works};
use crate::check::Check;
use crate::checks::check;
use crate::checks::events::hold_back;
use crate::context::{Context, expect_content};
use crate::failure::{Failure, ensure};
use crate::fault_injection::{accepted, expect_error, expect_failed, fail_next_copy, failing_write, until};

pub(super) const CHECKS: &[Check] = &[
    check!(
        errors::a_panic_in_a_host_call_is_told,
        "a panic in a host call is an error of its stream, which goes on when it was told"
    )
    .leaves_failures(),
    check!(
        errors::a_kernels_error_is_told,
        "what a kernel says went wrong is told, at once or by the stream, which then goes on"
    )
    .leaves_failures(),
    fault_check!(told_by_synchronize, "work of each kind that fails in a stream is told by synchronize"),
    fault_check!(told_by_query, "work that fails in a stream is told by query, and not as done before"),
    fault_check!(told_by_the_device, "synchronizing the device tells what failed in any of its streams"),
    fault_check!(told_once, "an error is told once, to whoever asks first"),
    fault_check!(
        told_by_what_blocks,
        "functions that block tell what failed in the thread's current stream before them"
    ),
    fault_check!(of_a_stream_that_is_gone, "what failed in a stream that is dropped is told by the device"),
    fault_check!(of_two_streams, "of two streams that failed, both errors are told"),
];

fn a_panic_in_a_host_call_is_told(context: &Context) -> Result<(), Failure> {
    let Scene { stream, buffer, .. } = scene(context)?;
    for round in 0..5 {
        stream.fill(&buffer, 0..LEN, &[round])?;
        // Unlike `panic!`, it says nothing on the way: nobody is to look for a defect.
        stream.call(|| resume_unwind(Box::new("a panic of the check's own")))?;
        let error = expect_error(stream.synchronize(), "a stream in which a host call panicked")?;
        is_about(&error, context.device())?;
        let said = error.to_string();
        ensure!(said.contains("a panic of the check's own"), "the panic's message is not told: {said}");
        is_well(&stream, "after it was told")?;
        expect_content(&buffer, &[round; LEN], "the work before the panic")?;
        works(&stream, "after a panic in a host call")?;
    }
    Ok(())
}

fn a_kernels_error_is_told(context: &Context) -> Result<(), Failure> {
    let Scene { stream, buffer, .. } = scene(context)?;
    for round in 0..5 {
        stream.fill(&buffer, 0..LEN, &[round])?;
        let launched = stream.launch(&[&buffer], |_| Err(BackendError::other("an error of the check's own")));
        // A driver's queue has the kernel submit its work, and so knows at once.
        let error = expect_error(launched.and_then(|()| stream.synchronize()), "a kernel with an error")?;
        is_about(&error, context.device())?;
        ensure!(error.to_string().contains("an error of the check's own"), "it is not told what: {error}");
        is_well(&stream, "after it was told")?;
        works(&stream, "after a kernel that failed")?;
        expect_content(&buffer, &[round; LEN], "the work before the kernel")?;
    }
    Ok(())
}

type PutIn = fn(&Stream, &Buffer, &Buffer) -> Result<(), DeviceError>;

/// One of each kind of work that a fault of copies makes fail.
const KINDS: [(&str, PutIn); 4] = [
    ("write", |stream, buffer, _| stream.write(buffer, 0, vec![1; LEN])),
    ("copy", |stream, buffer, other| stream.copy(other, 0..LEN, buffer, 0)),
    ("fill", |stream, buffer, _| stream.fill(buffer, 0..LEN, &[1])),
    ("read", |stream, buffer, _| stream.read(buffer, 0..LEN).map(drop)),
];

fn told_by_synchronize(context: &Context) -> Result<(), Failure> {
    let Scene { stream, buffer, .. } = scene(context)?;
    let other = context.filled(&[2; LEN])?;
    for (kind, put_in) in KINDS {
        fail_next_copy(context.device())?;
        accepted(put_in(&stream, &buffer, &other))?;
        let error = expect_failed(stream.synchronize(), kind)?;
        is_about(&error, context.device())?;
        is_well(&stream, kind)?;
        put_in(&stream, &buffer, &other)?;
        is_well(&stream, kind)?;
    }
    Ok(())
}

fn told_by_query(context: &Context) -> Result<(), Failure> {
    let Scene { stream, buffer, .. } = scene(context)?;
    let other = context.filled(&[2; LEN])?;
    for (kind, put_in) in KINDS {
        fail_next_copy(context.device())?;
        accepted(put_in(&stream, &buffer, &other))?;
        let error = loop {
            match stream.query() {
                Ok(false) => thread::sleep(Duration::from_micros(50)),
                other => break expect_failed(other, kind)?,
            }
        };
        is_about(&error, context.device())?;
        is_well(&stream, kind)?;
    }
    Ok(())
}

fn told_by_the_device(context: &Context) -> Result<(), Failure> {
    let Scene { stream, buffer, .. } = scene(context)?;
    let others = [context.stream()?, context.stream()?];
    for round in 0..3 {
        others.iter().try_for_each(|other| works(other, "before"))?;
        failing_write(&stream, &buffer, round)?;
        let error = expect_failed(context.device().synchronize(), "synchronizing the device")?;
        is_about(&error, context.device())?;
        is_well(&stream, "after the device told it")?;
        others.iter().try_for_each(|other| works(other, "afterwards"))?;
    }
    Ok(())
}

fn told_once(context: &Context) -> Result<(), Failure> {
    let Scene { stream, buffer, .. } = scene(context)?;
    type Ask = fn(&Stream) -> Result<(), DeviceError>;
    let asks: [(&str, Ask); 3] = [
        ("synchronize", |stream| stream.synchronize()),
        ("query", |stream| {
            while !stream.query()? {
                thread::sleep(Duration::from_micros(50));
            }
            Ok(())
        }),
        ("synchronizing the device", |stream| stream.device().synchronize()),
    ];
    for (who, ask) in asks {
        failing_write(&stream, &buffer, 1)?;
        expect_failed(ask(&stream), who)?;
        for _ in 0..3 {
            is_well(&stream, who)?;
        }
        for (other, again) in asks {
            again(&stream).map_err(|error| {
                Failure::new(format_args!("{who} told the error, and {other} tells it again: {error}"))
            })?;
        }
    }
    Ok(())
}

fn told_by_what_blocks(context: &Context) -> Result<(), Failure> {
    let Scene { stream, buffer, .. } = scene(context)?;
    let elsewhere = context.filled(&[3; LEN])?;
    let _guard = StreamGuard::new(&stream);
    failing_write(&stream, &buffer, 1)?;
    let error = expect_failed(elsewhere.write(0, &[4; LEN]), "a write behind a stream that failed")?;
    is_about(&error, context.device())?;
    // What was refused was not done, and what comes now is.
    expect_content(&elsewhere, &[3; LEN], "memory that a refused write was for")?;
    elsewhere.write(0, &[5; LEN])?;
    expect_content(&elsewhere, &[5; LEN], "after the error was told")
}

fn of_a_stream_that_is_gone(context: &Context) -> Result<(), Failure> {
    for _ in 0..5 {
        let Scene { stream, buffer, .. } = scene(context)?;
        let release = hold_back(&stream)?;
        failing_write(&stream, &buffer, 1)?;
        drop(stream);
        drop(release);
        let mut outcome = Ok(());
        until(context.limit(), || {
            outcome = context.device().synchronize();
            Ok(outcome.is_err())
        })?;
        let error = expect_failed(outcome, "the device, of a stream that is dropped")?;
        is_about(&error, context.device())?;
        context.device().synchronize()?;
    }
    Ok(())
}

fn of_two_streams(context: &Context) -> Result<(), Failure> {
    let (first, second) = (scene(context)?, scene(context)?);
    for scene in [&first, &second] {
        failing_write(&scene.stream, &scene.buffer, 1)?;
        // So that the other one's write is the next.
        let event = scene.stream.record()?;
        let _ = event.synchronize();
    }
    for which in ["first", "second"] {
        expect_failed(context.device().synchronize(), &format!("the {which} of two errors"))?;
    }
    [first, second].iter().try_for_each(|scene| is_well(&scene.stream, "after both were told"))
}
