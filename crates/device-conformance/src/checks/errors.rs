//! Errors of work that was put in a stream: who is told of them, and that nobody else is harmed.
//!
//! How a device fails is told by faults to order. What a host call or a kernel does wrong needs none of them.

use std::panic::resume_unwind;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use device_registry::{
    BackendError, BackendErrorKind, Buffer, Device, DeviceError, Event, Fault, Stream, StreamGuard,
};

use super::check;
use super::events::hold_back;
use crate::check::{Check, Need};
use crate::context::{Context, bytes, content, expect_bytes, expect_content, filled, in_threads};
use crate::failure::{Failure, ensure, ensure_supported};
use crate::fault_injection::{
    accepted, expect_error, expect_failed, fail_next_copy, failing_write, inject, is_a_drivers_queue, kind,
    until,
};

/// A check that needs a device that fails to order.
macro_rules! fault_check {
    ($check:ident, $proves:literal) => {
        check!(errors::$check, $proves).needs(&[Need::Faults]).leaves_failures()
    };
}

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
    fault_check!(
        a_read_that_fails,
        "a read that fails has its error as its answer, and tells it by its stream"
    ),
    fault_check!(
        an_awaited_read_that_fails,
        "a task that awaits a read is woken up and told when the read fails"
    ),
    fault_check!(reads_behind_a_failure, "reads behind work that failed have its error as their answer"),
    fault_check!(
        events_behind_a_failure,
        "events behind work that failed have its error as their answer, and those before do not"
    ),
    fault_check!(the_work_before_is_done, "what was put in before the work that fails is done"),
    fault_check!(
        work_behind_is_skipped_until_told,
        "work behind a failure is not done, also if it is put in later, until the error was told"
    ),
    fault_check!(work_after_the_telling_is_done, "a stream whose error was told does its work as before"),
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
        a_blocking_copy_that_fails,
        "a function that blocks returns the error of its copy, and the next one works"
    ),
    fault_check!(
        a_failed_copy_touches_nothing_else,
        "a copy that fails leaves all bytes but those of its destination as they were"
    ),
    fault_check!(the_nth_copy_fails, "a fault comes at the operation that it was ordered for, and once"),
    fault_check!(the_last_of_a_kind_counts, "of two faults of one kind, the last one counts"),
    fault_check!(
        a_failed_allocation,
        "an allocation that fails is an out-of-memory error that tells what was asked, and the next one works"
    ),
    fault_check!(
        a_failed_allocation_harms_no_work,
        "work in streams is done while an allocation fails, and no stream has an error"
    ),
    fault_check!(
        one_of_many_threads,
        "of eight threads with a stream each, one is told of a copy that fails"
    ),
    fault_check!(
        a_stall_holds_up_no_other_stream,
        "while one stream stalls, the others of the device do their work"
    ),
    fault_check!(a_stall_holds_up_no_peer, "while a stream stalls, a peer does its work")
        .needs(&[Need::Faults, Need::Peer]),
    fault_check!(a_stall_holds_up_no_cpu, "while a stream stalls, the cpu does its work").uses_cpu(),
    fault_check!(what_stalls_is_not_done, "work that stalls is not told as done by any who are asked"),
    fault_check!(
        what_stalls_goes_on,
        "work that stalls goes on when the faults are cleared, with the right bytes"
    ),
    fault_check!(
        dropping_what_stalls,
        "streams, buffers, reads and events of work that stalls can be dropped, and nobody waits for it"
    ),
    fault_check!(
        a_slow_device_is_right,
        "a slow device holds the same bytes, and takes as long as was ordered"
    ),
    fault_check!(cleared_faults_do_not_happen, "faults that were cleared do not happen any more"),
];

const LEN: usize = 2000;

/// A stream, memory with known bytes, and whether the driver has queues of its own.
struct Scene {
    stream: Stream,
    buffer: Buffer,
    drivers_queue: bool,
}

/// What the buffer of a scene holds at first.
const BEFORE: u8 = 0xEE;

fn scene(context: &Context) -> Result<Scene, Failure> {
    let (stream, buffer) = (context.stream()?, context.filled(&[BEFORE; LEN])?);
    let drivers_queue = is_a_drivers_queue(&stream)?;
    Ok(Scene { stream, buffer, drivers_queue })
}

