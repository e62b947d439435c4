//! For tests of a driver: injected faults.
//!
//! A driver that offers faults lets the conformance suite see what it does when an operation fails, a device
//! is lost or a queue stalls. It has a [`FaultCounter`], calls [`before`](FaultCounter::before) at the start
//! of each operation, and returns the counter from
//! [`DeviceDriver::faults`](crate::backend::DeviceDriver::faults). A backend for hardware offers that only to
//! tests, by the option [`FaultCounter::OPTION`]. Programs inject faults with
//! [`Device::faults`](crate::Device::faults).

use std::borrow::Cow;
use std::time::Duration;
use std::{fmt, mem, thread};

use crate::backend::{
    BackendError, BackendErrorKind, Fault, FaultInjector, LoadFailure, LossReporter, OptionSpec, Options,
};
use crate::sync::{Condvar, Mutex, MutexGuard, lock, wait};

/// An operation that a device is about to do: the argument of [`FaultCounter::before`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FaultPoint {
    /// An allocation.
    Allocate {
        /// How many bytes are asked for.
        len: usize,
    },
    /// A write from the host.
    Write,
    /// A read to the host.
    Read,
    /// A copy from memory of a device.
    Copy,
    /// A fill.
    Fill,
}

/// The injected faults of one device: the [`FaultInjector`] that a driver offers.
///
/// The driver calls [`before`](Self::before) at the start of each operation, blocking or in a stream, and
/// returns its error. That is all that [`Fault`] needs:
///
/// ```
/// use device_registry::backend::{BackendError, Fault, FaultInjector};
/// use device_registry::backend::testing::{FaultCounter, FaultPoint};
///
/// struct Device {
///     faults: FaultCounter,
/// }
///
/// impl Device {
///     fn write(&self, bytes: &[u8]) -> Result<(), BackendError> {
///         self.faults.before(FaultPoint::Write)?;
///         // …
///         # let _ = bytes;
///         Ok(())
///     }
/// }
///
/// let device = Device { faults: FaultCounter::new() };
/// // `DeviceDriver::faults` returns `Some(&self.faults)`, and a test injects:
/// device.faults.inject(Fault::FailCopy { nth: 2 })?;
/// device.write(b"one")?;
/// let error = device.write(b"two").unwrap_err();
/// assert_eq!(error.to_string(), "an injected fault fails this write");
/// device.write(b"three")?;
/// # Ok::<(), BackendError>(())
/// ```
///
/// A device with a connection, such as a socket or a queue of a driver, breaks it where a fault loses the
/// device: see [`on_loss`](Self::on_loss).
///
/// # Queues of hardware
///
/// A driver with a hardware queue has no code that runs when an operation begins: its operations start
/// when it submits them. So it calls `before` in the functions of
/// [`StreamDriver`](crate::backend::StreamDriver), before it submits.
///
/// - A failure is then a refusal of the submission. A driver that can submit work that fails on the device,
///   such as a command that waits for an event with an error, does so instead, which runs the code that finds
///   failures later.
/// - [`Fault::Slow`] delays the thread that submits.
/// - [`Fault::Stall`] would hold up that thread, which the contract forbids. Such a driver has a counter
///   [without stalls](Self::without_stalls).
/// - [`Fault::LoseDevice`] declares a loss while the hardware runs. [Rule
///   D19](crate::backend#the-end-of-a-device) says what becomes of the work and of what it uses.
///
/// A backend for hardware offers faults to tests only. It declares [`OPTION`](Self::OPTION), and a driver has
/// a counter if [`is_requested`](Self::is_requested) says so. The backends `opencl` and `wgpu` do this:
///
/// ```
/// use device_registry::backend::{Backend, BackendDescriptor, LoadFailure, Options};
/// use device_registry::backend::testing::FaultCounter;
///
/// static ACME: BackendDescriptor = BackendDescriptor::with_options("acme", load, &[FaultCounter::OPTION]);
///
/// fn load(options: &Options) -> Result<Box<dyn Backend>, LoadFailure> {
///     let faults = FaultCounter::is_requested(options)?;
///     // …
///     # let _ = faults;
///     # Err(LoadFailure::unavailable("no driver"))
/// }
/// ```
#[derive(Default)]
pub struct FaultCounter {
    state: Mutex<State>,
    changed: Condvar,
    without_stalls: bool,
    on_loss: Option<Box<dyn Fn() + Send + Sync>>,
    loss_reporter: Option<LossReporter>,
}

