//! Reads, threads and tasks that wait when the device is lost.

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use device_registry::{DeviceError, Event, Fault, HostBuffer, Stream};

use super::{LEN, works};
use crate::busy::hold_back;
use crate::check::Check;
use crate::context::{Context, expect_bytes, in_threads};
use crate::failure::{Failure, ensure};
use crate::fault_injection::{expect_lost, inject, lose, reset, until};

pub(super) const CHECKS: &[Check] = &[
    loss_check!(reads_in_the_queue_are_told, "reads in the queue of a lost device return that it is lost"),
    loss_check!(
        threads_that_wait_wake_up,
        "threads that wait for a stream, an event or a read wake up when the device is lost"
    ),
    loss_check!(
        a_thread_that_waits_for_the_device_wakes_up,
        "a thread that synchronizes a device wakes up when the device is lost"
    ),
    loss_check!(a_task_that_awaits_wakes_up, "a task that awaits a read wakes up when the device is lost"),
    loss_check!(
        a_loss_without_a_call_wakes_them_up,
        "threads that wait wake up when the driver finds the device lost and no call returns"
    ),
    loss_check!(many_threads_are_told, "eight threads that use a device all get the error when it is lost"),
];

fn reads_in_the_queue_are_told(context: &Context) -> Result<(), Failure> {
    for _ in 0..3 {
        let stream = context.stream()?;
        let buffer = context.filled(&[1; LEN])?;
        let before = stream.read(&buffer, 0..LEN)?.wait()?;
        expect_bytes(&before, &[1; LEN], "a read before the loss")?;
        let release = hold_back(&stream)?;
        let reads: Vec<_> = (0..10).map(|_| stream.read(&buffer, 0..LEN)).collect::<Result<_, _>>()?;
        let own = stream.read_into(&buffer, 0, HostBuffer::from(vec![0; LEN]))?;
        lose(context.device())?;
        drop(release);
        for (index, read) in reads.into_iter().chain([own]).enumerate() {
            expect_lost(read.wait(), &format!("read {index} that waited in the queue"))?;
        }
        reset(context.device())?;
    }
    Ok(())
}

/// Makes a stream stall. Returns the event behind the stall.
fn stalled_stream(context: &Context) -> Result<(Stream, Event), Failure> {
    let stream = context.stream()?;
    let buffer = context.filled(&[1; LEN])?;
    inject(context.device(), Fault::Stall { nth: 1 })?;
    stream.write(&buffer, 0, vec![2; LEN])?;
    stream.write(&buffer, 0, vec![3; LEN])?;
    let event = stream.record()?;
    // The next operation must not be the one that stalls.
    thread::sleep(Duration::from_millis(20));
    Ok((stream, event))
}

/// Expects every thread to end with an error that the device is lost.
fn expect_all_lost(
    context: &Context,
    waiting: Vec<(&str, thread::JoinHandle<Result<(), DeviceError>>)>,
) -> Result<(), Failure> {
    for (what, thread) in waiting {
        let ended = until(context.limit() / 4, || Ok(thread.is_finished()))?;
        ensure!(ended, "{what}: expected it to end when the device is lost, and it still waits");
        match thread.join() {
            Ok(outcome) => drop(expect_lost(outcome, what)?),
            Err(_) => return Err(Failure::new(format_args!("{what}: the thread panicked"))),
        }
    }
    Ok(())
}

fn threads_that_wait_wake_up(context: &Context) -> Result<(), Failure> {
    let buffers: Vec<_> = (0..3).map(|_| context.filled(&[1; LEN])).collect::<Result<_, _>>()?;
    let spare = context.filled(&[1; 16])?;
    let (_stalled, event) = stalled_stream(context)?;
    // Each thread has its own stream, because a stream reports its error once.
    let mut streams = Vec::new();
    for buffer in &buffers {
        let stream = context.stream()?;
        stream.wait_event(&event)?;
        stream.write(buffer, 0, vec![4; LEN])?;
        streams.push(stream);
    }
    let behind = streams[1].record()?;
    let read = streams[2].read(&buffers[2], 0..LEN)?;
    let stream = streams[0].clone();
    let waiting = vec![
        ("a thread that waits for a stream", thread::spawn(move || stream.synchronize())),
        ("a thread that waits for an event", thread::spawn(move || behind.synchronize())),
        ("a thread that waits for a read", thread::spawn(move || read.wait().map(drop))),
    ];
    thread::sleep(Duration::from_millis(10));
    for (what, thread) in &waiting {
        ensure!(!thread.is_finished(), "{what}: expected it to wait for a stalled stream, and it ended");
    }
    inject(context.device(), Fault::LoseDevice { nth: 1 })?;
    expect_lost(spare.write(0, &[1; 16]), "a write that finds the device lost")?;
    // The loss of the device may not end the stall.
    context.device().faults().and_then(|faults| faults.clear())?;
    expect_all_lost(context, waiting)
}

