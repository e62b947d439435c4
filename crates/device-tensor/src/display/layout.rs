//! Which elements are shown, and where: brackets, line breaks, and `...` for what is left out.

use std::ops::Range;

use super::LINE_WIDTH;
use super::format::Texts;

/// A tensor with more elements than this is not shown whole.
const SUMMARIZE_ABOVE: usize = 1000;
/// How many are shown at each end of a dimension that is cut.
const EDGE: usize = 3;

/// The layout of all elements of a tensor that is not empty.
pub(super) struct Layout {
    dimensions: Vec<Dimension>,
}

struct Dimension {
    len: usize,
    /// How many elements apart two neighbours are.
    stride: usize,
    /// Whether only both ends are shown.
    cut: bool,
}

/// A row of the last dimension.
struct Row {
    /// Where in the tensor it starts.
    offset: usize,
    /// The outermost dimension whose index differs from the previous row's.
    dimension: usize,
    /// Whether others were left out in between.
    after_gap: bool,
}

impl Layout {
    pub(super) fn new(shape: &[usize]) -> Self {
        let summarize = shape.iter().product::<usize>() > SUMMARIZE_ABOVE;
        let dimension = |stride: &mut usize, &len: &usize| {
            let dimension = Dimension { len, stride: *stride, cut: summarize && len > 2 * EDGE };
            *stride *= len;
            Some(dimension)
        };
        let mut dimensions: Vec<_> = shape.iter().rev().scan(1, dimension).collect();
        dimensions.reverse();
        Self { dimensions }
    }

    /// The elements that are shown, in order: only these are read, and only these decide on the format.
    pub(super) fn shown(&self) -> Vec<Range<usize>> {
        let (len, cut) = self.dimensions.last().map_or((1, false), |last| (last.len, last.cut));
        let (head, tail) = if cut { (EDGE, len - EDGE) } else { (len, len) };
        let mut shown: Vec<Range<usize>> = Vec::new();
        for row in self.rows() {
            for range in [row.offset..row.offset + head, row.offset + tail..row.offset + len] {
                match shown.last_mut().filter(|last| last.end == range.start) {
                    Some(last) => last.end = range.end,
                    None => shown.push(range),
                }
            }
        }
        shown
    }

    /// The rows that are shown. Not by recursion: there can be more dimensions than a stack has room for.
    fn rows(&self) -> Vec<Row> {
        let mut rows = vec![Row { offset: 0, dimension: 0, after_gap: false }];
        let outer = &self.dimensions[..self.dimensions.len().saturating_sub(1)];
        let mut at = vec![0; outer.len()];
        let more = |at: &[usize]| (0..at.len()).rev().find(|&nth| at[nth] + 1 < outer[nth].shown());
        while let Some(dimension) = more(&at) {
            at[dimension] += 1;
            at[dimension + 1..].fill(0);
            let offset =
                outer.iter().zip(&at).map(|(dimension, &nth)| dimension.place(nth) * dimension.stride).sum();
            rows.push(Row { offset, dimension, after_gap: outer[dimension].cut && at[dimension] == EDGE });
        }
        rows
    }

    /// The elements between brackets, given those that are shown. The first line starts in the column
    /// `indent`.
    pub(super) fn write(&self, texts: &Texts, indent: usize) -> String {
        let mut padded = texts.padded();
        let Some(last) = self.dimensions.last() else {
            return padded.collect();
        };
        let depth = self.dimensions.len();
        let per_line = (LINE_WIDTH.saturating_sub(indent + depth - 1) / (texts.width() + 2)).max(1);
        let line_break = format!(",\n{}", " ".repeat(indent + depth));
        let mut out = "[".repeat(depth);
        for (at, row) in self.rows().into_iter().enumerate() {
            if at > 0 {
                let closed = depth - 1 - row.dimension;
                let separator = format!(",{}{}", "\n".repeat(closed), " ".repeat(indent + row.dimension + 1));
                out += &"]".repeat(closed);
                if row.after_gap {
                    out += &format!("{separator}...");
                }
                out += &separator;
                out += &"[".repeat(closed);
            }
            let mut items: Vec<_> = padded.by_ref().take(last.shown()).collect();
            if last.cut {
                items.insert(EDGE, " ...".to_owned());
            }
            let lines: Vec<_> = items.chunks(per_line).map(|line| line.join(", ")).collect();
            out += &lines.join(&line_break);
        }
        out += &"]".repeat(depth);
        out
    }
}

impl Dimension {
    /// How many places of it are shown.
    fn shown(&self) -> usize {
        if self.cut { 2 * EDGE } else { self.len }
    }

    /// The index of a place that is shown.
    fn place(&self, nth: usize) -> usize {
        if self.cut && nth >= EDGE { self.len - 2 * EDGE + nth } else { nth }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The ranges that are shown, by their starts and ends.
    fn shown(shape: &[usize]) -> Vec<(usize, usize)> {
        Layout::new(shape).shown().into_iter().map(|range| (range.start, range.end)).collect()
    }

    #[test]
    fn all_of_a_small_tensor_is_read_at_once() {
        assert_eq!(shown(&[]), [(0, 1)]);
        assert_eq!(shown(&[10, 10, 10]), [(0, 1000)]);
        assert_eq!(shown(&[7, 1, 1]), [(0, 7)]);
    }

    #[test]
    fn of_a_large_one_only_what_is_shown_is_read() {
        assert_eq!(shown(&[1001]), [(0, 3), (998, 1001)]);
        let half = isize::MAX as usize / 2;
        assert_eq!(shown(&[half, 2]), [(0, 6), (2 * half - 6, 2 * half)]);
        assert_eq!(shown(&[2, 1000]), [(0, 3), (997, 1003), (1997, 2000)]);
    }

    #[test]
    fn there_may_be_more_dimensions_than_a_stack_has_room_for() {
        let text = Layout::new(&[1; 100_000]).write(&Texts::of_words([7].iter()), 0);
        assert_eq!(text.len(), 200_001);
    }
}
