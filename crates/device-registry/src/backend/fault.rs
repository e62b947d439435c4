//! Faults to order, for tests of what a program does when a device fails.

use std::time::Duration;

use crate::backend::BackendError;

/// A fault that a device is told to have. Numbers count from the moment of telling: 1 is the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// The nth allocation fails for want of memory, once.
    FailAllocation {
        /// Which one, from 1 on.
        nth: u64,
    },
    /// The nth write, read, copy or fill fails, once.
    FailCopy {
        /// Which one, from 1 on.
        nth: u64,
    },
    /// The nth operation, of any kind, finds the device lost, and so do all later ones.
    LoseDevice {
        /// Which one, from 1 on.
        nth: u64,
    },
    /// Every operation takes so much longer.
    Slow {
        /// How much.
        by: Duration,
    },
    /// The nth operation goes on only when the faults are cleared.
    Stall {
        /// Which one, from 1 on.
        nth: u64,
    },
}

/// What a driver offers that can be told to fail. Faults of different kinds add up; of one kind, the last one counts.
///
/// Both functions may be called from any thread, while operations are running; `clear` while one stalls.
pub trait FaultInjector: Send + Sync {
    /// Has the fault from now on.
    ///
    /// # Errors
    ///
    /// [`BackendError::unsupported`] for a fault that this device cannot have.
    fn inject(&self, fault: Fault) -> Result<(), BackendError>;

    /// Has no faults any more; what stalls goes on. A device that was lost stays lost.
    fn clear(&self);
}
