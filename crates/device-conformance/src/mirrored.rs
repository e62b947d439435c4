//! A buffer beside what it should hold, and the ranges of it that are worth trying.

use std::fmt;
use std::ops::Range;

use device_registry::Buffer;

use crate::context::{Context, bytes, expect_bytes, expect_content};
use crate::failure::Failure;

/// A buffer on the device, with what it should hold.
pub(crate) struct Mirrored {
    pub(crate) buffer: Buffer,
    pub(crate) bytes: Vec<u8>,
}

impl Mirrored {
    pub(crate) fn new(context: &Context, seed: u8, len: usize) -> Result<Self, Failure> {
        let bytes = bytes(seed, len);
        Ok(Self { buffer: context.filled(&bytes)?, bytes })
    }

    pub(crate) fn write(&mut self, range: Range<usize>, seed: u8) -> Result<(), Failure> {
        let part = bytes(seed, range.len());
        self.buffer.write(range.start, &part)?;
        self.bytes[range].copy_from_slice(&part);
        Ok(())
    }

    pub(crate) fn expect(&self, what: impl fmt::Display) -> Result<(), Failure> {
        expect_content(&self.buffer, &self.bytes, what)
    }

    pub(crate) fn expect_part(&self, range: Range<usize>) -> Result<(), Failure> {
        let mut part = vec![0xA5; range.len()];
        self.buffer.read(range.start, &mut part)?;
        let expected = &self.bytes[range.clone()];
        expect_bytes(&part, expected, format_args!("a read of {range:?} of {} bytes", self.bytes.len()))
    }
}

/// A length of few units that is a multiple of no alignment but 1, so that the end of a buffer is odd.
pub(crate) fn small(context: &Context) -> usize {
    21 * context.alignment() + (context.alignment() > 1) as usize
}

/// All ranges of a small buffer.
pub(crate) fn small_ranges(context: &Context) -> impl Iterator<Item = Range<usize>> {
    context.ranges(small(context), 0..=20, (1..=10).chain([15, 16, 17]))
}

/// The length of a page on most hosts, and a border of blocks on most devices.
pub(crate) const PAGE: usize = 4096;

/// Ranges of a buffer of three pages and a bit that begin and end around the borders of pages.
pub(crate) fn page_ranges(context: &Context) -> (usize, impl Iterator<Item = Range<usize>>) {
    let (len, unit) = (3 * PAGE + 1, context.alignment());
    let around = |border: usize| [border.saturating_sub(unit), border, border + unit];
    let places = [0, PAGE, 2 * PAGE, 3 * PAGE].map(around).concat();
    let starts = places.clone();
    let ranges = starts.into_iter().flat_map(move |start| {
        let ends: Vec<_> = places.iter().copied().filter(|&end| end < len).chain([len]).collect();
        ends.into_iter().filter(move |&end| start < end).map(move |end| start..end)
    });
    (len, ranges)
}
