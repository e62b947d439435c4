//! Distinguishes a process from its children by `fork`, which do not have the memory of its devices.
//!
//! The core keeps every call of a child away from the driver, except three: the drop of memory,
//! `OpenRegMemory::bytes` and `locate`. These must neither take a lock that a thread of the parent may have
//! held, nor touch the pages, so they compare processes first. `bytes` is on the path of every copy, where a
//! system call such as `getpid` would cost more than a small copy. So each `fork` increments a counter in the
//! child.

use std::ffi::c_int;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use device_registry::backend::BackendError;

/// How many forks lie between this process and the one that called [`Process::current`] first.
static FORKS: AtomicU32 = AtomicU32::new(0);

/// A process, as distinct from its parents and children by `fork`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Process(u32);

impl Process {
    /// This process. The first call starts to count forks.
    ///
    /// # Errors
    ///
    /// If the C library is out of memory for the handler.
    pub(crate) fn current() -> Result<Self, BackendError> {
        static COUNTED: OnceLock<bool> = OnceLock::new();
        // SAFETY: the declaration below is the one in POSIX. The handler only adds to an atomic number, which
        // is allowed in a child of `fork`. It is never unloaded, as Rust crates are linked.
        let counted = COUNTED.get_or_init(|| unsafe { pthread_atfork(None, None, Some(in_child)) } == 0);
        if *counted {
            Ok(Self(FORKS.load(Ordering::Relaxed)))
        } else {
            Err(BackendError::unavailable("the C library has no memory to report forks of the process"))
        }
    }

    /// Whether this is that process, and not a child of it.
    pub(crate) fn is_current(self) -> bool {
        self.0 == FORKS.load(Ordering::Relaxed)
    }
}

unsafe extern "C" {
    // In POSIX: every C library on Linux has it.
    fn pthread_atfork(
        prepare: Option<extern "C" fn()>,
        parent: Option<extern "C" fn()>,
        child: Option<extern "C" fn()>,
    ) -> c_int;
}

extern "C" fn in_child() {
    FORKS.fetch_add(1, Ordering::Relaxed);
}
