//! Events: when they are done, waiting for them, and their timestamps.

use std::thread;
use std::time::{Duration, Instant};

use device_registry::{BackendErrorKind, Buffer, Device, Event, EventOptions, Stream};

use super::check;
use super::lasting::{ATTEMPTS, LastingWork, Waited};
use crate::busy::{busy_pair, hold_back, keep_busy};
use crate::check::{Check, Need};
use crate::context::{Context, bytes, expect_bytes, expect_content, filled, in_threads};
use crate::failure::{Failure, ensure};

pub(super) const CHECKS: &[Check] = &[
    check!(
        events::done_when_the_work_before_is,
        "after an event is synchronized, blocking calls see the work before it"
    ),
    check!(
        events::asked_until_done,
        "the query of an event returns in the end that it is done, and not before the work is"
    ),
    check!(
        events::asked_while_work_lasts,
        "the query of an event returns that it is done after long work before it, and not in the middle of it"
    )
    .exclusive(),
    check!(
        events::asked_while_few_copies_last,
        "the query of an event returns that it is done after a few long copies before it, and not before the last of them"
    )
    .exclusive(),
    check!(events::a_query_does_not_wait, "a query of an event returns while long work before it lasts")
        .exclusive(),
    check!(
        events::waited_for_while_work_lasts,
        "an event that is synchronized waits for long work before it to its end"
    )
    .exclusive(),
    check!(events::of_an_idle_stream, "an event of an idle stream is done without further calls"),
    check!(
        events::what_comes_behind_is_not_waited_for,
        "an event is done although later work of its stream is held back"
    ),
    check!(
        events::done_before_work_that_lasts,
        "an event is done without long work that is enqueued behind it"
    )
    .exclusive(),
    check!(events::done_for_good, "an event that is done stays done, whatever its stream does later"),
    check!(events::many_in_flight, "thousands of events can be in flight, and are all done in the end"),
    check!(events::many_threads_wait_for_one, "many threads may wait for one event at once"),
    check!(events::outlives_its_stream, "an event of a dropped stream is still done"),
    check!(
        events::dropped_before_it_is_done,
        "an event that is dropped at once still holds back the stream that waits for it"
    ),
    check!(events::a_stream_waits_for_another, "a stream that waits for an event sees the work before it"),
    check!(
        events::two_streams_take_turns,
        "two streams that wait for each other's events in turn do their work in turn"
    ),
    check!(
        events::several_streams_meet,
        "a stream that waits for the events of several sees the work of all of them"
    ),
    check!(
        events::later_work_is_not_waited_for_by_streams,
        "a stream that waits for an event is not held back by later work of the other"
    ),
    check!(events::of_a_peer, "a stream that waits for an event of a peer sees the peer's work")
        .needs(&[Need::Peer]),
    check!(
        events::of_the_cpu,
        "a stream waits for an event of the cpu, and a stream of the cpu for an event of this device"
    )
    .uses_cpu(),
    check!(events::time_passes, "the time between two events is about that of the work between them")
        .needs(&[Need::TimedEvents]),
    check!(events::time_adds_up, "the times between three events add up").needs(&[Need::TimedEvents]),
    check!(events::no_time_from_an_event_to_itself, "no time has passed from an event to itself")
        .needs(&[Need::TimedEvents]),
    check!(events::time_does_not_run_backwards, "the time from an event to an earlier one is an error")
        .needs(&[Need::TimedEvents]),
    check!(events::time_between_streams, "events of two streams of a device have one clock")
        .needs(&[Need::TimedEvents]),
    check!(
        events::time_stays_when_others_are_dropped,
        "the time between two events stays when the device reaches timed events that were dropped before that"
    )
    .needs(&[Need::TimedEvents])
    .exclusive(),
];

/// Enqueues work that takes a while and then a fill of the buffer. Returns the event behind them.
fn fill_later(stream: &Stream, pair: &[Buffer; 2], buffer: &Buffer, value: u8) -> Result<Event, Failure> {
    keep_busy(stream, pair, 16)?;
    stream.fill(buffer, 0..buffer.len(), &[value])?;
    Ok(stream.record()?)
}

