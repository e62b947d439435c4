//! Writes, reads and copies: each changes its range and nothing else.

use std::ops::Range;

use device_registry::DeviceError;

use super::check;
use crate::check::Check;
use crate::context::{Context, bytes, content, expect_bytes, expect_content};
use crate::failure::{Failure, ensure};
use crate::ranges::{PAGE, page_ranges, small, small_ranges};
use crate::shadowed_buffer::ShadowedBuffer;

pub(super) const CHECKS: &[Check] = &[
    check!(
        copies::write_at_every_place,
        "a write at any offset of a buffer changes its range and nothing else"
    ),
    check!(copies::read_at_every_place, "a read at any offset of a buffer returns the bytes of its range"),
    check!(
        copies::copy_at_every_place,
        "a copy between any offsets of two buffers changes its destination and nothing else"
    ),
    check!(
        copies::copy_within_at_every_place,
        "a copy between ranges of one buffer that do not overlap changes its destination and nothing else"
    ),
    check!(
        copies::write_around_page_borders,
        "writes that begin or end near page boundaries change their range"
    ),
    check!(
        copies::read_around_page_borders,
        "reads that begin or end near page boundaries return the bytes of their range"
    ),
    check!(
        copies::copy_around_page_borders,
        "copies that begin or end near page boundaries change their destination"
    ),
    check!(
        copies::large_at_odd_places,
        "copies of several MiB, at offsets that are not powers of two, are complete"
    ),
    check!(
        copies::to_the_last_byte,
        "the last byte of a buffer of any small length is written, read and copied"
    ),
    check!(copies::every_byte_value, "bytes of every value are read back unchanged"),
    check!(copies::zeros_are_written, "zeros replace the bytes before them"),
    check!(copies::same_bytes_are_written, "long runs of one byte are read back unchanged"),
    check!(copies::the_last_write_stays, "the last of several writes to one range stays"),
    check!(copies::reading_changes_nothing, "repeated reads do not change a buffer"),
    check!(copies::the_source_stays, "a copy does not change its source"),
    check!(copies::a_long_chain, "bytes survive a hundred copies from buffer to buffer"),
    check!(copies::any_place_on_the_host, "bytes on the host may have any alignment"),
    check!(
        copies::they_are_done_when_they_return,
        "when a write or a copy returns, its bytes are in place and the host may reuse its memory"
    ),
    check!(
        copies::two_buffers_never_overlap,
        "a copy works between any two buffers, and a copy onto itself is an error that changes nothing"
    ),
    check!(
        copies::refusals_change_nothing,
        "a copy beyond the end of a buffer is an error that changes nothing, and the buffer still works"
    ),
];

/// Copies, and compares the whole destination.
fn expect_copy(
    source: &ShadowedBuffer,
    range: Range<usize>,
    to: &mut ShadowedBuffer,
    at: usize,
) -> Result<(), Failure> {
    let target = at..at + range.len();
    to.buffer.slice(target.clone())?.copy_from(&source.buffer.slice(range.clone())?)?;
    to.bytes[target].copy_from_slice(&source.bytes[range.clone()]);
    to.expect(format_args!("the destination of a copy of {range:?} to {at}"))
}

fn write_at_every_place(context: &Context) -> Result<(), Failure> {
    let mut buffer = ShadowedBuffer::new(context, 0, small(context))?;
    for (index, range) in small_ranges(context).enumerate() {
        buffer.write(range.clone(), index as u8)?;
        buffer.expect(format_args!("after a write to {range:?}"))?;
    }
    Ok(())
}

fn read_at_every_place(context: &Context) -> Result<(), Failure> {
    let buffer = ShadowedBuffer::new(context, 1, small(context))?;
    small_ranges(context).try_for_each(|range| buffer.expect_part(range))
}

fn copy_at_every_place(context: &Context) -> Result<(), Failure> {
    let unit = context.alignment();
    let len = small(context);
    for range in context.ranges(len, [0, 1, 2, 3, 4, 5, 7, 8, 9, 13], [1, 2, 3, 4, 5, 8].into_iter()) {
        let source = ShadowedBuffer::new(context, range.start as u8, len)?;
        let mut to = ShadowedBuffer::new(context, 0x80, len)?;
        let places = [0, 1, 2, 3, 4, 5, 8, 11].map(|place| place * unit).into_iter();
        // A range with an odd length reaches the end of the source, and so has to reach the end of the
        // destination too.
        let whole = range.len().is_multiple_of(unit);
        for at in places.filter(|at| at + range.len() <= len && (whole || at + range.len() == len)) {
            expect_copy(&source, range.clone(), &mut to, at)?;
        }
    }
    Ok(())
}

