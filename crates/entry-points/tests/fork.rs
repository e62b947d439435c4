//! A child of `fork` finds the plugins that its parent had loaded, gets errors for the others, and never
//! hangs. The other threads of the parent do not exist in the child, so a lock that one of them held is never
//! released.

#![cfg(unix)]
#![allow(missing_docs)]

use std::ffi::c_int;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use entry_points::{
    EntryPoint, Group, LoadError, LoadFailure, OptionError, OptionSpec, RegisterError, State,
};

const FORKS: usize = 200;
/// A child takes milliseconds; a busy machine takes longer.
const LIMIT: Duration = Duration::from_secs(10);

/// The number of children so far, the next one included.
static CHILDREN: AtomicUsize = AtomicUsize::new(0);

/// How a child ended.
#[derive(Debug, PartialEq, Eq)]
enum End {
    Exited(c_int),
    Signalled(c_int),
    Hung,
}

/// Runs `body` in a child of `fork`, and ends that child if it takes longer than `LIMIT`.
fn in_a_child(body: impl FnOnce() -> c_int) -> End {
    // SAFETY: the child runs the code under test and ends by `_exit`.
    let child = unsafe { libc::fork() };
    assert!(child >= 0, "fork fails");
    if child == 0 {
        let status = catch_unwind(AssertUnwindSafe(body)).unwrap_or(100);
        // SAFETY: it ends this process only, and runs nothing that is due at exit.
        unsafe { libc::_exit(status) };
    }
    let (start, mut status) = (Instant::now(), 0);
    // SAFETY: the child is this process's own, and `status` a variable of this function.
    while unsafe { libc::waitpid(child, &raw mut status, libc::WNOHANG) } == 0 {
        if start.elapsed() > LIMIT {
            // SAFETY: nothing has waited for the child yet, so the number is still its own.
            unsafe { libc::kill(child, libc::SIGKILL) };
            // SAFETY: the child is this process's own, and `status` a variable of this function.
            unsafe { libc::waitpid(child, &raw mut status, 0) };
            return End::Hung;
        }
        // No wait for a process has a time limit.
        thread::sleep(Duration::from_micros(200));
    }
    if libc::WIFEXITED(status) {
        End::Exited(libc::WEXITSTATUS(status))
    } else {
        End::Signalled(libc::WTERMSIG(status))
    }
}

/// Forks `FORKS` times while each of `disturbances` runs again and again in a thread of the parent. No child
/// may hang, and each `body` returns zero.
fn in_many_children(disturbances: &[fn()], body: fn() -> c_int) {
    // The threads of one test are enough to keep a machine busy.
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let done = AtomicBool::new(false);
    let (mut children, mut bad) = (0, Vec::new());
    thread::scope(|scope| {
        for disturb in disturbances {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    disturb();
                }
            });
        }
        // Five bad children are enough.
        while children < FORKS && bad.len() < 5 {
            children += 1;
            CHILDREN.fetch_add(1, Ordering::Relaxed);
            match in_a_child(body) {
                End::Exited(0) => {}
                other => bad.push(other),
            }
        }
        done.store(true, Ordering::Relaxed);
    });
    assert!(bad.is_empty(), "{} of {children} children: {bad:?}", bad.len());
}

fn fail() -> Result<Box<u32>, LoadFailure> {
    Err(LoadFailure::new("on purpose"))
}

/// An entry point with a new name. `None` after a limit, since reports list all names.
fn fresh(prefix: &str, counter: &AtomicUsize) -> Option<&'static EntryPoint<u32>> {
    let n = counter.fetch_add(1, Ordering::Relaxed);
    (n < 200).then(|| {
        let name: &'static str = format!("{prefix}{n}").leak();
        &*Box::leak(Box::new(EntryPoint::new(name, fail)))
    })
}

fn is_unknown<T>(result: Result<T, LoadError>) -> bool {
    matches!(&result, Err(error @ LoadError::Unknown(_)) if error.to_string().contains("zzz"))
}

#[test]
fn the_error_of_an_unknown_name_never_hangs_in_a_child() {
    static GROUP: Group<u32> = Group::new("test.fork.unknown");
    static LOADED: EntryPoint<u32> = EntryPoint::new("loaded", || Ok(Box::new(7)));
    GROUP.register(&LOADED).unwrap();
    GROUP.load("loaded").unwrap();
    let look_up = || assert!(is_unknown(GROUP.load("zzz")));
    let register = || {
        static COUNTER: AtomicUsize = AtomicUsize::new(0);
        if let Some(point) = fresh("late_", &COUNTER) {
            GROUP.register(point).unwrap();
        }
        static LOADED_TOO: EntryPoint<u32> = EntryPoint::new("loaded", fail);
        assert!(GROUP.register(&LOADED_TOO).is_err());
    };
    in_many_children(&[look_up, look_up, register], || {
        let known = GROUP.load("loaded").is_ok_and(|plugin| *plugin == 7);
        let unknown = is_unknown(GROUP.load("zzz")) && is_unknown(GROUP.load("zzz2"));
        let listed = GROUP.names().any(|name| name == "loaded") && GROUP.len() == GROUP.iter().len();
        let loaded = matches!(GROUP.get("loaded").unwrap().state(), State::Loaded { .. });
        c_int::from(!(known && unknown && listed && loaded && GROUP.report().to_string().contains("loaded")))
    });
}

