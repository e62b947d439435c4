//! Buffers between the host and the device, kept for the next copy: a new one has to be allocated, mapped and
//! zeroed.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use device_registry::backend::BackendError;
use parking_lot::Mutex;
use wgpu::{BufferDescriptor, BufferUsages, MAP_ALIGNMENT, MapMode};

use crate::context::Context;
use crate::mapping::Mapping;
use crate::memory::whole_words;

/// The length of the pieces of a longer copy: the host copies one piece while the device copies another.
pub(crate) const PIECE: usize = 4 << 20;

/// The shortest buffer. The others are powers of two up to a piece.
const SHORTEST: u64 = 4 << 10;

/// The shortest buffer for bytes to the device: several writes of one submission share it.
const SHARED: u64 = 64 << 10;

/// How many unused bytes of each kind are kept.
const KEPT: u64 = 32 << 20;

/// The kept buffers of one kind, by length.
struct Kept<T> {
    by_class: BTreeMap<u64, VecDeque<T>>,
    bytes: u64,
}

impl<T> Default for Kept<T> {
    fn default() -> Self {
        Self { by_class: BTreeMap::new(), bytes: 0 }
    }
}

impl<T> Kept<T> {
    /// The oldest of a length, if it is ready.
    fn take(&mut self, class: u64, is_ready: impl FnOnce(&T) -> bool) -> Option<T> {
        let taken = self.by_class.get_mut(&class)?.pop_front_if(|oldest| is_ready(oldest))?;
        self.bytes -= class;
        Some(taken)
    }

    fn has_room(&self, class: u64) -> bool {
        self.bytes + class <= KEPT
    }

    fn put(&mut self, class: u64, value: T) {
        self.by_class.entry(class).or_default().push_back(value);
        self.bytes += class;
    }
}

#[derive(Default)]
pub(crate) struct Staging {
    /// To be written by the host. Each is mapped again when the device has read it, the oldest first.
    up: Mutex<Kept<(wgpu::Buffer, Arc<Mapping>)>>,
    /// To be written by the device. Not mapped.
    down: Mutex<Kept<wgpu::Buffer>>,
}

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
    pub(crate) fn append(&mut self, context: &Context, bytes: &[u8]) -> Option<Result<Staged, BackendError>> {
        let (offset, len) = (self.used, whole_words(bytes.len()));
        let end = offset.checked_add(len).filter(|&end| end <= self.buffer.size())?;
        let mut view = match self.buffer.get_mapped_range_mut(offset..end) {
            Ok(view) => view,
            Err(error) => return Some(Err(context.loss.unmapped(error))),
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
        let kept = self.staging.down.lock().take(class(len), |_| true);
        match kept {
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
        let mut down = self.staging.down.lock();
        if down.has_room(buffer.size()) {
            down.put(buffer.size(), buffer);
        }
        Ok(())
    }

    fn create_staging(&self, len: u64, usage: BufferUsages) -> Result<wgpu::Buffer, BackendError> {
        let mapped_at_creation = usage.contains(BufferUsages::MAP_WRITE);
        let descriptor = BufferDescriptor { label: Some("staging"), size: len, usage, mapped_at_creation };
        self.create_buffer(&descriptor)
    }
}

impl Staging {
    /// Drops all kept buffers.
    pub(crate) fn clear(&self) {
        *self.up.lock() = Kept::default();
        *self.down.lock() = Kept::default();
    }

    /// Keeps a [`StagingBuffer`] for reuse after submitted work has read it.
    pub(crate) fn keep_up(&self, buffer: &wgpu::Buffer) {
        let mut up = self.up.lock();
        // The limit counts buffers that the device has not read yet: more than are in use at once would be
        // wasted.
        if up.has_room(buffer.size()) {
            let mapping = Mapping::begin(buffer, MapMode::Write, buffer.size());
            up.put(buffer.size(), (buffer.clone(), mapping));
        }
    }

    /// A buffer that the device has read and that is mapped again.
    fn take_up(&self, class: u64) -> Option<wgpu::Buffer> {
        loop {
            let (buffer, mapping) = self.up.lock().take(class, |(_, mapping)| mapping.outcome().is_some())?;
            // A buffer whose mapping failed is dropped.
            if let Some(Ok(())) = mapping.outcome() {
                return Some(buffer);
            }
        }
    }
}
