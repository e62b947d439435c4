//! Work in streams: it gives the same bytes as blocking calls, and none of it is lost.

use std::ops::Range;
use std::time::Duration;

use device_registry::{HostBuffer, Priority, Stream, StreamOptions};

use super::check;
use super::fill::{allows, patterns};
use super::lasting::LastingWork;
use crate::busy::{busy_pair, keep_busy};
use crate::check::{Check, Need};
use crate::context::{Context, bytes, content, expect_bytes, expect_content, in_threads};
use crate::failure::{Failure, ensure};
use crate::ranges::{page_ranges, small, small_ranges};
use crate::shadowed_buffer::ShadowedBuffer;

pub(super) const CHECKS: &[Check] = &[
    check!(
        streams::round_trip,
        "a stream reads back what it writes, in buffers with lengths around powers of two"
    ),
    check!(
        streams::write_at_every_place,
        "a stream's write at any offset of a buffer changes its range and nothing else"
    ),
    check!(
        streams::read_at_every_place,
        "a stream's read at any offset of a buffer returns the bytes of its range"
    ),
    check!(
        streams::copy_at_every_place,
        "a stream's copy between any offsets of two buffers changes its destination and nothing else"
    ),
    check!(
        streams::copy_within_one_buffer,
        "a stream's copy within one buffer changes its destination and nothing else"
    ),
    check!(
        streams::fill_at_every_place,
        "a stream's fill, with each length of pattern, changes its range and nothing else"
    ),
    check!(
        streams::around_page_borders,
        "a stream's work that begins or ends near page boundaries changes its range"
    ),
    check!(streams::large, "a stream's work on many MiB is complete"),
    check!(streams::from_and_to_pinned_memory, "a stream writes from and reads to pinned host memory")
        .needs(&[Need::PinnedMemory]),
    check!(
        streams::a_peers_bytes,
        "a stream copies from any offset on a peer, without a change to the source"
    )
    .needs(&[Need::Peer]),
    check!(
        streams::bytes_of_the_cpu,
        "a stream copies from the cpu, and a stream of the cpu copies from this device"
    )
    .uses_cpu(),
    check!(streams::many_at_once, "sixty-four streams at once each do their work, on buffers of their own"),
    check!(
        streams::many_in_turn,
        "five hundred streams, each created and dropped with work in it, all do their work"
    ),
    check!(
        streams::much_work_at_once,
        "thousands of operations that are enqueued without waiting are all done"
    ),
    check!(
        streams::reads_are_not_mixed_up,
        "each of many reads in flight returns its own bytes, in any order of waiting"
    ),
    check!(streams::a_read_can_be_awaited, "an awaited read wakes its task, with its bytes"),
    check!(
        streams::synchronize_waits_for_all_work,
        "after a stream is synchronized, blocking calls see what it wrote"
    ),
    check!(
        streams::query_tells_when_all_is_done,
        "query returns in the end that all work is done, and not before it is"
    ),
    check!(
        streams::asked_while_work_lasts,
        "query returns that all work is done after long work, and not in the middle of it"
    )
    .exclusive(),
    check!(streams::a_query_does_not_wait, "a query of a stream returns while long work lasts").exclusive(),
    check!(
        streams::the_device_waits_for_all_streams,
        "after a device is synchronized, blocking calls see what all of its streams wrote"
    ),
    check!(streams::work_outlives_its_stream, "the work of a dropped stream is still done"),
    check!(
        streams::buffers_may_be_dropped_at_once,
        "the memory of a dropped buffer is not reused before the work on it is done"
    ),
    check!(
        streams::temporary_memory,
        "memory of a stream that is dropped at once and used again has the bytes of its turn"
    ),
    check!(
        streams::threads_share_a_stream,
        "a stream does all the work that several threads enqueue at the same time"
    ),
    check!(streams::each_thread_has_a_stream, "threads that each have a stream do not disturb each other"),
    check!(
        streams::every_priority_works,
        "streams of each priority do their work, whether or not the device has priorities"
    ),
];

