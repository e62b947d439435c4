//! The number of this process, and the error of a lock that a fork has left locked.

/// The error of a lock that a thread of the parent process held at the time of the fork. That thread does not
/// exist in this process, so the lock is never released.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Orphaned;

/// The number of this process. Each call is a system call, so only slow paths use it.
pub(crate) fn process() -> u32 {
    // Without `fork` a constant is enough. wasm has no process numbers.
    if cfg!(unix) { std::process::id() } else { 1 }
}
