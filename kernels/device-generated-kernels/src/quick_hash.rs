//! A hash for recipes, which are looked up at each launch. They are made of the program's own calls, so that
//! nobody gains by recipes with one hash.

use std::hash::{BuildHasher, Hasher};

/// Makes [`Words`].
#[derive(Clone, Copy, Default)]
pub(crate) struct QuickHash;

impl BuildHasher for QuickHash {
    type Hasher = Words;

    fn build_hasher(&self) -> Words {
        Words(0)
    }
}

/// Mixes one word after the other.
pub(crate) struct Words(u64);

impl Words {
    fn add(&mut self, word: u64) {
        // An odd number whose bits are random.
        self.0 = (self.0.rotate_left(23) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}

impl Hasher for Words {
    fn write(&mut self, bytes: &[u8]) {
        for bytes in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..bytes.len()].copy_from_slice(bytes);
            self.add(u64::from_le_bytes(word));
        }
    }

    fn write_u8(&mut self, number: u8) {
        self.add(number.into());
    }

    fn write_u32(&mut self, number: u32) {
        self.add(number.into());
    }

    fn write_u64(&mut self, number: u64) {
        self.add(number);
    }

    fn write_usize(&mut self, number: usize) {
        self.add(number as u64);
    }

    fn write_isize(&mut self, number: isize) {
        self.add(number as u64);
    }

    fn finish(&self) -> u64 {
        // Maps take the low bits and the highest ones; a product is best in the high ones.
        self.0 ^ (self.0 >> 32)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn words_and_their_order_count() {
        let hash = |words: &[u64]| QuickHash.hash_one(words);
        let mut hashes = HashSet::new();
        for a in 0..64 {
            for b in 0..64 {
                hashes.insert(hash(&[a, b]));
            }
        }
        assert_eq!(hashes.len(), 64 * 64);
        let low: HashSet<u64> = hashes.iter().map(|hash| hash & 0xfff).collect();
        // Random numbers leave 0.37 of the places empty.
        assert!(low.len() > 2_000, "{}", low.len());
        assert_ne!(QuickHash.hash_one("ab"), QuickHash.hash_one("ba"));
    }
}