fn done_when_the_work_before_is(context: &Context) -> Result<(), Failure> {
    let stream = context.stream()?;
    let pair = busy_pair(context)?;
    for round in 0..30 {
        let buffer = context.filled(&[0xEE; 2000])?;
        let event = fill_later(&stream, &pair, &buffer, round)?;
        event.synchronize()?;
        // A blocking call is not ordered behind this stream.
        expect_content(
            &buffer,
            &[round; 2000],
            format_args!("after the event was synchronized, in round {round}"),
        )?;
    }
    Ok(())
}

fn asked_until_done(context: &Context) -> Result<(), Failure> {
    let stream = context.stream()?;
    let pair = busy_pair(context)?;
    for round in 0..30 {
        let buffer = context.filled(&[0xEE; 2000])?;
        let event = fill_later(&stream, &pair, &buffer, round)?;
        until_done(&event)?;
        expect_content(
            &buffer,
            &[round; 2000],
            format_args!("when query returns that the event is done, in round {round}"),
        )?;
    }
    Ok(())
}

/// Polls an event until it is done, and makes no other call that could flush the stream.
fn until_done(event: &Event) -> Result<(), Failure> {
    while !event.query()? {
        thread::sleep(Duration::from_micros(50));
    }
    Ok(())
}

fn asked_while_work_lasts(context: &Context) -> Result<(), Failure> {
    LastingWork::new(context)?
        .expect_waits("an event that is done by its query", |stream| until_done(&stream.record()?))
}

fn asked_while_few_copies_last(context: &Context) -> Result<(), Failure> {
    LastingWork::of_few_copies(context)?
        .expect_waits("an event that is done by its query", |stream| until_done(&stream.record()?))
}

fn a_query_does_not_wait(context: &Context) -> Result<(), Failure> {
    LastingWork::new(context)?.expect_does_not_wait("the query of an event", |stream| {
        let event = stream.record()?;
        Ok(move || event.query().map(drop).map_err(Failure::from))
    })
}

fn waited_for_while_work_lasts(context: &Context) -> Result<(), Failure> {
    LastingWork::new(context)?
        .expect_waits("a synchronize of an event to return", |stream| Ok(stream.record()?.synchronize()?))
}

fn of_an_idle_stream(context: &Context) -> Result<(), Failure> {
    let stream = context.stream()?;
    for _ in 0..10 {
        until_done(&stream.record()?)?;
        stream.record()?.synchronize()?;
    }
    Ok(())
}

fn what_comes_behind_is_not_waited_for(context: &Context) -> Result<(), Failure> {
    let stream = context.stream()?;
    let buffer = context.filled(&[0xEE; 2000])?;
    stream.fill(&buffer, 0..2000, &[1])?;
    let before = stream.record()?;
    let release = hold_back(&stream)?;
    stream.fill(&buffer, 0..2000, &[2])?;
    let behind = stream.record()?;
    before.synchronize()?;
    expect_content(&buffer, &[1; 2000], "with the second fill held back")?;
    ensure!(!behind.query()?, "an event is done, and its work is still held back");
    drop(release);
    behind.synchronize()?;
    expect_content(&buffer, &[2; 2000], "with nothing held back")
}

fn done_before_work_that_lasts(context: &Context) -> Result<(), Failure> {
    let work = LastingWork::new(context)?;
    let mut waits = Vec::new();
    for _ in 0..ATTEMPTS {
        let before = work.stream.record()?;
        work.enqueue()?;
        let Waited { until, rest } = work.time(|| until_done(&before))?;
        if until < rest {
            return Ok(());
        }
        waits.push(format!("after {until:.1?}, with work for {rest:.1?} left"));
    }
    Err(Failure::new(format_args!(
        "expected an event that is done before the work behind it, got that {}",
        waits.join("; ")
    )))
}

