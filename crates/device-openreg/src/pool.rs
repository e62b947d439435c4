//! The memory of one device: a capacity, blocks of it, and their bytes.

use std::sync::Arc;

use device_registry::backend::{BackendError, BackendErrorKind, HostMemory};
use parking_lot::{Mutex, MutexGuard};

use crate::allocator::Allocator;
use crate::mapping::Mapping;

/// All memory of a device.
pub(crate) struct Pool {
    capacity: usize,
    mapping: Arc<Mapping>,
    allocator: Mutex<Allocator>,
}

impl Pool {
    /// How many free bytes keep their pages, as many as the cpu keeps: the first write to an allocation in
    /// kept pages is faster. A step of a training frees what it has made at once.
    const KEPT: usize = 256 << 20;

    pub(crate) fn new(name: &str, capacity: usize) -> Result<Arc<Self>, BackendError> {
        let mapping = Arc::new(Mapping::new(name, capacity)?);
        Ok(Arc::new(Self { capacity, mapping, allocator: Mutex::new(Allocator::new(capacity)) }))
    }

    pub(crate) fn capacity(&self) -> usize {
        self.capacity
    }

    pub(crate) fn free(&self) -> usize {
        self.allocator().free()
    }

    pub(crate) fn allocate(self: &Arc<Self>, len: usize) -> Result<Region, BackendError> {
        let mut allocator = self.allocator();
        let offset = allocator.allocate(len).ok_or_else(|| out_of_memory(len, &mut allocator))?;
        drop(allocator);
        let place = Place { pool: Arc::clone(self), offset };
        // SAFETY: the allocator gives this range to no other place until this place is dropped, which happens
        // after its bytes are dropped. Pages are discarded only where no place is.
        let bytes = unsafe { self.mapping.bytes(offset..offset + len) }?;
        Ok(Region { bytes, place })
    }

    /// The address at which the block begins that `address` lies in, and the block's length.
    pub(crate) fn find(&self, address: usize) -> Option<(usize, usize)> {
        let offset = address.checked_sub(self.mapping.start())?;
        let (start, len) = self.allocator().find(offset)?;
        Some((self.mapping.start() + start, len))
    }

    /// Whether this process made the pool. A child of `fork` did not, and does not have its pages.
    pub(crate) fn is_of_this_process(&self) -> bool {
        self.mapping.is_of_this_process()
    }

    fn release(&self, offset: usize) {
        let mut allocator = self.allocator();
        allocator.release(offset);
        if allocator.kept() < Self::KEPT {
            return;
        }
        for hole in allocator.take_kept() {
            // SAFETY: the range belongs to no block, and the lock that is held keeps it free. `Place::drop`
            // does not release places in a child of `fork`, so the mapping is of this process.
            unsafe { self.mapping.discard(hole) };
        }
    }

    fn allocator(&self) -> MutexGuard<'_, Allocator> {
        self.allocator.lock()
    }
}

fn out_of_memory(len: usize, allocator: &mut Allocator) -> BackendError {
    let free = allocator.free();
    let largest = allocator.largest();
    if free < len {
        return BackendError::out_of_memory(len as u64, Some(free as u64));
    }
    BackendError::new(
        BackendErrorKind::OutOfMemory { asked: len as u64, free: Some(free as u64) },
        format_args!("{len} bytes asked for, {free} free, of which at most {largest} are in one piece"),
    )
}

/// One allocation in a device's memory. Dropping it frees it.
pub(crate) struct Region {
    // Dropped in this order.
    bytes: HostMemory,
    place: Place,
}

struct Place {
    pool: Arc<Pool>,
    offset: usize,
}