/// Expects these bytes from a read by the stream, which follows its earlier work.
#[track_caller]
pub(super) fn expect_read(
    stream: &Stream,
    of: &ShadowedBuffer,
    what: impl std::fmt::Display,
) -> Result<(), Failure> {
    let read = stream.read(&of.buffer, 0..of.bytes.len())?.wait()?;
    expect_bytes(&read, &of.bytes, what)
}

fn round_trip(context: &Context) -> Result<(), Failure> {
    let stream = context.stream()?;
    for len in (0..=18)
        .flat_map(|power| [(1_usize << power) - 1, 1 << power, (1 << power) + 1])
        .filter(|&len| len > 0)
    {
        let expected = bytes(1, len);
        let buffer = context.allocate(len)?;
        stream.write(&buffer, 0, expected.clone())?;
        let read = stream.read(&buffer, 0..len)?.wait()?;
        expect_bytes(&read, &expected, format_args!("a buffer of {len} bytes"))?;
    }
    Ok(())
}

fn write_at_every_place(context: &Context) -> Result<(), Failure> {
    let stream = context.stream()?;
    let mut buffer = ShadowedBuffer::new(context, 1, small(context))?;
    for (index, range) in small_ranges(context).enumerate() {
        let part = bytes(index as u8, range.len());
        stream.write(&buffer.buffer, range.start, part.clone())?;
        buffer.bytes[range.clone()].copy_from_slice(&part);
        expect_read(&stream, &buffer, format_args!("after a write to {range:?}"))?;
    }
    Ok(())
}

fn read_at_every_place(context: &Context) -> Result<(), Failure> {
    let stream = context.stream()?;
    let buffer = ShadowedBuffer::new(context, 2, small(context))?;
    for range in small_ranges(context) {
        let read = stream.read(&buffer.buffer, range.clone())?.wait()?;
        expect_bytes(&read, &buffer.bytes[range.clone()], format_args!("a read of {range:?}"))?;
        let own = HostBuffer::from(vec![0xA5; range.len()]);
        let read = stream.read_into(&buffer.buffer, range.start, own)?.wait()?;
        expect_bytes(
            &read,
            &buffer.bytes[range.clone()],
            format_args!("a read of {range:?} to given memory"),
        )?;
    }
    Ok(())
}

/// Copies by the stream, and compares the whole destination.
fn expect_copy(
    stream: &Stream,
    source: &ShadowedBuffer,
    range: Range<usize>,
    to: &mut ShadowedBuffer,
    at: usize,
) -> Result<(), Failure> {
    let target = at..at + range.len();
    stream.copy(&source.buffer.slice(range.clone())?, &to.buffer.slice(target.clone())?)?;
    to.bytes[target].copy_from_slice(&source.bytes[range.clone()]);
    expect_read(stream, to, format_args!("the destination of a copy of {range:?} to {at}"))
}

fn copy_at_every_place(context: &Context) -> Result<(), Failure> {
    let stream = context.stream()?;
    let unit = context.alignment();
    let len = small(context);
    for range in context.ranges(len, [0, 1, 2, 3, 4, 7, 8, 9, 13], [1, 2, 3, 4, 5, 8].into_iter()) {
        let source = ShadowedBuffer::new(context, range.start as u8, len)?;
        let mut to = ShadowedBuffer::new(context, 0x80, len)?;
        let whole = range.len().is_multiple_of(unit);
        for at in [0, 1, 2, 3, 4, 5, 8, 11].map(|place| place * unit) {
            if at + range.len() == len || (whole && at + range.len() < len) {
                expect_copy(&stream, &source, range.clone(), &mut to, at)?;
            }
        }
    }
    Ok(())
}

fn copy_within_one_buffer(context: &Context) -> Result<(), Failure> {
    let stream = context.stream()?;
    let unit = context.alignment();
    let mut buffer = ShadowedBuffer::new(context, 3, small(context))?;
    for (from, to, len) in
        [(0, 10, 10), (10, 0, 10), (0, 1, 1), (1, 0, 1), (3, 9, 5), (9, 3, 5), (0, 4, 4), (16, 8, 4)]
    {
        let range = from * unit..(from + len) * unit;
        let at = to * unit;
        stream.copy(&buffer.buffer.slice(range.clone())?, &buffer.buffer.slice(at..at + range.len())?)?;
        buffer.bytes.copy_within(range.clone(), at);
        expect_read(&stream, &buffer, format_args!("after a copy of {range:?} to {at} within it"))?;
    }
    Ok(())
}

