//! An open device: its properties, and isolated calls into its driver.

mod clock;
mod closing;
mod dependents;
mod memory;
mod streams;

use std::any::Any;
use std::collections::VecDeque;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock, Weak};

use crate::backend::{
    BackendError, BackendErrorKind, DeviceDriver, DeviceProperties, DeviceValues, Fault, FaultInjector,
    Freed, LossReporter, Memory, Owner, Parts, Presence, StreamDriver,
};
use crate::device::Device;
use crate::error::DeviceError;
use crate::runtime::at_once::AtOnce;
use crate::runtime::deferred::{self, Deferred};
use crate::runtime::device_use;
use crate::runtime::fork::Process;
use crate::runtime::isolation::{drop_isolated, isolated};
use crate::runtime::memory_cache::MemoryCache;
pub(crate) use crate::runtime::open_device::clock::{Alignment, Timed};
pub(crate) use crate::runtime::open_device::dependents::{Awaited, KeptMemory, StreamHandle, StreamQueue};
pub(crate) use crate::runtime::open_device::streams::log_unreported;
use crate::runtime::statistics::Statistics;
use crate::sync::{AtomicBool, AtomicUsize, Mutex, lock};

/// An open device. It is never dropped. After a close, a loss or a reset, its old handles return that error.
pub(crate) struct OpenDevice {
    device: Device,
    driver: Box<dyn DeviceDriver>,
    has_native_handles: bool,
    properties: DeviceProperties,
    /// The process that opened it.
    process: Process,
    end: OnceLock<End>,
    /// Whether it has an end, in one order with `calls`: of a close and a call that begins meanwhile, at
    /// least one sees the other, so that no call reaches a closed driver.
    has_ended: AtomicBool,
    /// Whether its loss was announced, to threads that wait for reads and in the log.
    announced: AtomicBool,
    /// Whether it was closed, and the work in its queues is done or never will be.
    settled: AtomicBool,
    /// Whether a thread is closing or resetting it, or has done so.
    leaving: AtomicBool,
    /// The driver's loss reporter, until it is connected.
    loss_reporter: Mutex<Option<LossReporter>>,
    at_once: AtOnce,
    statistics: Statistics,
    /// Freed memory, if the device keeps it.
    cache: Option<MemoryCache<Arc<dyn Memory>>>,
    /// Held while faults are injected or cleared, so that `faults_armed` says what the driver has.
    injecting: Mutex<()>,
    /// Whether faults were injected and not cleared. Each allocation then reaches the driver.
    faults_armed: AtomicBool,
    /// Bytes allocated since the values of finished work were last released.
    allocated: AtomicUsize,
    deferred: Deferred,
    /// The number of calls that run in the driver now.
    calls: AtomicUsize,
    queues: Mutex<Vec<Weak<dyn StreamQueue>>>,
    /// Reads that are enqueued. A driver may finish one after its work is done, or after its stream is
    /// dropped.
    open_reads: Mutex<Vec<Weak<dyn Awaited>>>,
    /// Events that threads wait for.
    awaited: Mutex<Vec<Weak<dyn Awaited>>>,
    /// Driver queues of dropped streams whose work may not be done.
    closed: Mutex<Vec<Arc<dyn StreamQueue>>>,
    /// Failures of dropped streams that are not reported yet, oldest first.
    unreported: Mutex<VecDeque<DeviceError>>,
    default_stream: Mutex<Option<Arc<dyn StreamHandle>>>,
    /// The driver's queues for blocking calls that it leaves to the core, unused at the moment.
    idle_streams: Mutex<Vec<Box<dyn StreamDriver>>>,
    /// Saves the lock in a blocking call if no default stream exists.
    has_default_stream: AtomicBool,
    /// What kernels keep with the device.
    values: DeviceValues,
    /// The newest alignment of its clock with the host's.
    alignment: Mutex<Option<Arc<Alignment>>>,
}

// A panic in a driver can leave only the driver's own state half changed: every call into it is isolated. The
// core's own state is never half changed while foreign code runs.
impl UnwindSafe for OpenDevice {}
impl RefUnwindSafe for OpenDevice {}