/// The error is told with the device, and is not told as another one.
fn is_about(error: &DeviceError, device: Device) -> Result<(), Failure> {
    match error {
        DeviceError::Call { device: of, .. } if *of == device => Ok(()),
        other => Err(Failure::new(format_args!("expected an error of a call to `{device}`, got: {other}"))),
    }
}

/// The same failure as another one's answer.
fn is_the_same(error: &DeviceError, as_this: &DeviceError, what: &str) -> Result<(), Failure> {
    let (error, expected) = (error.to_string(), as_this.to_string());
    ensure!(
        error == expected,
        "{what}: expected the error of the work that failed, `{expected}`, got: {error}"
    );
    Ok(())
}

/// A stream does what it is asked to.
fn works(stream: &Stream, what: &str) -> Result<(), Failure> {
    let expected = bytes(0x55, LEN);
    let (buffer, copy) = (stream.device().allocate(LEN)?, stream.device().allocate(LEN)?);
    stream.write(&buffer, 0, expected.clone())?;
    stream.copy(&buffer, 0..LEN, &copy, 0)?;
    let read = stream.read(&copy, 0..LEN)?.wait()?;
    expect_bytes(&read, &expected, what)?;
    Ok(stream.synchronize()?)
}

/// Nobody is told of anything.
fn is_well(stream: &Stream, what: &str) -> Result<(), Failure> {
    let outcomes = [
        stream.synchronize(),
        stream.query().map(drop),
        stream.device().synchronize(),
        stream.device().open(),
    ];
    outcomes.into_iter().try_for_each(|outcome| {
        outcome.map_err(|error| {
            Failure::new(format_args!("{what}: nothing is wrong any more, and it says: {error}"))
        })
    })
}

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

fn a_read_that_fails(context: &Context) -> Result<(), Failure> {
    let Scene { stream, buffer, .. } = scene(context)?;
    for _ in 0..5 {
        fail_next_copy(context.device())?;
        let read = accepted(stream.read(&buffer, 0..LEN))?;
        let answer = expect_failed(read.wait(), "a read that fails")?;
        is_about(&answer, context.device())?;
        let told = expect_failed(stream.synchronize(), "the stream of a read that failed")?;
        is_about(&told, context.device())?;
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
        let Ok(answer) = waiting.join() else { return Err(Failure::new("awaiting a read panicked")) };
        expect_failed(answer, "a read that is awaited")?;
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
    let mut answers = Vec::new();
    for read in behind {
        answers.push(read?.wait());
    }
    let error = expect_failed(stream.synchronize(), "the stream that failed")?;
    for answer in answers {
        match answer {
            Err(answer) => is_the_same(&answer, &error, "a read behind a failure")?,
            // It was in the queue already.
            Ok(read) if drivers_queue => expect_bytes(&read, &[3; LEN], "a read behind a failure")?,
            Ok(_) => return Err(Failure::new("a read behind work that failed says that all is well")),
        }
    }
    expect_bytes(&stream.read(&other, 0..LEN)?.wait()?, &[3; LEN], "a read after the error was told")
}

fn events_behind_a_failure(context: &Context) -> Result<(), Failure> {
    let Scene { stream, buffer, drivers_queue } = scene(context)?;
    let release = hold_back(&stream)?;
    let before = stream.record()?;
    failing_write(&stream, &buffer, 1)?;
    let behind = [stream.record()?, stream.record()?];
    drop(release);
    before.synchronize()?;
    let mut answers = Vec::new();
    for event in &behind {
        answers.push(event.synchronize());
        answers.push(event.query().map(drop));
    }
    let error = expect_failed(stream.synchronize(), "the stream that failed")?;
    // An event never changes.
    answers.extend(behind.iter().map(Event::synchronize));
    for answer in answers {
        match answer {
            Err(answer) if drivers_queue => drop(answer),
            Err(answer) => is_the_same(&answer, &error, "an event behind a failure")?,
            Ok(()) if drivers_queue => {}
            Ok(()) => return Err(Failure::new("an event behind work that failed says that all is well")),
        }
    }
    ensure!(before.query()?, "the event before the failure was done, and is not any more");
    stream.record()?.synchronize()?;
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
        "the driver has queues of its own, which may execute work that is already in them"
    );
    let (behind, later) = (context.filled(&[3; LEN])?, context.filled(&[4; LEN])?);
    let source = context.filled(&[5; LEN])?;
    let ran = Arc::new(AtomicBool::new(false));
    let runs = Arc::clone(&ran);
    let release = hold_back(&stream)?;
    failing_write(&stream, &buffer, 1)?;
    stream.write(&behind, 0, vec![1; LEN])?;
    stream.fill(&behind, 0..LEN, &[1])?;
    stream.copy(&source, 0..LEN, &behind, 0)?;
    stream.call(move || runs.store(true, Ordering::SeqCst))?;
    let event = stream.record()?;
    drop(release);
    expect_failed(event.synchronize(), "an event behind the failure")?;
    // Now it has failed, and nobody was told by the stream.
    stream.write(&later, 0, vec![1; LEN])?;
    expect_failed(stream.synchronize(), "the stream")?;
    ensure!(!ran.load(Ordering::SeqCst), "a host call behind a failure ran");
    expect_content(&behind, &[3; LEN], "memory that skipped work was for")?;
    expect_content(&later, &[4; LEN], "memory that work was for which was put in before the error was told")
}

