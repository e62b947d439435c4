//! Numbers that look random and are the same on every machine: the data and the first weights.

/// A sequence of numbers, by its seed.
pub(crate) struct Numbers(u64);

impl Numbers {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// SplitMix64.
    fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let bits = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    }

    /// The next number, from `-limit` to `limit`.
    pub(crate) fn within(&mut self, limit: f32) -> f32 {
        // 24 bits are exact in an `f32`.
        let part = (self.bits() >> 40) as f32 / (1 << 24) as f32;
        (2.0 * part - 1.0) * limit
    }

    /// The next number, below `end`.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        (self.bits() % end as u64) as usize
    }

    /// The next numbers, from `-limit` to `limit`.
    pub(crate) fn many(&mut self, count: usize, limit: f32) -> Vec<f32> {
        (0..count).map(|_| self.within(limit)).collect()
    }
}
