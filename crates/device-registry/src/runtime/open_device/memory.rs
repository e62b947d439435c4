//! Memory of an open device: allocations, and what becomes of memory that is freed.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::backend::error::{size, sizes};
use crate::backend::{
    AllocateOptions, Allocation, BackendError, BackendErrorKind, Block, DeviceDriver, Freed, HostMemory,
    Memory, Progress, Span, StreamOrder,
};
use crate::error::DeviceError;
use crate::runtime::activity;
use crate::runtime::activity::{Activity, Id, MemoryInUse, WaitFor, Work};
use crate::runtime::deadline::Deadline;
use crate::runtime::device_use;
use crate::runtime::isolation::drop_isolated;
use crate::runtime::memory_cache::MemoryCache;
use crate::runtime::open_device::{OpenDevice, StreamQueue};
use crate::runtime::statistics::MemoryStatistics;

/// Work that still uses memory which was freed.
struct EarlierWork {
    queue: Arc<dyn StreamQueue>,
    /// It is the work below this number.
    number: u64,
}

impl OpenDevice {
    /// Allocates `len` bytes, which are not zero. If they are for a queue of the driver, queued work of that
    /// queue may still use the memory.
    pub(crate) fn allocate(
        &'static self,
        len: usize,
        queue: Option<&Arc<Progress>>,
    ) -> Result<Allocation, DeviceError> {
        let fail = |error| Err(DeviceError::Call { device: self.device(), call: "allocate", error });
        // Rust's own limit: an offset and a length within a buffer can be added without overflow.
        if len > isize::MAX as usize {
            return fail(BackendError::out_of_memory(len as u64, None));
        }
        let largest = self.properties().largest_allocation;
        if let Some(limit) = largest.filter(|&limit| len as u64 > limit) {
            let kind = BackendErrorKind::OutOfMemory { asked: len as u64, free: None };
            let [asked, limit] = sizes(len as u64, limit);
            let message = format_args!("{asked} asked for, and one allocation can have {limit}");
            return fail(BackendError::new(kind, message));
        }
        self.collect_for(len);
        let (memory, block, order, reused) = match &self.cache {
            // The core's handling of full memory would hide an injected failure.
            _ if self.faults_armed.load(Ordering::SeqCst) => (self.allocate_once(len)?, None, None, false),
            Some(cache) if cache.keeps(len) => {
                let allocated = self.allocate_cached(cache, len, queue);
                let (memory, block, earlier, reused) = allocated.map_err(|error| self.explained(error))?;
                (memory, Some(block), queue.map(|progress| StreamOrder::new(progress, earlier)), reused)
            }
            _ => {
                let memory = self.allocate_uncached(len).map_err(|error| self.explained(error))?;
                (memory, None, None, false)
            }
        };
        match block {
            None => self.count_uncached(len),
            Some(_) => self.statistics().add(len),
        }
        let number = if activity::is_on() { self.record_allocation(len, reused) } else { 0 };
        Ok(Allocation::new(self, memory, len, block, order, number))
    }

    /// The error of a full device, with how much of its memory this process has.
    #[cold]
    fn explained(&self, error: DeviceError) -> DeviceError {
        match error {
            DeviceError::Call { device, call, error } if error.is_out_of_memory() => {
                let allocated = size(self.memory_in_use().allocated);
                let total = self.properties().total_memory.map(|total| format!(" of {}", size(total)));
                let note =
                    format_args!("; this process has {allocated} allocated{}", total.unwrap_or_default());
                DeviceError::Call { device, call, error: error.with_note(note) }
            }
            error => error,
        }
    }

    /// Records an allocation, and returns its number.
    #[cold]
    fn record_allocation(&self, bytes: usize, reused: bool) -> u64 {
        let Some(allocation) = activity::next_id() else { return 0 };
        let memory = self.memory_in_use();
        let allocated = Activity::Allocated { allocation, bytes, reused, memory };
        activity::record(Some(self.device()), None, allocated);
        allocation.get()
    }