fn work_after_the_telling_is_done(context: &Context) -> Result<(), Failure> {
    let Scene { stream, buffer, .. } = scene(context)?;
    for round in 0..20 {
        failing_write(&stream, &buffer, round)?;
        expect_failed(stream.synchronize(), "a write that fails")?;
        stream.fill(&buffer, 0..LEN, &[round])?;
        let event = stream.record()?;
        event.synchronize()?;
        expect_content(&buffer, &[round; LEN], format_args!("after failure {round} was told"))?;
    }
    Ok(())
}

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

/// One of each kind of function that blocks and copies.
type Blocking = fn(&Buffer, &Buffer) -> Result<(), DeviceError>;

const BLOCKING: [(&str, Blocking); 4] = [
    ("write", |buffer, _| buffer.write(0, &[1; LEN])),
    ("read", |buffer, _| buffer.read(0, &mut [0; LEN])),
    ("copy", |buffer, other| buffer.copy_from(0, other, 0..LEN)),
    ("fill", |buffer, _| buffer.fill(0..LEN, &[2])),
];

fn a_blocking_copy_that_fails(context: &Context) -> Result<(), Failure> {
    let (buffer, other) = (context.filled(&[BEFORE; LEN])?, context.filled(&[1; LEN])?);
    for (kind, copy) in BLOCKING {
        for _ in 0..3 {
            fail_next_copy(context.device())?;
            let error = expect_failed(copy(&buffer, &other), kind)?;
            is_about(&error, context.device())?;
            copy(&buffer, &other)?;
        }
        let expected = if kind == "fill" { [2; LEN] } else { [1; LEN] };
        expect_content(&buffer, &expected, format_args!("after a {kind} behind one that failed"))?;
        // It was the caller's, and nobody else is told.
        context.device().synchronize()?;
    }
    Ok(())
}

fn a_failed_copy_touches_nothing_else(context: &Context) -> Result<(), Failure> {
    let third = 40 * context.alignment();
    let before = bytes(1, 3 * third);
    let (buffer, other) = (context.filled(&before)?, context.filled(&before)?);
    let neighbour = context.filled(&before)?;
    type Part = fn(&Buffer, &Buffer, usize) -> Result<(), DeviceError>;
    let copies: [(&str, Part); 3] = [
        ("write", |buffer, _, third| buffer.write(third, &vec![1; third])),
        ("copy", |buffer, other, third| buffer.copy_from(third, other, 0..third)),
        ("fill", |buffer, _, third| buffer.fill(third..2 * third, &[1])),
    ];
    for (kind, copy) in copies {
        fail_next_copy(context.device())?;
        expect_failed(copy(&buffer, &other, third), kind)?;
        let now = content(&buffer)?;
        for part in [0..third, 2 * third..3 * third] {
            expect_bytes(&now[part.clone()], &before[part], format_args!("beside a {kind} that failed"))?;
        }
        expect_content(&other, &before, format_args!("the source of a {kind} that failed"))?;
        expect_content(&neighbour, &before, format_args!("other memory than that of a {kind} that failed"))?;
    }
    Ok(())
}

