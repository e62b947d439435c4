//! Fault injection: a device fails on purpose, so that a framework can test its error handling.

use std::mem;
use std::thread;
use std::time::Duration;

use device_registry::backend::{BackendError, BackendErrorKind, Fault, FaultInjector};

use crate::sync::{Condvar, Mutex, MutexGuard, lock, wait};

/// An operation that a device is about to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    Allocate { len: usize },
    Write,
    Read,
    Copy,
    Fill,
}

/// The injected faults of one device. Every operation calls [`before`](Self::before) first.
#[derive(Default)]
pub(crate) struct Faults {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// The faults that have not happened yet. The number in each is how many operations are left until it happens.
    armed: Vec<Fault>,
    slow: Duration,
    /// Why every operation fails, once the device is lost or closed.
    ended: Option<Ended>,
    /// How often the faults were cleared.
    cleared: u64,
}

/// Why a device has ended.
#[derive(Clone, Copy)]
enum Ended {
    /// It is lost, for this reason.
    Lost(&'static str),
    Closed,
}

impl FaultInjector for Faults {
    fn inject(&self, fault: Fault) -> Result<(), BackendError> {
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
            // `Fault` is `#[non_exhaustive]`: the core may add kinds.
            other => return Err(BackendError::unsupported(format_args!("the fault {other:?}"))),
        }
        Ok(())
    }

    fn clear(&self) {
        let mut state = self.state();
        *state = State { ended: state.ended, cleared: state.cleared + 1, ..State::default() };
        drop(state);
        self.changed.notify_all();
    }
}

impl Faults {
    /// Loses the device permanently: every operation returns an error with `why`, and so do stalled operations.
    pub(crate) fn lose(&self, why: &'static str) {
        self.end(Ended::Lost(why));
    }

    /// Closes the device: every operation returns an error that says so, unless the device is lost.
    pub(crate) fn close(&self) {
        self.end(Ended::Closed);
    }

    fn end(&self, how: Ended) {
        self.state().ended.get_or_insert(how);
        self.changed.notify_all();
    }

    /// Fails if the device is lost or closed. It counts no operation.
    pub(crate) fn check(&self) -> Result<(), BackendError> {
        self.state().check()
    }

    /// Counts `operation`, and applies the faults that are due: it may delay, stall or fail it, or lose the device.
    pub(crate) fn before(&self, operation: Operation) -> Result<(), BackendError> {
        let mut state = self.state();
        state.check()?;
        let (mut fails, mut stalls, mut loses) = (false, false, false);
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
        if loses {
            state.ended = Some(Ended::Lost("by an injected fault"));
            self.changed.notify_all();
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

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }
}

impl State {
    fn check(&self) -> Result<(), BackendError> {
        match self.ended {
            Some(Ended::Lost(why)) => Err(BackendError::lost(why)),
            Some(Ended::Closed) => Err(BackendError::invalid("the device is closed")),
            None => Ok(()),
        }
    }
}

impl Operation {
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
    use std::sync::mpsc;
    use std::time::Instant;

    use super::*;

    const ALLOCATE: Operation = Operation::Allocate { len: 7 };

    fn with(faults: &[Fault]) -> Faults {
        let new = Faults::default();
        faults.iter().for_each(|&fault| new.inject(fault).unwrap());
        new
    }

    /// The numbers of the operations that fail, counted from 1.
    fn failing(faults: &Faults, operations: &[Operation]) -> Vec<usize> {
        let results = operations.iter().map(|&operation| faults.before(operation));
        results.enumerate().filter(|(_, result)| result.is_err()).map(|(index, _)| index + 1).collect()
    }

    #[test]
    fn the_nth_allocation_is_out_of_memory_once() {
        let faults = with(&[Fault::FailAllocation { nth: 2 }]);
        assert_eq!(failing(&faults, &[ALLOCATE, Operation::Write, Operation::Copy]), []);
        let error = faults.before(ALLOCATE).unwrap_err();
        assert_eq!(error.kind(), BackendErrorKind::OutOfMemory { asked: 7, free: None });
        assert_eq!(error.to_string(), "out of memory: 7 bytes asked for, refused by an injected fault");
        assert_eq!(failing(&faults, &[ALLOCATE; 10]), []);
    }