fn fill_at_every_place(context: &Context) -> Result<(), Failure> {
    let stream = context.stream()?;
    for pattern in patterns() {
        let units = 7 * pattern.len().div_ceil(context.alignment());
        let len = units * context.alignment() + usize::from(context.alignment() > 1);
        let mut buffer = ShadowedBuffer::new(context, 4, len)?;
        for range in context.ranges(len, 0..=units, 1..=units).filter(|range| allows(&pattern, range)) {
            // Different bytes each time, so that a missing fill is noticed.
            let part = bytes(range.len() as u8, len);
            stream.write(&buffer.buffer, 0, part.clone())?;
            buffer.bytes = part;
            stream.fill(&buffer.buffer, range.clone(), &pattern)?;
            buffer.fill_shadow(range.clone(), &pattern);
            expect_read(&stream, &buffer, format_args!("after a fill of {range:?} with {pattern:02x?}"))?;
        }
    }
    Ok(())
}

fn around_page_borders(context: &Context) -> Result<(), Failure> {
    let stream = context.stream()?;
    let (len, ranges) = page_ranges(context);
    let source = ShadowedBuffer::new(context, 5, len)?;
    let mut buffer = ShadowedBuffer::new(context, 6, len)?;
    for (index, range) in ranges.enumerate() {
        match index % 3 {
            0 => {
                let part = bytes(index as u8, range.len());
                stream.write(&buffer.buffer, range.start, part.clone())?;
                buffer.bytes[range.clone()].copy_from_slice(&part);
            }
            1 => {
                stream.fill(&buffer.buffer, range.clone(), &[index as u8])?;
                buffer.bytes[range.clone()].fill(index as u8);
            }
            _ => {
                stream.copy(&source.buffer.slice(range.clone())?, &buffer.buffer.slice(range.clone())?)?;
                buffer.bytes[range.clone()].copy_from_slice(&source.bytes[range.clone()]);
            }
        }
        let part = stream.read(&buffer.buffer, range.clone())?.wait()?;
        expect_bytes(&part, &buffer.bytes[range.clone()], format_args!("{range:?} of operation {index}"))?;
        expect_read(&stream, &buffer, format_args!("the whole buffer after work on {range:?}"))?;
    }
    Ok(())
}

fn large(context: &Context) -> Result<(), Failure> {
    let stream = context.stream()?;
    let unit = context.alignment();
    let len = (9 << 20) + 7 * unit;
    let expected = bytes(7, len);
    let buffer = context.allocate(len)?;
    let copy = context.allocate(len + unit)?;
    stream.write(&buffer, 0, expected.clone())?;
    stream.fill(&copy, 0..len + unit, &[0xEE])?;
    stream.copy(&buffer.slice(unit..len - unit)?, &copy.slice(2 * unit..len)?)?;
    let read = stream.read(&copy, 0..len + unit)?.wait()?;
    let mut whole = vec![0xEE; len + unit];
    whole[2 * unit..len].copy_from_slice(&expected[unit..len - unit]);
    expect_bytes(&read, &whole, "a large copy in a filled buffer")
}

fn from_and_to_pinned_memory(context: &Context) -> Result<(), Failure> {
    let stream = context.stream()?;
    for len in [1, 63, 4096, 100_003] {
        let expected = bytes(8, len);
        let mut host = context.device().allocate_host(len)?;
        ensure!(host.is_pinned() && host.len() == len, "expected {len} bytes of pinned memory, got {host:?}");
        host.copy_from_slice(&expected);
        let buffer = context.allocate(len)?;
        stream.write(&buffer, 0, host)?;
        let destination = context.device().allocate_host(len)?;
        let read = stream.read_into(&buffer, 0, destination)?.wait()?;
        expect_bytes(&read, &expected, format_args!("{len} bytes from and to pinned memory"))?;
        ensure!(read.is_pinned(), "expected the read to return the pinned memory, got other memory");
    }
    Ok(())
}