    /// Records that there was not enough memory.
    #[cold]
    pub(crate) fn record_failure(&self, bytes: usize, error: &DeviceError) {
        if activity::is_on() && is_out_of_memory(error) {
            let failed = Activity::AllocationFailed { bytes, memory: self.memory_in_use() };
            activity::record(Some(self.device()), None, failed);
        }
    }

    /// Records the free of an allocation that had a number.
    #[inline]
    fn record_free(&self, number: u64, bytes: usize) {
        if let Some(allocation) = Id::new(number) {
            let memory = self.memory_in_use();
            activity::record(Some(self.device()), None, Activity::Freed { allocation, bytes, memory });
        }
    }

    fn memory_in_use(&self) -> MemoryInUse {
        self.statistics().in_use(self.cache.as_ref().map(MemoryCache::reserved))
    }

    /// Takes over host memory that the driver has not allocated. It has the type that `cpu` uses, and
    /// bypasses the cache.
    pub(crate) fn import(&'static self, memory: HostMemory) -> Allocation {
        let len = memory.len();
        self.count_uncached(len);
        let number = if activity::is_on() { self.record_allocation(len, false) } else { 0 };
        Allocation::new(self, Arc::new(memory), len, None, None, number)
    }

    /// Counts memory that bypasses the cache, until [`give_back_now`](Self::give_back_now).
    #[inline]
    fn count_uncached(&self, len: usize) {
        self.statistics().add(len);
        if let Some(cache) = &self.cache {
            self.statistics().pass(len, cache.reserved());
        }
    }

    /// Memory that bypasses the cache; a full device empties the cache for it.
    #[inline]
    fn allocate_uncached(&self, len: usize) -> Result<Arc<dyn Memory>, DeviceError> {
        let mut retried = false;
        let release = || self.cache.as_ref().is_some_and(|cache| self.release_cached(cache, &mut retried));
        self.allocate_now(len, true, release)
    }

    /// A block for `len` bytes: a free one, one promised to the queue with the number below which its work
    /// uses it, or one of a new segment, which is shorter where the device is too full for more. Returns also
    /// whether it was free or promised.
    fn allocate_cached(
        &'static self,
        cache: &MemoryCache<Arc<dyn Memory>>,
        len: usize,
        queue: Option<&Arc<Progress>>,
    ) -> Result<(Arc<dyn Memory>, Block, u64, bool), DeviceError> {
        let size = cache.block_size(len).unwrap_or(len);
        if let Some((memory, block)) = cache.take(size) {
            return Ok((memory, block, 0, true));
        }
        if let Some((memory, block, earlier)) = queue.and_then(|queue| cache.take_promised(size, queue)) {
            return Ok((memory, block, earlier, true));
        }
        let (memory, block) = self.allocate_new(cache, len, size)?;
        Ok((memory, block, 0, false))
    }

    /// A block for `len` bytes in new memory, or in memory of work that is done.
    fn allocate_new(
        &'static self,
        cache: &MemoryCache<Arc<dyn Memory>>,
        len: usize,
        size: usize,
    ) -> Result<(Arc<dyn Memory>, Block), DeviceError> {
        // Querying events takes far less time than an allocation by the driver.
        if self.collect_marked()
            && let Some(taken) = cache.take(size)
        {
            return Ok(taken);
        }
        let mut retried = false;
        let mut release = || self.release_cached(cache, &mut retried);
        let mut attempt = |segment, size, waits| {
            let room = cache.make_room(segment);
            if !room.is_empty() {
                self.drop_when_allowed(room);
            }
            let memory = self.allocate_now(segment, waits, &mut release)?;
            let added = cache.add(memory, segment, size);
            self.statistics().grown(cache.reserved());
            Ok(added)
        };
        let segment = cache.segment_size(size);
        let larger = [(segment, size), (size, size)];
        // Only the last attempt waits, and its error names the length itself.
        for &(segment, size) in &larger[usize::from(segment == size)..] {
            if segment == len {
                break;
            }
            match attempt(segment, size, false) {
                Err(error) if is_out_of_memory(&error) => {}
                block => return block,
            }
        }
        attempt(len, len, true).or_else(|error| {
            // What was waited for may be a part of memory that is still in use.
            let taken = if is_out_of_memory(&error) { cache.take(size) } else { None };
            taken.ok_or(error)
        })
    }

