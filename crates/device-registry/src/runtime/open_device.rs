//! A device that is open: calls into its driver, none of which is trusted, and what the core keeps about it.

use std::any::Any;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, RefUnwindSafe, UnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock, Weak};

use entry_points::message::panic_message;

use crate::backend::{BackendError, BackendErrorKind, DeviceDriver, DeviceProperties, Memory, Owner};
use crate::device::Device;
use crate::error::DeviceError;
use crate::runtime::device_use;
use crate::runtime::fork::Process;
use crate::runtime::outcome::Outcome;
use crate::runtime::queue::{Queue, QueueHandle};
use crate::runtime::statistics::Statistics;
use crate::sync::{AtomicBool, AtomicUsize, Mutex, fence, lock, pause};

/// A device that is open. It stays so until the program ends, or until it is lost and reset; even then it is not
/// dropped, and what belongs to it says that it is lost.
pub(crate) struct OpenDevice {
    device: Device,
    driver: Box<dyn DeviceDriver>,
    properties: DeviceProperties,
    /// Where it was opened.
    process: Process,
    gone: OnceLock<Gone>,
    /// Its loss was announced: to those who wait for reads, and in the log.
    announced: AtomicBool,
    /// It was closed, and the work in its queues is done or never will be.
    settled: AtomicBool,
    /// Somebody is closing or resetting it, or has done so.
    leaving: AtomicBool,
    statistics: Statistics,
    /// Bytes allocated since what finished work has used was last released.
    allocated: AtomicUsize,
    later: Later,
    /// Calls that are in the driver now.
    calls: AtomicUsize,
    queues: Mutex<Vec<Weak<Queue>>>,
    /// Reads in queues of the driver's, which may be answered later than their work is done, and after their streams.
    open_reads: Mutex<Vec<Weak<Outcome>>>,
    /// Queues whose streams are gone and whose work, in a queue of the driver's, may not be done.
    closed: Mutex<Vec<Arc<Queue>>>,
    /// Failures of streams that were dropped, which are not reported yet, oldest first.
    unreported: Mutex<VecDeque<DeviceError>>,
    default_stream: Mutex<Option<Arc<QueueHandle>>>,
    /// So that a blocking call takes no lock where there is none.
    has_default_stream: AtomicBool,
}

// What a panic leaves in a driver is the driver's: every call into it is isolated. The core's own state is never half
// changed while code of others runs.
impl UnwindSafe for OpenDevice {}
impl RefUnwindSafe for OpenDevice {}

/// One more, as long as it is there.
struct Counted<'a>(&'a AtomicUsize);

impl<'a> Counted<'a> {
    fn new(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::SeqCst);
        // Before the look at what the device has become: either that sees the closing, or the closing sees this.
        fence(Ordering::SeqCst);
        Self(count)
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Why a device is there no more.
enum Gone {
    Lost(BackendError),
    Closed,
}

/// What is to be dropped by the next call that may use the device.
#[derive(Default)]
struct Later {
    /// So that a call has no lock to take where there is nothing.
    any: AtomicBool,
    values: Mutex<Vec<Box<dyn Any + Send>>>,
}

impl OpenDevice {
    pub(crate) fn new(device: Device, driver: Box<dyn DeviceDriver>, properties: DeviceProperties) -> Self {
        Self {
            device,
            driver,
            properties,
            process: Process::current(),
            gone: OnceLock::new(),
            announced: AtomicBool::new(false),
            settled: AtomicBool::new(false),
            leaving: AtomicBool::new(false),
            statistics: Statistics::default(),
            allocated: AtomicUsize::new(0),
            later: Later::default(),
            calls: AtomicUsize::new(0),
            queues: Mutex::default(),
            open_reads: Mutex::default(),
            closed: Mutex::default(),
            unreported: Mutex::default(),
            default_stream: Mutex::default(),
            has_default_stream: AtomicBool::new(false),
        }
    }

    /// The device, resolved.
    pub(crate) fn device(&self) -> Device {
        self.device
    }