fn a_peers_bytes(context: &Context) -> Result<(), Failure> {
    let stream = context.stream()?;
    let unit = context.alignment();
    let len = 40 * unit;
    let far = bytes(9, len);
    let there = crate::context::filled(context.peer()?, &far)?;
    let mut here = ShadowedBuffer::new(context, 10, len)?;
    for (from, to, part) in
        [(0, 0, 40), (1, 0, 3), (0, 1, 3), (5, 9, 16), (39, 39, 1), (0, 39, 1), (13, 2, 8)]
    {
        let range = from * unit..(from + part) * unit;
        let at = to * unit;
        let target = at..at + range.len();
        stream.copy(&there.slice(range.clone())?, &here.buffer.slice(target.clone())?)?;
        here.bytes[target].copy_from_slice(&far[range.clone()]);
        expect_read(&stream, &here, format_args!("{range:?} of {} to {at}", there.device()))?;
    }
    expect_content(&there, &far, "the source on the peer")
}

fn bytes_of_the_cpu(context: &Context) -> Result<(), Failure> {
    let here = context.stream()?;
    let cpu = device_registry::Device::cpu();
    let there = cpu.create_stream()?;
    for len in [1, 67, 4097, (2 << 20) + 13] {
        let expected = bytes(11, len);
        let source = cpu.allocate(len)?;
        let copy = context.allocate(len)?;
        let back = cpu.allocate(len)?;
        there.write(&source, 0, expected.clone())?;
        here.wait_event(&there.record()?)?;
        here.copy(&source, &copy)?;
        there.wait_event(&here.record()?)?;
        there.copy(&copy, &back)?;
        let read = there.read(&back, 0..len)?.wait()?;
        expect_bytes(&read, &expected, format_args!("{len} bytes from the cpu and back"))?;
    }
    Ok(())
}

fn many_at_once(context: &Context) -> Result<(), Failure> {
    let mut all = Vec::new();
    for index in 0..64 {
        let stream = context.stream()?;
        let expected = bytes(index, 3000);
        let buffer = context.allocate(3000)?;
        let copy = context.allocate(3000)?;
        stream.write(&buffer, 0, expected.clone())?;
        stream.copy(&buffer, &copy)?;
        let read = stream.read(&copy, 0..3000)?;
        all.push((stream, read, expected));
    }
    for (index, (stream, read, expected)) in all.into_iter().enumerate() {
        expect_bytes(&read.wait()?, &expected, format_args!("stream {index} of 64"))?;
        stream.synchronize()?;
    }
    Ok(())
}

fn many_in_turn(context: &Context) -> Result<(), Failure> {
    let buffer = context.filled(&vec![0; 500 * context.alignment()])?;
    let unit = context.alignment();
    for index in 0..500 {
        context.stream()?.fill(&buffer, index * unit..(index + 1) * unit, &[index as u8])?;
    }
    context.device().synchronize()?;
    let expected: Vec<u8> = (0..500).flat_map(|index| vec![index as u8; unit]).collect();
    expect_content(&buffer, &expected, "what 500 streams filled, a part each")
}

fn much_work_at_once(context: &Context) -> Result<(), Failure> {
    const TIMES: usize = 4000;
    let stream = context.stream()?;
    let unit = context.alignment();
    let buffer = context.filled(&vec![0; TIMES * unit])?;
    for index in 0..TIMES {
        stream.fill(&buffer, index * unit..(index + 1) * unit, &[index as u8])?;
    }
    stream.synchronize()?;
    let expected: Vec<u8> = (0..TIMES).flat_map(|index| vec![index as u8; unit]).collect();
    expect_content(&buffer, &expected, format_args!("what {TIMES} fills left, a part each"))
}

fn reads_are_not_mixed_up(context: &Context) -> Result<(), Failure> {
    let stream = context.stream()?;
    let unit = context.alignment();
    let expected = bytes(12, 200 * unit);
    let buffer = context.filled(&expected)?;
    let mut reads = Vec::new();
    for index in 0..200 {
        let range = index * unit..(200 - index % 7).max(index + 1) * unit;
        reads.push((stream.read(&buffer, range.clone())?, range));
    }
    for (read, range) in reads.into_iter().rev() {
        expect_bytes(&read.wait()?, &expected[range.clone()], format_args!("the read of {range:?}"))?;
    }
    Ok(())
}

