//! Which checks run at the same time: any number on one backend, or one that needs it alone.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// A place among the checks that run now, until it is dropped.
#[must_use = "the place is left when this is dropped"]
pub(crate) struct Place {
    _cpu: Option<Lane>,
    _own: Lane,
}

enum Lane {
    Shared { _guard: RwLockReadGuard<'static, ()> },
    Alone { _guard: RwLockWriteGuard<'static, ()> },
}

/// Waits until a check may run on a backend: alone, or with others that need not be. One that uses the cpu besides
/// has that in the same way.
pub(crate) fn enter(backend: &str, alone: bool, uses_cpu: bool) -> Place {
    // The cpu's always first, so that no two wait for each other.
    let cpu = (uses_cpu && backend != "cpu").then(|| Lane::enter("cpu", alone));
    Place { _cpu: cpu, _own: Lane::enter(backend, alone) }
}

impl Lane {
    fn enter(backend: &str, alone: bool) -> Self {
        let lane = lock_of(backend);
        match alone {
            false => Self::Shared { _guard: lane.read().unwrap_or_else(PoisonError::into_inner) },
            true => Self::Alone { _guard: lane.write().unwrap_or_else(PoisonError::into_inner) },
        }
    }
}

/// The lane of a backend: of all of its devices, because they may share a driver.
fn lock_of(backend: &str) -> &'static RwLock<()> {
    static LANES: Mutex<BTreeMap<String, &'static RwLock<()>>> = Mutex::new(BTreeMap::new());
    let mut lanes = LANES.lock().unwrap_or_else(PoisonError::into_inner);
    lanes.entry(backend.to_owned()).or_insert_with(|| Box::leak(Box::default()))
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread;
    use std::time::Duration;

    use super::*;

    /// Whether one that wants a place gets it while another has one.
    fn gets_in(has: (&'static str, bool, bool), wants: (&'static str, bool, bool)) -> bool {
        let place = enter(has.0, has.1, has.2);
        let (entered, is_in) = mpsc::channel();
        let waiting = thread::spawn(move || {
            drop(enter(wants.0, wants.1, wants.2));
            entered.send(()).unwrap();
        });
        let at_once = is_in.recv_timeout(Duration::from_millis(100)).is_ok();
        drop(place);
        waiting.join().unwrap();
        at_once
    }

    #[test]
    fn checks_run_together_unless_one_needs_the_backend_alone() {
        assert!(gets_in(("together", false, false), ("together", false, false)));
        assert!(!gets_in(("alone", true, false), ("alone", false, false)));
        assert!(!gets_in(("alone", false, false), ("alone", true, false)));
        assert!(gets_in(("alone", true, false), ("another", true, false)));
    }

    #[test]
    fn a_check_that_needs_the_cpu_alone_waits_for_those_that_use_it() {
        assert!(!gets_in(("uses_cpu", false, true), ("cpu", true, false)));
        assert!(!gets_in(("cpu", true, true), ("uses_cpu", true, true)));
        assert!(gets_in(("uses_cpu", false, true), ("cpu", false, false)));
    }

    #[test]
    fn a_check_that_needs_its_backend_alone_has_the_cpu_so_too_if_it_uses_it() {
        assert!(!gets_in(("fails_there", true, true), ("cpu", false, false)));
    }
}
