//! A device that is open: what it is, and calls into its driver, none of which is trusted.

mod closing;
mod streams;

use std::any::Any;
use std::collections::VecDeque;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock, Weak};

use crate::backend::{BackendError, DeviceDriver, DeviceProperties, Memory, Owner};
use crate::device::Device;
use crate::error::DeviceError;
use crate::runtime::deferred::Deferred;
use crate::runtime::device_use;
use crate::runtime::fork::Process;
use crate::runtime::isolation::{drop_isolated, isolated};
use crate::runtime::outcome::Outcome;
use crate::runtime::queue::{Queue, QueueHandle};
use crate::runtime::statistics::Statistics;
use crate::sync::{AtomicBool, AtomicUsize, Mutex, fence};

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
    deferred: Deferred,
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
    /// Queues for blocking calls that the driver leaves to the core, which no thread uses now.
    idle_queues: Mutex<Vec<Arc<QueueHandle>>>,
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
    #[inline]
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
            deferred: Deferred::default(),
            calls: AtomicUsize::new(0),
            queues: Mutex::default(),
            open_reads: Mutex::default(),
            closed: Mutex::default(),
            unreported: Mutex::default(),
            default_stream: Mutex::default(),
            idle_queues: Mutex::default(),
            has_default_stream: AtomicBool::new(false),
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

    pub(crate) fn statistics(&self) -> &Statistics {
        &self.statistics
    }

    /// Whether this is the process in which it was opened.
    #[inline]
    pub(crate) fn is_of_this_process(&self) -> bool {
        self.process.is_current()
    }

    /// Whether the device may be used by this process.
    #[inline]
    pub(crate) fn check_process(&self) -> Result<(), DeviceError> {
        if self.is_of_this_process() { Ok(()) } else { Err(DeviceError::Forked { device: self.device }) }
    }

    /// Whether the device may be used by this process and on this thread.
    #[inline]
    pub(crate) fn check_thread(&self, call: &'static str) -> Result<(), DeviceError> {
        self.check_process()?;
        if device_use::is_forbidden() {
            Err(DeviceError::InHostCall { device: self.device, call })
        } else {
            Ok(())
        }
    }

    /// Whether the device may be used from here, and is still there.
    #[inline]
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
        if self.deferred.is_due() && !device_use::is_stream_thread() {
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

    #[inline]
    pub(crate) fn is_gone(&self) -> bool {
        self.gone.get().is_some()
    }

    /// Whether the work in its queues is done or never will be, as far as the core can know.
    pub(crate) fn is_settled(&self) -> bool {
        self.is_lost() || self.settled.load(Ordering::Acquire)
    }

    #[inline]
    pub(crate) fn is_lost(&self) -> bool {
        matches!(self.gone.get(), Some(Gone::Lost(_)))
    }

    /// Drops what a driver made, here or, within a host call or in the middle of a stream's work, as soon as that is over.
    pub(crate) fn drop_when_allowed<T: Send + 'static>(&self, value: T) {
        if !self.is_of_this_process() {
            // The driver is not whole in this process, and its memory goes with it.
            return std::mem::forget(value);
        }
        if device_use::is_forbidden() || device_use::is_stream_thread() {
            return self.deferred.push(Box::new(value));
        }
        drop_isolated(self.device, value);
    }

    /// Drops what could not be dropped where it was left. Returns whether there was any.
    #[inline]
    pub(crate) fn drop_what_is_due(&self) -> bool {
        self.deferred.is_due() && self.drop_deferred()
    }

    #[cold]
    fn drop_deferred(&self) -> bool {
        let due = self.deferred.take();
        let any = !due.is_empty();
        due.into_iter().for_each(|value| drop_isolated(self.device, value));
        any
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
