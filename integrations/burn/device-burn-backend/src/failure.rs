//! Why a tensor has no data: the operation that failed, and its cause.

use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use burn_backend::ExecutionError;
use device_registry::backend::BackendError;
use device_registry::{Device, ErrorChain};
use entry_points::LoadError;
use parking_lot::Mutex;

use crate::operation::Signature;
use crate::policy::InvalidVariable;
use crate::queue::Refused;

/// A failed operation. Its tensors share it, and so do those that were to be computed from them.
#[derive(Clone, Debug)]
pub(crate) struct Failure(Arc<Failed>);

#[derive(Debug)]
struct Failed {
    device: Device,
    signature: Signature,
    cause: Cause,
    reported: AtomicBool,
}

/// Why an operation failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Cause {
    #[error(transparent)]
    Device(Refused),
    #[error("the kernels of the device do not load: {0}")]
    Kernels(LoadError),
    #[cfg(not(feature = "burn-0-23"))]
    #[error("{0}")]
    Collective(String),
    #[error("{0}")]
    Custom(String),
    #[error("burn's CPU engine has no memory for the result: {0}")]
    Memory(BackendError),
    #[error("burn's CPU engine panicked: {0}")]
    Panicked(String),
    #[error("the kernel set of the device panicked: {0}")]
    KernelSetPanicked(String),
    #[error(
        "no kernel of the device does it, and the fallback policy `deny` forbids the CPU: link a kernel set that has it, \
         or set DEVICE_BURN_FALLBACK=allow"
    )]
    Denied,
    #[error(
        "tensor {0} is not on the device any more: another thread released it while this one began to use it, which \
         burn-router allows. Keep a clone of a tensor that several threads use"
    )]
    Released(u64),
    #[error(transparent)]
    InvalidVariable(InvalidVariable),
}

impl Failure {
    pub(crate) fn new(device: Device, signature: Signature, cause: Cause) -> Self {
        Self(Arc::new(Failed { device, signature, cause, reported: AtomicBool::new(false) }))
    }

    /// The error for burn. From now on the failure counts as reported.
    pub(crate) fn report(&self) -> ExecutionError {
        self.0.reported.store(true, Ordering::Relaxed);
        ExecutionError::with_context(self.to_string())
    }

    pub(crate) fn is_reported(&self) -> bool {
        self.0.reported.load(Ordering::Relaxed)
    }
}

/// The failures of a thread's operations that no call has returned. A `sync` of another thread does not
/// return them: its own work is in order. Another thread that runs what this one has left waiting adds to
/// them.
#[derive(Default)]
pub(crate) struct Unreported(Mutex<Vec<Failure>>);

thread_local! {
    static UNREPORTED: Arc<Unreported> = Arc::default();
}

/// How many unreported failures a thread keeps. Later ones are errors of their tensors only.
const MAX_UNREPORTED: usize = 100;

impl Unreported {
    /// `None` while the thread ends.
    pub(crate) fn of_this_thread() -> Option<Arc<Self>> {
        UNREPORTED.try_with(Arc::clone).ok()
    }

    /// Leaves a failure for the next `sync` of the thread.
    pub(crate) fn leave(&self, failure: &Failure) {
        let mut unreported = self.0.lock();
        // A read may return any of them first, so one is not enough.
        unreported.retain(|failure| !failure.is_reported());
        if unreported.len() < MAX_UNREPORTED {
            unreported.push(failure.clone());
        }
    }

    /// The first failure on `device` that no call has returned. Later ones are not returned either.
    fn take(&self, device: Device) -> Option<Failure> {
        let mut unreported = self.0.lock();
        let first =
            unreported.iter().find(|failure| failure.0.device == device && !failure.is_reported()).cloned();
        unreported.retain(|failure| failure.0.device != device);
        first
    }
}

/// The first failure of this thread on `device` that no call has returned.
pub(crate) fn take_unreported(device: Device) -> Option<Failure> {
    UNREPORTED.try_with(|unreported| unreported.take(device)).ok().flatten()
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Failed { device, signature, cause, .. } = &*self.0;
        write!(f, "{signature} on {device} failed: {}", ErrorChain::new(cause as &(dyn Error + 'static)))
    }
}
