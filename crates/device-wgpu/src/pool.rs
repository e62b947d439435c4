//! Buffers between the host and the device, kept for the next copy: a new one has to be allocated, mapped and
//! zeroed.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use parking_lot::Mutex;
use wgpu::MapMode;

use crate::mapping::Mapping;

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

/// The kept buffers of a device.
#[derive(Default)]
pub(crate) struct StagingPool {
    /// To be written by the host. Each is mapped again when the device has read it, the oldest first.
    up: Mutex<Kept<(wgpu::Buffer, Arc<Mapping>)>>,
    /// To be written by the device. Not mapped.
    down: Mutex<Kept<wgpu::Buffer>>,
}

impl StagingPool {
    /// Drops all kept buffers.
    pub(crate) fn clear(&self) {
        *self.up.lock() = Kept::default();
        *self.down.lock() = Kept::default();
    }

    /// Keeps a [`StagingBuffer`](crate::staging::StagingBuffer) for reuse after submitted work has read it.
    pub(crate) fn keep_up(&self, buffer: &wgpu::Buffer) {
        let mut up = self.up.lock();
        // The limit counts buffers that the device has not read yet: more than are in use at once would be
        // wasted.
        if up.has_room(buffer.size()) {
            let mapping = Mapping::begin(buffer, MapMode::Write, buffer.size());
            up.put(buffer.size(), (buffer.clone(), mapping));
        }
    }

    /// Keeps an unmapped buffer that the device has written to.
    pub(crate) fn keep_down(&self, buffer: wgpu::Buffer) {
        let mut down = self.down.lock();
        if down.has_room(buffer.size()) {
            down.put(buffer.size(), buffer);
        }
    }

    /// An unmapped buffer that the device can write to.
    pub(crate) fn take_down(&self, class: u64) -> Option<wgpu::Buffer> {
        self.down.lock().take(class, |_| true)
    }

    /// A buffer that the device has read and that is mapped again.
    pub(crate) fn take_up(&self, class: u64) -> Option<wgpu::Buffer> {
        loop {
            let (buffer, mapping) = self.up.lock().take(class, |(_, mapping)| mapping.outcome().is_some())?;
            // A buffer whose mapping failed is dropped.
            if let Some(Ok(())) = mapping.outcome() {
                return Some(buffer);
            }
        }
    }
}
