//! Which process this is: devices do not survive `fork`.
//!
//! A child of `fork` has the parent's memory and one of its threads. Drivers, their threads and any lock that another
//! thread held are half there, so that a call into them may hang for ever. The core notices by a number that each fork
//! raises in the child, and answers with an error instead. Asking the system for the process at each call would cost
//! more than the calls themselves.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use entry_points::Entry;

use crate::{Backend, Device, DeviceError};

/// How many forks lie between this process and the one in which a backend was first used.
static FORKS: AtomicU32 = AtomicU32::new(0);

/// A process, as far as forks tell it from its parent.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Process(u32);

impl Process {
    /// This one. From the first call on forks are counted.
    pub(crate) fn current() -> Self {
        count_forks();
        Self(FORKS.load(Ordering::Relaxed))
    }

    /// Whether this is still that process, and not a child of it by `fork`.
    pub(crate) fn is_current(self) -> bool {
        self.0 == FORKS.load(Ordering::Relaxed)
    }
}

#[cfg(all(unix, not(miri)))]
fn count_forks() {
    use std::ffi::c_int;
    use std::sync::Once;

    unsafe extern "C" {
        // Of POSIX; every libc that std links on unix has it.
        fn pthread_atfork(
            prepare: Option<extern "C" fn()>,
            parent: Option<extern "C" fn()>,
            child: Option<extern "C" fn()>,
        ) -> c_int;
    }

    extern "C" fn in_child() {
        FORKS.fetch_add(1, Ordering::Relaxed);
    }

    static COUNTING: Once = Once::new();
    COUNTING.call_once(|| {
        // SAFETY: the declaration is that of POSIX. The function only adds to an atomic number, which is allowed in a
        // child of `fork`, and it is never unloaded: plugins of Rust are linked.
        if unsafe { pthread_atfork(None, None, Some(in_child)) } != 0 {
            log::warn!("forks cannot be noticed: a child must not use a device that its parent has used");
        }
    });
}

/// There is no `fork`.
#[cfg(any(not(unix), miri))]
fn count_forks() {}

/// The processes in which backends were loaded: a list that grows only, and is read without a lock, which a thread
/// that did not survive the fork could hold.
struct Loaded {
    backend: Entry<dyn Backend>,
    process: Process,
    next: OnceLock<Box<Self>>,
}

static LOADED: OnceLock<Box<Loaded>> = OnceLock::new();

/// Refuses a backend that was loaded by the parent of this process. Remembers the one that is loaded here.
pub(crate) fn check(backend: Entry<dyn Backend>) -> Result<(), DeviceError> {
    let current = Process::current();
    let mut place = &LOADED;
    loop {
        let loaded =
            place.get_or_init(|| Box::new(Loaded { backend, process: current, next: OnceLock::new() }));
        if loaded.backend == backend {
            return match loaded.process == current {
                true => Ok(()),
                false => Err(DeviceError::Forked { device: Device::of_backend(backend, None) }),
            };
        }
        place = &loaded.next;
    }
}
