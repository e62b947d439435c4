//! Reads, events and other work before and behind a failure in the same stream.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use device_registry::{Event, Fault};

use super::{BEFORE, LEN, Scene, is_about, is_the_same, is_well, scene, works};
use crate::busy::hold_back;
use crate::check::Check;
use crate::context::{Context, expect_bytes, expect_content};
use crate::failure::{Failure, ensure, ensure_supported};
use crate::fault_injection::{accepted, expect_failed, fail_next_copy, failing_write, inject};

pub(super) const CHECKS: &[Check] = &[
    fault_check!(a_read_that_fails, "a failed read returns its error, and so does its stream"),
    fault_check!(
        an_awaited_read_that_fails,
        "a task that awaits a read wakes up with the error when the read fails"
    ),
    fault_check!(reads_behind_a_failure, "reads behind failed work return its error"),
    fault_check!(
        events_behind_a_failure,
        "events behind failed work return its error, and earlier events do not"
    ),
    fault_check!(the_work_before_is_done, "work that was enqueued before the failed work is done"),
    fault_check!(
        work_behind_is_skipped_until_told,
        "a stream skips work behind a failure, even work enqueued later, until it has reported the error"
    ),
    fault_check!(
        work_after_the_telling_is_done,
        "a stream that has reported its error does its work as before"
    ),
];

fn a_read_that_fails(context: &Context) -> Result<(), Failure> {
    let Scene { stream, buffer, .. } = scene(context)?;
    for _ in 0..5 {
        fail_next_copy(context.device())?;
        match stream.read(&buffer, 0..LEN) {
            // A driver may finish a read within the call, which then returns the error.
            Err(error) => is_about(&error, context.device())?,
            Ok(read) => {
                let error = expect_failed(read.wait(), "a read that fails")?;
                is_about(&error, context.device())?;
                let reported = expect_failed(stream.synchronize(), "the stream of a read that failed")?;
                is_about(&reported, context.device())?;
            }
        }
        is_well(&stream, "after a read that failed")?;
        expect_bytes(&stream.read(&buffer, 0..LEN)?.wait()?, &[BEFORE; LEN], "the next read")?;
    }
    Ok(())
}

fn an_awaited_read_that_fails(context: &Context) -> Result<(), Failure> {
    let Scene { stream, buffer, .. } = scene(context)?;
    for _ in 0..5 {
        let release = hold_back(&stream)?;
        fail_next_copy(context.device())?;
        let read = accepted(stream.read(&buffer, 0..LEN))?;
        let waiting = thread::spawn(move || pollster::block_on(read).map(drop));
        drop(release);
        let Ok(result) = waiting.join() else { return Err(Failure::new("awaiting a read panicked")) };
        expect_failed(result, "an awaited read")?;
        expect_failed(stream.synchronize(), "the stream of a read that failed")?;
    }
    works(&stream, "after reads that failed")
}

fn reads_behind_a_failure(context: &Context) -> Result<(), Failure> {
    let Scene { stream, buffer, drivers_queue } = scene(context)?;
    let other = context.filled(&[3; LEN])?;
    let release = hold_back(&stream)?;
    let before = stream.read(&other, 0..LEN)?;
    inject(context.device(), Fault::FailCopy { nth: 2 })?;
    accepted(stream.write(&buffer, 0, vec![1; LEN]))?;
    let behind = [(); 5].map(|()| stream.read(&other, 0..LEN));
    drop(release);
    expect_bytes(&before.wait()?, &[3; LEN], "the read before the failure")?;
    let mut results = Vec::new();
    for read in behind {
        results.push(read?.wait());
    }
    let error = expect_failed(stream.synchronize(), "the stream that failed")?;
    for result in results {
        match result {
            Err(found) => is_the_same(&found, &error, "a read behind a failure")?,
            // The driver had it in its queue already.
            Ok(read) if drivers_queue => expect_bytes(&read, &[3; LEN], "a read behind a failure")?,
            Ok(_) => return Err(Failure::new("a read behind failed work: expected an error, got bytes")),
        }
    }
    expect_bytes(&stream.read(&other, 0..LEN)?.wait()?, &[3; LEN], "a read after the error was reported")
}

