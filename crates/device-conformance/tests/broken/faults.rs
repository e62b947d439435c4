//! Fault injection, and whether the device is lost.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Duration;

use device_registry::backend::{BackendError, BackendErrorKind, Fault, FaultInjector, LossReporter};
use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::defect::Defect::*;
use crate::wrong::wrong;

/// An operation that a fault can hit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    Allocate(usize),
    Copy,
}

/// How many devices were lost.
pub(crate) static LOST: AtomicUsize = AtomicUsize::new(0);

/// The faults of one device. Every operation calls [`before`](Self::before) first.
#[derive(Default)]
pub(crate) struct Faults {
    state: Mutex<State>,
    changed: Condvar,
}

/// How many operations are left until each fault. 0 without a fault.
#[derive(Default)]
struct State {
    fail_allocation: u64,
    fail_copy: u64,
    lose: u64,
    stall: u64,
    slow: Duration,
    lost: bool,
    cleared: u64,
    /// The number of operations that stall.
    stalled: usize,
    reporter: Option<LossReporter>,
}

impl FaultInjector for Faults {
    fn inject(&self, fault: Fault) -> Result<(), BackendError> {
        let mut state = self.state();
        match fault {
            Fault::FailCopy { .. } if wrong(CopiesDoNotFail) => {}
            Fault::FailCopy { .. } if wrong(TheFirstFaultCounts) && state.fail_copy > 0 => {}
            Fault::LoseDevice { .. } if wrong(LossIsNotNoticed) => {}
            Fault::Slow { .. } if wrong(NothingIsSlow) => {}
            Fault::FailAllocation { nth } => state.fail_allocation = nth,
            Fault::FailCopy { nth } => state.fail_copy = nth + u64::from(wrong(FaultsComeLate)),
            Fault::LoseDevice { nth } => state.lose = nth + u64::from(wrong(FaultsComeLate)),
            Fault::Slow { by } => state.slow = by,
            Fault::Stall { nth } => state.stall = nth,
            Fault::Unplug => {
                LOST.fetch_add(1, Ordering::Relaxed);
                state.lost = true;
                let reporter = state.reporter.clone();
                drop(state);
                self.changed.notify_all();
                match reporter {
                    _ if wrong(UnplugIsNotReported) => {}
                    Some(reporter) => {
                        reporter.report(BackendError::lost("it was unplugged by an injected fault"))
                    }
                    None => {}
                }
            }
            other => return Err(BackendError::unsupported(format_args!("the fault {other:?}"))),
        }
        Ok(())
    }

    fn clear(&self) {
        if wrong(FaultsAreNotCleared) {
            return;
        }
        let mut state = self.state();
        let (lost, cleared, stalled) = (state.lost, state.cleared + 1, state.stalled);
        let reporter = state.reporter.take();
        *state = State { lost, cleared, stalled, reporter, ..State::default() };
        drop(state);
        self.changed.notify_all();
    }
}

impl Faults {
    /// The faults of a device that is opened.
    pub(crate) fn of_a_new_device() -> Arc<Self> {
        static FIRST: OnceLock<Arc<Faults>> = OnceLock::new();
        if wrong(LossSpreads) || wrong(EveryOrdinalIsOneDevice) || wrong(ResetForgetsNothing) {
            Arc::clone(FIRST.get_or_init(Arc::default))
        } else {
            Arc::default()
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// Sets what a loss without an operation is reported with.
    pub(crate) fn report_with(&self, reporter: LossReporter) {
        self.state().reporter = Some(reporter);
    }

    /// Fails if the device is lost.
    pub(crate) fn check(&self) -> Result<(), BackendError> {
        if !self.state().lost {
            Ok(())
        } else if wrong(LossIsAnyError) {
            Err(BackendError::other("it does not answer"))
        } else if wrong(LossSaysNothing) {
            Err(BackendError::lost(""))
        } else {
            Err(BackendError::lost("it was lost by an injected fault"))
        }
    }

    /// Makes the device lost, also for running work.
    pub(crate) fn lose(&self) {
        self.state().lost = true;
        self.changed.notify_all();
    }

    /// Runs before each operation: makes it fail, stalls it, or loses the device.
    pub(crate) fn before(&self, operation: Operation) -> Result<(), BackendError> {
        let mut state = self.state();
        let stays = wrong(CopiesFailFromThenOn) && state.fail_copy == 1;
        let fails = match operation {
            Operation::Allocate(_) if wrong(AllocationsAreCountedAsCopies) => comes(&mut state.fail_copy),
            Operation::Allocate(_) => comes(&mut state.fail_allocation),
            Operation::Copy => comes(&mut state.fail_copy),
        };
        state.fail_copy += u64::from(stays);
        let (stalls, slow) = (comes(&mut state.stall), state.slow);
        if comes(&mut state.lose) || fails && wrong(FailuresLoseTheDevice) {
            LOST.fetch_add(1, Ordering::Relaxed);
            state.lost = true;
            self.changed.notify_all();
        }
        let stalls = stalls || wrong(StallsHoldUpAllStreams) && state.stalled > 0;
        let cleared = state.cleared;
        state.stalled += usize::from(stalls);
        while stalls && (state.cleared == cleared || wrong(StallsNeverEnd)) && !state.lost {
            if wrong(StallsEndByThemselves) {
                break;
            }
            self.changed.wait(&mut state);
        }
        state.stalled -= usize::from(stalls);
        drop(state);
        self.check()?;
        thread::sleep(slow);
        if fails { Err(failure(operation)) } else { Ok(()) }
    }
}

fn failure(operation: Operation) -> BackendError {
    match operation {
        Operation::Allocate(_) if wrong(AllocationsFailWithAnyError) => BackendError::other("no memory"),
        Operation::Allocate(len) if wrong(FaultsShout) => {
            let kind = BackendErrorKind::OutOfMemory { asked: len as u64, free: None };
            BackendError::new(kind, format_args!("A fault refused {len} bytes."))
        }
        Operation::Allocate(len) => BackendError::out_of_memory(len as u64, None),
        Operation::Copy if wrong(FaultsSayNothing) => {
            BackendError::other("the plugin reported DP_OTHER without a message")
        }
        Operation::Copy if wrong(FaultsAreEscaped) => BackendError::other("it failed\\nby an injected fault"),
        Operation::Copy if wrong(FaultsAreNotUtf8) => BackendError::other("it failed by a f\u{fffd}ult"),
        Operation::Copy if wrong(FaultsShout) => BackendError::other("It failed by an injected fault!\n"),
        Operation::Copy => BackendError::other("it failed by an injected fault"),
    }
}

/// Counts down to a fault. Returns whether it happens now.
fn comes(left: &mut u64) -> bool {
    let is_next = *left == 1;
    *left = left.saturating_sub(1);
    is_next
}