fn the_nth_copy_fails(context: &Context) -> Result<(), Failure> {
    let buffer = context.filled(&[BEFORE; LEN])?;
    for nth in [1, 2, 3, 7] {
        inject(context.device(), Fault::FailCopy { nth })?;
        for number in 1..=2 * nth {
            let outcome = buffer.write(0, &[number as u8; LEN]);
            // Allocations are no copies, and are not counted.
            drop(context.allocate(16)?);
            match (number == nth, outcome) {
                (true, outcome) => {
                    drop(expect_failed(outcome, &format!("write {number}, which was to fail"))?)
                }
                (false, Ok(())) => {}
                (false, Err(error)) => {
                    return Err(Failure::new(format_args!(
                        "write {nth} was to fail, and write {number} did: {error}"
                    )));
                }
            }
        }
        expect_content(&buffer, &[2 * nth as u8; LEN], "after the fault")?;
    }
    Ok(())
}

fn the_last_of_a_kind_counts(context: &Context) -> Result<(), Failure> {
    let buffer = context.filled(&[BEFORE; LEN])?;
    inject(context.device(), Fault::FailCopy { nth: 1 })?;
    inject(context.device(), Fault::FailAllocation { nth: 2 })?;
    inject(context.device(), Fault::FailCopy { nth: 3 })?;
    buffer.write(0, &[1; LEN])?;
    buffer.write(0, &[2; LEN])?;
    expect_failed(buffer.write(0, &[3; LEN]), "the third write")?;
    buffer.write(0, &[4; LEN])?;
    drop(context.allocate(16)?);
    refused(context.device(), 16, "the second allocation, with a fault of each kind")?;
    expect_content(&buffer, &[4; LEN], "after the fault")
}

/// An allocation that is out of memory although there is some.
fn refused(device: Device, len: usize, what: &str) -> Result<(), Failure> {
    let error = expect_failed(device.allocate(len), what)?;
    is_about(&error, device)?;
    match kind(&error) {
        Some(BackendErrorKind::OutOfMemory { asked, .. }) => {
            ensure!(asked == len as u64, "{len} bytes were asked for, and the error tells {asked}: {error}");
            Ok(())
        }
        _ => Err(Failure::new(format_args!("{what}: expected an out-of-memory error, got: {error}"))),
    }
}

fn a_failed_allocation(context: &Context) -> Result<(), Failure> {
    for nth in [1, 2, 5] {
        inject(context.device(), Fault::FailAllocation { nth })?;
        let mut held = Vec::new();
        for number in 1..nth {
            held.push(context.filled(&[number as u8; 1000])?);
        }
        refused(context.device(), 1000, &format!("allocation {nth}, which was to fail"))?;
        held.push(context.filled(&[nth as u8; 1000])?);
        for (index, buffer) in held.iter().enumerate() {
            expect_content(buffer, &[index as u8 + 1; 1000], "memory beside an allocation that failed")?;
        }
    }
    Ok(())
}