fn events_behind_a_failure(context: &Context) -> Result<(), Failure> {
    let Scene { stream, buffer, drivers_queue } = scene(context)?;
    for held_back in [true, false] {
        let release = if held_back { Some(hold_back(&stream)?) } else { None };
        let before = stream.record()?;
        failing_write(&stream, &buffer, 1)?;
        let behind = [stream.record()?, stream.record()?];
        drop(release);
        before.synchronize()?;
        let mut results = Vec::new();
        for event in &behind {
            results.push(event.synchronize());
            results.push(event.query().map(drop));
        }
        let error = expect_failed(stream.synchronize(), "the stream that failed")?;
        // An event never changes.
        results.extend(behind.iter().map(Event::synchronize));
        for result in results {
            let found = expect_failed(result, "an event behind failed work")?;
            // A driver's queue may name the calls in other ways.
            if !drivers_queue {
                is_the_same(&found, &error, "an event behind a failure")?;
            }
        }
        ensure!(before.query()?, "the event before the failure was done before, and is not done now");
        stream.record()?.synchronize()?;
    }
    Ok(())
}

fn the_work_before_is_done(context: &Context) -> Result<(), Failure> {
    let Scene { stream, buffer, .. } = scene(context)?;
    let before: Vec<_> = (0..10).map(|_| context.filled(&[BEFORE; LEN])).collect::<Result<_, _>>()?;
    let release = hold_back(&stream)?;
    inject(context.device(), Fault::FailCopy { nth: 11 })?;
    for (index, earlier) in before.iter().enumerate() {
        stream.write(earlier, 0, vec![index as u8; LEN])?;
    }
    accepted(stream.write(&buffer, 0, vec![1; LEN]))?;
    drop(release);
    expect_failed(stream.synchronize(), "the eleventh write")?;
    for (index, earlier) in before.iter().enumerate() {
        expect_content(earlier, &[index as u8; LEN], format_args!("write {index} before one that failed"))?;
    }
    Ok(())
}

fn work_behind_is_skipped_until_told(context: &Context) -> Result<(), Failure> {
    let Scene { stream, buffer, drivers_queue } = scene(context)?;
    ensure_supported!(
        !drivers_queue,
        "the device does work while it is enqueued, or has queues that may do what is already in them"
    );
    let behind = context.filled(&[3; LEN])?;
    let later = context.filled(&[4; LEN])?;
    let source = context.filled(&[5; LEN])?;
    let ran = Arc::new(AtomicBool::new(false));
    let runs = Arc::clone(&ran);
    let release = hold_back(&stream)?;
    failing_write(&stream, &buffer, 1)?;
    stream.write(&behind, 0, vec![1; LEN])?;
    stream.fill(&behind, 0..LEN, &[1])?;
    stream.copy(&source, &behind)?;
    stream.host_call(move || runs.store(true, Ordering::SeqCst))?;
    let event = stream.record()?;
    drop(release);
    expect_failed(event.synchronize(), "an event behind the failure")?;
    // The write has failed, and the stream has not reported it yet.
    stream.write(&later, 0, vec![1; LEN])?;
    expect_failed(stream.synchronize(), "the stream")?;
    ensure!(!ran.load(Ordering::SeqCst), "a host call behind a failure ran");
    expect_content(&behind, &[3; LEN], "the destination of skipped work")?;
    expect_content(
        &later,
        &[4; LEN],
        "the destination of work that was enqueued before the error was reported",
    )
}

fn work_after_the_telling_is_done(context: &Context) -> Result<(), Failure> {
    let Scene { stream, buffer, .. } = scene(context)?;
    for round in 0..20 {
        failing_write(&stream, &buffer, round)?;
        expect_failed(stream.synchronize(), "a write that fails")?;
        stream.fill(&buffer, 0..LEN, &[round])?;
        let event = stream.record()?;
        event.synchronize()?;
        expect_content(&buffer, &[round; LEN], format_args!("after failure {round} was reported"))?;
    }
    Ok(())
}