fn done_for_good(context: &Context) -> Result<(), Failure> {
    let stream = context.stream()?;
    let pair = busy_pair(context)?;
    let event = stream.record()?;
    event.synchronize()?;
    keep_busy(&stream, &pair, 64)?;
    let later = stream.record()?;
    for _ in 0..20 {
        ensure!(event.query()?, "an event was done, and is not done now, with later work in its stream");
        event.synchronize()?;
    }
    later.synchronize()?;
    ensure!(event.query()? && later.query()?, "an event was done, and is not done now");
    Ok(())
}

fn many_in_flight(context: &Context) -> Result<(), Failure> {
    let stream = context.stream()?;
    let buffer = context.allocate(4096)?;
    let mut events = Vec::new();
    for index in 0..3000 {
        stream.fill(&buffer, 0..4096, &[index as u8])?;
        events.push(stream.record()?);
    }
    stream.synchronize()?;
    for (index, event) in events.iter().enumerate() {
        ensure!(event.query()?, "event {index} of 3000 is not done after its stream was synchronized");
    }
    Ok(())
}

fn many_threads_wait_for_one(context: &Context) -> Result<(), Failure> {
    let stream = context.stream()?;
    let pair = busy_pair(context)?;
    for round in 0..5 {
        let buffer = context.filled(&[0xEE; 2000])?;
        let event = fill_later(&stream, &pair, &buffer, round)?;
        in_threads(8, |index| {
            match index % 2 {
                0 => event.synchronize()?,
                _ => until_done(&event)?,
            }
            expect_content(&buffer, &[round; 2000], "after an event that many waited for")
        })?;
    }
    Ok(())
}

fn outlives_its_stream(context: &Context) -> Result<(), Failure> {
    let pair = busy_pair(context)?;
    for round in 0..20 {
        let stream = context.stream()?;
        let buffer = context.filled(&[0xEE; 2000])?;
        let event = fill_later(&stream, &pair, &buffer, round)?;
        drop(stream);
        event.synchronize()?;
        expect_content(
            &buffer,
            &[round; 2000],
            format_args!("after the event of a dropped stream, round {round}"),
        )?;
    }
    Ok(())
}

/// Expects a read by the stream to return this value in every byte.
fn expect_seen(stream: &Stream, buffer: &Buffer, value: u8, what: &str) -> Result<(), Failure> {
    let read = stream.read(buffer, 0..buffer.len())?.wait()?;
    expect_bytes(&read, &vec![value; buffer.len()], what)
}

fn dropped_before_it_is_done(context: &Context) -> Result<(), Failure> {
    let first = context.stream()?;
    let second = context.stream()?;
    let pair = busy_pair(context)?;
    for round in 0..30 {
        let buffer = context.filled(&[0xEE; 2000])?;
        let event = fill_later(&first, &pair, &buffer, round)?;
        second.wait_event(&event)?;
        drop(event);
        // An event without a waiter.
        drop(first.record()?);
        expect_seen(&second, &buffer, round, "behind an event that was dropped")?;
    }
    Ok(())
}

fn a_stream_waits_for_another(context: &Context) -> Result<(), Failure> {
    let first = context.stream()?;
    let second = context.stream()?;
    let pair = busy_pair(context)?;
    for round in 0..30 {
        let buffer = context.filled(&[0xEE; 2000])?;
        second.wait_event(&fill_later(&first, &pair, &buffer, round)?)?;
        expect_seen(&second, &buffer, round, "behind the event of another stream")?;
    }
    Ok(())
}

fn two_streams_take_turns(context: &Context) -> Result<(), Failure> {
    const LEN: usize = 50_000;
    let streams = [context.stream()?, context.stream()?];
    let buffers = [context.filled(&bytes(1, LEN))?, context.filled(&[0; LEN])?];
    let end = 64 * context.alignment();
    for round in 0..100_u8 {
        let turn = usize::from(round % 2);
        let other = usize::from((round + 1) % 2);
        // Each stream adds its own byte and copies the whole buffer to the other one.
        let own = &buffers[turn];
        let next = &buffers[other];
        streams[turn].fill(own, 0..end, &[round])?;
        streams[turn].copy(own, next)?;
        streams[other].wait_event(&streams[turn].record()?)?;
    }
    let mut expected = bytes(1, LEN);
    expected[..end].fill(99);
    let read = streams[0].read(&buffers[0], 0..LEN)?.wait()?;
    expect_bytes(&read, &expected, "after 100 turns of two streams")
}

