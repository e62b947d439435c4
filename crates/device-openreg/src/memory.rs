//! The memory of a device: a pool that can run out, and allocations that the host cannot look into.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use device_registry::{BackendError, HostMemory, Memory};

/// How much memory a device has, and how much of it is in use.
pub(crate) struct Pool {
    capacity: usize,
    used: AtomicUsize,
}

impl Pool {
    pub(crate) fn new(capacity: usize) -> Self {
        Self { capacity, used: AtomicUsize::new(0) }
    }

    pub(crate) fn capacity(&self) -> usize {
        self.capacity
    }

    pub(crate) fn free(&self) -> usize {
        self.capacity - self.used.load(Ordering::Relaxed)
    }

    fn take(&self, len: usize) -> Result<(), BackendError> {
        let enough = |used: usize| used.checked_add(len).filter(|&used| used <= self.capacity);
        match self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, enough) {
            Ok(_) => Ok(()),
            Err(used) => Err(BackendError::out_of_memory(len as u64, Some((self.capacity - used) as u64))),
        }
    }

    fn give_back(&self, len: usize) {
        self.used.fetch_sub(len, Ordering::Relaxed);
    }
}

/// One allocation. Its type is private, so that the host reaches the bytes only by the driver's copies.
pub(crate) struct OpenRegMemory {
    pub(crate) bytes: HostMemory,
    _share: Share,
}

/// What an allocation has of its pool; given back when it is dropped.
struct Share {
    pool: Arc<Pool>,
    len: usize,
}

impl Drop for Share {
    fn drop(&mut self) {
        self.pool.give_back(self.len);
    }
}

impl Memory for OpenRegMemory {}

impl OpenRegMemory {
    pub(crate) fn allocate(pool: &Arc<Pool>, len: usize) -> Result<Self, BackendError> {
        pool.take(len)?;
        let share = Share { pool: Arc::clone(pool), len };
        // The host's memory may run out before the device's does.
        Ok(Self { bytes: HostMemory::zeroed(len)?, _share: share })
    }
}

#[cfg(test)]
mod tests {
    use device_registry::BackendErrorKind;

    use super::*;

    #[test]
    fn memory_that_is_dropped_can_be_allocated_again() {
        let pool = Arc::new(Pool::new(100));
        let first = OpenRegMemory::allocate(&pool, 60).unwrap();
        assert_eq!(pool.free(), 40);
        let error = OpenRegMemory::allocate(&pool, 41).err().unwrap();
        assert_eq!(error.kind(), BackendErrorKind::OutOfMemory { asked: 41, free: Some(40) });
        assert_eq!(pool.free(), 40, "a refused allocation takes nothing");
        drop(first);
        assert!(OpenRegMemory::allocate(&pool, 100).is_ok());
    }

    #[test]
    fn a_size_that_overflows_is_out_of_memory() {
        let pool = Arc::new(Pool::new(100));
        let _held = OpenRegMemory::allocate(&pool, 1).unwrap();
        assert!(OpenRegMemory::allocate(&pool, usize::MAX).is_err());
        assert_eq!(pool.free(), 99);
    }

    #[test]
    fn many_threads_never_take_more_than_there_is() {
        let pool = Arc::new(Pool::new(64));
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..200 {
                        let memory = OpenRegMemory::allocate(&pool, 16);
                        assert!(pool.free() <= 64);
                        drop(memory);
                    }
                });
            }
        });
        assert_eq!(pool.free(), 64);
    }
}