    pub(crate) fn properties(&self) -> &DeviceProperties {
        &self.properties
    }

    pub(crate) fn statistics(&self) -> &Statistics {
        &self.statistics
    }

    /// Whether this is the process in which it was opened.
    pub(crate) fn is_of_this_process(&self) -> bool {
        self.process.is_current()
    }

    /// Whether the device may be used by this process.
    pub(crate) fn check_process(&self) -> Result<(), DeviceError> {
        match self.is_of_this_process() {
            true => Ok(()),
            false => Err(DeviceError::Forked { device: self.device }),
        }
    }

    /// Whether the device may be used by this process and on this thread.
    pub(crate) fn check_thread(&self, call: &'static str) -> Result<(), DeviceError> {
        self.check_process()?;
        match device_use::is_running() {
            true => Err(DeviceError::InHostCall { device: self.device, call }),
            false => Ok(()),
        }
    }

    /// Whether the device may be used from here, and is still there.
    pub(crate) fn check(&self, call: &'static str) -> Result<(), DeviceError> {
        self.check_thread(call)?;
        match self.gone.get() {
            Some(Gone::Lost(error)) => {
                Err(DeviceError::Call { device: self.device, call, error: error.clone() })
            }
            Some(Gone::Closed) => Err(DeviceError::Closed { device: self.device, call }),
            None => Ok(()),
        }
    }

    /// Runs a call to the driver; what goes wrong in it becomes an error that names the device and the call.
    pub(crate) fn call<T>(
        &self,
        call: &'static str,
        run: impl FnOnce(&dyn DeviceDriver) -> Result<T, BackendError>,
    ) -> Result<T, DeviceError> {
        if self.later.any.load(Ordering::Acquire) && !device_use::is_stream_thread() {
            self.check_thread(call)?;
            // Before this call is counted: memory of a plug-in may close the device in its `drop`, which waits for all calls
            // that are counted.
            self.drop_what_is_due();
        }
        let result = self.call_in_turn(call, run);
        if result.is_err() {
            self.announce_loss();
        }
        result
    }

    /// The same within a stream's turn to submit. Nothing is dropped that may wait for a turn, and a loss is announced
    /// later, by code of others that may hold a lock which another thread has while it waits for the turn.
    pub(crate) fn call_in_turn<T>(
        &self,
        call: &'static str,
        run: impl FnOnce(&dyn DeviceDriver) -> Result<T, BackendError>,
    ) -> Result<T, DeviceError> {
        let _counted = Counted::new(&self.calls);
        self.check(call)?;
        let result = isolated(self.device, call, || run(&*self.driver));
        self.note(&result);
        result
    }

    /// The same for what also makes sense after a loss.
    pub(crate) fn call_although_lost<T>(
        &self,
        call: &'static str,
        run: impl FnOnce(&dyn DeviceDriver) -> Result<T, BackendError>,
    ) -> Result<T, DeviceError> {
        let _counted = Counted::new(&self.calls);
        self.check_thread(call)?;
        if matches!(self.gone.get(), Some(Gone::Closed)) {
            return Err(DeviceError::Closed { device: self.device, call });
        }
        self.isolated(call, || run(&*self.driver))
    }

    /// Runs code of the driver, wherever it comes from.
    pub(crate) fn isolated<T>(
        &self,
        call: &'static str,
        run: impl FnOnce() -> Result<T, BackendError>,
    ) -> Result<T, DeviceError> {
        let result = isolated(self.device, call, run);
        self.note(&result);
        if result.is_err() {
            self.announce_loss();
        }
        result
    }

    /// Looks whether an error means that the device is lost.
    fn note<T>(&self, result: &Result<T, DeviceError>) {
        if let Err(DeviceError::Call { error, .. }) = result {
            self.note_loss(error);
        }
    }

    /// The same for an error that did not come from a call.
    pub(crate) fn note_loss(&self, error: &BackendError) {
        if error.kind() == BackendErrorKind::Lost {
            // The first one counts.
            let _ = self.gone.set(Gone::Lost(error.clone()));
        }
    }