fn copy_within_at_every_place(context: &Context) -> Result<(), Failure> {
    let unit = context.alignment();
    let mut buffer = ShadowedBuffer::new(context, 2, small(context))?;
    for len in [1, 2, 3, 4, 5, 7, 8, 10_usize] {
        for (from, to) in (0..=20 - len).flat_map(|from| (0..=20 - len).map(move |to| (from, to))) {
            // This includes adjacent ranges.
            if from.abs_diff(to) < len || (from + to) % 3 == 1 {
                continue;
            }
            let range = from * unit..(from + len) * unit;
            let at = to * unit;
            let source = buffer.buffer.slice(range.clone())?;
            buffer.buffer.slice(at..at + range.len())?.copy_from(&source)?;
            buffer.bytes.copy_within(range.clone(), at);
            buffer.expect(format_args!("after a copy of {range:?} to {at} within it"))?;
        }
    }
    Ok(())
}

fn write_around_page_borders(context: &Context) -> Result<(), Failure> {
    let (len, ranges) = page_ranges(context);
    let mut buffer = ShadowedBuffer::new(context, 3, len)?;
    for (index, range) in ranges.enumerate() {
        buffer.write(range.clone(), index as u8)?;
        buffer.expect(format_args!("after a write to {range:?}"))?;
    }
    Ok(())
}

fn read_around_page_borders(context: &Context) -> Result<(), Failure> {
    let (len, mut ranges) = page_ranges(context);
    let buffer = ShadowedBuffer::new(context, 4, len)?;
    ranges.try_for_each(|range| buffer.expect_part(range))
}

fn copy_around_page_borders(context: &Context) -> Result<(), Failure> {
    let (len, ranges) = page_ranges(context);
    let unit = context.alignment();
    let source = ShadowedBuffer::new(context, 5, len)?;
    let mut to = ShadowedBuffer::new(context, 6, len)?;
    for (index, range) in ranges.enumerate() {
        // To the same offset, and, where it fits, to an offset with another distance to the page boundary.
        let others = [range.start, range.start.saturating_sub(unit), range.start + unit, PAGE];
        let at = others[index % others.len()];
        let fits = at + range.len() <= len && (range.len().is_multiple_of(unit) || at + range.len() == len);
        expect_copy(&source, range.clone(), &mut to, if fits { at } else { range.start })?;
    }
    Ok(())
}

fn large_at_odd_places(context: &Context) -> Result<(), Failure> {
    let unit = context.alignment();
    let len = (3 << 20) + 7 * unit;
    let mut buffer = ShadowedBuffer::new(context, 7, len)?;
    buffer.write(3 * unit..len - 2 * unit, 8)?;
    buffer.expect("after a large write")?;
    buffer.expect_part(5 * unit..len - unit)?;
    let mut to = ShadowedBuffer::new(context, 9, len + 2 * unit)?;
    expect_copy(&buffer, unit..len - unit, &mut to, 3 * unit)
}

fn to_the_last_byte(context: &Context) -> Result<(), Failure> {
    let unit = context.alignment();
    for len in 1..=67 {
        let mut buffer = ShadowedBuffer::new(context, 10, len)?;
        let last = (len - 1) / unit * unit;
        buffer.write(last..len, 11)?;
        buffer.expect(format_args!("after a write to the last of {len} bytes"))?;
        buffer.expect_part(last..len)?;
        let mut to = ShadowedBuffer::new(context, 12, len)?;
        expect_copy(&buffer, last..len, &mut to, last)?;
    }
    Ok(())
}

fn every_byte_value(context: &Context) -> Result<(), Failure> {
    let expected: Vec<u8> = (0..=255).chain((0..=255).rev()).collect();
    let buffer = context.filled(&expected)?;
    let copy = context.allocate(expected.len())?;
    copy.copy_from(&buffer)?;
    expect_content(&buffer, &expected, "all values")?;
    expect_content(&copy, &expected, "a copy of all values")
}

fn zeros_are_written(context: &Context) -> Result<(), Failure> {
    for len in [1, 64, 4096, 100_000] {
        let buffer = context.filled(&vec![0xFF; len])?;
        buffer.write(0, &vec![0; len])?;
        expect_content(&buffer, &vec![0; len], format_args!("{len} zeros over ones"))?;
        let other = context.filled(&vec![0xFF; len])?;
        other.copy_from(&buffer)?;
        expect_content(&other, &vec![0; len], format_args!("{len} zeros copied over ones"))?;
    }
    Ok(())
}

fn same_bytes_are_written(context: &Context) -> Result<(), Failure> {
    for value in [0x00, 0x01, 0x7F, 0x80, 0xFF] {
        let expected = vec![value; 70_001];
        let buffer = ShadowedBuffer::new(context, 13, expected.len())?.buffer;
        buffer.write(0, &expected)?;
        expect_content(&buffer, &expected, format_args!("a run of {value:#04x}"))?;
    }
    Ok(())
}