/// The reason of an injected loss.
const INJECTED: &str = "by an injected fault";

#[derive(Default)]
struct State {
    /// The faults that have not happened yet. The number in each is how many operations are left until it
    /// happens.
    armed: Vec<Fault>,
    slow: Duration,
    /// Why no operation stalls any more, and why each fails.
    ended: Option<Ended>,
    /// How often the faults were cleared.
    cleared: u64,
}

/// How a device has ended.
#[derive(Clone)]
enum Ended {
    /// It is lost, for this reason.
    Lost(Cow<'static, str>),
    /// Its connection is broken, and gives the error.
    Broken,
    Closed,
}

impl FaultInjector for FaultCounter {
    fn inject(&self, fault: Fault) -> Result<(), BackendError> {
        if let Fault::Stall { .. } = fault
            && self.without_stalls
        {
            return Err(BackendError::unsupported("a stall: it would hold up the thread that submits work"));
        }
        let mut state = self.state();
        match fault {
            Fault::FailAllocation { nth }
            | Fault::FailCopy { nth }
            | Fault::LoseDevice { nth }
            | Fault::Stall { nth } => {
                if nth == 0 {
                    let message = format_args!("{fault:?} never happens: the next operation is number 1");
                    return Err(BackendError::invalid(message));
                }
                let kind = mem::discriminant(&fault);
                state.armed.retain(|other| mem::discriminant(other) != kind);
                state.armed.push(fault);
            }
            Fault::Slow { by } => state.slow = by,
            Fault::Unplug => {
                let Some(reporter) = &self.loss_reporter else {
                    return Err(BackendError::unsupported("a loss that the driver finds without a call"));
                };
                // Otherwise the driver finds the loss, and reports it.
                if !self.breaks(state) {
                    reporter.report(BackendError::lost(INJECTED));
                }
            }
        }
        Ok(())
    }

    fn clear(&self) {
        let mut state = self.state();
        let ended = state.ended.take();
        *state = State { ended, cleared: state.cleared + 1, ..State::default() };
        drop(state);
        self.changed.notify_all();
    }
}

impl FaultCounter {
    /// No fault, on a device that is neither lost nor closed.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The option of a backend that offers faults to tests only, such as `acme.faults=1`.
    pub const OPTION: OptionSpec =
        OptionSpec::new("faults", "`1` to offer fault injection, for tests, or `0`, the default");

    /// Whether [`OPTION`](Self::OPTION) is set to offer faults.
    ///
    /// # Errors
    ///
    /// If it has another value than `0` and `1`.
    ///
    /// # Panics
    ///
    /// Panics if the backend does not declare the option.
    pub fn is_requested(options: &Options) -> Result<bool, LoadFailure> {
        match options.value(Self::OPTION.name()) {
            None => Ok(false),
            Some(value) => match value.as_str() {
                "0" => Ok(false),
                "1" => Ok(true),
                _ => Err(value.invalid(Self::OPTION.description())),
            },
        }
    }

    /// Offers no [`Fault::Stall`], for a driver with [queues of hardware](Self#queues-of-hardware): an
    /// injection is *unsupported*.
    #[must_use]
    pub fn without_stalls(mut self) -> Self {
        self.without_stalls = true;
        self
    }