fn several_streams_meet(context: &Context) -> Result<(), Failure> {
    let pairs = [busy_pair(context)?, busy_pair(context)?, busy_pair(context)?];
    let source = context.stream()?;
    let last = context.stream()?;
    for round in 0..10 {
        let first = context.filled(&[0xEE; 2000])?;
        let begun = fill_later(&source, &pairs[0], &first, round)?;
        let mut copies = Vec::new();
        for (index, pair) in pairs.iter().enumerate() {
            let stream = context.stream()?;
            let copy = context.filled(&[0xDD; 2000])?;
            stream.wait_event(&begun)?;
            keep_busy(&stream, pair, 4 * index)?;
            stream.copy(&first, &copy)?;
            last.wait_event(&stream.record()?)?;
            copies.push(copy);
        }
        for copy in &copies {
            expect_seen(&last, copy, round, "where several streams meet")?;
        }
    }
    Ok(())
}

fn later_work_is_not_waited_for_by_streams(context: &Context) -> Result<(), Failure> {
    let first = context.stream()?;
    let second = context.stream()?;
    let buffer = context.filled(&[0xEE; 2000])?;
    first.fill(&buffer, 0..2000, &[1])?;
    let event = first.record()?;
    let release = hold_back(&first)?;
    first.fill(&buffer, 0..2000, &[2])?;
    second.wait_event(&event)?;
    expect_seen(&second, &buffer, 1, "with later work of the other stream held back")?;
    drop(release);
    first.synchronize()?;
    Ok(())
}

fn of_a_peer(context: &Context) -> Result<(), Failure> {
    let peer = context.peer()?;
    let there = peer.create_stream()?;
    let here = context.stream()?;
    let pair = [filled(peer, &[7; 1 << 20])?, filled(peer, &[7; 1 << 20])?];
    for round in 0..20 {
        let far = filled(peer, &[0xEE; 2000])?;
        let near = context.filled(&[0xDD; 2000])?;
        here.wait_event(&fill_later(&there, &pair, &far, round)?)?;
        here.copy(&far, &near)?;
        expect_seen(&here, &near, round, "behind an event of a peer")?;
        // And back: the peer changes its memory only after the copy.
        there.wait_event(&here.record()?)?;
        there.fill(&far, 0..2000, &[0xCC])?;
        there.synchronize()?;
    }
    Ok(())
}

fn of_the_cpu(context: &Context) -> Result<(), Failure> {
    let there = Device::cpu().create_stream()?;
    let here = context.stream()?;
    let pair = busy_pair(context)?;
    for round in 0..10 {
        let far = filled(Device::cpu(), &[0xEE; 2000])?;
        let near = context.filled(&[0xDD; 2000])?;
        let release = hold_back(&there)?;
        there.fill(&far, 0..2000, &[round])?;
        here.wait_event(&there.record()?)?;
        here.copy(&far, &near)?;
        drop(release);
        expect_seen(&here, &near, round, "behind an event of the cpu")?;
        there.wait_event(&fill_later(&here, &pair, &near, round ^ 0x80)?)?;
        there.copy(&near, &far)?;
        expect_seen(&there, &far, round ^ 0x80, "on the cpu, behind an event of this device")?;
    }
    Ok(())
}

fn record_timed(stream: &Stream) -> Result<Event, Failure> {
    Ok(stream.record_with(&EventOptions::new().timed())?)
}

