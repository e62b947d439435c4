//! The pattern of a fill.

use std::fmt;

/// The bytes that a fill repeats: 1, 2, 4, 8 or 16 of them. Only the core constructs one.
///
/// The core shortens a pattern that repeats itself: four zero bytes become one.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct FillPattern {
    bytes: [u8; 16],
    len: u8,
}

impl FillPattern {
    /// A pattern of these bytes; `None` if its length is invalid.
    pub(crate) fn new(mut pattern: &[u8]) -> Option<Self> {
        if !matches!(pattern.len(), 1 | 2 | 4 | 8 | 16) {
            return None;
        }
        while let (first, second) = pattern.split_at(pattern.len() / 2)
            && first == second
            && !first.is_empty()
        {
            pattern = first;
        }
        let mut bytes = [0; 16];
        bytes[..pattern.len()].copy_from_slice(pattern);
        Some(Self { bytes, len: pattern.len() as u8 })
    }

    /// The bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }

    /// Fills `destination` with the pattern. In a fill of the core, the length is always a multiple of the
    /// pattern's.
    ///
    /// ```
    /// # use device_registry::backend::{HostMemory, FillPattern};
    /// fn fill(memory: &HostMemory, pattern: &FillPattern) -> Result<(), device_registry::backend::BackendError> {
    ///     pattern.fill(&mut memory.write(0..16)?);
    ///     Ok(())
    /// }
    /// ```
    pub fn fill(&self, destination: &mut [u8]) {
        let pattern = self.as_bytes();
        if let [byte] = pattern {
            return destination.fill(*byte);
        }
        // Each step doubles the filled part: copies of long runs are as fast as memory.
        let mut filled = pattern.len().min(destination.len());
        destination[..filled].copy_from_slice(&pattern[..filled]);
        while filled < destination.len() {
            let (done, rest) = destination.split_at_mut(filled);
            // Short enough that the source stays in a cache.
            let next = filled.min(rest.len()).min(1 << 16);
            rest[..next].copy_from_slice(&done[..next]);
            filled += next;
        }
    }
}

impl fmt::Debug for FillPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FillPattern({:02x?})", self.as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_that_repeats_itself_is_shortened() {
        let short = |bytes: &[u8]| FillPattern::new(bytes).unwrap().as_bytes().to_vec();
        assert_eq!(short(&[0; 16]), [0]);
        assert_eq!(short(b"abababab"), b"ab");
        assert_eq!(short(b"abcdabce"), b"abcdabce");
        assert_eq!(short(b"aab_"), b"aab_");
    }

    #[test]
    fn other_lengths_are_invalid() {
        for len in [0, 3, 5, 6, 12, 15, 17, 32] {
            assert!(FillPattern::new(&vec![1; len]).is_none(), "{len}");
        }
    }

    #[test]
    fn a_fill_repeats_the_pattern_to_the_end() {
        for pattern in [&b"x"[..], b"ab", b"abcd", b"abcdefgh", b"abcdefghijklmnop"] {
            for times in [0, 1, 2, 3, 1000, 70_001] {
                let mut bytes = vec![0; pattern.len() * times];
                FillPattern::new(pattern).unwrap().fill(&mut bytes);
                assert!(bytes == pattern.repeat(times), "{pattern:?} {times}");
            }
        }
    }
}