    /// Gives the memory in the cache back to the driver, for another attempt. Returns whether there was any,
    /// and counts an allocation the first time.
    fn release_cached(&self, cache: &MemoryCache<Arc<dyn Memory>>, retried: &mut bool) -> bool {
        let cached = cache.empty();
        if cached.is_empty() {
            return false;
        }
        drop_isolated(self.device(), cached);
        if !std::mem::replace(retried, true) {
            cache.retried();
        }
        true
    }

    /// Memory from the driver. If it has none, tries again after `release` or finished work has given some
    /// back, and then, where that is wanted, after a wait for memory that only queued work still uses.
    #[inline]
    fn allocate_now(
        &self,
        len: usize,
        waits: bool,
        release: impl FnMut() -> bool,
    ) -> Result<Arc<dyn Memory>, DeviceError> {
        match self.allocate_once(len) {
            Err(error) if is_out_of_memory(&error) => self.allocate_when_full(len, waits, release, error),
            memory => memory,
        }
    }

    #[inline]
    fn allocate_once(&self, len: usize) -> Result<Arc<dyn Memory>, DeviceError> {
        self.call("allocate", |driver: &dyn DeviceDriver| driver.allocate(&AllocateOptions::new(len)))
    }

    #[cold]
    fn allocate_when_full(
        &self,
        len: usize,
        waits: bool,
        mut release: impl FnMut() -> bool,
        error: DeviceError,
    ) -> Result<Arc<dyn Memory>, DeviceError> {
        /// Other threads may take the memory that this one has waited for.
        const MOST_WAITS: usize = 16;

        let is_full = |memory: &Result<_, _>| memory.as_ref().is_err_and(is_out_of_memory);
        // Another attempt would hide an injected failure, which does not say what is free. The core does not
        // know of one that a setting has injected.
        let is_explained = matches!(error.kind(), Some(BackendErrorKind::OutOfMemory { free: Some(_), .. }));
        let waits_for_threads = is_explained || self.check_faults().is_err();
        let mut memory = Err(error);
        // Streams may keep memory of dropped buffers for work that is done by now. (Streams of other devices
        // are not queried: the outcome here would depend on them.) Its blocks go into the cache, so that
        // comes second.
        if self.collect() | release() {
            memory = self.allocate_once(len);
        }
        for attempt in 0..if waits { MOST_WAITS } else { 0 } {
            if !is_full(&memory) {
                break;
            }
            // What was waited for is in the cache, as is what other threads have freed meanwhile.
            let waited = self.wait_for_queued_memory(waits_for_threads, attempt == 0);
            if !(waited | release()) {
                break;
            }
            memory = self.allocate_once(len);
        }
        memory
    }

    /// Keeps a freed block in the cache, unless other code still holds its memory.
    pub(super) fn free_into(
        &'static self,
        cache: &MemoryCache<Arc<dyn Memory>>,
        memory: Arc<dyn Memory>,
        block: Block,
        freed: Freed,
    ) {
        // The cache has its own handle.
        drop(memory);
        let evicted = match freed.order {
            Some(order) => cache.put_promised(block, &order),
            None => cache.put(block),
        };
        self.statistics().remove(freed.len);
        self.record_free(freed.number, freed.len);
        if !evicted.is_empty() {
            self.drop_when_allowed(evicted);
        }
        self.empty_cache_if_armed();
    }

    /// Keeps the memory that only a queue's finished work has used.
    #[inline]
    pub(crate) fn settle_memory(&self, progress: &Arc<Progress>) {
        self.drop_from_cache(|cache| cache.settle(progress));
        self.empty_cache_if_armed();
    }

    /// Called after memory was freed: while faults are injected, allocations bypass the cache, and would find
    /// the device full of cached memory.
    #[inline]
    fn empty_cache_if_armed(&self) {
        if self.faults_armed.load(Ordering::SeqCst) {
            self.drop_from_cache(MemoryCache::empty);
        }
    }

