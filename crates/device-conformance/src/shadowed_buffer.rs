//! A device buffer with a copy of its expected bytes on the host.

use std::fmt;
use std::ops::Range;

use device_registry::Buffer;

use crate::context::{Context, bytes, expect_bytes, expect_content};
use crate::failure::Failure;

/// A device buffer and its shadow: the bytes that it should hold.
pub(crate) struct ShadowedBuffer {
    pub(crate) buffer: Buffer,
    pub(crate) bytes: Vec<u8>,
}

impl ShadowedBuffer {
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

    /// Fills a range of the shadow only.
    pub(crate) fn fill_shadow(&mut self, range: Range<usize>, pattern: &[u8]) {
        self.bytes[range]
            .chunks_mut(pattern.len())
            .for_each(|part| part.copy_from_slice(&pattern[..part.len()]));
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
