//! The validating layer, `DEVICE_VALIDATE=1`: between the core and a driver, it looks for violations of the
//! contract that nothing else would notice.
//!
//! It stands in place of the driver from the moment a device is opened. Without the variable there
//! is no layer, so it costs nothing.

mod device;
mod locks;
mod stream;

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use crate::backend::{
    BackendError, BackendErrorKind, DeviceDriver, HostBuffer, LossReporter, Parts, backends,
};
use crate::device::Device;
use crate::runtime::isolation::log_isolated;
use crate::runtime::switch;

use self::device::ValidatedDevice;
use self::locks::{Counted, Open};

const VARIABLE: &str = "DEVICE_VALIDATE";

/// Reports are kept until a program takes them, but no more than this many.
const MOST: usize = 256;

/// What was reported and not taken.
static REPORTS: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Whether there is a layer.
#[derive(Clone, Copy)]
pub(crate) struct Layer {
    is_on: bool,
}

impl Layer {
    /// # Errors
    ///
    /// If the variable has an invalid value.
    pub(crate) fn of_variable() -> Result<Self, BackendError> {
        Ok(Self { is_on: switch::is_on(VARIABLE, false)? })
    }

    /// The driver of a device, behind the layer if there is one.
    pub(crate) fn before(self, device: Device, parts: Parts) -> Parts {
        if !self.is_on {
            return parts;
        }
        backends().add_note(format!("{VARIABLE} is set: calls into drivers are validated"));
        let ledger = Ledger::new(device, parts.driver, parts.loss_reporter.clone());
        Parts { driver: Box::new(ValidatedDevice::new(ledger)), ..parts }
    }
}

/// Takes the reports of the validating layer since the last call, oldest first. Each is also a line in the
/// log, at the level `error`. Without the variable `DEVICE_VALIDATE=1`, only the loader of backends in files
/// makes any.
///
/// The conformance suite fails a check during which any were made. Blocks while the layer makes a call of its
/// own, at most for ten seconds.
#[must_use]
pub fn take_validation_reports() -> Vec<String> {
    locks::settle();
    std::mem::take(&mut *REPORTS.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Reports that a driver has broken a rule, from code between the core and a driver, such as a loader of
/// backends in files. It is for mistakes that no call returns as an error.
/// [`take_validation_reports`](crate::take_validation_reports) returns it, and it is a line in the log, at
/// the level `error`.
pub fn report_broken_rule(report: &str) {
    log_isolated(|| log::error!("{report}"));
    keep_report(report.to_owned());
}

fn keep_report(report: String) {
    let mut reports = REPORTS.lock().unwrap_or_else(PoisonError::into_inner);
    if reports.len() < MOST {
        reports.push(report);
    }
}

/// What the layer knows about an open device.
struct Ledger {
    device: Device,
    driver: Box<dyn DeviceDriver>,
    loss_reporter: Option<LossReporter>,
    /// Whether a call has returned that the device is lost.
    is_lost: AtomicBool,
    /// Until the close.
    open: Arc<Open>,
    /// Buffers of blocking calls.
    blocking: Arc<AtomicUsize>,
    /// Sources of queued writes that the driver has.
    sources: Arc<AtomicUsize>,
    /// Destinations of queued reads that the driver has.
    destinations: Arc<AtomicUsize>,
    /// Queued reads that are neither finished nor dropped.
    reads: AtomicUsize,
    is_closed: AtomicBool,
    kept: Mutex<Kept>,
}

/// The copies of sources that the layer keeps, each for as long as the core keeps the source itself.
#[derive(Default)]
struct Kept {
    sources: Vec<(Weak<HostBuffer>, Arc<HostBuffer>)>,
    /// The number of copies at which those that are not needed are dropped.
    limit: usize,
}

impl Kept {
    fn drop_unused(&mut self) {
        self.sources.retain(|(source, _)| source.strong_count() > 0);
    }
}

impl Ledger {
    fn new(device: Device, driver: Box<dyn DeviceDriver>, loss_reporter: Option<LossReporter>) -> Arc<Self> {
        Arc::new(Self {
            device,
            driver,
            loss_reporter,
            is_lost: AtomicBool::new(false),
            open: Arc::default(),
            blocking: Arc::default(),
            sources: Arc::default(),
            destinations: Arc::default(),
            reads: AtomicUsize::new(0),
            is_closed: AtomicBool::new(false),
            kept: Mutex::default(),
        })
    }

    /// Keeps the copy of a source for as long as the core keeps the source: a driver may rely on that.
    fn keep(&self, source: &Arc<HostBuffer>, copy: &Arc<HostBuffer>) {
        let kept = &mut *self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.sources.push((Arc::downgrade(source), Arc::clone(copy)));
        if kept.sources.len() >= kept.limit {
            kept.drop_unused();
            kept.limit = 2 * kept.sources.len() + 64;
        }
    }

    fn drop_unused_sources(&self) {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner).drop_unused();
    }

    /// Reports that a driver has broken a rule. Returns the error of the call, which names no device and no
    /// call.
    #[cold]
    fn broken(&self, call: &str, rule: &str) -> BackendError {
        let report = format!("`{}`: {call}: the driver breaks a rule: {rule}", self.device);
        log_isolated(|| log::error!("{report}"));
        keep_report(report);
        BackendError::other(format_args!("the driver breaks a rule: {rule}"))
    }

    /// Makes a call of the driver, and looks at its error.
    fn call<T>(&self, call: &str, run: impl FnOnce() -> Result<T, BackendError>) -> Result<T, BackendError> {
        let counted = Counted::begin();
        let result = run();
        drop(counted);
        self.read_error(call, result)
    }

    /// Whether the driver may get only the calls that are allowed after a loss.
    fn is_lost(&self) -> bool {
        self.is_lost.load(Ordering::SeqCst)
            || self.loss_reporter.as_ref().is_some_and(LossReporter::has_reported)
    }

    /// Looks at the error of a call, and returns the result as it is.
    fn read_error<T>(&self, call: &str, result: Result<T, BackendError>) -> Result<T, BackendError> {
        if let Err(error) = &result {
            if error.kind() == BackendErrorKind::Lost {
                self.is_lost.store(true, Ordering::SeqCst);
            }
            if error.message().trim().is_empty() {
                let _reported = self.broken(call, "an error has a text, and this one has none");
            } else if error.message().contains(char::is_control) {
                let _reported = self.broken(
                    call,
                    &format!(
                        "the text of an error has no control characters, and this one is {:?}",
                        error.message()
                    ),
                );
            }
        }
        result
    }
}
