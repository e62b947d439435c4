//! A lock for each backend: any number of checks share it, or one exclusive check holds it.

use std::collections::BTreeMap;

use parking_lot::{Mutex, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// The locks that one running check holds. Dropping this releases them.
#[must_use = "dropping this releases the locks"]
pub(crate) struct BackendLock {
    _guards: Vec<Guard>,
}

impl BackendLock {
    /// Blocks until a check may run on a backend, and on the cpu too if it uses that. Both locks are
    /// exclusive or both are shared.
    pub(crate) fn acquire(backend: &str, exclusive: bool, uses_cpu: bool) -> Self {
        Self { _guards: backends(backend, uses_cpu).map(|name| Guard::acquire(name, exclusive)).collect() }
    }
}

/// The backends whose locks a check takes. The cpu's is the first one of every check: otherwise two checks
/// could deadlock.
fn backends(backend: &str, uses_cpu: bool) -> impl Iterator<Item = &str> {
    (uses_cpu && backend != "cpu").then_some("cpu").into_iter().chain([backend])
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
    use super::*;

    /// Whether a second check finds its locks free while a first one holds its own.
    fn run_together(first: (&str, bool, bool), second: (&str, bool, bool)) -> bool {
        let _held = BackendLock::acquire(first.0, first.1, first.2);
        backends(second.0, second.2).all(|name| {
            let lock = lock_of(name);
            if second.1 { lock.try_write().is_some() } else { lock.try_read().is_some() }
        })
    }

    /// The tests here share the cpu's lock.
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

    #[test]
    fn only_an_exclusive_check_keeps_others_off_its_backend() {
        assert!(run_together(("together", false, false), ("together", false, false)));
        assert!(!run_together(("alone", true, false), ("alone", false, false)));
        assert!(!run_together(("alone", false, false), ("alone", true, false)));
        assert!(run_together(("alone", true, false), ("another", true, false)));
    }

    #[test]
    fn an_exclusive_check_of_the_cpu_waits_for_checks_that_use_the_cpu() {
        let _turn = ONE_AT_A_TIME.lock();
        assert!(!run_together(("uses_cpu", false, true), ("cpu", true, false)));
        assert!(!run_together(("cpu", true, true), ("uses_cpu", true, true)));
        assert!(run_together(("uses_cpu", false, true), ("cpu", false, false)));
    }

    #[test]
    fn an_exclusive_check_that_uses_the_cpu_has_the_cpu_alone_too() {
        let _turn = ONE_AT_A_TIME.lock();
        assert!(!run_together(("fails_there", true, true), ("cpu", false, false)));
    }
}
