//! A lock for each backend: any number of checks share it, and an exclusive check holds it alone.

use std::collections::BTreeMap;

use parking_lot::{Mutex, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// The locks that one running check holds. Dropping this releases them.
#[must_use = "dropping this releases the locks"]
pub(crate) struct BackendLock {
    _cpu: Option<Guard>,
    _own: Guard,
}

impl BackendLock {
    /// Blocks until a check may run on a backend, and on the cpu too if it uses that. Both locks are exclusive or both are
    /// shared.
    pub(crate) fn acquire(backend: &str, exclusive: bool, uses_cpu: bool) -> Self {
        // Every check takes the cpu's lock first. Otherwise two checks could deadlock.
        let cpu = (uses_cpu && backend != "cpu").then(|| Guard::acquire("cpu", exclusive));
        Self { _cpu: cpu, _own: Guard::acquire(backend, exclusive) }
    }
}

enum Guard {
    Shared { _guard: RwLockReadGuard<'static, ()> },
    Exclusive { _guard: RwLockWriteGuard<'static, ()> },
}

impl Guard {
    fn acquire(backend: &str, exclusive: bool) -> Self {
        let lock = lock_of(backend);
        if exclusive {
            Self::Exclusive { _guard: lock.write() }
        } else {
            Self::Shared { _guard: lock.read() }
        }
    }
}

/// The lock of a backend. Its devices share one, because they may share a driver.
fn lock_of(backend: &str) -> &'static RwLock<()> {
    static LOCKS: Mutex<BTreeMap<String, &'static RwLock<()>>> = Mutex::new(BTreeMap::new());
    let mut locks = LOCKS.lock();
    locks.entry(backend.to_owned()).or_insert_with(|| Box::leak(Box::default()))
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread;
    use std::time::Duration;

    use super::*;

    /// Whether a second check acquires its locks while a first one holds its own.
    fn run_together(first: (&'static str, bool, bool), second: (&'static str, bool, bool)) -> bool {
        let held = BackendLock::acquire(first.0, first.1, first.2);
        let (sender, acquired) = mpsc::channel();
        let waiting = thread::spawn(move || {
            drop(BackendLock::acquire(second.0, second.1, second.2));
            sender.send(()).unwrap();
        });
        let at_once = acquired.recv_timeout(Duration::from_millis(100)).is_ok();
        drop(held);
        waiting.join().unwrap();
        at_once
    }

    #[test]
    fn only_an_exclusive_check_keeps_others_off_its_backend() {
        assert!(run_together(("together", false, false), ("together", false, false)));
        assert!(!run_together(("alone", true, false), ("alone", false, false)));
        assert!(!run_together(("alone", false, false), ("alone", true, false)));
        assert!(run_together(("alone", true, false), ("another", true, false)));
    }

    #[test]
    fn an_exclusive_check_of_the_cpu_waits_for_checks_that_use_the_cpu() {
        assert!(!run_together(("uses_cpu", false, true), ("cpu", true, false)));
        assert!(!run_together(("cpu", true, true), ("uses_cpu", true, true)));
        assert!(run_together(("uses_cpu", false, true), ("cpu", false, false)));
    }

    #[test]
    fn an_exclusive_check_that_uses_the_cpu_has_the_cpu_alone_too() {
        assert!(!run_together(("fails_there", true, true), ("cpu", false, false)));
    }
}