    /// Announces that the device is lost, once.
    pub(crate) fn announce_loss(&self) {
        let Some(Gone::Lost(error)) = self.gone.get() else { return };
        if self.announced.swap(true, Ordering::AcqRel) {
            return;
        }
        // The driver may never finish what it has accepted. First the answers, then the log, whose code is a program's.
        self.fail_open_reads(&DeviceError::Call { device: self.device, call: "read", error: error.clone() });
        log_isolated(|| log::error!("`{}` is lost: {}", self.device, error.message()));
    }

    pub(crate) fn add_open_read(&self, read: &Arc<Outcome>) {
        let mut reads = lock(&self.open_reads);
        if reads.len() == reads.capacity() {
            reads.retain(|read| read.strong_count() > 0);
        }
        reads.push(Arc::downgrade(read));
    }

    /// Answers in the place of a driver that will not.
    fn fail_open_reads(&self, error: &DeviceError) {
        let reads = std::mem::take(&mut *lock(&self.open_reads));
        for read in reads.iter().filter_map(Weak::upgrade) {
            read.set(Err(error.clone()));
        }
    }

    pub(crate) fn is_gone(&self) -> bool {
        self.gone.get().is_some()
    }

    /// Whether the work in its queues is done or never will be, as far as the core can know.
    pub(crate) fn is_settled(&self) -> bool {
        self.is_lost() || self.settled.load(Ordering::Acquire)
    }

    pub(crate) fn is_lost(&self) -> bool {
        matches!(self.gone.get(), Some(Gone::Lost(_)))
    }

    /// Gives the device back, after its work is done. Whether it could be told of every error, it is closed then.
    pub(crate) fn close(&self) -> Result<(), DeviceError> {
        const CALL: &str = "close";
        self.check(CALL)?;
        if self.leaving.swap(true, Ordering::AcqRel) {
            return Err(DeviceError::Closed { device: self.device, call: CALL });
        }
        let work = self.synchronize();
        let lost = self.check(CALL);
        if self.gone.set(Gone::Closed).is_err() {
            // It was lost meanwhile, and its reset is still to come.
            self.leaving.store(false, Ordering::Release);
            if let Err(error) = work {
                log_isolated(|| log::error!("while `{}` was closed: {error}", self.device));
            }
            return lost.and(self.check(CALL));
        }
        self.end_default_stream();
        // Calls of other threads that were let in before, and the work that they put in.
        fence(Ordering::SeqCst);
        while self.calls.load(Ordering::SeqCst) > 0 {
            pause();
        }
        let queues = self.queues();
        queues.iter().for_each(|queue| queue.settle_for_good());
        // Only now a queue may be dropped whose work was not known to be done.
        self.settled.store(true, Ordering::Release);
        let mut late: Vec<_> = queues.iter().filter_map(|queue| queue.take_failure().err()).collect();
        // A statement of its own: a stream that ends holds its own lock while it takes this one.
        let unreported = std::mem::take(&mut *lock(&self.unreported));
        late.extend(unreported);
        let closed = std::mem::take(&mut *lock(&self.closed));
        drop_isolated(self.device, closed);
        let closed = isolated(self.device, CALL, || self.driver.close());
        self.fail_open_reads(&DeviceError::Closed { device: self.device, call: "read" });
        let mut errors = work.err().into_iter().chain(late).chain(closed.err());
        let first = errors.next();
        // One can be returned, and nobody will ask again.
        errors.for_each(|error| log_isolated(|| log::error!("while `{}` was closed: {error}", self.device)));
        first.map_or(Ok(()), Err)
    }

    /// Lets the next open begin anew, if the device is lost and the driver can do so.
    pub(crate) fn reset(&self) -> Result<(), DeviceError> {
        let fail = |error| Err(DeviceError::Call { device: self.device, call: "reset", error });
        match self.check("reset") {
            Ok(()) => return fail(BackendError::invalid("the device is not lost, and goes on as it is")),
            Err(DeviceError::Call { .. }) => {}
            Err(other) => return Err(other),
        }
        if self.leaving.swap(true, Ordering::AcqRel) {
            return fail(BackendError::invalid("another thread has reset the device, or is doing so"));
        }
        let outcome = isolated(self.device, "reset", || self.driver.reset());
        self.leaving.store(outcome.is_ok(), Ordering::Release);
        if outcome.is_ok() {
            self.end_default_stream();
        }
        outcome
    }

