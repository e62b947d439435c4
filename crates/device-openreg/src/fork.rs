//! Which process this is: the memory of a device does not go along with a `fork`.
//!
//! Every access to memory has to know, and a call to the system for the number of the process would cost more than a small
//! access itself. So each fork adds to a number in the child, which is read where it is needed.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use device_registry::backend::BackendError;

/// How many forks lie between this process and the one that called [`Process::current`] first.
static FORKS: AtomicU32 = AtomicU32::new(0);

/// A process, as distinct from its parents and children by `fork`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Process(u32);

impl Process {
    /// This one. Forks are counted from the first call on.
    ///
    /// # Errors
    ///
    /// If the C library does not have the memory to report forks.
    pub(crate) fn current() -> Result<Self, BackendError> {
        if are_counted() {
            Ok(Self(FORKS.load(Ordering::Relaxed)))
        } else {
            Err(BackendError::unavailable("the C library has no memory to report forks of the process"))
        }
    }

    /// Whether this is still that process, and not a child of it.
    pub(crate) fn is_current(self) -> bool {
        self.0 == FORKS.load(Ordering::Relaxed)
    }
}

fn are_counted() -> bool {
    use std::ffi::c_int;

    unsafe extern "C" {
        // Of POSIX: every C library of Linux has it.
        fn pthread_atfork(
            prepare: Option<extern "C" fn()>,
            parent: Option<extern "C" fn()>,
            child: Option<extern "C" fn()>,
        ) -> c_int;
    }

    extern "C" fn in_child() {
        FORKS.fetch_add(1, Ordering::Relaxed);
    }

    static COUNTED: OnceLock<bool> = OnceLock::new();
    // SAFETY: the declaration is that of POSIX. The function that it is given only adds to an atomic number, which is
    // allowed in a child of `fork`, and it is never unloaded, as Rust crates are linked.
    *COUNTED.get_or_init(|| unsafe { pthread_atfork(None, None, Some(in_child)) } == 0)
}