fn a_thread_that_waits_for_the_device_wakes_up(context: &Context) -> Result<(), Failure> {
    let device = context.device();
    let spare = context.filled(&[1; 16])?;
    let (_stalled, _) = stalled_stream(context)?;
    let waiting = vec![("a thread that waits for the device", thread::spawn(move || device.synchronize()))];
    thread::sleep(Duration::from_millis(10));
    ensure!(!waiting[0].1.is_finished(), "expected the thread to wait for a stalled stream, and it ended");
    inject(device, Fault::LoseDevice { nth: 1 })?;
    expect_lost(spare.write(0, &[1; 16]), "a write that finds the device lost")?;
    device.faults().and_then(|faults| faults.clear())?;
    expect_all_lost(context, waiting)
}

fn a_task_that_awaits_wakes_up(context: &Context) -> Result<(), Failure> {
    let stream = context.stream()?;
    let buffer = context.filled(&[1; LEN])?;
    let release = hold_back(&stream)?;
    let read = stream.read(&buffer, 0..LEN)?;
    let waiting =
        vec![("a task that awaits a read", thread::spawn(move || pollster::block_on(read).map(drop)))];
    thread::sleep(Duration::from_millis(5));
    lose(context.device())?;
    drop(release);
    expect_all_lost(context, waiting)
}

fn a_loss_without_a_call_wakes_them_up(context: &Context) -> Result<(), Failure> {
    let device = context.device();
    for round in 1..=3 {
        let stream = context.stream()?;
        let buffer = context.filled(&[1; LEN])?;
        let release = hold_back(&stream)?;
        let read = stream.read(&buffer, 0..LEN)?;
        let event = stream.record()?;
        let synchronizes = stream.clone();
        let waiting = vec![
            ("a thread that waits for a read", thread::spawn(move || read.wait().map(drop))),
            ("a thread that waits for an event", thread::spawn(move || event.synchronize())),
            ("a thread that waits for a stream", thread::spawn(move || synchronizes.synchronize())),
            ("a thread that waits for the device", thread::spawn(move || device.synchronize())),
        ];
        thread::sleep(Duration::from_millis(10));
        inject(device, Fault::Unplug)?;
        // The stream is still held back.
        expect_all_lost(context, waiting)?;
        ensure!(device.is_lost(), "the device is not lost after it was unplugged");
        expect_lost(device.allocate(1), "an allocation on a device that was unplugged")?;
        drop(release);
        reset(device)?;
        works(device, &format!("after a reset, in round {round}"))?;
    }
    Ok(())
}

fn many_threads_are_told(context: &Context) -> Result<(), Failure> {
    for round in 1..=3 {
        inject(context.device(), Fault::LoseDevice { nth: 100 * round })?;
        let (sender, errors) = mpsc::channel();
        in_threads(8, |index| {
            let sender = sender.clone();
            let work = || -> Result<(), DeviceError> {
                let stream = context.device().create_stream()?;
                // Ends only when the injected loss happens.
                loop {
                    let buffer = context.device().allocate(500)?;
                    stream.write(&buffer, 0, vec![index as u8; 500])?;
                    stream.read(&buffer, 0..500)?.wait()?;
                    buffer.fill(0..500, &[1])?;
                    stream.record()?.synchronize()?;
                    stream.synchronize()?;
                }
            };
            expect_lost(work(), "a thread that uses the device")?;
            let _ = sender.send(());
            Ok(())
        })?;
        drop(sender);
        ensure!(errors.into_iter().count() == 8, "some of eight threads got no error");
        reset(context.device())?;
        works(context.device(), "after threads found the device lost")?;
    }
    Ok(())
}