    /// Drops what a driver made, here or, within a host call or in the middle of a stream's work, as soon as that is over.
    pub(crate) fn drop_when_allowed<T: Send + 'static>(&self, value: T) {
        if !self.is_of_this_process() {
            // The driver is not whole in this process, and its memory goes with it.
            return std::mem::forget(value);
        }
        if device_use::is_running() || device_use::is_stream_thread() {
            lock(&self.later.values).push(Box::new(value));
            self.later.any.store(true, Ordering::Release);
            return;
        }
        drop_isolated(self.device, value);
    }

    /// Drops what could not be dropped where it was left. Returns whether there was any.
    pub(crate) fn drop_what_is_due(&self) -> bool {
        if !self.later.any.load(Ordering::Acquire) || !self.later.any.swap(false, Ordering::AcqRel) {
            return false;
        }
        let due = std::mem::take(&mut *lock(&self.later.values));
        due.into_iter().for_each(|value| drop_isolated(self.device, value));
        true
    }

    /// The queues of its streams, also of those that are gone while their work is not done.
    pub(crate) fn queues(&self) -> Vec<Arc<Queue>> {
        lock(&self.queues).iter().filter_map(Weak::upgrade).collect()
    }

    pub(crate) fn add_queue(&self, queue: &Arc<Queue>) {
        let mut queues = lock(&self.queues);
        // At each doubling, so that a program that makes a million streams looks at each a few times.
        if queues.len() == queues.capacity() {
            queues.retain(|queue| queue.strong_count() > 0);
        }
        queues.push(Arc::downgrade(queue));
    }

    /// Keeps a queue whose stream is gone until the driver has done its work.
    pub(crate) fn keep_closed(&self, queue: Arc<Queue>) {
        lock(&self.closed).push(queue);
    }

    /// Releases all that finished work has used: memory, host buffers and streams that were dropped. Does not wait. Returns
    /// whether there was any.
    ///
    /// It asks each queue of the driver's that has something in flight, which may cost a command.
    pub(crate) fn collect(&self) -> bool {
        self.collect_by(Queue::collect)
    }

    /// The same as far as events show what is finished.
    pub(crate) fn collect_marked(&self) -> bool {
        self.collect_by(Queue::collect_marked)
    }

    fn collect_by(&self, collect: impl Fn(&Queue) -> bool) -> bool {
        if self.check_thread("collect").is_err() {
            return false;
        }
        let mut any = self.drop_what_is_due();
        for queue in self.queues() {
            any |= collect(&queue);
        }
        let closed = std::mem::take(&mut *lock(&self.closed));
        let (done, pending): (Vec<_>, Vec<_>) = closed.into_iter().partition(|queue| queue.is_done());
        lock(&self.closed).extend(pending);
        any |= !done.is_empty();
        drop_isolated(self.device, done);
        if self.settled.load(Ordering::Acquire) {
            // It was closed meanwhile, and does not look at them again.
            let closed = std::mem::take(&mut *lock(&self.closed));
            drop_isolated(self.device, closed);
        }
        any
    }

    /// Called before memory is allocated: releases what finished work has used, once for every so many bytes. A program
    /// that allocates, enqueues and drops, and waits for nothing, then keeps no more than that of what is done.
    pub(crate) fn collect_for(&self, len: usize) {
        const EVERY: usize = 64 << 20;

        let before = self.allocated.fetch_add(len.min(EVERY), Ordering::Relaxed);
        if before.saturating_add(len) >= EVERY {
            self.allocated.store(0, Ordering::Relaxed);
            self.collect();
        }
    }