fn time_passes(context: &Context) -> Result<(), Failure> {
    const LONG: Duration = Duration::from_millis(30);
    let stream = context.stream()?;
    let host = Instant::now();
    let start = record_timed(&stream)?;
    start.synchronize()?;
    stream.host_call(|| thread::sleep(LONG))?;
    let end = record_timed(&stream)?;
    let elapsed = end.elapsed_since(&start)?;
    let at_most = host.elapsed() + LONG / 10;
    ensure!(
        elapsed >= LONG * 9 / 10 && elapsed <= at_most,
        "expected from {LONG:?} to {at_most:?}, as measured on the host, got {elapsed:?}"
    );
    Ok(())
}

fn time_adds_up(context: &Context) -> Result<(), Failure> {
    let stream = context.stream()?;
    let mut events = Vec::new();
    for _ in 0..3 {
        events.push(record_timed(&stream)?);
        stream.host_call(|| thread::sleep(Duration::from_millis(10)))?;
    }
    let [first, second, third] = &events[..] else { return Err(Failure::new("expected three events")) };
    let whole = third.elapsed_since(first)?;
    let parts = second.elapsed_since(first)? + third.elapsed_since(second)?;
    let difference = whole.abs_diff(parts);
    ensure!(
        difference <= Duration::from_millis(1),
        "expected the whole to be the sum of its parts, {parts:?}, got {whole:?}"
    );
    ensure!(
        whole >= Duration::from_millis(18),
        "expected two host calls of 10ms each to take at least 18ms, got {whole:?}"
    );
    Ok(())
}

fn no_time_from_an_event_to_itself(context: &Context) -> Result<(), Failure> {
    let event = record_timed(&context.stream()?)?;
    let elapsed = event.elapsed_since(&event)?;
    ensure!(elapsed == Duration::ZERO, "expected no time from an event to itself, got {elapsed:?}");
    Ok(())
}

fn time_does_not_run_backwards(context: &Context) -> Result<(), Failure> {
    let stream = context.stream()?;
    let start = record_timed(&stream)?;
    stream.host_call(|| thread::sleep(Duration::from_millis(5)))?;
    let end = record_timed(&stream)?;
    match start.elapsed_since(&end) {
        Err(error)
            if error.backend_error().is_some_and(|error| error.kind() == BackendErrorKind::Invalid) =>
        {
            Ok(())
        }
        other => Err(Failure::new(format_args!(
            "expected an error of kind `Invalid` for the time to an earlier event, got {other:?}"
        ))),
    }
}

fn time_between_streams(context: &Context) -> Result<(), Failure> {
    let first = context.stream()?;
    let start = record_timed(&first)?;
    // Clocks that start with their streams would differ by this.
    thread::sleep(Duration::from_millis(20));
    let second = context.stream()?;
    first.host_call(|| thread::sleep(Duration::from_millis(10)))?;
    let between = record_timed(&first)?;
    second.wait_event(&between)?;
    let end = record_timed(&second)?;
    let whole = end.elapsed_since(&start)?;
    let part = between.elapsed_since(&start)?;
    ensure!(
        whole >= part,
        "expected the event of the second stream after that of the first at {part:?}, got {whole:?}"
    );
    ensure!(
        part >= Duration::from_millis(9),
        "expected a host call of 10ms to take at least 9ms, got {part:?}"
    );
    Ok(())
}

/// A driver that gives the place of a dropped event's time to the next event may still have the device write
/// there.
fn time_stays_when_others_are_dropped(context: &Context) -> Result<(), Failure> {
    let work = LastingWork::new(context)?;
    let other = context.stream()?;
    work.enqueue()?;
    for _ in 0..8 {
        drop(record_timed(&work.stream)?);
    }
    let start = record_timed(&other)?;
    thread::sleep(Duration::from_millis(1));
    let end = record_timed(&other)?;
    end.synchronize()?;
    let before = end.elapsed_since(&start)?;
    work.stream.synchronize()?;
    let after = end.elapsed_since(&start)?;
    ensure!(
        after == before,
        "expected a time of {before:?} between two events to stay, got {after:?} after work before dropped events"
    );
    Ok(())
}
