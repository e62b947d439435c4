//! Fills: each repeats its pattern over its range and changes nothing else.

use std::ops::Range;

use super::check;
use crate::check::Check;
use crate::context::{Context, expect_content, in_threads};
use crate::failure::Failure;
use crate::ranges::{PAGE, page_ranges, small, small_ranges};
use crate::shadowed_buffer::ShadowedBuffer;

pub(super) const CHECKS: &[Check] = &[
    check!(
        fill::every_pattern_length,
        "patterns of 1, 2, 4, 8 and 16 bytes fill buffers whose lengths are multiples of theirs"
    ),
    check!(fill::at_every_place, "a fill at any offset of a buffer changes its range and nothing else"),
    check!(
        fill::whole_buffers,
        "buffers of each length from 1 to 130 can be filled as a whole with one byte"
    ),
    check!(fill::around_page_borders, "fills that begin or end near page boundaries change their range"),
    check!(fill::large, "a fill of many MiB is complete, with each length of pattern"),
    check!(fill::every_byte_value, "a fill works with bytes of every value"),
    check!(fill::patterns_with_zeros, "patterns with zeros in them replace the bytes before them"),
    check!(
        fill::each_thread_in_its_part,
        "threads that fill adjacent ranges of one buffer do not change each other's"
    ),
];

/// Patterns of every length. No byte repeats in them.
pub(super) fn patterns() -> [Vec<u8>; 5] {
    [1, 2, 4, 8, 16].map(|len| (0..len).map(|i| 0xF1_u8.wrapping_mul(i + 3)).collect())
}

/// Fills, and compares the whole buffer.
fn expect_fill(buffer: &mut ShadowedBuffer, range: Range<usize>, pattern: &[u8]) -> Result<(), Failure> {
    buffer.buffer.fill(range.clone(), pattern)?;
    buffer.fill_shadow(range.clone(), pattern);
    buffer.expect(format_args!("after a fill of {range:?} with {pattern:02x?}"))
}

/// Whether a fill with this pattern may have this range.
pub(super) fn allows(pattern: &[u8], range: &Range<usize>) -> bool {
    range.start.is_multiple_of(pattern.len()) && range.len().is_multiple_of(pattern.len())
}

fn every_pattern_length(context: &Context) -> Result<(), Failure> {
    for pattern in patterns() {
        for times in [1, 2, 3, 5, 8, 31, 1000] {
            let len = pattern.len() * times;
            expect_fill(&mut ShadowedBuffer::new(context, 1, len)?, 0..len, &pattern)?;
        }
    }
    Ok(())
}

fn at_every_place(context: &Context) -> Result<(), Failure> {
    for pattern in patterns() {
        let len = 7 * pattern.len().max(context.alignment()) + 3;
        let mut buffer = ShadowedBuffer::new(context, 2, len)?;
        for range in context.ranges(len, 0..=len / context.alignment(), (1..=len / context.alignment()).rev())
        {
            if allows(&pattern, &range) {
                buffer.write(0..len, range.start as u8)?;
                expect_fill(&mut buffer, range, &pattern)?;
            }
        }
    }
    let mut buffer = ShadowedBuffer::new(context, 3, small(context))?;
    small_ranges(context).try_for_each(|range| {
        let value = [range.len() as u8];
        expect_fill(&mut buffer, range, &value)
    })
}

fn whole_buffers(context: &Context) -> Result<(), Failure> {
    (1..=130)
        .try_for_each(|len| expect_fill(&mut ShadowedBuffer::new(context, 4, len)?, 0..len, &[len as u8]))
}

fn around_page_borders(context: &Context) -> Result<(), Failure> {
    let (len, ranges) = page_ranges(context);
    let mut buffer = ShadowedBuffer::new(context, 5, len)?;
    for (index, range) in ranges.enumerate() {
        expect_fill(&mut buffer, range, &[index as u8])?;
    }
    for pattern in patterns() {
        for range in [PAGE - 16..PAGE + 16, PAGE..2 * PAGE, 16..3 * PAGE - 16] {
            let unit = context.alignment();
            if range.start.is_multiple_of(unit) && range.len().is_multiple_of(unit) {
                expect_fill(&mut buffer, range, &pattern)?;
            }
        }
    }
    Ok(())
}

fn large(context: &Context) -> Result<(), Failure> {
    let len = (9 << 20) + 48;
    let buffer = context.allocate(len)?;
    for pattern in patterns() {
        buffer.fill(0..len, &pattern)?;
        expect_content(
            &buffer,
            &pattern.repeat(len / pattern.len()),
            format_args!("a fill with {pattern:02x?}"),
        )?;
    }
    Ok(())
}

fn every_byte_value(context: &Context) -> Result<(), Failure> {
    let buffer = context.allocate(100)?;
    for value in 0..=255 {
        buffer.fill(0..100, &[value])?;
        expect_content(&buffer, &[value; 100], format_args!("a fill with {value:#04x}"))?;
    }
    Ok(())
}

fn patterns_with_zeros(context: &Context) -> Result<(), Failure> {
    for pattern in [&[0][..], &[0, 1], &[1, 0], &[0, 0, 0, 1], &[1, 0, 0, 0, 0, 0, 0, 0], &[0; 16]] {
        let mut buffer = ShadowedBuffer::new(context, 6, 4096)?;
        buffer.write(0..4096, 7)?;
        expect_fill(&mut buffer, 0..4096, pattern)?;
    }
    Ok(())
}

fn each_thread_in_its_part(context: &Context) -> Result<(), Failure> {
    const THREADS: usize = 8;
    for part in [1, 3, 64].map(|units| units * context.alignment()) {
        let buffer = context.filled(&vec![0; THREADS * part])?;
        in_threads(THREADS, |index| {
            let own = index * part..(index + 1) * part;
            (0..50).try_for_each(|round| Ok(buffer.fill(own.clone(), &[(index * 50 + round) as u8])?))
        })?;
        let expected: Vec<u8> = (0..THREADS).flat_map(|index| vec![(index * 50 + 49) as u8; part]).collect();
        expect_content(&buffer, &expected, format_args!("parts of {part} bytes, each filled by a thread"))?;
    }
    Ok(())
}