/// Counts one more call until it is dropped.
struct Counted<'a>(&'a AtomicUsize);

impl<'a> Counted<'a> {
    #[inline]
    fn new(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::SeqCst);
        Self(count)
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Why a device cannot be used any longer.
enum End {
    Lost(BackendError),
    Closed,
}

impl OpenDevice {
    pub(crate) fn new(device: Device, opened: Parts, properties: DeviceProperties) -> Self {
        let Parts { driver, loss_reporter, has_native_handles } = opened;
        Self {
            device,
            driver,
            has_native_handles,
            cache: MemoryCache::of(&properties, |memory| Arc::get_mut(memory).is_none()),
            properties,
            process: Process::current(),
            end: OnceLock::new(),
            has_ended: AtomicBool::new(false),
            announced: AtomicBool::new(false),
            settled: AtomicBool::new(false),
            leaving: AtomicBool::new(false),
            loss_reporter: Mutex::new(loss_reporter),
            at_once: AtOnce::Short,
            statistics: Statistics::default(),
            injecting: Mutex::default(),
            faults_armed: AtomicBool::new(false),
            allocated: AtomicUsize::new(0),
            deferred: Deferred::new(),
            calls: AtomicUsize::new(0),
            queues: Mutex::default(),
            open_reads: Mutex::default(),
            awaited: Mutex::default(),
            closed: Mutex::default(),
            unreported: Mutex::default(),
            default_stream: Mutex::default(),
            idle_streams: Mutex::default(),
            has_default_stream: AtomicBool::new(false),
            values: DeviceValues::default(),
            alignment: Mutex::default(),
        }
    }

    /// The device, whose streams do this work at once.
    pub(crate) fn with_at_once(self, at_once: AtOnce) -> Self {
        Self { at_once, ..self }
    }

    /// The device, which uses freed memory again only if that is allowed.
    pub(crate) fn with_memory_reuse(self, allowed: bool) -> Self {
        Self { cache: self.cache.filter(|_| allowed), ..self }
    }

    /// Connects the driver's reporter of a loss, once.
    pub(crate) fn connect_loss_reporter(&'static self) {
        if let Ok(()) = self.check_process()
            && let Some(reporter) = lock(&self.loss_reporter).take()
        {
            reporter.connect(self);
        }
    }

    /// The device, resolved.
    #[inline]
    pub(crate) fn device(&self) -> Device {
        self.device
    }

    #[inline]
    pub(crate) fn properties(&self) -> &DeviceProperties {
        &self.properties
    }

    /// Whether it uses freed memory of this length again.
    #[inline]
    pub(crate) fn keeps_memory(&self, len: usize) -> bool {
        self.cache.as_ref().is_some_and(|cache| cache.keeps(len))
    }

    /// Which work its streams do at once. While faults are injected, they do none: a fault may be a stall,
    /// which must hang the stream's thread.
    #[inline]
    pub(crate) fn at_once(&self) -> AtOnce {
        if self.faults_armed.load(Ordering::SeqCst) { AtOnce::Never } else { self.at_once }
    }

    pub(crate) fn statistics(&self) -> &Statistics {
        &self.statistics
    }

    /// Whether this is the process in which it was opened.
    #[inline]
    pub(crate) fn is_of_this_process(&self) -> bool {
        self.process.is_current()
    }

    /// Whether this process may use it, and it is neither lost nor closed.
    #[inline]
    pub(crate) fn is_usable(&self) -> bool {
        self.is_of_this_process() && !self.has_ended()
    }

    /// Checks that this process may use the device.
    #[inline]
    pub(crate) fn check_process(&self) -> Result<(), DeviceError> {
        if self.is_of_this_process() { Ok(()) } else { Err(DeviceError::Forked { device: self.device }) }
    }

    /// Checks that this process and this thread may use the device.
    #[inline]
    pub(crate) fn check_thread(&self, call: &'static str) -> Result<(), DeviceError> {
        self.check_process()?;
        if device_use::is_forbidden() {
            Err(DeviceError::InHostCall { device: self.device, call })
        } else {
            Ok(())
        }
    }