    #[test]
    fn the_nth_copy_fails_whatever_kind_of_copy_it_is() {
        let copies = [Operation::Write, Operation::Read, Operation::Copy, Operation::Fill];
        for (index, copy) in copies.into_iter().enumerate() {
            let faults = with(&[Fault::FailCopy { nth: index as u64 + 1 }]);
            assert_eq!(failing(&faults, &[ALLOCATE; 4]), []);
            assert_eq!(failing(&faults, &copies), [index + 1], "{copy:?}");
            assert_eq!(failing(&faults, &copies), []);
        }
        let message = with(&[Fault::FailCopy { nth: 1 }]).before(Operation::Read).unwrap_err().to_string();
        assert_eq!(message, "an injected fault fails this read");
    }

    #[test]
    fn faults_of_several_kinds_all_happen_and_of_one_kind_only_the_last() {
        let first = [Fault::FailCopy { nth: 4 }, Fault::LoseDevice { nth: 6 }, Fault::FailCopy { nth: 2 }];
        assert_eq!(failing(&with(&first), &[Operation::Write; 7]), [2, 6, 7]);
    }

    #[test]
    fn a_device_is_lost_at_the_nth_operation_and_ever_after() {
        let faults = with(&[Fault::LoseDevice { nth: 3 }]);
        assert!(faults.check().is_ok());
        assert_eq!(
            failing(&faults, &[ALLOCATE, Operation::Write, Operation::Read, Operation::Copy, ALLOCATE]),
            [3, 4, 5]
        );
        faults.clear();
        let error = faults.before(Operation::Read).unwrap_err();
        assert_eq!(error.kind(), BackendErrorKind::Lost);
        assert_eq!(faults.check().unwrap_err().to_string(), error.to_string());
    }

    #[test]
    fn a_slow_device_is_slower_until_the_faults_are_cleared() {
        let by = Duration::from_millis(30);
        let faults = with(&[Fault::Slow { by: Duration::from_secs(3600) }, Fault::Slow { by }]);
        for operation in [ALLOCATE, Operation::Read] {
            let start = Instant::now();
            faults.before(operation).unwrap();
            assert!(start.elapsed() >= by);
        }
        faults.inject(Fault::Slow { by: Duration::from_secs(3600) }).unwrap();
        faults.clear();
        faults.before(Operation::Write).unwrap();
    }

    /// Starts an operation on a thread of its own, and returns the channel that receives its result.
    fn start(faults: &'static Faults) -> mpsc::Receiver<Result<(), BackendError>> {
        let (sender, receiver) = mpsc::channel();
        thread::spawn(move || sender.send(faults.before(Operation::Write)));
        receiver
    }

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn a_stalled_operation_continues_when_the_faults_are_cleared_and_others_do_not_wait_for_it() {
        let faults: &Faults = Box::leak(Box::new(with(&[Fault::Stall { nth: 1 }])));
        let stalled = start(faults);
        assert!(stalled.recv_timeout(Duration::from_millis(50)).is_err());
        faults.before(Operation::Read).unwrap();
        assert!(stalled.try_recv().is_err());
        faults.clear();
        assert!(stalled.recv_timeout(LONG).unwrap().is_ok());
    }

    #[test]
    fn a_stalled_operation_ends_with_the_device() {
        let faults: &Faults = Box::leak(Box::new(with(&[Fault::Stall { nth: 1 }])));
        let stalled = start(faults);
        assert!(stalled.recv_timeout(Duration::from_millis(50)).is_err());
        faults.inject(Fault::LoseDevice { nth: 1 }).unwrap();
        assert!(faults.before(Operation::Read).is_err());
        assert_eq!(stalled.recv_timeout(LONG).unwrap().unwrap_err().kind(), BackendErrorKind::Lost);
    }

    #[test]
    fn a_lost_device_returns_the_reason_and_no_operation_stalls_on_it() {
        let faults: &Faults = Box::leak(Box::new(with(&[Fault::Stall { nth: 1 }])));
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
        assert_eq!(failing(&faults, &[ALLOCATE, Operation::Write, Operation::Read]), []);
    }

    #[test]
    fn operation_zero_is_an_error() {
        let error = Faults::default().inject(Fault::FailCopy { nth: 0 }).unwrap_err();
        assert_eq!(error.to_string(), "FailCopy { nth: 0 } never happens: the next operation is number 1");
    }
}