#[test]
fn loading_never_hangs_in_a_child() {
    static GROUP: Group<u32> = Group::new("test.fork.loading");
    static FAILS: EntryPoint<u32> = EntryPoint::new("fails", fail);
    static LINKED: EntryPoint<u32> = EntryPoint::new("linked", || Ok(Box::new(1)));
    static LOADED: EntryPoint<u32> = EntryPoint::new("loaded", || Ok(Box::new(7)));
    for point in [&FAILS, &LINKED, &LOADED] {
        GROUP.register(point).unwrap();
    }
    GROUP.load("loaded").unwrap();
    let retry = || assert!(GROUP.retry("fails").is_err());
    let report = || drop(GROUP.report());
    in_many_children(&[retry, retry, report], || {
        // The outcomes depend on the threads of the parent at the time of the fork.
        let outcomes =
            [GROUP.load("linked"), GROUP.retry("linked"), GROUP.load("fails"), GROUP.retry("fails")];
        let expected = outcomes.iter().all(|outcome| match outcome {
            Ok(plugin) => **plugin == 1,
            Err(LoadError::Failed { .. } | LoadError::Forked { .. }) => true,
            Err(_) => false,
        });
        let claimed = match GROUP.register_override(&FAILS) {
            Ok(()) | Err(RegisterError::Forked { .. }) => true,
            Err(_) => false,
        };
        let listed = GROUP.report().rows().len() == 3;
        c_int::from(!(expected && claimed && listed && GROUP.load("loaded").is_ok()))
    });
}

#[test]
fn setting_options_never_hangs_in_a_child() {
    static GROUP: Group<u32> = Group::new("test.fork.options");
    static FAILS: EntryPoint<u32> =
        EntryPoint::with_options("fails", |_| fail(), &[OptionSpec::new("level", "a number")]);
    GROUP.register(&FAILS).unwrap();
    let set = || {
        static COUNTER: AtomicUsize = AtomicUsize::new(0);
        let count = COUNTER.fetch_add(1, Ordering::Relaxed);
        GROUP.set_option("fails", "level", count.to_string()).unwrap();
    };
    set();
    in_many_children(&[set], || {
        // If the parent was setting an option, what is set is not known to the child.
        let known = match GROUP.set_option("fails", "level", "2") {
            Ok(()) => 1,
            Err(OptionError::Forked { .. }) => 0,
            Err(_) => return 1,
        };
        let loaded = matches!(GROUP.retry("fails"), Err(LoadError::Failed { .. } | LoadError::Forked { .. }));
        c_int::from(!(loaded && GROUP.report().rows()[0].options.len() == known))
    });
}

#[test]
fn the_first_use_of_a_group_never_hangs_in_a_child() {
    /// The parent makes one group after the other and uses each at once.
    static NEWEST: AtomicPtr<Group<u32>> = AtomicPtr::new(std::ptr::null_mut());
    static USES: AtomicUsize = AtomicUsize::new(0);
    fn newest() -> &'static Group<u32> {
        // SAFETY: it is null or a group that is never freed.
        unsafe { NEWEST.load(Ordering::Acquire).as_ref() }.expect("there is one")
    }
    let first_use = || {
        // Groups are never freed, so each child has a limited number of them.
        if USES.load(Ordering::Relaxed) < 100 * CHILDREN.load(Ordering::Relaxed) {
            USES.fetch_add(1, Ordering::Relaxed);
            NEWEST.store(
                Box::leak(Box::new(Group::new("test.fork.new").switches("TEST_FORK"))),
                Ordering::Release,
            );
            assert!(is_unknown(newest().load("zzz")));
        }
    };
    CHILDREN.fetch_add(1, Ordering::Relaxed);
    first_use();
    in_many_children(&[first_use], || c_int::from(!is_unknown(newest().load("zzz"))));
}

#[test]
fn an_entry_that_the_parent_was_loading_is_an_error_in_a_child() {
    static GROUP: Group<u32> = Group::new("test.fork.underway");
    static SLOW: EntryPoint<u32> = EntryPoint::new("slow", || {
        LOADING.wait();
        LOADING.wait();
        Ok(Box::new(3))
    });
    static LOADING: std::sync::Barrier = std::sync::Barrier::new(2);
    GROUP.register(&SLOW).unwrap();
    let slow = GROUP.get("slow").unwrap();
    thread::scope(|scope| {
        let loads = scope.spawn(|| GROUP.load("slow").copied());
        LOADING.wait();
        let end = in_a_child(|| {
            let is_error = matches!(slow.load(), Err(LoadError::Forked { .. }));
            c_int::from(!(is_error && matches!(slow.state(), State::Loading { .. })))
        });
        LOADING.wait();
        assert_eq!(end, End::Exited(0));
        assert_eq!(loads.join().unwrap().ok(), Some(3), "the parent is not disturbed");
    });
}

#[test]
fn a_load_that_forks_ends_in_both_processes() {
    static GROUP: Group<u32> = Group::new("test.fork.within");
    static FORKS: EntryPoint<u32> = EntryPoint::new("forks", || {
        // SAFETY: the child returns from here to the test, which ends it by `_exit`.
        Ok(Box::new(unsafe { libc::fork() }.cast_unsigned()))
    });
    GROUP.register(&FORKS).unwrap();
    let child = *GROUP.load("forks").unwrap();
    if child == 0 {
        // SAFETY: it ends this process only, and runs nothing that is due at exit.
        unsafe { libc::_exit(if GROUP.load("forks").is_ok() { 0 } else { 1 }) };
    }
    let mut status = 0;
    // SAFETY: the child is this process's own, and `status` a variable of this function.
    let ended = unsafe { libc::waitpid(child.cast_signed(), &raw mut status, 0) };
    assert_eq!((ended, status), (child.cast_signed(), 0));
}