    /// Waits for the work of another stream that still uses memory which was allocated for that stream,
    /// before anything else writes to these bytes of it. `user` is the queue that is about to write; without
    /// one it is a thread.
    #[inline]
    pub(crate) fn wait_for_memory(
        &self,
        bytes: &Span,
        user: Option<&Arc<Progress>>,
        call: &'static str,
    ) -> Result<(), DeviceError> {
        match self.used_by_another(bytes, user, call)? {
            Some(earlier) => self.wait_for_work(&earlier),
            None => Ok(()),
        }
    }

    #[cold]
    fn wait_for_work(&self, EarlierWork { queue, number }: &EarlierWork) -> Result<(), DeviceError> {
        let wait = || (self.device(), Work::Wait(WaitFor::Memory));
        activity::call(wait, || queue.wait_until_done(*number))
    }

    /// Like [`wait_for_memory`](Self::wait_for_memory), for a thread and until the deadline.
    pub(crate) fn wait_for_memory_until(&self, bytes: &Span, deadline: &Deadline) -> Result<(), DeviceError> {
        let Some(EarlierWork { queue, number }) = self.used_by_another(bytes, None, deadline.call())? else {
            return Ok(());
        };
        let is_done = || {
            queue.collect();
            self.check(deadline.call())?;
            Ok(queue.progress().is_none_or(|progress| progress.is_done(number)))
        };
        if deadline.poll(is_done)? {
            return Ok(());
        }
        Err(deadline.timed_out(self.device(), "work in another stream uses the memory"))
    }

    /// The work that still uses new memory, unless it is the user's own.
    ///
    /// # Errors
    ///
    /// If there may be such work, and this thread may not wait for it.
    fn used_by_another(
        &self,
        bytes: &Span,
        user: Option<&Arc<Progress>>,
        call: &'static str,
    ) -> Result<Option<EarlierWork>, DeviceError> {
        let waits = bytes.waits_for().filter(|(order, _)| !user.is_some_and(|user| order.is_by(user)));
        let Some((order, number)) = waits else { return Ok(None) };
        // Checked before the list of queues, whose lock may be held by a thread that a fork does not have.
        self.check(call)?;
        // A queue that no longer exists has ended its work.
        let of_order =
            |queue: &Arc<dyn StreamQueue>| queue.progress().is_some_and(|progress| order.is_by(progress));
        Ok(self.queues().into_iter().find(of_order).map(|queue| EarlierWork { queue, number }))
    }

    /// Gives memory back to the driver, here or later on a thread that may use devices.
    pub(super) fn give_back(&'static self, memory: Arc<dyn Memory>, freed: Freed) {
        struct Later {
            memory: Option<Arc<dyn Memory>>,
            len: usize,
            number: u64,
            device: &'static OpenDevice,
        }

        impl Drop for Later {
            fn drop(&mut self) {
                if let Some(memory) = self.memory.take() {
                    self.device.give_back_now(memory, self.len, self.number);
                }
            }
        }

        let Freed { len, number, .. } = freed;
        if device_use::defers_drops() {
            self.drop_when_allowed(Later { memory: Some(memory), len, number, device: self });
        } else {
            self.give_back_now(memory, len, number);
        }
    }

    #[inline]
    fn give_back_now(&self, memory: Arc<dyn Memory>, len: usize, number: u64) {
        drop_isolated(self.device(), memory);
        self.statistics().remove(len);
        if self.cache.is_some() {
            self.statistics().free_passing(len);
        }
        self.record_free(number, len);
    }

    /// Gives the memory in the cache back to the driver.
    pub(crate) fn empty_cache(&self) -> Result<(), DeviceError> {
        self.check("empty the cache")?;
        // Finished work may have been the last user of more memory.
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

    pub(super) fn drop_from_cache(
        &self,
        take: impl FnOnce(&MemoryCache<Arc<dyn Memory>>) -> Vec<Arc<dyn Memory>>,
    ) {
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
