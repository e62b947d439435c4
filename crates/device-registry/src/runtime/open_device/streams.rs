//! The streams of an open device: their queues, what those keep, and failures that are not reported yet.

use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use crate::backend::{BackendError, DeviceDriver, StreamDriver, StreamOptions, is_any_window_open};
use crate::error::DeviceError;
use crate::runtime::deadline::Deadline;
use crate::runtime::device_use;
use crate::runtime::isolation::{drop_isolated, log_isolated};
use crate::runtime::open_device::closing::push_weak;
use crate::runtime::open_device::dependents::{KeptMemory, StreamHandle, StreamQueue};
use crate::runtime::open_device::{OpenDevice, is_unsupported};
use crate::sync::lock;

/// Which work of a queue may be the last user of memory.
enum LastUse {
    /// Work that ends by itself, and was submitted before.
    Submitted,
    /// The piece with this number, which its thread is doing, and whose memory is not known.
    UnderWay(u64),
}

impl OpenDevice {
    /// The queues of its streams, and of dropped streams whose work is not done.
    pub(crate) fn queues(&self) -> Vec<Arc<dyn StreamQueue>> {
        lock(&self.queues).iter().filter_map(Weak::upgrade).collect()
    }

    pub(crate) fn add_queue(&self, queue: Weak<dyn StreamQueue>) {
        push_weak(&mut lock(&self.queues), queue);
    }

    /// Keeps the queue of a dropped stream until the driver has done its work, or the device has ended.
    pub(crate) fn keep_closed(&self, queue: Arc<dyn StreamQueue>) {
        lock(&self.closed).push(queue);
        self.release_closed();
    }

    /// Releases the queues of dropped streams if the device has ended, so that their work is done or never
    /// will be.
    pub(super) fn release_closed(&self) {
        // A thread that ends the device takes the list after that: either it finds a queue, or the thread
        // that added the queue finds the end.
        if self.is_settled() {
            let closed = std::mem::take(&mut *lock(&self.closed));
            if !closed.is_empty() {
                self.drop_when_allowed(closed);
            }
        }
    }

    /// Releases what finished work has used: memory, host buffers and dropped streams. Does not wait. Returns
    /// whether there was any.
    ///
    /// It queries each driver queue that has work in flight, which may cost a command.
    pub(crate) fn collect(&self) -> bool {
        self.collect_by(|queue| queue.collect())
    }

    /// Releases what events show to be finished, and queries no queue. Returns whether there was any.
    pub(crate) fn collect_marked(&self) -> bool {
        self.collect_by(|queue| queue.collect_marked())
    }

    fn collect_by(&self, collect: impl Fn(&dyn StreamQueue) -> bool) -> bool {
        if self.check_thread("collect").is_err() {
            return false;
        }
        let mut any = self.drop_what_is_due();
        for queue in self.queues() {
            any |= collect(&*queue);
        }
        let closed = std::mem::take(&mut *lock(&self.closed));
        let (done, unfinished): (Vec<_>, Vec<_>) = closed.into_iter().partition(|queue| queue.is_done());
        lock(&self.closed).extend(unfinished);
        any |= !done.is_empty();
        drop_isolated(self.device, done);
        // The device may have ended meanwhile, and the thread that ended it did not find them.
        self.release_closed();
        any
    }

    /// Called before an allocation: releases what finished work has used, once every 64 MiB. Without it, a
    /// program that allocates, enqueues and drops, and never waits, would keep all of its memory.
    pub(crate) fn collect_for(&self, len: usize) {
        const EVERY: usize = 64 << 20;

        let before = self.allocated.fetch_add(len.min(EVERY), Ordering::Relaxed);
        if before.saturating_add(len) >= EVERY {
            self.allocated.store(0, Ordering::Relaxed);
            self.collect();
        }
    }

    /// Waits for the streams whose queued work is the last user of some memory of this device, and releases
    /// that memory. Returns whether there were any.
    ///
    /// It waits only for work that ends by itself: all work in a driver's queue, and in a core's queue the
    /// work before the first host call or wait for an event, which may wait for the calling thread.
    ///
    /// Which memory a thread's current piece uses is not known. This waits for it only the first time, as the
    /// next one may belong to a long and unrelated queue.
    pub(super) fn wait_for_queued_memory(&self, waits_for_threads: bool, is_first_time: bool) -> bool {
        // A driver may allocate on another device while it does the work of its own stream.
        if device_use::is_stream_thread() {
            return false;
        }
        // A kernel that runs on the host may need what this thread holds: a lock of a backend, or a window.
        let may_wait = !device_use::is_in_backend() && !is_any_window_open();
        let waits_for_threads = waits_for_threads && may_wait;
        let mut users = self.last_users();
        users.retain(|(queue, of_what)| {
            let is_wanted = is_first_time || matches!(of_what, LastUse::Submitted);
            is_wanted && (waits_for_threads || queue.progress().is_some())
        });
        if users.is_empty() {
            return false;
        }
        for (queue, of_what) in users {
            match of_what {
                LastUse::Submitted => queue.settle_submitted(),
                LastUse::UnderWay(number) => queue.settle_under_way(number),
            }
        }
        // A wait that failed has released nothing, and the driver may report the failure only once.
        self.collect();
        true
    }