fn a_read_can_be_awaited(context: &Context) -> Result<(), Failure> {
    let stream = context.stream()?;
    let pair = busy_pair(context)?;
    for round in 0..20 {
        let expected = bytes(round, 5000);
        let buffer = context.allocate(5000)?;
        keep_busy(&stream, &pair, 4)?;
        stream.write(&buffer, 0, expected.clone())?;
        let read = stream.read(&buffer, 0..5000)?;
        expect_bytes(&pollster::block_on(read)?, &expected, "an awaited read")?;
    }
    Ok(())
}

fn synchronize_waits_for_all_work(context: &Context) -> Result<(), Failure> {
    let stream = context.stream()?;
    let pair = busy_pair(context)?;
    for round in 0..30 {
        let buffer = context.filled(&[0xEE; 2000])?;
        keep_busy(&stream, &pair, 16)?;
        stream.fill(&buffer, 0..2000, &[round])?;
        stream.synchronize()?;
        // A blocking call is not ordered behind this stream.
        expect_content(
            &buffer,
            &[round; 2000],
            format_args!("after the stream was synchronized, in round {round}"),
        )?;
    }
    Ok(())
}

fn asked_while_work_lasts(context: &Context) -> Result<(), Failure> {
    LastingWork::new(context)?.expect_waits("a stream whose work is done by its query", |stream| {
        while !stream.query()? {
            std::thread::sleep(Duration::from_micros(50));
        }
        Ok(())
    })
}

fn a_query_does_not_wait(context: &Context) -> Result<(), Failure> {
    LastingWork::new(context)?.expect_does_not_wait("the query of a stream", |stream| {
        let stream = stream.clone();
        Ok(move || stream.query().map(drop).map_err(Failure::from))
    })
}

fn query_tells_when_all_is_done(context: &Context) -> Result<(), Failure> {
    let stream = context.stream()?;
    let pair = busy_pair(context)?;
    for round in 0..30 {
        let buffer = context.filled(&[0xEE; 2000])?;
        keep_busy(&stream, &pair, 16)?;
        stream.fill(&buffer, 0..2000, &[round])?;
        while !stream.query()? {
            std::thread::sleep(Duration::from_micros(50));
        }
        expect_content(
            &buffer,
            &[round; 2000],
            format_args!("when query returns that all work is done, in round {round}"),
        )?;
        ensure!(stream.query()?, "query returned that all work is done, and now that it is not");
    }
    Ok(())
}

fn the_device_waits_for_all_streams(context: &Context) -> Result<(), Failure> {
    let pairs = [busy_pair(context)?, busy_pair(context)?, busy_pair(context)?];
    for round in 0..15 {
        let mut written = Vec::new();
        for (index, pair) in pairs.iter().enumerate() {
            let stream = context.stream()?;
            let buffer = context.filled(&[0xEE; 2000])?;
            keep_busy(&stream, pair, 8 * index)?;
            stream.fill(&buffer, 0..2000, &[round])?;
            written.push((stream, buffer));
        }
        context.device().synchronize()?;
        for (index, (_, buffer)) in written.iter().enumerate() {
            expect_content(
                buffer,
                &[round; 2000],
                format_args!("what stream {index} wrote, in round {round}"),
            )?;
        }
    }
    Ok(())
}

fn work_outlives_its_stream(context: &Context) -> Result<(), Failure> {
    let pair = busy_pair(context)?;
    for round in 0..20 {
        let stream = context.stream()?;
        let buffer = context.filled(&[0xEE; 2000])?;
        keep_busy(&stream, &pair, 8)?;
        stream.fill(&buffer, 0..2000, &[round])?;
        drop(stream);
        context.device().synchronize()?;
        expect_content(
            &buffer,
            &[round; 2000],
            format_args!("written by a dropped stream, in round {round}"),
        )?;
    }
    Ok(())
}

