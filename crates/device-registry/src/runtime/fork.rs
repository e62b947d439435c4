//! Which process this is: devices do not survive `fork`.
//!
//! A child of `fork` has the parent's memory and one of its threads. Drivers, their threads and any lock that another
//! thread held are half there, so that a call into them may hang for ever. The core notices by a number that each fork
//! raises in the child, and answers with an error instead. Asking the system for the process at each call would cost
//! more than the calls themselves.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use entry_points::Entry;

use crate::backend::Backend;
use crate::device::Device;
use crate::error::DeviceError;

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

/// One value for each process in a line of forks: no lock in it is one that a thread of the parent may have held.
///
/// There are eight, taken in turn, so that a process shares one with an ancestor eight forks back.
pub(crate) struct PerProcess<T>([T; 8]);

impl<T> PerProcess<T> {
    pub(crate) const fn new(values: [T; 8]) -> Self {
        Self(values)
    }

    /// That of this process.
    pub(crate) fn current(&self) -> &T {
        self.of(Process::current())
    }

    fn of(&self, Process(number): Process) -> &T {
        &self.0[number as usize % self.0.len()]
    }
}

/// A backend that a process has loaded, in a list that only grows and is read without a lock.
struct Loaded {
    backend: Entry<dyn Backend>,
    process: Process,
    next: Link,
}

type Link = OnceLock<Box<Loaded>>;

static LOADED: PerProcess<Link> = PerProcess::new([const { OnceLock::new() }; 8]);

/// Refuses a backend that was loaded by an ancestor of this process. Remembers the one that is loaded here.
pub(crate) fn check(backend: Entry<dyn Backend>) -> Result<(), DeviceError> {
    let current = Process::current();
    let is_forked = |loaded: &Loaded| loaded.backend == backend && loaded.process != current;
    // Only a fork has ancestors. Their lists are looked at and never waited for.
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