    /// The queues with memory of this device in flight that has no other user left.
    fn last_users(&self) -> Vec<(Arc<dyn StreamQueue>, LastUse)> {
        let queues = self.queues().into_iter();
        let kept: Vec<_> = queues.map(|queue| (queue.memory_in_flight(), queue)).collect();
        let mut spans = HashMap::new();
        for memory in kept.iter().flat_map(|(memory, _)| memory) {
            *spans.entry(memory.place).or_insert(0) += 1;
        }
        // This is not a snapshot: work that other threads submit or release meanwhile costs at most a
        // needless wait, or is missed.
        let is_last = |memory: &KeptMemory| spans[&memory.place] >= memory.users;
        let has_promised = |queue: &dyn StreamQueue| {
            let cache = self.cache.as_ref();
            let progress = queue.progress();
            cache.zip(progress).is_some_and(|(cache, progress)| cache.has_promised(progress))
        };
        let last_use = |(memory, queue): (Vec<KeptMemory>, Arc<dyn StreamQueue>)| {
            if memory.iter().any(is_last) || has_promised(&*queue) {
                Some((queue, LastUse::Submitted))
            } else {
                queue.under_way().map(|number| (queue, LastUse::UnderWay(number)))
            }
        };
        kept.into_iter().filter_map(last_use).collect()
    }

    /// Keeps the failure of a stream that was dropped, for the next [`synchronize`](Self::synchronize). The
    /// caller logs it, without a lock, as a lost device may never be synchronized.
    pub(crate) fn report_later(&self, error: DeviceError) {
        /// A program that never synchronizes the device finds the other failures in its log: without a limit,
        /// memory would grow.
        const MOST: usize = 1000;

        let mut unreported = lock(&self.unreported);
        if unreported.len() < MOST {
            unreported.push_back(error);
        }
    }

    /// Waits for the work of all streams.
    pub(crate) fn synchronize(&self) -> Result<(), DeviceError> {
        self.check("synchronize")?;
        let queues = self.queues();
        // Waits for all of them, even if one fails: this call returns the first error, and the next call, or
        // that stream's own, the next.
        queues.iter().for_each(|queue| queue.settle());
        queues.iter().try_for_each(|queue| queue.take_failure())?;
        self.collect_marked();
        self.check("synchronize")?;
        self.take_unreported()
    }

    /// Like [`synchronize`](Self::synchronize), until the deadline.
    pub(crate) fn synchronize_until(&self, deadline: &Deadline) -> Result<(), DeviceError> {
        self.check(deadline.call())?;
        let queues = self.queues();
        let in_time = queues.iter().try_for_each(|queue| queue.settle_until(deadline));
        queues.iter().try_for_each(|queue| queue.take_failure())?;
        in_time?;
        self.collect_marked();
        self.check(deadline.call())?;
        self.take_unreported()
    }

    fn take_unreported(&self) -> Result<(), DeviceError> {
        lock(&self.unreported).pop_front().map_or(Ok(()), Err)
    }

    /// A new queue of the driver; `None` if it has no queues.
    pub(crate) fn create_driver_stream(
        &self,
        options: &StreamOptions,
    ) -> Result<Option<Box<dyn StreamDriver>>, DeviceError> {
        let stream = self.call("create a stream", |driver| driver.create_stream(options));
        if is_unsupported(&stream) { Ok(None) } else { stream.map(Some) }
    }

    /// A queue of the driver for the blocking call that calls this; nothing else uses the queue meanwhile.
    ///
    /// # Errors
    ///
    /// An error of the kind `Unsupported` if the driver has no queues.
    pub(crate) fn take_idle_stream(
        &self,
        driver: &dyn DeviceDriver,
    ) -> Result<Box<dyn StreamDriver>, BackendError> {
        let idle = lock(&self.idle_streams).pop();
        idle.map_or_else(|| driver.create_stream(&StreamOptions::new()), Ok)
    }

    /// Keeps a queue for the next blocking call, unless the device is lost or closed.
    pub(crate) fn keep_idle_stream(&self, stream: Box<dyn StreamDriver>) {
        let mut idle = lock(&self.idle_streams);
        // Under the lock: a thread that ends the device takes all idle queues after it has set `end`.
        if self.has_ended() {
            drop(idle);
            drop_isolated(self.device, stream);
        } else {
            idle.push(stream);
        }
    }

    /// The default stream, if the device has one by now.
    pub(crate) fn default_stream(&self) -> Option<Arc<dyn StreamHandle>> {
        // In a fork, a thread of the parent may have held the lock. The call that follows returns the error.
        if !self.has_default_stream.load(Ordering::Acquire) || !self.is_of_this_process() {
            return None;
        }
        lock(&self.default_stream).clone()
    }

    /// The default stream: the one that another thread made first, or else `stream`.
    pub(crate) fn default_stream_or(&self, stream: Arc<dyn StreamHandle>) -> Arc<dyn StreamHandle> {
        let mut default = lock(&self.default_stream);
        let chosen = default.get_or_insert_with(|| Arc::clone(&stream)).clone();
        self.has_default_stream.store(true, Ordering::Release);
        drop(default);
        // It may be the last handle of a stream, whose `drop` calls the driver: not under the lock.
        drop(stream);
        // Either the thread that ends the device takes the stream, or this one finds the end.
        if self.has_ended() {
            self.end_own_streams();
        }
        chosen
    }
}

/// Logs the failure of a stream that was dropped.
pub(crate) fn log_unreported(error: &DeviceError) {
    log_isolated(|| log::error!("a stream was dropped before its failure was reported: {error}"));
}
