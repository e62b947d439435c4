//! A device that is lost: who is told, who goes on, and how it comes back.
//!
//! What can be lost to order has to be resettable, so that these checks can be run in one process with all others.

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use device_registry::{
    BackendErrorKind, Buffer, Device, DeviceError, Event, EventOptions, Fault, HostBuffer, Pending, Stream,
    StreamGuard,
};

use super::check;
use super::drops::orders;
use super::events::hold_back;
use crate::check::{Check, Need};
use crate::context::{Context, bytes, expect_bytes, expect_content, filled, in_threads};
use crate::failure::{Failure, ensure};
use crate::fault_injection::{expect_error, expect_lost, inject, kind, lose, reset, until};

/// A check that takes the device away.
macro_rules! loss_check {
    ($check:ident, $proves:literal) => {
        check!(loss::$check, $proves).needs(&[Need::Faults]).leaves_failures()
    };
}

pub(super) const CHECKS: &[Check] = &[
    check!(
        loss::what_is_not_lost_is_not_reset,
        "a reset of a device that is not lost is an error of its own, and changes nothing"
    ),
    loss_check!(
        the_call_that_finds_it_says_so,
        "an operation of each kind that finds the device lost says so, and not another error"
    ),
    loss_check!(
        work_in_a_queue_finds_it,
        "work in a stream that finds the device lost tells so by its stream"
    ),
    loss_check!(the_nth_operation_finds_it, "the device is lost at the operation that it was ordered for"),
    loss_check!(
        every_later_call_says_so,
        "whatever is asked of a lost device and what is on it, the answer is that it is lost"
    ),
    loss_check!(it_is_still_counted, "a lost device is still counted, and says what it is"),
    loss_check!(
        clearing_the_faults_brings_nothing_back,
        "a device that was lost stays so when the faults are cleared"
    ),
    loss_check!(reads_in_the_queue_are_told, "reads that wait in a queue of a device that is lost are told"),
    loss_check!(
        threads_that_wait_wake_up,
        "threads that wait for a stream, an event or a read are told when the device is lost"
    ),
    loss_check!(
        a_thread_that_waits_for_the_device_wakes_up,
        "a thread that waits for all streams of a device is told when it is lost"
    ),
    loss_check!(a_task_that_awaits_wakes_up, "a task that awaits a read is told when the device is lost"),
    loss_check!(many_threads_are_told, "eight threads that use a device when it is lost are all told"),
    loss_check!(
        other_devices_go_on,
        "a peer does its work when a device is lost, with what its memory holds"
    )
    .needs(&[Need::Faults, Need::Peer]),
    loss_check!(
        copies_with_it_harm_no_peer,
        "copies from a lost device to a peer and back are errors, and the peer goes on"
    )
    .needs(&[Need::Faults, Need::Peer]),
    loss_check!(
        who_waits_for_it_is_told,
        "a peer's stream that waits for an event of a device that is lost is told, and goes on"
    )
    .needs(&[Need::Faults, Need::Peer]),
    loss_check!(
        the_cpu_goes_on,
        "the cpu goes on when a device is lost, also where it waits for it and copies from it"
    )
    .uses_cpu(),
    loss_check!(
        dropping_what_was_on_it,
        "buffers, streams, events and reads of a lost device can be dropped in every order"
    ),
    loss_check!(
        what_was_on_it_is_let_go,
        "what is dropped of a lost device is not counted as allocated any more"
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
        dropping_what_is_old,
        "what belonged to a device before a reset can be dropped after it, and nothing new is touched"
    ),
    loss_check!(
        the_current_stream_is_a_new_one,
        "functions that block use the new device after a reset, whatever stream was the current one before"
    ),
    loss_check!(again_and_again, "a device that was reset can be lost and reset again, many times"),
];

const LEN: usize = 2000;

/// A device does what it is asked to, by functions that block and by streams.
fn works(device: Device, what: &str) -> Result<(), Failure> {
    let expected = bytes(0x55, LEN);
    expect_content(&filled(device, &expected)?, &expected, what)?;
    let (stream, buffer) = (device.create_stream()?, device.allocate(LEN)?);
    stream.write(&buffer, 0, expected.clone())?;
    let read = stream.read(&buffer, 0..LEN)?.wait()?;
    expect_bytes(&read, &expected, what)?;
    stream.record()?.synchronize()?;
    Ok(stream.synchronize()?)
}

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

