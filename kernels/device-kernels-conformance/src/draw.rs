//! Random choices that can be made smaller: a list of numbers; each choice takes one.

use device_kernels::MAX_STEP;

/// A list of numbers that choices are made from. A choice by zero is the simplest one, and so are all behind
/// the end of the list. So a call becomes simpler as its numbers become smaller, which proptest makes them.
#[derive(Debug)]
pub(crate) struct Draw<'a> {
    numbers: std::slice::Iter<'a, u32>,
}

/// One direction of a convolution or a pooling: its numbers, and the sizes of the images and of the output.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Line {
    pub(crate) kernel: usize,
    pub(crate) stride: usize,
    pub(crate) padding: usize,
    pub(crate) dilation: usize,
    pub(crate) size: usize,
    pub(crate) out: usize,
}

/// How many numbers a call is drawn from.
pub(crate) const NUMBERS: usize = 120;

/// The sizes next to the lengths of words, vectors and groups of threads.
pub(crate) const TAILS: [usize; 27] = [
    1, 2, 3, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129, 251, 257, 1000, 1009, 1021, 1024,
    1025, 1031,
];

impl<'a> Draw<'a> {
    pub(crate) fn new(numbers: &'a [u32]) -> Self {
        Self { numbers: numbers.iter() }
    }

    pub(crate) fn number(&mut self) -> u32 {
        self.numbers.next().copied().unwrap_or(0)
    }

    /// A number below `end`.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        self.number() as usize % end.max(1)
    }

    /// A number of `low..=high`.
    pub(crate) fn within(&mut self, low: usize, high: usize) -> usize {
        low + self.below(high - low + 1)
    }

    /// True once in `times`.
    pub(crate) fn one_in(&mut self, times: usize) -> bool {
        self.below(times) == times - 1
    }

    /// One of some values, the first of which is the simplest.
    pub(crate) fn one_of<T: Clone>(&mut self, values: &[T]) -> T {
        values[self.below(values.len())].clone()
    }

    /// A shape of at most `rank` dimensions. Most are small; some have a dimension with a size of [`TAILS`].
    pub(crate) fn shape(&mut self, rank: usize) -> Vec<usize> {
        let rank = self.below(rank + 1);
        let mut shape: Vec<usize> = (0..rank).map(|_| self.within(1, if rank > 5 { 2 } else { 4 })).collect();
        if rank > 0 && self.one_in(2) {
            let dim = self.below(rank);
            let others: usize = shape.iter().product::<usize>() / shape[dim];
            let size = self.one_of(&TAILS);
            shape[dim] = if others * size <= 2200 { size } else { size % 10 + 1 };
        }
        shape
    }

    /// A shape of at least `low` and at most `high` dimensions.
    pub(crate) fn shape_of(&mut self, low: usize, high: usize) -> Vec<usize> {
        let mut shape = self.shape(high);
        while shape.len() < low {
            shape.push(self.within(1, 4));
        }
        shape
    }

    /// A number from 1 on that a convolution or a pooling can have: small, or next to the largest one of a
    /// type.
    pub(crate) fn extreme(&mut self) -> usize {
        let words = [1, 2, 3, (1 << 29) - 1, 1 << 29, (1 << 31) - 1, 1 << 31, (1 << 32) - 1, 1 << 32];
        let mut all: Vec<usize> = words.into_iter().filter_map(|word: u64| word.try_into().ok()).collect();
        all.retain(|&number| number < MAX_STEP - 1);
        all.extend([MAX_STEP - 1, MAX_STEP]);
        self.one_of(&all)
    }

    /// One direction of windows of so many elements, whose numbers are extreme and whose images are small.
    /// Some have a last window that ends behind the padding, if `is_pooling`.
    pub(crate) fn extreme_line(&mut self, kernel: usize, is_pooling: bool) -> Line {
        let size = self.within(1, 5);
        let reach = |dilation: usize| {
            let reach = (kernel - 1).checked_mul(dilation)?.checked_add(1)?;
            (reach <= size + 2 * MAX_STEP).then_some(reach)
        };
        let dilation = self.extreme();
        let (dilation, reach) = match reach(dilation) {
            Some(reach) => (dilation, reach),
            None => (1, kernel),
        };
        let least = reach.saturating_sub(size).div_ceil(2);
        let most = if is_pooling { MAX_STEP.min(reach - 1) } else { MAX_STEP };
        let padding = [least, (least + 1).min(most), self.extreme().clamp(least, most)];
        let padding = self.one_of(&padding);
        // At most four windows, one of which is near the image where the padding is large.
        let steps = size + 2 * padding - reach;
        let stride = [self.extreme(), padding.saturating_sub(self.below(3))];
        let stride = self.one_of(&stride).max(steps.div_ceil(3)).max(1);
        let more = steps.div_ceil(stride) + 1;
        let counts = is_pooling && (more - 1) * stride < size + padding && self.one_in(2);
        let out = if counts { more } else { steps / stride + 1 };
        Line { kernel, stride, padding, dilation, size, out }
    }

    /// A source of many values.
    pub(crate) fn stream(&mut self) -> Stream {
        Stream::of(u64::from(self.number()))
    }
}

/// Pseudo-random numbers, for elements: SplitMix64.
#[derive(Debug)]
pub(crate) struct Stream(u64);

impl Stream {
    pub(crate) fn of(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    pub(crate) fn one_of<T: Copy>(&mut self, values: &[T]) -> T {
        values[self.below(values.len() as u64) as usize]
    }

    /// A number from 0 on and below 1.
    pub(crate) fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }
}