fn buffers_may_be_dropped_at_once(context: &Context) -> Result<(), Failure> {
    const LEN: usize = 100_000;
    let stream = context.stream()?;
    let pair = busy_pair(context)?;
    for round in 0..30 {
        let expected = bytes(round, LEN);
        let first = context.filled(&expected)?;
        let second = context.allocate(LEN)?;
        keep_busy(&stream, &pair, 8)?;
        stream.copy(&first, &second)?;
        let read = stream.read(&second, 0..LEN)?;
        drop((first, second));
        // These allocations could reuse the memory of the dropped buffers.
        let _others = [context.filled(&[0xEE; LEN])?, context.filled(&[0xDD; LEN])?];
        expect_bytes(&read.wait()?, &expected, format_args!("a read of dropped buffers, in round {round}"))?;
    }
    Ok(())
}

fn temporary_memory(context: &Context) -> Result<(), Failure> {
    const TIMES: usize = 300;
    let stream = context.stream()?;
    let pair = busy_pair(context)?;
    let len = 64 * context.alignment();
    let result = context.filled(&vec![0; TIMES * len])?;
    // So that the first memory is still in use when it is allocated again.
    keep_busy(&stream, &pair, 8)?;
    for time in 0..TIMES {
        let temporary = stream.allocate(len)?;
        stream.write(&temporary, 0, bytes(time as u8, len))?;
        stream.copy(&temporary.slice(..len)?, &result.slice(time * len..time * len + len)?)?;
    }
    // A blocking call is the first to use what work may still use.
    let other = stream.allocate(len)?;
    other.write(0, &bytes(77, len))?;
    stream.synchronize()?;
    let expected: Vec<u8> = (0..TIMES).flat_map(|time| bytes(time as u8, len)).collect();
    expect_content(&result, &expected, "what went through temporary memory")?;
    expect_content(&other, &bytes(77, len), "temporary memory that a blocking call wrote")
}

fn threads_share_a_stream(context: &Context) -> Result<(), Failure> {
    const THREADS: usize = 8;
    const TIMES: usize = 100;
    let stream = context.stream()?;
    let unit = context.alignment();
    let buffer = context.filled(&vec![0; THREADS * TIMES * unit])?;
    in_threads(THREADS, |index| {
        for time in 0..TIMES {
            let start = (index * TIMES + time) * unit;
            let part = bytes((index + time) as u8, unit);
            stream.write(&buffer, start, part.clone())?;
            if time % 10 == 0 {
                let read = stream.read(&buffer, start..start + unit)?.wait()?;
                expect_bytes(&read, &part, "what this thread wrote by the stream")?;
            }
        }
        Ok(())
    })?;
    stream.synchronize()?;
    let places = (0..THREADS).flat_map(|index| (0..TIMES).map(move |time| index + time));
    let expected: Vec<u8> = places.flat_map(|seed| bytes(seed as u8, unit)).collect();
    expect_content(&buffer, &expected, "what all threads wrote by one stream")
}

fn each_thread_has_a_stream(context: &Context) -> Result<(), Failure> {
    in_threads(8, |index| {
        let stream = context.stream()?;
        for round in 0..30 {
            let expected = bytes((index * 30 + round) as u8, 2000);
            let buffer = context.allocate(2000)?;
            let copy = context.allocate(2000)?;
            stream.write(&buffer, 0, expected.clone())?;
            stream.copy(&buffer, &copy)?;
            let read = stream.read(&copy, 0..2000)?.wait()?;
            expect_bytes(&read, &expected, "a copy by this thread's stream")?;
        }
        stream.synchronize()?;
        Ok(())
    })
}

fn every_priority_works(context: &Context) -> Result<(), Failure> {
    for priority in [Priority::Low, Priority::Normal, Priority::High] {
        let stream = context.device().create_stream_with(&StreamOptions::new().with_priority(priority))?;
        let buffer = context.allocate(1000)?;
        stream.fill(&buffer, 0..1000, &[1, 2])?;
        stream.synchronize()?;
        ensure!(
            content(&buffer)? == [1, 2].repeat(500),
            "a fill by a stream of priority {priority:?} is missing"
        );
    }
    Ok(())
}