impl Region {
    /// The bytes, to be reached through windows.
    ///
    /// # Errors
    ///
    /// In a child of `fork`, where they are not mapped.
    pub(crate) fn bytes(&self) -> Result<&HostMemory, BackendError> {
        if self.place.pool.is_of_this_process() {
            Ok(&self.bytes)
        } else {
            Err(BackendError::invalid(
                "the memory belongs to the process that this one was forked from, and cannot be reached here",
            ))
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// The address of the first byte, at which the host can neither read nor write.
    pub(crate) fn address(&self) -> usize {
        self.place.pool.mapping.start() + self.place.offset
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // A child of `fork` has a copy of the allocator but not the pages, and a thread of its parent may
        // hold the lock.
        if self.pool.is_of_this_process() {
            self.pool.release(self.offset);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CAPACITY: usize = 16 * 4096;

    fn pool() -> Arc<Pool> {
        Pool::new("openreg:test", CAPACITY).unwrap()
    }

    #[test]
    fn memory_that_is_dropped_can_be_allocated_again() {
        let pool = pool();
        let first = pool.allocate(CAPACITY / 2 + 1).unwrap();
        let free = pool.free();
        let error = pool.allocate(CAPACITY / 2).err().unwrap();
        let kind = BackendErrorKind::OutOfMemory { asked: CAPACITY as u64 / 2, free: Some(free as u64) };
        assert_eq!(error.kind(), kind);
        assert_eq!(pool.free(), free, "a refused allocation takes nothing");
        drop(first);
        assert!(pool.allocate(CAPACITY).is_ok());
    }

    #[test]
    fn an_out_of_memory_error_says_how_much_is_free_in_one_piece() {
        let pool = pool();
        let mut blocks = [(); 16].map(|()| Some(pool.allocate(4096).unwrap()));
        blocks.iter_mut().step_by(2).for_each(|block| *block = None);
        let error = pool.allocate(5000).err().unwrap();
        assert_eq!(
            error.to_string(),
            "out of memory: 5000 bytes asked for, 32768 free, of which at most 4096 are in one piece"
        );
    }

    #[test]
    fn a_size_that_overflows_is_out_of_memory() {
        let pool = pool();
        for len in [usize::MAX, isize::MAX as usize, CAPACITY + 1] {
            assert!(matches!(pool.allocate(len).err().unwrap().kind(), BackendErrorKind::OutOfMemory { .. }));
        }
        assert_eq!(pool.free(), CAPACITY);
    }

    #[test]
    fn blocks_have_bytes_and_addresses_of_their_own() {
        let pool = pool();
        let blocks = [1, 300, 4096].map(|len| pool.allocate(len).unwrap());
        for (number, block) in (1..).zip(&blocks) {
            block.bytes().unwrap().write(0..block.len()).unwrap().fill(number);
        }
        for (number, block) in (1..).zip(&blocks) {
            let len = block.len();
            assert!(block.bytes().unwrap().read(0..len).unwrap().iter().all(|&byte| byte == number));
            assert_eq!(pool.find(block.address() + len - 1), Some((block.address(), len)));
        }
        let address = blocks[2].address();
        drop(blocks);
        assert_eq!(pool.find(address), None);
    }

    #[test]
    fn bytes_outlive_the_pool() {
        let block = pool().allocate(5).unwrap();
        block.bytes().unwrap().write(0..5).unwrap().copy_from_slice(b"abcde");
        assert_eq!(*block.bytes().unwrap().read(0..5).unwrap(), *b"abcde");
    }

    #[test]
    fn many_threads_never_allocate_more_than_the_capacity() {
        let pool = pool();
        std::thread::scope(|scope| {
            for number in 0..8 {
                let pool = &pool;
                scope.spawn(move || {
                    for _ in 0..200 {
                        let Ok(block) = pool.allocate(CAPACITY / 4) else { continue };
                        block.bytes().unwrap().write(0..CAPACITY / 4).unwrap().fill(number);
                        assert!(pool.free() <= CAPACITY);
                        assert!(
                            block
                                .bytes()
                                .unwrap()
                                .read(0..CAPACITY / 4)
                                .unwrap()
                                .iter()
                                .all(|&byte| byte == number)
                        );
                    }
                });
            }
        });
        assert_eq!(pool.free(), CAPACITY);
    }
}
