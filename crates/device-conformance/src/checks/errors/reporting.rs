//! Which call returns the error of work that failed in a stream, and that only one call does.

use std::panic::resume_unwind;
use std::thread;
use std::time::Duration;

use device_registry::backend::BackendError;
use device_registry::{Buffer, DeviceError, Stream, StreamGuard};

use super::{LEN, Scene, is_about, is_well, scene, works};
use crate::busy::hold_back;
use crate::check::Check;
use crate::checks::check;
use crate::context::{Context, expect_content};
use crate::failure::{Failure, ensure};
use crate::fault_injection::{
    enqueue_failing, expect_error, expect_failed, fail_next_copy, failing_write, until,
};

pub(super) const CHECKS: &[Check] = &[
    check!(
        errors::a_panic_in_a_host_call_is_told,
        "a stream returns the panic of a host call as an error, and then continues"
    )
    .leaves_failures(),
    check!(
        errors::a_kernels_error_is_told,
        "the error of a kernel is returned by the launch or by the stream, which then continues"
    )
    .leaves_failures(),
    fault_check!(told_by_synchronize, "synchronize returns the error of failed work of each kind"),
    fault_check!(
        told_by_query,
        "query returns the error of failed work, and does not report it as done before"
    ),
    fault_check!(told_by_the_device, "synchronizing the device returns an error of any of its streams"),
    fault_check!(told_once, "an error is reported once, by the first call that can return it"),
    fault_check!(
        told_by_what_blocks,
        "blocking calls return the earlier error of the thread's current stream"
    ),
    fault_check!(of_a_stream_that_is_gone, "the device returns the error of a dropped stream"),
    fault_check!(of_two_streams, "when two streams fail, both errors are reported"),
];

fn a_panic_in_a_host_call_is_told(context: &Context) -> Result<(), Failure> {
    let Scene { stream, buffer, .. } = scene(context)?;
    for round in 0..5 {
        stream.fill(&buffer, 0..LEN, &[round])?;
        // Unlike `panic!`, it prints no message that could be mistaken for a defect.
        stream.host_call(|| resume_unwind(Box::new("a panic of the check's own")))?;
        let error = expect_error(stream.synchronize(), "a stream in which a host call panicked")?;
        is_about(&error, context.device())?;
        let said = error.to_string();
        ensure!(
            said.contains("a panic of the check's own"),
            "expected the message of the panic, got: {said}"
        );
        is_well(&stream, "after the error was reported")?;
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
        // With a driver's queue, the launch itself calls the kernel and returns its error.
        let error = expect_error(launched.and_then(|()| stream.synchronize()), "a kernel with an error")?;
        is_about(&error, context.device())?;
        ensure!(
            error.to_string().contains("an error of the check's own"),
            "expected the message of the kernel's error, got: {error}"
        );
        is_well(&stream, "after the error was reported")?;
        works(&stream, "after a kernel that failed")?;
        expect_content(&buffer, &[round; LEN], "the work before the kernel")?;
    }
    Ok(())
}

type Enqueue = fn(&Stream, &Buffer, &Buffer) -> Result<(), DeviceError>;

/// Each kind of work that `Fault::FailCopy` can fail.
const KINDS: [(&str, Enqueue); 4] = [
    ("write", |stream, buffer, _| stream.write(buffer, 0, vec![1; LEN])),
    ("copy", |stream, buffer, other| stream.copy(other, buffer)),
    ("fill", |stream, buffer, _| stream.fill(buffer, 0..LEN, &[1])),
    ("read", |stream, buffer, _| stream.read(buffer, 0..LEN).map(drop)),
];

/// Enqueues work of a kind that fails. The error of a read that the driver has finished within the call,
/// which then returns it. `None` if the work is queued.
fn enqueue_kind(
    kind: &str,
    stream: &Stream,
    enqueue: impl Fn() -> Result<(), DeviceError>,
) -> Result<Option<DeviceError>, Failure> {
    if kind == "read" {
        fail_next_copy(stream.device())?;
        return Ok(enqueue().err());
    }
    enqueue_failing(stream, enqueue).map(|()| None)
}

fn told_by_synchronize(context: &Context) -> Result<(), Failure> {
    let Scene { stream, buffer, .. } = scene(context)?;
    let other = context.filled(&[2; LEN])?;
    for (kind, enqueue) in KINDS {
        let error = match enqueue_kind(kind, &stream, || enqueue(&stream, &buffer, &other))? {
            Some(error) => error,
            None => expect_failed(stream.synchronize(), kind)?,
        };
        is_about(&error, context.device())?;
        is_well(&stream, kind)?;
        enqueue(&stream, &buffer, &other)?;
        is_well(&stream, kind)?;
    }
    Ok(())
}

fn told_by_query(context: &Context) -> Result<(), Failure> {
    let Scene { stream, buffer, .. } = scene(context)?;
    let other = context.filled(&[2; LEN])?;
    for (kind, enqueue) in KINDS {
        let error = match enqueue_kind(kind, &stream, || enqueue(&stream, &buffer, &other))? {
            Some(error) => error,
            None => loop {
                match stream.query() {
                    Ok(false) => thread::sleep(Duration::from_micros(50)),
                    other => break expect_failed(other, kind)?,
                }
            },
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
        is_well(&stream, "after the device reported it")?;
        others.iter().try_for_each(|other| works(other, "afterwards"))?;
    }
    Ok(())
}

fn told_once(context: &Context) -> Result<(), Failure> {
    let Scene { stream, buffer, .. } = scene(context)?;
    type Report = fn(&Stream) -> Result<(), DeviceError>;
    let reports: [(&str, Report); 3] = [
        ("synchronize", |stream| stream.synchronize()),
        ("query", |stream| {
            while !stream.query()? {
                thread::sleep(Duration::from_micros(50));
            }
            Ok(())
        }),
        ("synchronizing the device", |stream| stream.device().synchronize()),
    ];
    for (first, report) in reports {
        failing_write(&stream, &buffer, 1)?;
        expect_failed(report(&stream), first)?;
        for _ in 0..3 {
            is_well(&stream, first)?;
        }
        for (second, again) in reports {
            again(&stream).map_err(|error| {
                Failure::new(format_args!(
                    "{first} reported the error, and {second} reports it again: {error}"
                ))
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
    // The refused write did nothing. The next one works.
    expect_content(&elsewhere, &[3; LEN], "the destination of a refused write")?;
    elsewhere.write(0, &[5; LEN])?;
    expect_content(&elsewhere, &[5; LEN], "after the error was reported")
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
        let error = expect_failed(outcome, "the device of a dropped stream")?;
        is_about(&error, context.device())?;
        context.device().synchronize()?;
    }
    Ok(())
}

fn of_two_streams(context: &Context) -> Result<(), Failure> {
    let first = scene(context)?;
    let second = scene(context)?;
    for scene in [&first, &second] {
        failing_write(&scene.stream, &scene.buffer, 1)?;
        // Otherwise the fault could hit the write of the other stream.
        let event = scene.stream.record()?;
        let _ = event.synchronize();
    }
    for which in ["first", "second"] {
        expect_failed(context.device().synchronize(), &format!("the {which} of two errors"))?;
    }
    [first, second].iter().try_for_each(|scene| is_well(&scene.stream, "after both errors were reported"))
}