fn the_call_that_finds_it_says_so(context: &Context) -> Result<(), Failure> {
    type Call = fn(&Buffer, &Buffer) -> Result<(), DeviceError>;
    let calls: [(&str, Call); 5] = [
        ("allocate", |buffer, _| buffer.device().allocate(16).map(drop)),
        ("write", |buffer, _| buffer.write(0, &[1; LEN])),
        ("read", |buffer, _| buffer.read(0, &mut [0; LEN])),
        ("copy", |buffer, other| buffer.copy_from(0, other, 0..LEN)),
        ("fill", |buffer, _| buffer.fill(0..LEN, &[1])),
    ];
    for (name, call) in calls {
        let (buffer, other) = (context.filled(&[1; LEN])?, context.filled(&[2; LEN])?);
        inject(context.device(), Fault::LoseDevice { nth: 1 })?;
        expect_lost(call(&buffer, &other), name)?;
        expect_lost(call(&buffer, &other), name)?;
        reset(context.device())?;
    }
    works(context.device(), "after the last reset")
}

fn work_in_a_queue_finds_it(context: &Context) -> Result<(), Failure> {
    for round in 0..5 {
        let (stream, buffer) = (context.stream()?, context.filled(&[1; LEN])?);
        let release = hold_back(&stream)?;
        inject(context.device(), Fault::LoseDevice { nth: 2 })?;
        stream.fill(&buffer, 0..LEN, &[2])?;
        // A driver's own queue may refuse what finds the device lost.
        let put_in = stream.write(&buffer, 0, vec![3; LEN]);
        drop(release);
        expect_lost(put_in.and_then(|()| stream.synchronize()), "work in a stream")?;
        expect_lost(context.device().allocate(16), "an allocation behind it")?;
        expect_lost(stream.query(), &format!("the stream, asked again in round {round}"))?;
        reset(context.device())?;
    }
    works(context.device(), "after the last reset")
}

fn the_nth_operation_finds_it(context: &Context) -> Result<(), Failure> {
    for nth in [1, 2, 5] {
        let buffer = context.filled(&[0; LEN])?;
        inject(context.device(), Fault::LoseDevice { nth })?;
        for number in 1..nth {
            buffer.write(0, &[number as u8; LEN]).map_err(|error| {
                Failure::new(format_args!(
                    "operation {nth} was to find it lost, and number {number} did: {error}"
                ))
            })?;
        }
        expect_lost(buffer.write(0, &[0; LEN]), &format!("operation {nth}"))?;
        reset(context.device())?;
    }
    Ok(())
}

/// What there is on a device, and what can be asked of it.
struct Things {
    buffer: Buffer,
    stream: Stream,
    event: Event,
}

impl Things {
    fn new(device: Device) -> Result<Self, Failure> {
        let (buffer, stream) = (filled(device, &[1; LEN])?, device.create_stream()?);
        stream.fill(&buffer, 0..LEN, &[2])?;
        let event = stream.record()?;
        stream.synchronize()?;
        Ok(Self { buffer, stream, event })
    }

    /// Asks all of it, each once.
    fn ask(&self) -> Vec<(&'static str, Result<(), DeviceError>)> {
        let Self { buffer, stream, event } = self;
        vec![
            ("write", buffer.write(0, &[3; LEN])),
            ("read", buffer.read(0, &mut [0; LEN])),
            ("copy", buffer.copy_from(0, buffer, LEN / 2..LEN)),
            ("fill", buffer.fill(0..LEN, &[3])),
            ("a write by the stream", stream.write(buffer, 0, vec![3; LEN])),
            ("a read by the stream", stream.read(buffer, 0..LEN).and_then(Pending::wait).map(drop)),
            ("a copy by the stream", stream.copy(buffer, 0..LEN / 2, buffer, LEN / 2)),
            ("a fill by the stream", stream.fill(buffer, 0..LEN, &[3])),
            ("a host call", stream.call(|| ())),
            ("a kernel", stream.launch(&[buffer], |_| Ok(()))),
            ("recording an event", stream.record().map(drop)),
            ("waiting for an event", stream.wait(event)),
            ("asking the stream", stream.query().map(drop)),
            ("synchronizing the stream", stream.synchronize()),
            ("asking the event", event.query().map(drop)),
            ("synchronizing the event", event.synchronize()),
        ]
    }
}

