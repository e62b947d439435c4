//! Memory of an open device: allocations, and what becomes of memory that is freed.

use std::sync::Arc;

use crate::backend::{
    AllocateOptions, Allocation, BackendError, BackendErrorKind, Block, DeviceDriver, Memory,
};
use crate::error::DeviceError;
use crate::runtime::isolation::drop_isolated;
use crate::runtime::memory_cache::MemoryCache;
use crate::runtime::open_device::OpenDevice;
use crate::runtime::statistics::MemoryStatistics;

impl OpenDevice {
    /// Allocates `len` bytes, which are not zero.
    pub(crate) fn allocate(&'static self, len: usize) -> Result<Allocation, DeviceError> {
        let fail = |error| Err(DeviceError::Call { device: self.device(), call: "allocate", error });
        // Rust's own limit: an offset and a length within a buffer can be added without overflow.
        if len > isize::MAX as usize {
            return fail(BackendError::out_of_memory(len as u64, None));
        }
        let largest = self.properties().largest_allocation;
        if let Some(limit) = largest.filter(|&limit| len as u64 > limit) {
            let kind = BackendErrorKind::OutOfMemory { asked: len as u64, free: None };
            let message = format_args!("{len} bytes asked for, and one allocation can have {limit}");
            return fail(BackendError::new(kind, message));
        }
        self.collect_for(len);
        let (memory, block) = match &self.cache {
            Some(cache) => self.allocate_cached(cache, len).map(|(memory, block)| (memory, Some(block)))?,
            None => (self.allocate_now(len, || false)?, None),
        };
        self.statistics().add(len);
        Ok(Allocation::new(self, memory, len, block))
    }

    /// A block for `len` bytes: a free one, or one of a new segment, which is shorter where the device is too full for more.
    fn allocate_cached(
        &'static self,
        cache: &MemoryCache<Arc<dyn Memory>>,
        len: usize,
    ) -> Result<(Arc<dyn Memory>, Block), DeviceError> {
        let size = cache.block_size(len).unwrap_or(len);
        if let Some(taken) = cache.take(size) {
            return Ok(taken);
        }
        let segment = cache.segment_size(size);
        // The error of the last attempt names the length itself.
        for (segment, size) in [(segment, size), (size, size)] {
            if segment == len {
                break;
            }
            match self.allocate_segment(cache, segment, size) {
                Err(error) if is_out_of_memory(&error) => {}
                block => return block,
            }
        }
        self.allocate_segment(cache, len, len)
    }

    /// A block of `size` bytes in new memory from the driver.
    fn allocate_segment(
        &'static self,
        cache: &MemoryCache<Arc<dyn Memory>>,
        segment: usize,
        size: usize,
    ) -> Result<(Arc<dyn Memory>, Block), DeviceError> {
        let room = cache.make_room(segment);
        if !room.is_empty() {
            self.drop_when_allowed(room);
        }
        let memory = self.allocate_now(segment, || {
            let cached = cache.empty();
            if cached.is_empty() {
                return false;
            }
            drop_isolated(self.device(), cached);
            cache.retried();
            true
        })?;
        Ok(cache.add(memory, segment, size))
    }

    /// Memory from the driver. If it has none, tries again after `release` or finished work has given some back.
    fn allocate_now(
        &self,
        len: usize,
        release: impl FnOnce() -> bool,
    ) -> Result<Arc<dyn Memory>, DeviceError> {
        let attempt =
            || self.call("allocate", |driver: &dyn DeviceDriver| driver.allocate(&AllocateOptions::new(len)));
        let mut memory = attempt();
        // Streams may keep memory of dropped buffers for work that is done by now. (Streams of other devices are not queried:
        // the outcome here would depend on them.) Its blocks go into the cache, so that comes second.
        if memory.as_ref().is_err_and(is_out_of_memory) && (self.collect() | release()) {
            memory = attempt();
        }
        memory
    }

    /// Keeps a freed block in the cache, unless other code still holds its memory.
    pub(super) fn free_into(
        &'static self,
        cache: &MemoryCache<Arc<dyn Memory>>,
        memory: Arc<dyn Memory>,
        len: usize,
        block: Block,
    ) {
        // The cache has a handle of its own.
        drop(memory);
        let evicted = cache.put(block, |memory| Arc::get_mut(memory).is_none());
        self.statistics().remove(len);
        if !evicted.is_empty() {
            self.drop_when_allowed(evicted);
        }
    }

    /// Gives memory back to the driver, here or later on a thread that may use devices.
    pub(super) fn give_back(&'static self, memory: Arc<dyn Memory>, len: usize) {
        struct Freed(Option<Arc<dyn Memory>>, usize, &'static OpenDevice);

        impl Drop for Freed {
            fn drop(&mut self) {
                drop_isolated(self.2.device(), self.0.take());
                self.2.statistics().remove(self.1);
            }
        }

        self.drop_when_allowed(Freed(Some(memory), len, self));
    }

    /// Gives the memory in the cache back to the driver.
    pub(crate) fn empty_cache(&self) -> Result<(), DeviceError> {
        self.check("empty the cache")?;
        // Finished work may have been the last user of more.
        self.collect();
        self.drop_from_cache(MemoryCache::empty);
        Ok(())
    }

    /// Sets the most bytes that the cache keeps.
    pub(crate) fn set_cache_limit(&self, bytes: u64) -> Result<(), DeviceError> {
        self.check("set the limit of the cache")?;
        self.drop_from_cache(|cache| cache.set_limit(bytes));
        Ok(())
    }

    /// Ends the cache of a device that is lost or closed.
    pub(super) fn close_cache(&self) {
        self.drop_from_cache(MemoryCache::close);
    }

    fn drop_from_cache(&self, take: impl FnOnce(&MemoryCache<Arc<dyn Memory>>) -> Vec<Arc<dyn Memory>>) {
        let taken = self.cache.as_ref().map(take).unwrap_or_default();
        if !taken.is_empty() {
            self.drop_when_allowed(taken);
        }
    }

    pub(crate) fn memory_statistics(&self) -> MemoryStatistics {
        self.collect();
        self.statistics().now(self.cache.as_ref().map(MemoryCache::counters))
    }
}

fn is_out_of_memory(error: &DeviceError) -> bool {
    matches!(error.kind(), Some(BackendErrorKind::OutOfMemory { .. }))
}