    /// Keeps the failure of a stream that was dropped, for the next [`synchronize`](Self::synchronize). The caller logs it,
    /// without a lock, as the device may be lost and never be asked.
    pub(crate) fn report_later(&self, error: DeviceError) {
        /// In a program that never synchronizes a device, they are logged and not kept without end.
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
        // All of them, whatever becomes of one: the caller is told of the first error, and the next call, or that
        // stream's own, of the next.
        queues.iter().for_each(|queue| queue.settle());
        queues.iter().try_for_each(|queue| queue.take_failure())?;
        self.collect_marked();
        self.check("synchronize")?;
        self.take_unreported()
    }

    fn take_unreported(&self) -> Result<(), DeviceError> {
        lock(&self.unreported).pop_front().map_or(Ok(()), Err)
    }

    /// The default stream, if there is one.
    pub(crate) fn default_stream(&self) -> Option<Arc<QueueHandle>> {
        // A thread of the parent may have held the lock when this process was forked; the call that follows is refused.
        if !self.has_default_stream.load(Ordering::Acquire) || !self.is_of_this_process() {
            return None;
        }
        lock(&self.default_stream).clone()
    }

    /// The default stream: the one that is there, or else this one.
    pub(crate) fn default_stream_or(&self, stream: Arc<QueueHandle>) -> Arc<QueueHandle> {
        let mut default = lock(&self.default_stream);
        let chosen = default.get_or_insert_with(|| Arc::clone(&stream)).clone();
        self.has_default_stream.store(true, Ordering::Release);
        drop(default);
        // It may be its last handle, whose `drop` is not for under a lock.
        drop(stream);
        chosen
    }

    /// Ends the work of the default stream, of which a program may hold handles, and drops the device's own.
    fn end_default_stream(&self) {
        let stream = lock(&self.default_stream).take();
        if let Some(stream) = stream {
            // Handles that a program has can do no more than return that the device is gone.
            stream.queue().close();
        }
    }
}

impl Owner for OpenDevice {
    fn device(&self) -> Device {
        self.device
    }

    fn free(&'static self, memory: Arc<dyn Memory>, len: usize) {
        struct Freed(Option<Arc<dyn Memory>>, usize, &'static OpenDevice);

        impl Drop for Freed {
            fn drop(&mut self) {
                drop_isolated(self.2.device, self.0.take());
                self.2.statistics.remove(self.1);
            }
        }

        self.drop_when_allowed(Freed(Some(memory), len, self));
    }

    fn drop_value(&self, value: Box<dyn Any + Send>) {
        self.drop_when_allowed(value);
    }
}

/// Runs a backend's code. Every call into a backend goes through here, so that one that panics harms only the
/// call. (With `panic = "abort"` nothing can be caught, and the program ends.)
pub(crate) fn isolated<T>(
    device: Device,
    call: &'static str,
    run: impl FnOnce() -> Result<T, BackendError>,
) -> Result<T, DeviceError> {
    // No state of the core's can be seen half changed: the closures only borrow.
    match catch_unwind(AssertUnwindSafe(run)) {
        Ok(result) => result.map_err(|error| DeviceError::Call { device, call, error }),
        Err(panic) => Err(panicked(device, call, &panic_message(panic))),
    }
}

pub(crate) fn panicked(device: Device, call: &'static str, message: &str) -> DeviceError {
    let error = BackendError::other(format_args!("the backend panicked: {message}"));
    DeviceError::Call { device, call, error }
}

/// Drops what a backend or a user made, whose `drop` may panic, where nobody is left to take an error.
pub(crate) fn drop_isolated<T>(device: Device, value: T) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| drop(value))) {
        let message = panic_message(panic);
        log_isolated(|| log::error!("`{device}`: a panic while freeing memory: {message}"));
    }
}

/// Writes to the log. A logger is a program's code: it may panic, which is caught, and it may not use devices, whose locks
/// the caller may hold. It comes last, after all that others wait for.
pub(crate) fn log_isolated(log: impl FnOnce()) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| device_use::run(log))) {
        // To drop it may panic again, and there is no other way to report it.
        std::mem::forget(panic);
    }
}
