//! Bytes on their way between the host and the device, in buffers that both reach.

use std::sync::Arc;

use device_registry::backend::BackendError;
use wgpu::{BufferDescriptor, BufferUsages, MAP_ALIGNMENT, MapMode};

use crate::context::Context;
use crate::loss::Loss;
use crate::mapping::Mapping;
use crate::memory::whole_words;
use crate::submission::Submission;

/// The length of the pieces of a longer copy: the host copies one piece while the device copies another.
pub(crate) const PIECE: usize = 4 << 20;

/// The shortest buffer. The others are powers of two up to a piece.
const SHORTEST: u64 = 4 << 10;

/// The shortest buffer for bytes to the device: several writes of one submission share it.
const SHARED: u64 = 64 << 10;

/// The length of the buffer for `len` bytes.
fn class(len: usize) -> u64 {
    whole_words(len).next_power_of_two().max(SHORTEST)
}

/// A mapped buffer, which the host fills with bytes for the device.
pub(crate) struct StagingBuffer {
    buffer: wgpu::Buffer,
    used: u64,
}

/// Bytes in a staging buffer.
pub(crate) struct Staged {
    pub(crate) buffer: wgpu::Buffer,
    pub(crate) offset: u64,
}

/// Buffers that the device writes pieces to, with the bytes of each.
pub(crate) type Landings = Vec<(wgpu::Buffer, u64)>;

impl StagingBuffer {
    /// Appends bytes. Behind them come zeros, up to whole words. `None` if there is no room.
    pub(crate) fn append(&mut self, loss: &Loss, bytes: &[u8]) -> Option<Result<Staged, BackendError>> {
        let offset = self.used;
        let len = whole_words(bytes.len());
        let end = offset.checked_add(len).filter(|&end| end <= self.buffer.size())?;
        let mut view = match self.buffer.get_mapped_range_mut(offset..end) {
            Ok(view) => view,
            Err(error) => return Some(Err(loss.unmapped(error))),
        };
        let mut to = view.slice(..);
        to.slice(..bytes.len()).copy_from_slice(bytes);
        to.slice(bytes.len()..).fill(0);
        drop(view);
        self.used = end.next_multiple_of(MAP_ALIGNMENT);
        Some(Ok(Staged { buffer: self.buffer.clone(), offset }))
    }

    /// Ends the host's part.
    pub(crate) fn unmap(self) -> wgpu::Buffer {
        self.buffer.unmap();
        self.buffer
    }
}

/// Bytes that are being read in pieces, each into its own buffer.
pub(crate) struct StagedRead {
    pieces: Vec<(wgpu::Buffer, Arc<Mapping>)>,
    submission: Arc<Submission>,
}

impl StagedRead {
    /// Begins to map what a submission copies.
    pub(crate) fn begin(landings: Landings, submission: &Arc<Submission>) -> Self {
        let begin = |(landing, len): (wgpu::Buffer, u64)| {
            let mapping = Mapping::begin(&landing, MapMode::Read, len);
            (landing, mapping)
        };
        Self { pieces: landings.into_iter().map(begin).collect(), submission: Arc::clone(submission) }
    }
}

impl Context {
    /// An empty staging buffer for at least `len` bytes, which is at most a [`PIECE`].
    pub(crate) fn staging_buffer(&self, len: usize) -> Result<StagingBuffer, BackendError> {
        let size = class(len).max(SHARED);
        let buffer = match self.staging.take_up(size) {
            Some(buffer) => buffer,
            None => self.create_staging(size, BufferUsages::MAP_WRITE | BufferUsages::COPY_SRC)?,
        };
        Ok(StagingBuffer { buffer, used: 0 })
    }

    /// Buffers for the device to write `len` bytes to, in pieces.
    pub(crate) fn landings(&self, len: usize) -> Result<Landings, BackendError> {
        let lens = (0..len).step_by(PIECE).map(|start| PIECE.min(len - start));
        lens.map(|len| Ok((self.landing(len)?, whole_words(len)))).collect()
    }

    /// A buffer for the device to write `len` bytes to, at most a [`PIECE`].
    fn landing(&self, len: usize) -> Result<wgpu::Buffer, BackendError> {
        match self.staging.take_down(class(len)) {
            Some(buffer) => Ok(buffer),
            None => self.create_staging(class(len), BufferUsages::MAP_READ | BufferUsages::COPY_DST),
        }
    }

    /// Copies the bytes of a mapped buffer, and keeps the buffer.
    pub(crate) fn unload(&self, buffer: wgpu::Buffer, destination: &mut [u8]) -> Result<(), BackendError> {
        let len = whole_words(destination.len());
        let view = buffer.get_mapped_range(0..len).map_err(|error| self.loss.unmapped(error))?;
        destination.copy_from_slice(&view[..destination.len()]);
        drop(view);
        buffer.unmap();
        self.staging.keep_down(buffer);
        Ok(())
    }

    /// Waits for the bytes, and copies them to the host.
    pub(crate) fn finish_read(&self, read: StagedRead, destination: &mut [u8]) -> Result<(), BackendError> {
        for ((landing, mapping), piece) in read.pieces.into_iter().zip(destination.chunks_mut(PIECE)) {
            self.wait_mapped(&read.submission, &mapping)?;
            self.unload(landing, piece)?;
        }
        Ok(())
    }

    fn create_staging(&self, len: u64, usage: BufferUsages) -> Result<wgpu::Buffer, BackendError> {
        let mapped_at_creation = usage.contains(BufferUsages::MAP_WRITE);
        let descriptor = BufferDescriptor { label: Some("staging"), size: len, usage, mapped_at_creation };
        self.create_buffer(&descriptor)
    }
}
