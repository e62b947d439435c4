//! Memory of an open device: allocations, and what becomes of memory that is freed.

use std::sync::Arc;

use crate::backend::{AllocateOptions, Allocation, BackendError, BackendErrorKind, DeviceDriver, Memory};
use crate::error::DeviceError;
use crate::runtime::isolation::drop_isolated;
use crate::runtime::memory_cache::{MemoryCache, Taken, block_size};
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
        let (memory, size) = match &self.cache {
            Some(cache) => self.allocate_cached(cache, len)?,
            None => (self.allocate_now(len, || false)?, len),
        };
        self.statistics().add(len);
        Ok(Allocation::new(self, memory, len, size))
    }

    /// A block for `len` bytes, or memory of that length where the device has no room for a block.
    fn allocate_cached(
        &'static self,
        cache: &MemoryCache<Arc<dyn Memory>>,
        len: usize,
    ) -> Result<(Arc<dyn Memory>, usize), DeviceError> {
        let largest = self.properties().largest_allocation;
        if let Some(size) = block_size(len)
            && largest.is_none_or(|limit| size as u64 <= limit)
        {
            match self.allocate_block(cache, size) {
                // The error of the second attempt names the length itself.
                Err(error) if is_out_of_memory(&error) && size != len => {}
                block => return block,
            }
        }
        let memory = self.allocate_now(len, || false)?;
        cache.allocated(len);
        Ok((memory, len))
    }

    /// A block from the cache, or a new one from the driver.
    fn allocate_block(
        &'static self,
        cache: &MemoryCache<Arc<dyn Memory>>,
        size: usize,
    ) -> Result<(Arc<dyn Memory>, usize), DeviceError> {
        if let Some(Taken { memory, size }) = cache.take(size) {
            return Ok((memory, size));
        }
        self.drop_when_allowed(cache.make_room(size));
        let memory = self.allocate_now(size, || {
            let cached = cache.empty();
            if cached.is_empty() {
                return false;
            }
            drop_isolated(self.device(), cached);
            cache.retried();
            true
        })?;
        cache.allocated(size);
        Ok((memory, size))
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

    /// Keeps freed memory in the cache, unless other code still holds it.
    pub(super) fn free_into(
        &'static self,
        cache: &MemoryCache<Arc<dyn Memory>>,
        mut memory: Arc<dyn Memory>,
        len: usize,
        size: usize,
    ) {
        if Arc::get_mut(&mut memory).is_none() {
            cache.freed(size);
            return self.give_back(memory, len);
        }
        let evicted = cache.put(memory, size);
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
