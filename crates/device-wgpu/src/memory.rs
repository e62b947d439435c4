//! One allocation, as kernels and frameworks see it.

use device_registry::backend::{BackendError, Memory, Span};
use wgpu::{BufferUsages, COPY_BUFFER_ALIGNMENT};

/// The uses of memory: kernels and copies.
pub(crate) const USES: BufferUsages = BufferUsages::STORAGE
    .union(BufferUsages::UNIFORM)
    .union(BufferUsages::INDIRECT)
    .union(BufferUsages::COPY_SRC)
    .union(BufferUsages::COPY_DST);

/// The memory behind a buffer on a device of `wgpu`.
#[derive(Debug)]
pub struct WgpuMemory {
    buffer: wgpu::Buffer,
}

impl Memory for WgpuMemory {}

impl WgpuMemory {
    pub(crate) fn new(buffer: wgpu::Buffer) -> Self {
        Self { buffer }
    }

    /// The native handle: a buffer of [`STORAGE`](BufferUsages::STORAGE), [`UNIFORM`](BufferUsages::UNIFORM),
    /// [`INDIRECT`](BufferUsages::INDIRECT), [`COPY_SRC`](BufferUsages::COPY_SRC) and
    /// [`COPY_DST`](BufferUsages::COPY_DST). The bytes of a [`Span`] begin at its [`offset`](Span::offset).
    ///
    /// Its length is the allocation's, rounded up to a multiple of 4 bytes. Destroying it breaks every
    /// use of it.
    #[must_use]
    pub fn buffer(&self) -> &wgpu::Buffer {
        &self.buffer
    }
}

/// A length rounded up to whole words. wgpu only copies whole words, and all memory consists of them.
pub(crate) fn whole_words(len: usize) -> u64 {
    (len as u64).next_multiple_of(COPY_BUFFER_ALIGNMENT)
}

/// The bytes of a span, in whole words, as commands take them.
#[derive(Clone, Copy)]
pub(crate) struct DeviceRange<'a> {
    pub(crate) buffer: &'a wgpu::Buffer,
    pub(crate) offset: u64,
    pub(crate) len: u64,
}

impl<'a> DeviceRange<'a> {
    pub(crate) fn of(span: &'a Span) -> Result<Self, BackendError> {
        let memory: &WgpuMemory = span.memory_as()?;
        // A length that is not a multiple of a word reaches the end of its memory, which has whole words.
        Ok(Self { buffer: memory.buffer(), offset: span.offset() as u64, len: whole_words(span.len()) })
    }

    /// The part of `len` bytes that begins at `start`.
    pub(crate) fn part(self, start: u64, len: u64) -> Self {
        Self { buffer: self.buffer, offset: self.offset + start, len }
    }
}