    /// Checks that this process and this thread may use the device, and that it is neither lost nor closed.
    #[inline]
    pub(crate) fn check(&self, call: &'static str) -> Result<(), DeviceError> {
        self.check_thread(call)?;
        if self.has_ended() { self.ended(call) } else { Ok(()) }
    }

    #[cold]
    fn ended(&self, call: &'static str) -> Result<(), DeviceError> {
        match self.end() {
            Some(End::Lost(error)) => {
                Err(DeviceError::Call { device: self.device, call, error: error.clone() })
            }
            Some(End::Closed) => Err(DeviceError::Closed { device: self.device, call }),
            None => Ok(()),
        }
    }

    #[inline]
    fn end(&self) -> Option<&End> {
        if self.has_ended() { self.end.get() } else { None }
    }

    /// Ends the device. `false` if it has ended before: it keeps the first end.
    fn end_by(&self, end: End) -> bool {
        let is_first = self.end.set(end).is_ok();
        self.has_ended.store(true, Ordering::SeqCst);
        is_first
    }

    /// Runs a call to the driver. An error or a panic in it becomes an error that names the device and the
    /// call.
    pub(crate) fn call<T>(
        &self,
        call: &'static str,
        run: impl FnOnce(&dyn DeviceDriver) -> Result<T, BackendError>,
    ) -> Result<T, DeviceError> {
        if self.is_due() && !device_use::is_stream_thread() {
            self.check_thread(call)?;
            // Done before this call is counted: the `drop` of a driver's memory may close the device, which
            // waits for all counted calls.
            self.drop_what_is_due();
        }
        let result = self.call_in_turn(call, run);
        if result.is_err() {
            self.announce_loss();
        }
        result
    }

    /// Runs a call to the driver while this thread holds a queue's `submitting` lock. It drops no value whose
    /// `drop` may wait for that lock. It does not announce a loss either: that runs foreign code, which may
    /// wait for a lock of a thread that waits for `submitting`.
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

    /// Runs a call to the driver that is valid even after a loss.
    pub(crate) fn call_although_lost<T>(
        &self,
        call: &'static str,
        run: impl FnOnce(&dyn DeviceDriver) -> Result<T, BackendError>,
    ) -> Result<T, DeviceError> {
        let _counted = Counted::new(&self.calls);
        self.check_thread(call)?;
        if matches!(self.end(), Some(End::Closed)) {
            return Err(DeviceError::Closed { device: self.device, call });
        }
        self.isolated(call, || run(&*self.driver))
    }

    /// Injects a fault. From then on an allocation is one call of the driver, until the faults are cleared.
    pub(crate) fn inject(&self, fault: Fault) -> Result<(), DeviceError> {
        self.call("inject a fault", |driver| {
            let injector = injector(driver)?;
            let _turn = lock(&self.injecting);
            // Set before the fault: the next allocation may already be the one that it counts.
            let armed = self.faults_armed.swap(true, Ordering::SeqCst);
            injector.inject(fault).inspect_err(|_| self.faults_armed.store(armed, Ordering::SeqCst))
        })?;
        // Allocations bypass the cache, and would find the device full of cached memory.
        self.drop_from_cache(MemoryCache::empty);
        Ok(())
    }

    /// Clears the injected faults, even on a lost device.
    pub(crate) fn clear_faults(&self) -> Result<(), DeviceError> {
        self.call_although_lost("clear faults", |driver| {
            let injector = injector(driver)?;
            let _turn = lock(&self.injecting);
            injector.clear();
            self.faults_armed.store(false, Ordering::SeqCst);
            Ok(())
        })
    }

    /// Fails if the driver offers no fault injection.
    pub(crate) fn check_faults(&self) -> Result<(), DeviceError> {
        self.call_although_lost("inject a fault", |driver| injector(driver).map(drop))
    }

    /// Runs code of the driver without a check of the device's state.
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

    /// Whether the device is lost or closed.
    #[inline]
    pub(crate) fn has_ended(&self) -> bool {
        self.has_ended.load(Ordering::SeqCst)
    }

    /// Whether the work in its queues is done or never will be, as far as the core knows.
    pub(crate) fn is_settled(&self) -> bool {
        self.is_lost() || self.settled.load(Ordering::Acquire)
    }

