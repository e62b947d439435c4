//! Buffers between the host and the device, kept for the next copy: a new one has to be allocated, mapped and
//! zeroed.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use device_registry::backend::BackendError;
use parking_lot::Mutex;
use wgpu::{BufferDescriptor, BufferUsages, MapMode};

use crate::context::Context;
use crate::mapping::Mapping;
use crate::memory::whole_words;

/// The length of the pieces of a longer copy: the host copies one piece while the device copies another.
pub(crate) const PIECE: usize = 4 << 20;

/// The shortest buffer. The others are powers of two up to a piece.
const SHORTEST: u64 = 4 << 10;

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

impl Context {
    /// A buffer that begins with these bytes, of which there are at most a [`PIECE`]. Behind them come zeros,
    /// up to whole words.
    pub(crate) fn stage(&self, bytes: &[u8]) -> Result<wgpu::Buffer, BackendError> {
        let buffer = match self.staging.take_up(class(bytes.len())) {
            Some(buffer) => buffer,
            None => {
                self.create_staging(class(bytes.len()), BufferUsages::MAP_WRITE | BufferUsages::COPY_SRC)?
            }
        };
        let len = whole_words(bytes.len());
        let mut view = buffer.get_mapped_range_mut(0..len).map_err(|error| self.loss.unmapped(error))?;
        let mut to = view.slice(..);
        to.slice(..bytes.len()).copy_from_slice(bytes);
        to.slice(bytes.len()..).fill(0);
        drop(view);
        buffer.unmap();
        Ok(buffer)
    }

    /// A buffer for the device to write `len` bytes to, at most a [`PIECE`].
    pub(crate) fn landing(&self, len: usize) -> Result<wgpu::Buffer, BackendError> {
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

    /// Keeps a buffer of [`stage`](Context::stage) for reuse after submitted work has read it.
    pub(crate) fn keep_up(&self, buffer: &wgpu::Buffer) {
        let mut up = self.up.lock();
        // The limit counts buffers that the device has not read yet: more than are in use at once are of no
        // use.
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
