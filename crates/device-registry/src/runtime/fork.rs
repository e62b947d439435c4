//! Which process this is: devices do not survive `fork`.
//!
//! A child of `fork` has the parent's memory and only one of its threads. Drivers lack their threads, and a
//! lock that another thread held is never released, so a call into a driver may hang forever. The core counts
//! forks in the child and returns an error instead. Querying the system for the process at each call would
//! cost more than the calls.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use entry_points::Entry;

use crate::backend::Backend;
use crate::device::Device;
use crate::error::DeviceError;

/// The number of forks between this process and the one in which a backend was first used.
static FORKS: AtomicU32 = AtomicU32::new(0);

/// A process, identified by the number of forks.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Process(u32);

impl Process {
    /// The current process. The first call starts to count forks.
    pub(crate) fn current() -> Self {
        count_forks();
        Self(FORKS.load(Ordering::Relaxed))
    }

    /// A process that is not this one.
    #[cfg(test)]
    pub(crate) fn of_ancestor() -> Self {
        Self(Self::current().0.wrapping_sub(8))
    }

    /// Whether this is the current process. In a child of `fork`, the parent's value is not.
    #[inline]
    pub(crate) fn is_current(self) -> bool {
        self.0 == FORKS.load(Ordering::Relaxed)
    }
}

#[cfg(all(unix, not(miri)))]
fn count_forks() {
    use std::ffi::c_int;
    use std::sync::Once;

    unsafe extern "C" {
        // A POSIX function, in every libc that std links on unix.
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
        // SAFETY: the declaration matches POSIX. `in_child` only adds to an atomic number, which a child of
        // `fork` may do. It is never unloaded: it is linked into the program, or into a library that stays
        // open for as long as the process.
        if unsafe { pthread_atfork(None, None, Some(in_child)) } != 0 {
            log::warn!("cannot detect forks: a child must not use a device that its parent has used");
        }
    });
}

/// Does nothing: the target has no `fork`.
#[cfg(any(not(unix), miri))]
fn count_forks() {}

/// One value for each process in a chain of forks, so that no process waits for a lock that a thread of its
/// parent held.
///
/// Eight values serve in turn: a process shares one with its ancestor eight forks back.
pub(crate) struct PerProcess<T>([T; 8]);

impl<T> PerProcess<T> {
    pub(crate) const fn new(values: [T; 8]) -> Self {
        Self(values)
    }

    /// The value of the current process.
    pub(crate) fn current(&self) -> &T {
        self.of(Process::current())
    }

    /// The value of a process.
    #[inline]
    pub(crate) fn of(&self, Process(number): Process) -> &T {
        &self.0[number as usize % self.0.len()]
    }
}

/// A backend that a process has loaded, in a list that only grows. Reading it takes no lock.
struct Loaded {
    backend: Entry<dyn Backend>,
    process: Process,
    next: Link,
}

type Link = OnceLock<Box<Loaded>>;

static LOADED: PerProcess<Link> = PerProcess::new([const { OnceLock::new() }; 8]);

/// Refuses a backend that an ancestor of this process has loaded. Records the backend as loaded by this
/// process.
pub(crate) fn check(backend: Entry<dyn Backend>) -> Result<(), DeviceError> {
    let current = Process::current();
    let is_forked = |loaded: &Loaded| loaded.backend == backend && loaded.process != current;
    // Only a fork has ancestors. Reading their lists never waits, even if one of their threads was adding an
    // entry.
    if current != Process(0) && LOADED.0.iter().any(|list| entries(list).any(is_forked)) {
        return Err(DeviceError::Forked { device: Device::of_backend(backend, None) });
    }
    let mut place = LOADED.of(current);
    loop {
        let loaded =
            place.get_or_init(|| Box::new(Loaded { backend, process: current, next: OnceLock::new() }));
        if loaded.backend == backend && loaded.process == current {
            return Ok(());
        }
        place = &loaded.next;
    }
}

fn entries(list: &Link) -> impl Iterator<Item = &Loaded> {
    std::iter::successors(list.get(), |loaded| loaded.next.get()).map(|loaded| &**loaded)
}