fn every_later_call_says_so(context: &Context) -> Result<(), Failure> {
    let device = context.device();
    let things = Things::new(device)?;
    let first = lose(device)?;
    let Some(first) = first.backend_error() else { return Err(Failure::new("it is an error of a backend")) };
    for round in 0..3 {
        let mut calls = things.ask();
        calls.extend([
            ("opening", device.open()),
            ("allocating", device.allocate(16).map(drop)),
            ("making a stream", device.create_stream().map(drop)),
            ("memory info", device.memory_info().map(drop)),
            ("synchronizing the device", device.synchronize()),
            ("a fault", device.inject(Fault::FailCopy { nth: 1 })),
        ]);
        for (name, outcome) in calls {
            let error = expect_lost(outcome, &format!("{name}, in round {round}"))?;
            // The same reason, whoever asks.
            let said = error.to_string();
            ensure!(said.contains(first.message()), "{name}: expected the reason `{first}`, got: {said}");
            ensure!(
                said.contains(&format!("`{device}`")),
                "{name}: it is not told which device is lost: {said}"
            );
        }
    }
    Ok(())
}

fn it_is_still_counted(context: &Context) -> Result<(), Failure> {
    let count = context.device().count()?;
    lose(context.device())?;
    let again = context.device().count()?;
    ensure!(again == count, "there were {count} devices, and with one lost there are {again}");
    let properties = context.device().properties()?;
    ensure!(
        properties == *context.properties(),
        "a lost device says another thing of itself: {properties:?}"
    );
    reset(context.device())?;
    let properties = context.device().properties()?;
    ensure!(
        properties == *context.properties(),
        "a device that was reset says another thing: {properties:?}"
    );
    Ok(())
}

fn clearing_the_faults_brings_nothing_back(context: &Context) -> Result<(), Failure> {
    let things = Things::new(context.device())?;
    lose(context.device())?;
    for _ in 0..2 {
        context.device().clear_faults()?;
        things.ask().into_iter().try_for_each(|(name, outcome)| expect_lost(outcome, name).map(drop))?;
        expect_lost(context.device().open(), "opening")?;
    }
    Ok(())
}

fn reads_in_the_queue_are_told(context: &Context) -> Result<(), Failure> {
    for _ in 0..3 {
        let (stream, buffer) = (context.stream()?, context.filled(&[1; LEN])?);
        let before = stream.read(&buffer, 0..LEN)?.wait()?;
        expect_bytes(&before, &[1; LEN], "a read before the loss")?;
        let release = hold_back(&stream)?;
        let reads: Vec<_> = (0..10).map(|_| stream.read(&buffer, 0..LEN)).collect::<Result<_, _>>()?;
        let own = stream.read_to(&buffer, 0, HostBuffer::from(vec![0; LEN]))?;
        lose(context.device())?;
        drop(release);
        for (index, read) in reads.into_iter().chain([own]).enumerate() {
            expect_lost(read.wait(), &format!("read {index} that waited in the queue"))?;
        }
        reset(context.device())?;
    }
    Ok(())
}

/// Has a stream stand still, and gives the event behind what it stands at.
fn standing_still(context: &Context) -> Result<(Stream, Event), Failure> {
    let (stream, buffer) = (context.stream()?, context.filled(&[1; LEN])?);
    inject(context.device(), Fault::Stall { nth: 1 })?;
    stream.write(&buffer, 0, vec![2; LEN])?;
    stream.write(&buffer, 0, vec![3; LEN])?;
    let event = stream.record()?;
    // What comes next must not be the operation that stalls.
    thread::sleep(Duration::from_millis(20));
    Ok((stream, event))
}