fn a_failed_allocation_harms_no_work(context: &Context) -> Result<(), Failure> {
    let Scene { stream, buffer, .. } = scene(context)?;
    for round in 0..10 {
        let release = hold_back(&stream)?;
        stream.fill(&buffer, 0..LEN, &[round])?;
        let read = stream.read(&buffer, 0..LEN)?;
        inject(context.device(), Fault::FailAllocation { nth: 1 })?;
        refused(context.device(), 1000, "an allocation beside work")?;
        drop(release);
        expect_bytes(&read.wait()?, &[round; LEN], "work beside an allocation that failed")?;
        is_well(&stream, "beside an allocation that failed")?;
    }
    Ok(())
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

/// Three streams, of which one stalls, with what each writes and the event behind it.
struct Stalled {
    buffers: Vec<Buffer>,
    streams: Vec<Stream>,
    events: Vec<Event>,
    which: usize,
}

/// Has one of three streams stall: whichever comes first.
fn stall(context: &Context) -> Result<Stalled, Failure> {
    ensure_concurrent(context)?;
    let streams: Vec<_> = (0..3).map(|_| context.stream()).collect::<Result<_, _>>()?;
    let buffers: Vec<_> = (0..3).map(|_| context.filled(&[BEFORE; LEN])).collect::<Result<_, _>>()?;
    inject(context.device(), Fault::Stall { nth: 1 })?;
    let mut events = Vec::new();
    for (stream, buffer) in streams.iter().zip(&buffers) {
        stream.write(buffer, 0, vec![1; LEN])?;
        events.push(stream.record()?);
    }
    let is_done = |event: &Event| event.query();
    let two_are = until(context.limit(), || {
        let done = events.iter().map(is_done).collect::<Result<Vec<_>, _>>()?;
        Ok(done.iter().filter(|&&done| done).count() >= 2)
    })?;
    ensure!(two_are, "of three streams one was to stall, and two of them do not go on");
    thread::sleep(Duration::from_millis(20));
    for (which, event) in events.iter().enumerate() {
        if !event.query()? {
            return Ok(Stalled { buffers, streams, events, which });
        }
    }
    Err(Failure::new("of three streams one was to stall, and all go on"))
}

fn ensure_concurrent(context: &Context) -> Result<(), Failure> {
    ensure_supported!(
        context.properties().concurrent_streams,
        "the device declares that its streams are not concurrent"
    );
    Ok(())
}

impl Stalled {
    /// Lets it go on, and looks at what it wrote.
    fn goes_on(self, device: Device) -> Result<(), Failure> {
        device.clear_faults()?;
        for (stream, event) in self.streams.iter().zip(&self.events) {
            event.synchronize()?;
            stream.synchronize()?;
        }
        self.buffers.iter().try_for_each(|buffer| expect_content(buffer, &[1; LEN], "after a stall"))
    }
}

fn a_stall_holds_up_no_other_stream(context: &Context) -> Result<(), Failure> {
    let stalled = stall(context)?;
    for (index, stream) in stalled.streams.iter().enumerate().filter(|&(index, _)| index != stalled.which) {
        works(stream, "while another stream stalls")?;
        expect_content(&stalled.buffers[index], &[1; LEN], "what was written beside a stall")?;
    }
    works(&context.stream()?, "by a stream that was made during a stall")?;
    let fresh = context.filled(&bytes(1, LEN))?;
    expect_content(&fresh, &bytes(1, LEN), "by functions that block, during a stall")?;
    stalled.goes_on(context.device())
}

fn a_stall_holds_up_no_peer(context: &Context) -> Result<(), Failure> {
    let (peer, stalled) = (context.peer()?, stall(context)?);
    works(&peer.create_stream()?, "on a peer, during a stall")?;
    let there = filled(peer, &bytes(1, LEN))?;
    expect_content(&there, &bytes(1, LEN), "by functions that block, on a peer")?;
    peer.synchronize()?;
    stalled.goes_on(context.device())
}

fn a_stall_holds_up_no_cpu(context: &Context) -> Result<(), Failure> {
    let stalled = stall(context)?;
    works(&Device::cpu().create_stream()?, "on the cpu, during a stall")?;
    let there = filled(Device::cpu(), &bytes(1, LEN))?;
    expect_content(&there, &bytes(1, LEN), "by functions that block, on the cpu")?;
    stalled.goes_on(context.device())
}

fn what_stalls_is_not_done(context: &Context) -> Result<(), Failure> {
    let stalled = stall(context)?;
    let (stream, buffer) = (&stalled.streams[stalled.which], &stalled.buffers[stalled.which]);
    let read = stream.read(buffer, 0..LEN)?;
    for _ in 0..10 {
        ensure!(!stream.query()?, "a stream that stalls says that all its work is done");
        ensure!(!stalled.events[stalled.which].query()?, "an event behind a stall says that it is done");
        ensure!(!read.is_ready(), "a read behind a stall says that it is done");
        thread::sleep(Duration::from_millis(2));
    }
    stalled.goes_on(context.device())?;
    expect_bytes(&read.wait()?, &[1; LEN], "a read behind a stall that is over")
}

fn what_stalls_goes_on(context: &Context) -> Result<(), Failure> {
    for _ in 0..3 {
        let (stream, buffer) = (context.stream()?, context.filled(&[BEFORE; LEN])?);
        let expected = bytes(2, LEN);
        inject(context.device(), Fault::Stall { nth: 2 })?;
        stream.fill(&buffer, 0..LEN, &[1])?;
        stream.write(&buffer, 0, expected.clone())?;
        let read = stream.read(&buffer, 0..LEN)?;
        let waiting = thread::spawn({
            let stream = stream.clone();
            move || stream.synchronize()
        });
        thread::sleep(Duration::from_millis(10));
        ensure!(!read.is_ready() && !waiting.is_finished(), "nobody was to come past a stall");
        context.device().clear_faults()?;
        expect_bytes(&read.wait()?, &expected, "a read behind a stall that is over")?;
        match waiting.join() {
            Ok(outcome) => outcome?,
            Err(_) => return Err(Failure::new("a thread that waited for a stall panicked")),
        }
        works(&stream, "after a stall")?;
    }
    Ok(())
}

fn dropping_what_stalls(context: &Context) -> Result<(), Failure> {
    let held_before = context.device().memory_statistics()?.live;
    let Stalled { buffers, streams, events, which } = stall(context)?;
    let reads: Vec<_> = streams
        .iter()
        .zip(&buffers)
        .map(|(stream, buffer)| stream.read(buffer, 0..LEN))
        .collect::<Result<_, _>>()?;
    let kept = buffers[which].clone();
    drop((streams, buffers, events, reads));
    // And what comes in their place is not touched.
    let others: Vec<_> = (0..4).map(|_| context.filled(&[0xDD; LEN])).collect::<Result<_, _>>()?;
    context.device().clear_faults()?;
    context.device().synchronize()?;
    expect_content(&kept, &[1; LEN], "what a dropped stream that stalled had to write")?;
    others.iter().try_for_each(|other| expect_content(other, &[0xDD; LEN], "memory that came later"))?;
    drop((kept, others));
    let freed = until(context.limit(), || Ok(context.device().memory_statistics()?.live <= held_before))?;
    ensure!(freed, "memory of work that stalled is not freed when it is done");
    Ok(())
}

fn a_slow_device_is_right(context: &Context) -> Result<(), Failure> {
    const BY: Duration = Duration::from_millis(10);
    let (first, second) = (context.stream()?, context.stream()?);
    let (buffer, copy) = (context.filled(&[BEFORE; LEN])?, context.filled(&[BEFORE; LEN])?);
    inject(context.device(), Fault::Slow { by: BY })?;
    let begun = Instant::now();
    for round in 0..4 {
        let expected = bytes(round, LEN);
        first.write(&buffer, 0, expected.clone())?;
        second.wait(&first.record()?)?;
        second.copy(&buffer, 0..LEN, &copy, 0)?;
        first.wait(&second.record()?)?;
        let read = second.read(&copy, 0..LEN)?;
        expect_bytes(&read.wait()?, &expected, "read from a slow device")?;
    }
    let took = begun.elapsed();
    // Each round is a write, a copy and a read, one after the other.
    ensure!(took >= 12 * BY, "12 operations that each take {BY:?} longer took {took:?} together");
    expect_content(&copy, &bytes(3, LEN), "on a slow device, by functions that block")?;
    context.device().clear_faults()?;
    works(&first, "when the device is not slow any more")
}

fn cleared_faults_do_not_happen(context: &Context) -> Result<(), Failure> {
    let stream = context.stream()?;
    let all = [
        Fault::FailAllocation { nth: 1 },
        Fault::FailCopy { nth: 1 },
        Fault::LoseDevice { nth: 1 },
        Fault::Stall { nth: 1 },
        Fault::Slow { by: Duration::from_secs(3600) },
    ];
    for faults in [&all[..], &all[..1], &all[1..2], &all[2..3], &all[3..4], &all[4..]] {
        for &fault in faults {
            match context.device().inject(fault) {
                Err(error) if kind(&error) == Some(BackendErrorKind::Unsupported) => {}
                other => other?,
            }
        }
        context.device().clear_faults()?;
        works(&stream, "after faults that were cleared")?;
        is_well(&stream, "after faults that were cleared")?;
    }
    // To clear where there are none is fine.
    context.device().clear_faults()?;
    Ok(())
}
