//! Fault injection, for tests of how a program reacts when a device fails.

use std::time::Duration;

use crate::backend::BackendError;

/// A fault to inject into a device. Numbers count from the injection: 1 is the next operation, and 0 is an
/// error.
///
/// An operation is an allocation, or a write, read, copy or fill, whether it blocks or runs in a stream,
/// where it counts when it runs. Kernels, host calls, events and queries do not count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// The nth allocation fails with an out-of-memory error, once.
    FailAllocation {
        /// Which one, from 1 on.
        nth: u64,
    },
    /// The nth write, read, copy or fill fails, once.
    FailCopy {
        /// Which one, from 1 on.
        nth: u64,
    },
    /// The nth operation, of any kind, loses the device. All later ones fail too. A device with a connection
    /// breaks the connection, so that the driver finds the loss as it finds a real one.
    LoseDevice {
        /// Which one, from 1 on.
        nth: u64,
    },
    /// The device is lost at once, without an operation: the driver reports it with a
    /// [`LossReporter`](crate::backend::LossReporter).
    Unplug,
    /// Every operation takes longer.
    Slow {
        /// The delay of each operation.
        by: Duration,
    },
    /// The nth operation stalls until the faults are cleared, or until the device is lost, reset or closed.
    Stall {
        /// Which one, from 1 on.
        nth: u64,
    },
}

/// The fault injection of a driver. Faults of different kinds add up; of one kind, the last one counts.
/// [`FaultCounter`](crate::backend::testing::FaultCounter) implements it.
///
/// Both functions may be called from any thread while operations are running, and `clear` also while one
/// stalls.
pub trait FaultInjector: Send + Sync {
    /// Injects a fault.
    ///
    /// # Errors
    ///
    /// [`BackendError::unsupported`] for a fault that this device does not support, and
    /// [`BackendError::invalid`] for the number 0.
    fn inject(&self, fault: Fault) -> Result<(), BackendError>;

    /// Removes all faults; an operation that stalls continues. A device that was lost stays lost.
    fn clear(&self);
}
