//! A stream that stalls, and everything that does not wait for it.

use std::thread;
use std::time::Duration;

use device_registry::{Buffer, Device, Event, Fault, Stream};

use super::{BEFORE, LEN, works};
use crate::check::{Check, Need};
use crate::context::{Context, bytes, expect_bytes, expect_content, filled};
use crate::failure::{Failure, ensure, ensure_supported};
use crate::fault_injection::{inject, until};

pub(super) const CHECKS: &[Check] = &[
    fault_check!(
        a_stall_holds_up_no_other_stream,
        "while one stream stalls, the others of the device do their work"
    ),
    fault_check!(a_stall_holds_up_no_peer, "while a stream stalls, a peer does its work")
        .needs(&[Need::Faults, Need::Peer]),
    fault_check!(a_stall_holds_up_no_cpu, "while a stream stalls, the cpu does its work").uses_cpu(),
    fault_check!(what_stalls_is_not_done, "no query reports stalled work as done"),
    fault_check!(
        what_stalls_goes_on,
        "stalled work continues when the faults are cleared, with the right bytes"
    ),
    fault_check!(
        dropping_what_stalls,
        "streams, buffers, reads and events of stalled work can be dropped, without waiting for it"
    ),
];

/// Three streams, one of which stalls, each with its buffer and the event behind its write.
struct Stalled {
    buffers: Vec<Buffer>,
    streams: Vec<Stream>,
    events: Vec<Event>,
    which: usize,
}

/// Makes one of three streams stall: the first to execute its write.
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
    ensure!(two_are, "expected one of three streams to stall, and two of them do not continue");
    thread::sleep(Duration::from_millis(20));
    for (which, event) in events.iter().enumerate() {
        if !event.query()? {
            return Ok(Stalled { buffers, streams, events, which });
        }
    }
    Err(Failure::new("expected one of three streams to stall, and all continue"))
}

fn ensure_concurrent(context: &Context) -> Result<(), Failure> {
    ensure_supported!(
        context.properties().concurrent_streams,
        "the device declares that its streams are not concurrent"
    );
    Ok(())
}

impl Stalled {
    /// Ends the stall, and checks what each stream wrote.
    fn continues(self, device: Device) -> Result<(), Failure> {
        device.faults().and_then(|faults| faults.clear())?;
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
    works(&context.stream()?, "by a stream that was created during a stall")?;
    let fresh = context.filled(&bytes(1, LEN))?;
    expect_content(&fresh, &bytes(1, LEN), "by blocking calls, during a stall")?;
    stalled.continues(context.device())
}

fn a_stall_holds_up_no_peer(context: &Context) -> Result<(), Failure> {
    let peer = context.peer()?;
    let stalled = stall(context)?;
    works(&peer.create_stream()?, "on a peer, during a stall")?;
    let there = filled(peer, &bytes(1, LEN))?;
    expect_content(&there, &bytes(1, LEN), "by blocking calls, on a peer")?;
    peer.synchronize()?;
    stalled.continues(context.device())
}

fn a_stall_holds_up_no_cpu(context: &Context) -> Result<(), Failure> {
    let stalled = stall(context)?;
    works(&Device::cpu().create_stream()?, "on the cpu, during a stall")?;
    let there = filled(Device::cpu(), &bytes(1, LEN))?;
    expect_content(&there, &bytes(1, LEN), "by blocking calls, on the cpu")?;
    stalled.continues(context.device())
}

fn what_stalls_is_not_done(context: &Context) -> Result<(), Failure> {
    let stalled = stall(context)?;
    let stream = &stalled.streams[stalled.which];
    let buffer = &stalled.buffers[stalled.which];
    let read = stream.read(buffer, 0..LEN)?;
    for _ in 0..10 {
        ensure!(!stream.query()?, "the query of a stalled stream returns that its work is done");
        ensure!(
            !stalled.events[stalled.which].query()?,
            "the query of an event behind a stall returns that it is done"
        );
        ensure!(!read.is_ready(), "a read behind a stall is ready");
        thread::sleep(Duration::from_millis(2));
    }
    stalled.continues(context.device())?;
    expect_bytes(&read.wait()?, &[1; LEN], "a read behind a stall that is over")
}

fn what_stalls_goes_on(context: &Context) -> Result<(), Failure> {
    for _ in 0..3 {
        let stream = context.stream()?;
        let buffer = context.filled(&[BEFORE; LEN])?;
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
        ensure!(!read.is_ready() && !waiting.is_finished(), "a read or a waiting thread came past a stall");
        context.device().faults().and_then(|faults| faults.clear())?;
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
    // Their work must not touch memory that is allocated in their place.
    let others: Vec<_> = (0..4).map(|_| context.filled(&[0xDD; LEN])).collect::<Result<_, _>>()?;
    context.device().faults().and_then(|faults| faults.clear())?;
    context.device().synchronize()?;
    expect_content(&kept, &[1; LEN], "the destination of a dropped stream that stalled")?;
    others
        .iter()
        .try_for_each(|other| expect_content(other, &[0xDD; LEN], "memory that was allocated later"))?;
    drop((kept, others));
    let freed = until(context.limit(), || Ok(context.device().memory_statistics()?.live <= held_before))?;
    ensure!(freed, "the memory of stalled work is not freed when the work is done");
    Ok(())
}