/// What threads come to, which have to end.
fn expect_all_lost(
    context: &Context,
    waiting: Vec<(&str, thread::JoinHandle<Result<(), DeviceError>>)>,
) -> Result<(), Failure> {
    for (what, thread) in waiting {
        let ended = until(context.limit() / 4, || Ok(thread.is_finished()))?;
        ensure!(ended, "{what}: the device is lost, and the thread still waits");
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
    let (_stalled, event) = standing_still(context)?;
    // Each waits for a stream of its own, because the error of one is told once.
    let mut streams = Vec::new();
    for buffer in &buffers {
        let stream = context.stream()?;
        stream.wait(&event)?;
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
        ensure!(!thread.is_finished(), "{what}: what it waits for stands still, and it does not wait");
    }
    inject(context.device(), Fault::LoseDevice { nth: 1 })?;
    expect_lost(spare.write(0, &[1; 16]), "a write that finds the device lost")?;
    // On a device that does not end by itself what stalls.
    context.device().clear_faults()?;
    expect_all_lost(context, waiting)
}

fn a_thread_that_waits_for_the_device_wakes_up(context: &Context) -> Result<(), Failure> {
    let (device, spare) = (context.device(), context.filled(&[1; 16])?);
    let (_stalled, _) = standing_still(context)?;
    let waiting = vec![("a thread that waits for the device", thread::spawn(move || device.synchronize()))];
    thread::sleep(Duration::from_millis(10));
    ensure!(!waiting[0].1.is_finished(), "a stream of the device stands still, and it is not waited for");
    inject(device, Fault::LoseDevice { nth: 1 })?;
    expect_lost(spare.write(0, &[1; 16]), "a write that finds the device lost")?;
    device.clear_faults()?;
    expect_all_lost(context, waiting)
}

fn a_task_that_awaits_wakes_up(context: &Context) -> Result<(), Failure> {
    let (stream, buffer) = (context.stream()?, context.filled(&[1; LEN])?);
    let release = hold_back(&stream)?;
    let read = stream.read(&buffer, 0..LEN)?;
    let waiting =
        vec![("a task that awaits a read", thread::spawn(move || pollster::block_on(read).map(drop)))];
    thread::sleep(Duration::from_millis(5));
    lose(context.device())?;
    drop(release);
    expect_all_lost(context, waiting)
}

fn many_threads_are_told(context: &Context) -> Result<(), Failure> {
    for round in 1..=3 {
        inject(context.device(), Fault::LoseDevice { nth: 100 * round })?;
        let (tell, told) = mpsc::channel();
        in_threads(8, |index| {
            let tell = tell.clone();
            let work = || -> Result<(), DeviceError> {
                let stream = context.device().create_stream()?;
                // Without end, unless the device does what it was told to.
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
            let _ = tell.send(());
            Ok(())
        })?;
        drop(tell);
        ensure!(told.into_iter().count() == 8, "some of eight threads were not told");
        reset(context.device())?;
        works(context.device(), "after threads were told that the device is lost")?;
    }
    Ok(())
}

fn other_devices_go_on(context: &Context) -> Result<(), Failure> {
    let (peer, expected) = (context.peer()?, bytes(3, LEN));
    let (there, stream) = (filled(peer, &expected)?, peer.create_stream()?);
    for what in ["with a peer lost", "after the peer was lost again"] {
        lose(context.device())?;
        expect_content(&there, &expected, what)?;
        expect_bytes(&stream.read(&there, 0..LEN)?.wait()?, &expected, what)?;
        works(peer, what)?;
        peer.synchronize()?;
        peer.memory_info()?;
        reset(context.device())?;
        works(peer, "after the peer was reset")?;
    }
    Ok(())
}

fn copies_with_it_harm_no_peer(context: &Context) -> Result<(), Failure> {
    let (peer, expected) = (context.peer()?, bytes(4, LEN));
    let (here, there) = (context.filled(&[1; LEN])?, filled(peer, &expected)?);
    let (stream, spare) = (peer.create_stream()?, peer.allocate(LEN)?);
    lose(context.device())?;
    for _ in 0..2 {
        expect_error(spare.copy_from(0, &here, 0..LEN), "a copy from a lost device to a peer")?;
        expect_lost(here.copy_from(0, &there, 0..LEN), "a copy from a peer to a lost device")?;
        let copied = stream.copy(&here, 0..LEN, &spare, 0).and_then(|()| stream.synchronize());
        expect_error(copied, "a copy from a lost device by a stream of a peer")?;
        expect_content(&there, &expected, "on a peer that copies with a lost device")?;
        works(peer, "on a peer that copies with a lost device")?;
        stream.synchronize()?;
    }
    reset(context.device())?;
    // What is old is on a lost device still.
    expect_error(spare.copy_from(0, &here, 0..LEN), "a copy to a peer from what a reset left behind")?;
    works(peer, "on a peer that copied from what a reset left behind")?;
    works(context.device(), "after the reset")
}

/// A stream of another device that waits for an event which the loss of this one takes away.
fn waits_and_is_told(context: &Context, other: Device) -> Result<(), Failure> {
    let (stream, buffer) = (context.stream()?, context.filled(&[1; LEN])?);
    let (waiting, there) = (other.create_stream()?, filled(other, &[3; LEN])?);
    let release = hold_back(&stream)?;
    stream.fill(&buffer, 0..LEN, &[2])?;
    waiting.wait(&stream.record()?)?;
    waiting.write(&there, 0, vec![4; LEN])?;
    lose(context.device())?;
    drop(release);
    expect_lost(waiting.synchronize(), "a stream that waits for an event of a lost device")?;
    expect_content(&there, &[3; LEN], "behind an event of a lost device")?;
    waiting.write(&there, 0, vec![5; LEN])?;
    waiting.synchronize()?;
    expect_content(&there, &[5; LEN], "by the stream that had waited")?;
    works(other, "on a device that had waited for one that is lost")
}

fn who_waits_for_it_is_told(context: &Context) -> Result<(), Failure> {
    waits_and_is_told(context, context.peer()?)
}

fn the_cpu_goes_on(context: &Context) -> Result<(), Failure> {
    let (cpu, here) = (Device::cpu(), context.filled(&[1; LEN])?);
    let kept = filled(cpu, &bytes(5, LEN))?;
    waits_and_is_told(context, cpu)?;
    expect_lost(cpu.allocate(LEN)?.copy_from(0, &here, 0..LEN), "a copy from a lost device to the cpu")?;
    expect_lost(here.copy_from(0, &kept, 0..LEN), "a copy from the cpu to a lost device")?;
    expect_content(&kept, &bytes(5, LEN), "on the cpu")?;
    works(cpu, "on the cpu, with a device lost")?;
    Ok(cpu.synchronize()?)
}

/// Drops a buffer, a stream, an event and a read, in some order.
fn drop_in_order(things: Things, read: Pending, order: &[usize]) {
    let Things { buffer, stream, event } = things;
    let (mut buffer, mut stream, mut event, mut read) = (Some(buffer), Some(stream), Some(event), Some(read));
    for which in order {
        match which {
            0 => drop(buffer.take()),
            1 => drop(stream.take()),
            2 => drop(event.take()),
            _ => drop(read.take()),
        }
    }
}

fn dropping_what_was_on_it(context: &Context) -> Result<(), Failure> {
    let mut all = Vec::new();
    for order in orders(4) {
        let things = Things::new(context.device())?;
        let release = hold_back(&things.stream)?;
        things.stream.fill(&things.buffer, 0..LEN, &[4])?;
        let read = things.stream.read(&things.buffer, 0..LEN)?;
        all.push((things, read, order, release));
    }
    lose(context.device())?;
    for (index, (things, read, order, release)) in all.into_iter().enumerate() {
        // Some while their work is still in the queue, some when it has failed.
        if index % 2 == 0 {
            drop_in_order(things, read, &order);
            drop(release);
        } else {
            drop(release);
            drop_in_order(things, read, &order);
        }
    }
    reset(context.device())?;
    works(context.device(), "after all was dropped")
}

fn what_was_on_it_is_let_go(context: &Context) -> Result<(), Failure> {
    let device = context.device();
    let before = device.memory_statistics()?.live;
    for index in 0..20 {
        let things = Things::new(device)?;
        things.stream.fill(&things.buffer, 0..LEN, &[index])?;
        drop(things.stream.read(&things.buffer, 0..LEN)?);
        if index == 10 {
            lose(device)?;
            break;
        }
    }
    let let_go = until(context.limit(), || Ok(device.memory_statistics()?.live <= before))?;
    let now = device.memory_statistics()?.live;
    ensure!(
        let_go,
        "{before} allocations were there before, and {now} after all was dropped on the lost device"
    );
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

fn dropping_what_is_old(context: &Context) -> Result<(), Failure> {
    let mut all = Vec::new();
    for order in orders(4) {
        let things = Things::new(context.device())?;
        let read = things.stream.read(&things.buffer, 0..LEN)?;
        all.push((things, read, order));
    }
    lose(context.device())?;
    reset(context.device())?;
    let expected = bytes(7, LEN);
    let new = context.filled(&expected)?;
    for (things, read, order) in all {
        drop_in_order(things, read, &order);
        expect_content(&new, &expected, format_args!("when what is old was dropped in order {order:?}"))?;
    }
    let statistics = context.device().memory_statistics()?;
    ensure!(statistics.live == 1, "one buffer is held, and the new device counts {}", statistics.live);
    works(context.device(), "when all that is old was dropped")
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