fn the_last_write_stays(context: &Context) -> Result<(), Failure> {
    let mut buffer = ShadowedBuffer::new(context, 14, 4096)?;
    for seed in 0..=255 {
        buffer.write(0..4096, seed)?;
    }
    buffer.expect("after 256 writes to one range")
}

fn reading_changes_nothing(context: &Context) -> Result<(), Failure> {
    let buffer = ShadowedBuffer::new(context, 15, 4097)?;
    for round in 0..20 {
        buffer.expect(format_args!("read {round} times before"))?;
    }
    Ok(())
}

fn the_source_stays(context: &Context) -> Result<(), Failure> {
    for len in [1, 64, 4097] {
        let source = ShadowedBuffer::new(context, 16, len)?;
        let to = context.filled(&vec![0; len])?;
        to.copy_from(&source.buffer)?;
        source.expect(format_args!("the source of a copy of {len} bytes"))?;
        to.write(0, &vec![0xEE; len])?;
        source.expect("the source of a copy that was written over")?;
    }
    Ok(())
}

fn a_long_chain(context: &Context) -> Result<(), Failure> {
    let expected = bytes(17, 1001);
    let mut last = context.filled(&expected)?;
    for _ in 0..100 {
        let next = context.allocate(expected.len())?;
        next.copy_from(&last)?;
        last = next;
    }
    expect_content(&last, &expected, "after 100 copies")
}

fn any_place_on_the_host(context: &Context) -> Result<(), Failure> {
    let host = bytes(18, 200);
    for start in 0..32 {
        let source = &host[start..start + 67];
        let buffer = context.filled(source)?;
        expect_content(&buffer, source, format_args!("written from host memory with offset {start}"))?;
        let mut destination = vec![0x5A; 200];
        buffer.read(0, &mut destination[start..start + 67])?;
        let mut expected = vec![0x5A; 200];
        expected[start..start + 67].copy_from_slice(source);
        expect_bytes(&destination, &expected, format_args!("read to host memory with offset {start}"))?;
    }
    Ok(())
}

fn they_are_done_when_they_return(context: &Context) -> Result<(), Failure> {
    const LEN: usize = 50_000;
    let buffer = context.allocate(LEN)?;
    let copy = context.allocate(LEN)?;
    let mut host = vec![0; LEN];
    for round in 0..100 {
        host.fill(round);
        buffer.write(0, &host)?;
        // A driver that still reads the host memory would copy these bytes.
        host.fill(0xEE);
        copy.copy_from(&buffer)?;
        buffer.write(0, &host)?;
        expect_content(&copy, &[round; LEN], format_args!("the copy in round {round}, read at once"))?;
    }
    Ok(())
}

fn two_buffers_never_overlap(context: &Context) -> Result<(), Failure> {
    let mut held = Vec::new();
    for index in 0..20 {
        held.push(ShadowedBuffer::new(context, index, 64)?);
    }
    for from in 0..held.len() {
        let to = (from + 7) % held.len();
        let source = held[from].buffer.clone();
        held[to].buffer.copy_from(&source)?;
        held[to].bytes = held[from].bytes.clone();
        let onto_itself = source.copy_from(&source);
        ensure!(
            matches!(onto_itself, Err(DeviceError::Overlap { .. })),
            "a copy onto itself: expected an error about overlapping ranges, got {onto_itself:?}"
        );
    }
    held.iter().try_for_each(|buffer| buffer.expect("after copies among twenty buffers"))
}

fn refusals_change_nothing(context: &Context) -> Result<(), Failure> {
    let len = 64 * context.alignment();
    let mut buffer = ShadowedBuffer::new(context, 19, len)?;
    let other = ShadowedBuffer::new(context, 20, 2 * len)?;
    for result in [
        buffer.buffer.write(0, &vec![0xEE; len + 1]),
        buffer.buffer.write(usize::MAX, &[0xEE; 2]),
        buffer.buffer.read(len, &mut [0; 1]),
    ] {
        ensure!(
            matches!(result, Err(DeviceError::OutOfRange { .. })),
            "expected an error about a range, got {result:?}"
        );
    }
    let too_long = buffer.buffer.copy_from(&other.buffer);
    ensure!(
        matches!(too_long, Err(DeviceError::LengthMismatch { .. })),
        "a copy of more bytes than the destination has: expected an error about lengths, got {too_long:?}"
    );
    buffer.expect("after refused copies")?;
    expect_copy(&other, len..2 * len, &mut buffer, 0)?;
    ensure!(content(&other.buffer)? == other.bytes, "the other buffer has changed");
    Ok(())
}
