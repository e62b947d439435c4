//! Fault injection, for tests of how a program reacts when a device fails.

use std::time::Duration;

use crate::backend::BackendError;

/// A fault to inject into a device. Numbers count from the injection: 1 is the next operation.
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
    /// The nth operation, of any kind, loses the device. All later ones fail too.
    LoseDevice {
        /// Which one, from 1 on.
        nth: u64,
    },
    /// Every operation takes longer.
    Slow {
        /// The delay of each operation.
        by: Duration,
    },
    /// The nth operation stalls until the faults are cleared.
    Stall {
        /// Which one, from 1 on.
        nth: u64,
    },
}

/// The fault injection of a driver. Faults of different kinds add up; of one kind, the last one counts.
///
/// Both functions may be called from any thread while operations are running, and `clear` also while one stalls.
pub trait FaultInjector: Send + Sync {
    /// Injects a fault.
    ///
    /// # Errors
    ///
    /// [`BackendError::unsupported`] for a fault that this device does not support.
    fn inject(&self, fault: Fault) -> Result<(), BackendError>;

    /// Removes all faults; an operation that stalls continues. A device that was lost stays lost.
    fn clear(&self);
}