    /// Calls `break_connection` when an injected fault loses the device: in the operation that loses it,
    /// before [`before`](Self::before) returns, and under no lock.
    ///
    /// From then on `before` and [`check`](Self::check) return no error of their own: the driver's calls do,
    /// as after a real loss. Without this function they return one, and the code that detects a loss is never
    /// run.
    ///
    /// Operations that stall continue after it. A driver that owns both the counter and the connection passes
    /// a weak reference:
    ///
    /// ```
    /// # use std::net::{Shutdown, TcpStream};
    /// # use std::sync::Arc;
    /// # use device_registry::backend::testing::FaultCounter;
    /// fn counter(connection: &Arc<TcpStream>) -> FaultCounter {
    ///     let broken = Arc::downgrade(connection);
    ///     FaultCounter::new().on_loss(move || {
    ///         if let Some(connection) = broken.upgrade() {
    ///             // It fails if the other side has ended the connection before.
    ///             let _ = connection.shutdown(Shutdown::Both);
    ///         }
    ///     })
    /// }
    /// ```
    #[must_use]
    pub fn on_loss(mut self, break_connection: impl Fn() + Send + Sync + 'static) -> Self {
        self.on_loss = Some(Box::new(break_connection));
        self
    }

    /// Offers [`Fault::Unplug`]: it reports the loss with a clone of the driver's reporter. A counter with
    /// [`on_loss`](Self::on_loss) breaks the connection instead, and the driver finds that and reports it.
    #[must_use]
    pub fn with_loss_reporter(mut self, reporter: LossReporter) -> Self {
        self.loss_reporter = Some(reporter);
        self
    }

    /// Counts an operation, and applies the faults that are due: it may sleep, stall or fail, or lose the
    /// device.
    ///
    /// # Errors
    ///
    /// The injected failure, or why the device is lost or closed. The driver returns it in place of the
    /// operation's result.
    pub fn before(&self, operation: FaultPoint) -> Result<(), BackendError> {
        let mut state = self.state();
        state.check()?;
        let mut fails = false;
        let mut stalls = false;
        let mut loses = false;
        state.armed.retain_mut(|fault| {
            let (nth, happens) = match fault {
                Fault::FailAllocation { nth } if operation.allocates() => (nth, &mut fails),
                Fault::FailCopy { nth } if !operation.allocates() => (nth, &mut fails),
                Fault::LoseDevice { nth } => (nth, &mut loses),
                Fault::Stall { nth } => (nth, &mut stalls),
                _ => return true,
            };
            *nth -= 1;
            *happens |= *nth == 0;
            *nth > 0
        });
        if loses && state.ended.is_none() {
            if self.breaks(state) {
                return Ok(());
            }
            state = self.state();
        }
        let cleared = state.cleared;
        while stalls && state.ended.is_none() && state.cleared == cleared {
            state = wait(&self.changed, state);
        }
        state.check()?;
        let slow = state.slow;
        drop(state);
        if !slow.is_zero() {
            thread::sleep(slow);
        }
        if fails { Err(operation.failure()) } else { Ok(()) }
    }

    /// Fails if the device is lost or closed. Counts nothing; it is for calls that no fault can hit, such as
    /// queries.
    ///
    /// # Errors
    ///
    /// Why the device is lost, or that it is closed.
    pub fn check(&self) -> Result<(), BackendError> {
        self.state().check()
    }

    /// Notes that the device is lost, when it is reset for example: each operation fails with `why`, and so
    /// do those that stall.
    pub fn lose(&self, why: impl Into<Cow<'static, str>>) {
        self.end(Ended::Lost(why.into()));
    }

    /// Notes that the device is closed: each operation fails, and so do those that stall. A device that is
    /// lost stays lost.
    pub fn close(&self) {
        self.end(Ended::Closed);
    }

    /// Ends the device by an injected loss. Returns whether it has a connection, which is broken then.
    fn breaks(&self, mut state: MutexGuard<'_, State>) -> bool {
        let Some(break_connection) = &self.on_loss else {
            state.ended.get_or_insert(Ended::Lost(INJECTED.into()));
            drop(state);
            self.changed.notify_all();
            return false;
        };
        drop(state);
        break_connection();
        // Only now: an operation that stalls continues, and would succeed on a connection that is not broken
        // yet.
        self.end(Ended::Broken);
        true
    }

    fn end(&self, how: Ended) {
        self.state().ended.get_or_insert(how);
        self.changed.notify_all();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }
}

impl fmt::Debug for FaultCounter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FaultCounter").field("armed", &self.state().armed).finish_non_exhaustive()
    }
}