    #[inline]
    pub(crate) fn is_lost(&self) -> bool {
        matches!(self.end(), Some(End::Lost(_)))
    }

    /// Whether it can be used; `None` if it was closed, so that only the backend knows.
    pub(crate) fn presence(&self) -> Option<Presence> {
        match self.end() {
            None => Some(Presence::Present),
            Some(End::Lost(error)) => Some(Presence::Lost(error.clone())),
            Some(End::Closed) => None,
        }
    }

    /// Drops a value of the driver. On a thread that may not use devices, or the thread of a stream, it
    /// defers the drop, to the end of a piece of work or the next call.
    pub(crate) fn drop_when_allowed<T: Send + 'static>(&self, value: T) {
        if !self.is_of_this_process() {
            // The driver is unusable in a fork: calling it to free memory may hang.
            return std::mem::forget(value);
        }
        if device_use::defers_drops() {
            self.deferred.push(self.device, Box::new(value));
            // After the push: either this finds the end, or the thread that ends the device finds the value.
            if self.has_ended() {
                self.pass_on_deferred();
            }
            return;
        }
        drop_isolated(self.device, value);
    }

    /// Passes the deferred values on to the list of the process, after the end of the device.
    fn pass_on_deferred(&self) {
        deferred::take_over_of_ended(self.process, &self.deferred);
    }

    /// Whether there may be deferred values, of this device or of ended ones.
    #[inline]
    pub(crate) fn is_due(&self) -> bool {
        self.deferred.is_due() || deferred::is_due_of_ended()
    }

    /// Drops the deferred values of this device and of devices that have ended. Returns whether there were
    /// any.
    #[inline]
    pub(crate) fn drop_what_is_due(&self) -> bool {
        // A backend that uses another device may hold a lock that the drop of its own values takes.
        let drops_of_ended = deferred::is_due_of_ended() && !device_use::is_in_backend();
        self.deferred.drop_all() | (drops_of_ended && deferred::drop_all_of_ended(self.process))
    }
}

/// Whether a driver has refused a call because it does not support it.
pub(crate) fn is_unsupported<T>(result: &Result<T, DeviceError>) -> bool {
    matches!(result, Err(DeviceError::Call { error, .. }) if error.kind() == BackendErrorKind::Unsupported)
}

fn injector(driver: &dyn DeviceDriver) -> Result<&dyn FaultInjector, BackendError> {
    driver.faults().ok_or_else(|| BackendError::unsupported("fault injection"))
}

impl Owner for OpenDevice {
    fn device(&self) -> Device {
        self.device
    }

    fn has_native_handles(&self) -> bool {
        self.has_native_handles
    }

    fn values(&self) -> &DeviceValues {
        &self.values
    }

    fn free(&'static self, memory: Arc<dyn Memory>, freed: Freed) {
        if !self.is_of_this_process() {
            // The driver is unusable in a fork, and another thread may have held the cache's lock.
            return std::mem::forget(memory);
        }
        match (&self.cache, freed.block) {
            (Some(cache), Some(block)) => self.free_into(cache, memory, block, freed),
            _ => self.give_back(memory, freed),
        }
    }

    fn while_open(&self, query: &mut dyn FnMut()) -> Result<(), BackendError> {
        let _counted = Counted::new(&self.calls);
        let device = self.device;
        self.check_process().map_err(BackendError::invalid)?;
        match self.end() {
            None => query(),
            Some(End::Lost(error)) => return Err(error.clone()),
            Some(End::Closed) => {
                return Err(BackendError::invalid(DeviceError::Closed { device, call: "native handle" }));
            }
        }
        Ok(())
    }

    fn drop_value(&self, value: Box<dyn Any + Send>) {
        self.drop_when_allowed(value);
    }

    fn lose(&'static self, error: BackendError) {
        // In a fork, other threads may have held the locks below.
        if self.is_of_this_process() {
            // The driver's thread may not call the driver, so memory is freed later on another one.
            device_use::forbid(|| {
                self.note_loss(&error);
                self.announce_loss();
            });
        }
    }
}
