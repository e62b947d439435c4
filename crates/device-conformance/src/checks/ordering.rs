//! The order of work: within a stream, and relative to blocking calls.

use device_registry::StreamGuard;

use super::check;
use super::streams::expect_read;
use crate::busy::{busy_pair, keep_busy};
use crate::check::Check;
use crate::context::{Context, bytes, expect_bytes, expect_content};
use crate::failure::Failure;
use crate::shadowed_buffer::ShadowedBuffer;

pub(super) const CHECKS: &[Check] = &[
    check!(
        ordering::work_is_done_in_order,
        "a stream does writes, copies and fills in the order in which they were enqueued"
    ),
    check!(
        ordering::a_read_sees_what_came_before,
        "each read of a stream returns the bytes at its position in the stream, whatever follows"
    ),
    check!(
        ordering::a_chain_of_copies,
        "each copy of a chain in one stream is done after the copy before it"
    ),
    check!(ordering::small_work_behind_large, "short work does not overtake long work of its stream"),
    check!(
        ordering::the_last_of_many_stays,
        "the last of a thousand writes to one range, all in flight, stays"
    ),
    check!(
        ordering::what_blocks_comes_behind_the_current_stream,
        "blocking calls come after the work of the thread's current stream"
    ),
    check!(
        ordering::what_blocks_comes_behind_the_default_stream,
        "blocking calls come after the work of the default stream"
    ),
    check!(
        ordering::streams_on_halves_of_a_buffer,
        "two streams that work on the two halves of one buffer do not change each other's"
    ),
];

fn work_is_done_in_order(context: &Context) -> Result<(), Failure> {
    let stream = context.stream()?;
    let unit = context.alignment();
    let len = 64 * unit;
    let mut buffers = [ShadowedBuffer::new(context, 1, len)?, ShadowedBuffer::new(context, 2, len)?];
    for round in 0..300 {
        let [one, other] = &mut buffers;
        let start = (round * 5) % 48 * unit;
        let part = (1 + round % 16) * unit;
        let range = start..start + part;
        match round % 3 {
            0 => {
                let written = bytes(round as u8, part);
                stream.write(&one.buffer, start, written.clone())?;
                one.bytes[range].copy_from_slice(&written);
            }
            1 => {
                stream.fill(&other.buffer, range.clone(), &[round as u8])?;
                other.bytes[range].fill(round as u8);
            }
            _ => {
                stream.copy(&one.buffer.slice(range.clone())?, &other.buffer.slice(range.clone())?)?;
                other.bytes[range.clone()].copy_from_slice(&one.bytes[range]);
                buffers.swap(0, 1);
            }
        }
    }
    buffers.iter().try_for_each(|buffer| expect_read(&stream, buffer, "after 300 operations in flight"))
}

fn a_read_sees_what_came_before(context: &Context) -> Result<(), Failure> {
    const LEN: usize = 20_000;
    let stream = context.stream()?;
    let buffer = context.allocate(LEN)?;
    let mut reads = Vec::new();
    for round in 0..60 {
        stream.fill(&buffer, 0..LEN, &[round])?;
        reads.push(stream.read(&buffer, 0..LEN)?);
    }
    for (round, read) in reads.into_iter().enumerate() {
        expect_bytes(&read.wait()?, &[round as u8; LEN], format_args!("the read behind fill {round}"))?;
    }
    Ok(())
}

fn a_chain_of_copies(context: &Context) -> Result<(), Failure> {
    const LEN: usize = 30_000;
    let stream = context.stream()?;
    let buffers: Vec<_> = (0..50).map(|_| context.filled(&[0xEE; LEN])).collect::<Result<_, _>>()?;
    for round in 0..5 {
        let expected = bytes(round, LEN);
        stream.write(&buffers[0], 0, expected.clone())?;
        for pair in buffers.windows(2) {
            stream.copy(&pair[0], &pair[1])?;
        }
        let read = stream.read(&buffers[buffers.len() - 1], 0..LEN)?.wait()?;
        expect_bytes(&read, &expected, "the end of a chain of 50 buffers")?;
    }
    Ok(())
}

fn small_work_behind_large(context: &Context) -> Result<(), Failure> {
    const LEN: usize = 4 << 20;
    let stream = context.stream()?;
    let buffer = context.allocate(LEN)?;
    let part = 64 * context.alignment();
    for round in 0..10 {
        stream.fill(&buffer, 0..LEN, &[round])?;
        stream.write(&buffer, LEN - part, vec![0xEE; part])?;
        let read = stream.read(&buffer, LEN - 2 * part..LEN)?.wait()?;
        expect_bytes(
            &read,
            &[vec![round; part], vec![0xEE; part]].concat(),
            "the end of a large fill, written over",
        )?;
    }
    Ok(())
}

fn the_last_of_many_stays(context: &Context) -> Result<(), Failure> {
    let stream = context.stream()?;
    let buffer = context.allocate(512)?;
    for round in 0..1000 {
        stream.write(&buffer, 0, bytes(round as u8, 512))?;
    }
    let read = stream.read(&buffer, 0..512)?.wait()?;
    expect_bytes(&read, &bytes(999_u32 as u8, 512), "after a thousand writes to one range")
}

fn what_blocks_comes_behind_the_current_stream(context: &Context) -> Result<(), Failure> {
    let stream = context.stream()?;
    let pair = busy_pair(context)?;
    let _guard = StreamGuard::new(&stream);
    let buffer = context.allocate(3000)?;
    let copy = context.allocate(3000)?;
    for round in 0..20 {
        keep_busy(&stream, &pair, 8)?;
        stream.fill(&buffer, 0..3000, &[round])?;
        expect_content(&buffer, &[round; 3000], format_args!("read in round {round}"))?;
        keep_busy(&stream, &pair, 8)?;
        stream.fill(&buffer, 0..3000, &[round ^ 0x40])?;
        copy.copy_from(&buffer)?;
        expect_content(&copy, &[round ^ 0x40; 3000], format_args!("copied in round {round}"))?;
        keep_busy(&stream, &pair, 8)?;
        stream.fill(&buffer, 0..3000, &[0xEE])?;
        buffer.write(0, &[round ^ 0x80; 3000])?;
        expect_content(&buffer, &[round ^ 0x80; 3000], format_args!("written in round {round}"))?;
    }
    Ok(())
}

fn what_blocks_comes_behind_the_default_stream(context: &Context) -> Result<(), Failure> {
    let stream = context.device().default_stream()?;
    let pair = busy_pair(context)?;
    let buffer = context.allocate(3000)?;
    for round in 0..20 {
        keep_busy(&stream, &pair, 8)?;
        stream.fill(&buffer, 0..3000, &[round])?;
        expect_content(&buffer, &[round; 3000], format_args!("read in round {round}"))?;
    }
    Ok(())
}

fn streams_on_halves_of_a_buffer(context: &Context) -> Result<(), Failure> {
    for half in [1, 3, 100].map(|units| units * context.alignment()) {
        let buffer = context.filled(&vec![0; 2 * half])?;
        let streams = [context.stream()?, context.stream()?];
        for round in 0..100 {
            for (index, stream) in streams.iter().enumerate() {
                stream.write(&buffer, index * half, bytes(round + 7 * index as u8, half))?;
            }
        }
        streams.iter().try_for_each(|stream| stream.synchronize())?;
        let expected = [bytes(99, half), bytes(106, half)].concat();
        expect_content(&buffer, &expected, format_args!("two halves of {half} bytes"))?;
    }
    Ok(())
}