impl State {
    fn check(&self) -> Result<(), BackendError> {
        match &self.ended {
            Some(Ended::Lost(why)) => Err(BackendError::lost(why)),
            Some(Ended::Closed) => Err(BackendError::invalid("the device is closed")),
            Some(Ended::Broken) | None => Ok(()),
        }
    }
}

impl FaultPoint {
    fn allocates(self) -> bool {
        matches!(self, Self::Allocate { .. })
    }

    fn failure(self) -> BackendError {
        let message = match self {
            Self::Allocate { len } => {
                let kind = BackendErrorKind::OutOfMemory { asked: len as u64, free: None };
                let message = format_args!("{len} bytes asked for, refused by an injected fault");
                return BackendError::new(kind, message);
            }
            Self::Write => "an injected fault fails this write",
            Self::Read => "an injected fault fails this read",
            Self::Copy => "an injected fault fails this copy",
            Self::Fill => "an injected fault fails this fill",
        };
        BackendError::other(message)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc;
    use std::time::Instant;

    use super::*;

    const ALLOCATE: FaultPoint = FaultPoint::Allocate { len: 7 };

    fn with(faults: &[Fault]) -> FaultCounter {
        let new = FaultCounter::default();
        faults.iter().for_each(|&fault| new.inject(fault).unwrap());
        new
    }

    /// The numbers of the operations that fail, counted from 1.
    fn failing(faults: &FaultCounter, operations: &[FaultPoint]) -> Vec<usize> {
        let results = operations.iter().map(|&operation| faults.before(operation));
        results.enumerate().filter(|(_, result)| result.is_err()).map(|(index, _)| index + 1).collect()
    }

    #[test]
    fn the_nth_allocation_is_out_of_memory_once() {
        let faults = with(&[Fault::FailAllocation { nth: 2 }]);
        assert_eq!(failing(&faults, &[ALLOCATE, FaultPoint::Write, FaultPoint::Copy]), []);
        let error = faults.before(ALLOCATE).unwrap_err();
        assert_eq!(error.kind(), BackendErrorKind::OutOfMemory { asked: 7, free: None });
        assert_eq!(error.to_string(), "out of memory: 7 bytes asked for, refused by an injected fault");
        assert_eq!(failing(&faults, &[ALLOCATE; 10]), []);
    }

    #[test]
    fn the_nth_copy_fails_whatever_kind_of_copy_it_is() {
        let copies = [FaultPoint::Write, FaultPoint::Read, FaultPoint::Copy, FaultPoint::Fill];
        for (index, copy) in copies.into_iter().enumerate() {
            let faults = with(&[Fault::FailCopy { nth: index as u64 + 1 }]);
            assert_eq!(failing(&faults, &[ALLOCATE; 4]), []);
            assert_eq!(failing(&faults, &copies), [index + 1], "{copy:?}");
            assert_eq!(failing(&faults, &copies), []);
        }
        let message = with(&[Fault::FailCopy { nth: 1 }]).before(FaultPoint::Read).unwrap_err().to_string();
        assert_eq!(message, "an injected fault fails this read");
    }

    #[test]
    fn to_unplug_a_device_needs_a_reporter_and_ends_stalls() {
        let error = with(&[]).inject(Fault::Unplug).unwrap_err();
        assert_eq!(error.kind(), BackendErrorKind::Unsupported);
        let faults = FaultCounter::new().with_loss_reporter(LossReporter::new());
        faults.inject(Fault::Stall { nth: 1 }).unwrap();
        std::thread::scope(|scope| {
            let stalled = scope.spawn(|| faults.before(FaultPoint::Write));
            while !faults.state().armed.is_empty() {
                thread::yield_now();
            }
            faults.inject(Fault::Unplug).unwrap();
            let error = stalled.join().unwrap().unwrap_err();
            assert_eq!(error.to_string(), "device lost: by an injected fault");
        });
        static BROKEN: AtomicUsize = AtomicUsize::new(0);
        let breaks = || {
            BROKEN.fetch_add(1, Ordering::SeqCst);
        };
        let faults = FaultCounter::new().on_loss(breaks).with_loss_reporter(LossReporter::new());
        faults.inject(Fault::Unplug).unwrap();
        assert_eq!(BROKEN.load(Ordering::SeqCst), 1);
        faults.before(FaultPoint::Write).unwrap();
    }

    #[test]
    fn the_connection_is_broken_before_an_operation_that_stalls_continues() {
        static IS_BROKEN: AtomicUsize = AtomicUsize::new(0);
        let breaks = || {
            // How long a stalled operation has to continue too early.
            thread::sleep(Duration::from_millis(50));
            IS_BROKEN.store(1, Ordering::SeqCst);
        };
        for fault in [Fault::LoseDevice { nth: 1 }, Fault::Unplug] {
            IS_BROKEN.store(0, Ordering::SeqCst);
            let faults = FaultCounter::new().on_loss(breaks).with_loss_reporter(LossReporter::new());
            faults.inject(Fault::Stall { nth: 1 }).unwrap();
            thread::scope(|scope| {
                let stalled = scope.spawn(|| {
                    faults.before(FaultPoint::Write).unwrap();
                    IS_BROKEN.load(Ordering::SeqCst)
                });
                while !faults.state().armed.is_empty() {
                    thread::yield_now();
                }
                faults.inject(fault).unwrap();
                faults.before(FaultPoint::Write).unwrap();
                assert_eq!(stalled.join().unwrap(), 1, "{fault:?}");
            });
        }
    }

    #[test]
    fn faults_of_several_kinds_all_happen_and_of_one_kind_only_the_last() {
        let first = [Fault::FailCopy { nth: 4 }, Fault::LoseDevice { nth: 6 }, Fault::FailCopy { nth: 2 }];
        assert_eq!(failing(&with(&first), &[FaultPoint::Write; 7]), [2, 6, 7]);
    }

    #[test]
    fn a_device_is_lost_at_the_nth_operation_and_ever_after() {
        let faults = with(&[Fault::LoseDevice { nth: 3 }]);
        assert!(faults.check().is_ok());
        assert_eq!(
            failing(&faults, &[ALLOCATE, FaultPoint::Write, FaultPoint::Read, FaultPoint::Copy, ALLOCATE]),
            [3, 4, 5]
        );
        faults.clear();
        let error = faults.before(FaultPoint::Read).unwrap_err();
        assert_eq!(error.kind(), BackendErrorKind::Lost);
        assert_eq!(faults.check().unwrap_err().to_string(), error.to_string());
    }

    #[test]
    fn a_slow_device_is_slower_until_the_faults_are_cleared() {
        let by = Duration::from_millis(30);
        let faults = with(&[Fault::Slow { by: Duration::from_secs(3600) }, Fault::Slow { by }]);
        for operation in [ALLOCATE, FaultPoint::Read] {
            let start = Instant::now();
            faults.before(operation).unwrap();
            assert!(start.elapsed() >= by);
        }
        faults.inject(Fault::Slow { by: Duration::from_secs(3600) }).unwrap();
        faults.clear();
        faults.before(FaultPoint::Write).unwrap();
    }

    /// Starts an operation on its own thread, and returns the channel that receives its result.
    fn start(faults: &'static FaultCounter) -> mpsc::Receiver<Result<(), BackendError>> {
        let (sender, receiver) = mpsc::channel();
        thread::spawn(move || sender.send(faults.before(FaultPoint::Write)));
        receiver
    }

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn a_stalled_operation_continues_when_the_faults_are_cleared_and_others_do_not_wait_for_it() {
        let faults: &FaultCounter = Box::leak(Box::new(with(&[Fault::Stall { nth: 1 }])));
        let stalled = start(faults);
        assert!(stalled.recv_timeout(Duration::from_millis(50)).is_err());
        faults.before(FaultPoint::Read).unwrap();
        assert!(stalled.try_recv().is_err());
        faults.clear();
        assert!(stalled.recv_timeout(LONG).unwrap().is_ok());
    }

    #[test]
    fn a_stalled_operation_ends_with_the_device() {
        let faults: &FaultCounter = Box::leak(Box::new(with(&[Fault::Stall { nth: 1 }])));
        let stalled = start(faults);
        assert!(stalled.recv_timeout(Duration::from_millis(50)).is_err());
        faults.inject(Fault::LoseDevice { nth: 1 }).unwrap();
        assert!(faults.before(FaultPoint::Read).is_err());
        assert_eq!(stalled.recv_timeout(LONG).unwrap().unwrap_err().kind(), BackendErrorKind::Lost);
    }

    #[test]
    fn a_lost_device_returns_the_reason_and_no_operation_stalls_on_it() {
        let faults: &FaultCounter = Box::leak(Box::new(with(&[Fault::Stall { nth: 1 }])));
        let stalled = start(faults);
        assert!(stalled.recv_timeout(Duration::from_millis(50)).is_err());
        faults.lose("it was reset");
        for result in [stalled.recv_timeout(LONG).unwrap(), faults.before(ALLOCATE), faults.check()] {
            assert_eq!(result.unwrap_err().to_string(), "device lost: it was reset");
        }
    }

    #[test]
    fn cleared_faults_do_not_happen() {
        let all = [
            Fault::FailAllocation { nth: 1 },
            Fault::FailCopy { nth: 1 },
            Fault::LoseDevice { nth: 1 },
            Fault::Stall { nth: 1 },
        ];
        let faults = with(&all);
        faults.clear();
        assert_eq!(failing(&faults, &[ALLOCATE, FaultPoint::Write, FaultPoint::Read]), []);
    }

    #[test]
    fn a_counter_without_stalls_refuses_them_and_counts_the_rest() {
        let faults = FaultCounter::new().without_stalls();
        let error = faults.inject(Fault::Stall { nth: 1 }).unwrap_err();
        assert_eq!(error.kind(), BackendErrorKind::Unsupported);
        faults.inject(Fault::FailCopy { nth: 2 }).unwrap();
        assert_eq!(failing(&faults, &[FaultPoint::Write; 3]), [2]);
    }

    #[test]
    fn the_option_offers_faults_only_if_it_is_one() {
        const OPTIONS: &[OptionSpec] = &[FaultCounter::OPTION];
        let requested = |value| FaultCounter::is_requested(&Options::new(OPTIONS).with("faults", value));
        assert!(!FaultCounter::is_requested(&Options::new(OPTIONS)).unwrap());
        assert!(requested("1").unwrap());
        assert!(!requested("0").unwrap());
        let error = requested("yes").unwrap_err().to_string();
        assert!(
            error.starts_with("option faults=\"yes\", set by the program, is invalid: expected `1` to"),
            "{error}"
        );
    }

    #[test]
    fn operation_zero_is_an_error() {
        let error = FaultCounter::default().inject(Fault::FailCopy { nth: 0 }).unwrap_err();
        assert_eq!(error.to_string(), "FailCopy { nth: 0 } never happens: the next operation is number 1");
    }

    #[test]
    fn a_device_with_a_connection_gives_the_errors_itself_once_it_is_broken() {
        static BROKEN: AtomicUsize = AtomicUsize::new(0);
        let faults = FaultCounter::new().on_loss(|| {
            BROKEN.fetch_add(1, Ordering::Relaxed);
        });
        faults.inject(Fault::FailCopy { nth: 2 }).unwrap();
        faults.inject(Fault::Stall { nth: 2 }).unwrap();
        faults.inject(Fault::LoseDevice { nth: 2 }).unwrap();
        assert_eq!(failing(&faults, &[FaultPoint::Write; 4]), []);
        assert_eq!(BROKEN.load(Ordering::Relaxed), 1);
        faults.inject(Fault::LoseDevice { nth: 1 }).unwrap();
        faults.inject(Fault::Stall { nth: 1 }).unwrap();
        assert_eq!(failing(&faults, &[FaultPoint::Read]), []);
        assert!(faults.check().is_ok());
        assert_eq!(BROKEN.load(Ordering::Relaxed), 1);
    }
}
