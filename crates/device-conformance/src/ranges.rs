//! The ranges of a buffer that copies and fills are tried on.

use std::ops::Range;

use crate::context::Context;

/// The length of a small buffer. It is a multiple of no alignment except 1.
pub(crate) fn small(context: &Context) -> usize {
    21 * context.alignment() + (context.alignment() > 1) as usize
}

/// Ranges of a small buffer, at all offsets.
pub(crate) fn small_ranges(context: &Context) -> impl Iterator<Item = Range<usize>> {
    context.ranges(small(context), 0..=20, (1..=10).chain([15, 16, 17]))
}

/// The length of a page on most hosts, and the size of a block on most devices.
pub(crate) const PAGE: usize = 4096;

/// Ranges that begin and end near page boundaries, and the length of their buffer: three pages and a byte.
pub(crate) fn page_ranges(context: &Context) -> (usize, impl Iterator<Item = Range<usize>>) {
    let len = 3 * PAGE + 1;
    let unit = context.alignment();
    let around = |boundary: usize| [boundary.saturating_sub(unit), boundary, boundary + unit];
    let places = [0, PAGE, 2 * PAGE, 3 * PAGE].map(around).concat();
    let starts = places.clone();
    let ranges = starts.into_iter().flat_map(move |start| {
        let ends: Vec<_> = places.iter().copied().filter(|&end| end < len).chain([len]).collect();
        ends.into_iter().filter(move |&end| start < end).map(move |end| start..end)
    });
    (len, ranges)
}
