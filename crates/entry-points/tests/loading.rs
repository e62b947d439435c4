//! How entry points load: once, in parallel, without a deadlock, and without harm to others if one fails.

#![allow(missing_docs)]

use std::error::Error;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Barrier, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use entry_points::{EntryPoint, Group, LoadError, LoadFailure, State};

type Plugin = &'static str;
type Loaded = Result<Box<Plugin>, LoadFailure>;

/// A separate group for each test, so that tests do not share state.
macro_rules! group {
    ($($name:ident: $load:expr),* $(,)?) => {{
        static GROUP: Group<Plugin> = Group::new("test.plugins");
        $(
            // The block keeps each static apart.
            {
                static POINT: EntryPoint<Plugin> =
                    EntryPoint::new(stringify!($name), $load).in_package(concat!("plugin-", stringify!($name)), "1.2.3");
                GROUP.register(&POINT).unwrap();
            }
        )*
        &GROUP
    }};
}

/// Fails the test instead of hanging it.
fn within_a_minute<T: Send + 'static>(body: impl FnOnce() -> T + Send + 'static) -> T {
    let (done, result) = mpsc::channel();
    thread::spawn(move || done.send(body()));
    result.recv_timeout(Duration::from_secs(60)).expect("the body neither hangs nor panics")
}

fn path(error: &LoadError) -> Vec<&str> {
    match error {
        LoadError::Cycle { path, .. } => path.iter().map(String::as_str).collect(),
        other => panic!("{other}"),
    }
}

#[test]
fn the_first_use_from_64_threads_loads_once() {
    static LOADS: AtomicUsize = AtomicUsize::new(0);
    fn load() -> Loaded {
        LOADS.fetch_add(1, Ordering::SeqCst);
        // The other threads come meanwhile. Nothing shows that they wait.
        thread::sleep(Duration::from_millis(20));
        Ok(Box::new("plugin"))
    }
    let group = group! { slow: load };
    let barrier = Barrier::new(64);
    let plugins: Vec<&'static Plugin> = thread::scope(|scope| {
        let use_it = || {
            barrier.wait();
            group.load("slow").unwrap()
        };
        let threads: Vec<_> = (0..64).map(|_| scope.spawn(use_it)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(LOADS.load(Ordering::SeqCst), 1);
    assert!(plugins.iter().all(|plugin| std::ptr::eq(*plugin, plugins[0])));
}

#[test]
fn listing_and_looking_up_load_nothing() {
    fn load() -> Loaded {
        panic!("its name is not used")
    }
    let group = group! { lazy: load };
    assert_eq!(group.names().collect::<Vec<_>>(), ["lazy"]);
    assert!(group.usable("lazy").unwrap().loaded().is_none());
    assert!(matches!(group.get("lazy").unwrap().state(), State::Linked));
    assert!(group.report().to_string().contains("linked"));
    assert!(group.load("other").is_err());
}

#[test]
fn different_names_load_in_parallel() {
    static BOTH: Barrier = Barrier::new(2);
    fn load() -> Loaded {
        // Passes only if the other one is loading at the same time.
        BOTH.wait();
        Ok(Box::new("plugin"))
    }
    let group = group! { a: load, b: load };
    within_a_minute(move || {
        let other = thread::spawn(move || group.load("a").is_ok());
        assert!(group.load("b").is_ok());
        assert!(other.join().unwrap());
    });
}

#[test]
fn an_error_a_panic_and_a_missing_driver_harm_only_their_own_entry() {
    #[derive(Debug, thiserror::Error)]
    #[error("outer")]
    struct Outer(#[source] std::io::Error);
    fn fails() -> Loaded {
        Err(Outer(std::io::Error::other("inner")).into())
    }
    fn panics() -> Loaded {
        panic!("oh no: {}", 7)
    }
    fn absent() -> Loaded {
        Err(LoadFailure::unavailable("no driver: looked for libfoo.so"))
    }
    let group = group! { fails: fails, panics: panics, absent: absent, works: || Ok(Box::new("plugin")) };

    let outcomes: Vec<_> =
        group.load_all().into_iter().map(|(entry, result)| (entry.name(), result.err())).collect();
    assert_eq!(
        outcomes.iter().map(|(name, _)| *name).collect::<Vec<_>>(),
        ["absent", "fails", "panics", "works"]
    );
    assert!(outcomes[3].1.is_none());

    // A later use returns the original cause with its chain.
    let error = group.load("fails").unwrap_err();
    assert_eq!(error.to_string(), "`fails` of test.plugins (plugin-fails 1.2.3) failed to load: outer");
    assert_eq!(error.source().unwrap().to_string(), "inner");
    assert!(error.failure().unwrap().cause().is::<Outer>());
    let error = group.load("panics").unwrap_err();
    assert_eq!(
        error.to_string(),
        "`panics` of test.plugins (plugin-panics 1.2.3) panicked while loading: oh no: 7"
    );
    let error = group.load("absent").unwrap_err();
    assert!(error.to_string().ends_with("is unavailable: no driver: looked for libfoo.so"), "{error}");

    let report = group.report().to_string();
    for line in [
        "  absent  plugin-absent  1.2.3    unavailable: no driver: looked for libfoo.so",
        "  fails   plugin-fails   1.2.3    failed: outer: inner",
        "  panics  plugin-panics  1.2.3    failed: panicked: oh no: 7",
        "  works   plugin-works   1.2.3    loaded in ",
    ] {
        assert!(report.contains(line), "{line:?} in\n{report}");
    }
}

#[test]
fn a_panic_with_an_odd_payload_is_a_failure_too() {
    struct PanicsAgain;
    impl Drop for PanicsAgain {
        fn drop(&mut self) {
            panic!("again");
        }
    }
    fn load() -> Loaded {
        std::panic::panic_any(PanicsAgain)
    }
    let group = group! { odd: load };
    assert!(matches!(group.load("odd"), Err(LoadError::Panicked { .. })));
}

#[test]
fn an_error_whose_display_panics_is_a_failure_of_its_plugin_only() {
    #[derive(Debug)]
    struct Unspeakable;
    impl std::fmt::Display for Unspeakable {
        fn fmt(&self, _: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            panic!("cannot say")
        }
    }
    impl Error for Unspeakable {}
    fn load() -> Loaded {
        Err(Unspeakable)?
    }
    let group = group! { unspeakable: load, works: || Ok(Box::new("plugin")) };
    let error = group.load("unspeakable").unwrap_err();
    assert!(error.to_string().ends_with("panicked while loading: cannot say"), "{error}");
    assert!(group.load("works").is_ok());
    assert!(group.load("other").unwrap_err().to_string().contains("failed: panicked: cannot say"));
}

#[test]
fn failures_that_quote_the_report_do_not_grow_with_each_other() {
    static GROUP: Group<Plugin> = Group::new("test.quoting");
    for n in 0..30 {
        let load = || Ok(Box::new(*GROUP.load("missing")?));
        let point = EntryPoint::new(format!("quotes_{n:02}").leak(), load);
        GROUP.register(Box::leak(Box::new(point))).unwrap();
    }
    let outcomes = GROUP.load_all();
    assert!(outcomes.iter().all(|(_, outcome)| outcome.is_err()));
    let report = GROUP.report().to_string();
    assert!(report.contains("failed: no entry point of test.quoting is called `missing`…"), "{report}");
    assert!(report.len() < 20_000, "{} bytes", report.len());
}

#[test]
fn debug_shows_the_message_and_the_causes() {
    fn load() -> Loaded {
        Err(LoadFailure::new("could not start").with_source(std::io::Error::other("device busy")))
    }
    let group = group! { x: load };
    let error = group.load("x").unwrap_err();
    let expected =
        "`x` of test.plugins (plugin-x 1.2.3) failed to load: could not start\ncaused by: device busy";
    assert_eq!(format!("{error:?}"), expected);
    let State::Failed { cause, .. } = group.get("x").unwrap().state() else { panic!("it is not a failure") };
    assert_eq!((cause.to_string(), format!("{cause:?}")), (error.to_string(), expected.to_owned()));
}

#[test]
fn a_failure_is_remembered_until_retry() {
    static LOADS: AtomicUsize = AtomicUsize::new(0);
    fn load() -> Loaded {
        match LOADS.fetch_add(1, Ordering::SeqCst) {
            0 => Err(LoadFailure::new("not yet")),
            _ => Ok(Box::new("plugin")),
        }
    }
    let group = group! { late: load };
    assert!(group.load("late").is_err());
    assert!(group.load("late").unwrap_err().to_string().contains("not yet"));
    assert_eq!(LOADS.load(Ordering::SeqCst), 1);
    assert_eq!(*group.retry("late").unwrap(), "plugin");
    assert_eq!(*group.retry("late").unwrap(), "plugin");
    assert_eq!(LOADS.load(Ordering::SeqCst), 2);
}

#[test]
fn an_unavailable_plugin_is_looked_at_again_after_a_second_by_a_use_and_by_nothing_else() {
    static LOADS: AtomicUsize = AtomicUsize::new(0);
    fn load() -> Loaded {
        match LOADS.fetch_add(1, Ordering::SeqCst) {
            0 => Err(LoadFailure::unavailable("the server is not there yet")),
            _ => Ok(Box::new("plugin")),
        }
    }
    let group = group! { late: load };
    let start = Instant::now();
    let first = group.load("late").unwrap_err();
    let second = group.load("late");
    // On a machine so busy that this time has passed, the second use may have loaded it.
    if start.elapsed() < LoadFailure::UNAVAILABLE_FOR {
        assert_eq!(second.unwrap_err().to_string(), first.to_string());
        assert_eq!(LOADS.load(Ordering::SeqCst), 1);
    }
    let loads = LOADS.load(Ordering::SeqCst);
    // Nothing but the time decides it.
    thread::sleep(LoadFailure::UNAVAILABLE_FOR + Duration::from_millis(100));
    if loads == 1 {
        assert!(matches!(group.get("late").unwrap().state(), State::Unavailable { .. }));
        assert!(group.report().to_string().contains("unavailable: the server is not there yet"));
        assert_eq!(LOADS.load(Ordering::SeqCst), 1, "a report has run a plugin's code");
    }
    assert_eq!(*group.load("late").unwrap(), "plugin");
    assert_eq!(*group.load("late").unwrap(), "plugin");
    assert_eq!(LOADS.load(Ordering::SeqCst), 2);
}

#[test]
fn waiters_get_the_outcome_of_the_attempt_they_waited_for() {
    static LOADS: AtomicUsize = AtomicUsize::new(0);
    static STARTED: Barrier = Barrier::new(2);
    static COMING: AtomicUsize = AtomicUsize::new(0);
    fn load() -> Loaded {
        STARTED.wait();
        while COMING.load(Ordering::SeqCst) < 8 {
            thread::yield_now();
        }
        // Now they are about to wait, which nothing shows.
        thread::sleep(Duration::from_millis(50));
        Err(LoadFailure::new(format!("attempt {}", LOADS.fetch_add(1, Ordering::SeqCst))))
    }
    let group = group! { slow: load };
    let errors = within_a_minute(move || {
        let first = thread::spawn(|| group.load("slow").unwrap_err().to_string());
        STARTED.wait();
        assert!(matches!(group.get("slow").unwrap().state(), State::Loading { .. }));
        // `retry` would start a new attempt if this did not wait for the one that is running.
        let retry = || {
            COMING.fetch_add(1, Ordering::SeqCst);
            group.retry("slow").unwrap_err().to_string()
        };
        let waiters: Vec<_> = (0..8).map(|_| thread::spawn(retry)).collect();
        let mut errors = vec![first.join().unwrap()];
        errors.extend(waiters.into_iter().map(|waiter| waiter.join().unwrap()));
        errors
    });
    assert!(errors.iter().all(|error| error.ends_with("attempt 0")), "{errors:?}");
    assert_eq!(LOADS.load(Ordering::SeqCst), 1);
}

#[test]
fn an_entry_that_loads_itself_gets_an_error_that_shows_it() {
    static GROUP: Group<Plugin> = Group::new("test.self");
    static POINT: EntryPoint<Plugin> = EntryPoint::new("narcissus", || {
        let error = GROUP.load("narcissus").unwrap_err();
        assert_eq!(path(&error), ["narcissus", "narcissus"]);
        Err(error.into())
    });
    GROUP.register(&POINT).unwrap();
    let error = within_a_minute(|| GROUP.load("narcissus").unwrap_err());
    assert!(error.to_string().contains("needs itself to load: narcissus -> narcissus"), "{error}");
    // No outer entry is loading, so this failure is remembered.
    assert!(matches!(GROUP.get("narcissus").unwrap().state(), State::Failed { .. }));
}

#[test]
fn a_cycle_across_groups_names_the_groups() {
    static FIRST: Group<Plugin> = Group::new("test.first");
    static SECOND: Group<u8> = Group::new("test.second");
    static A: EntryPoint<Plugin> = EntryPoint::new("a", || {
        SECOND.load("b")?;
        unreachable!()
    });
    static B: EntryPoint<u8> = EntryPoint::new("b", || {
        FIRST.load("a")?;
        unreachable!()
    });
    FIRST.register(&A).unwrap();
    SECOND.register(&B).unwrap();
    let error = within_a_minute(|| FIRST.load("a").unwrap_err());
    assert!(error.to_string().contains("test.first/a -> test.second/b -> test.first/a"), "{error}");
}

#[test]
fn a_failure_that_comes_from_a_cycle_through_an_outer_entry_is_not_remembered() {
    static GROUP: Group<Plugin> = Group::new("test.further_out");
    static B_LOADS: AtomicUsize = AtomicUsize::new(0);
    // a needs b, b needs a, but a recovers from a failure of b.
    static A: EntryPoint<Plugin> = EntryPoint::new("a", || {
        assert!(GROUP.load("middle").is_err());
        Ok(Box::new("a"))
    });
    static MIDDLE: EntryPoint<Plugin> = EntryPoint::new("middle", || {
        GROUP.load("b")?;
        Ok(Box::new("middle"))
    });
    static B: EntryPoint<Plugin> = EntryPoint::new("b", || {
        B_LOADS.fetch_add(1, Ordering::SeqCst);
        GROUP.load("a")?;
        Ok(Box::new("b"))
    });
    for point in [&A, &MIDDLE, &B] {
        GROUP.register(point).unwrap();
    }
    within_a_minute(|| {
        assert_eq!(*GROUP.load("a").unwrap(), "a");
        // Both failed only because `a` was not loaded yet.
        assert!(matches!(GROUP.get("b").unwrap().state(), State::Linked));
        assert!(matches!(GROUP.get("middle").unwrap().state(), State::Linked));
        assert_eq!(*GROUP.load("middle").unwrap(), "middle");
        assert_eq!(*GROUP.load("b").unwrap(), "b");
    });
    assert_eq!(B_LOADS.load(Ordering::SeqCst), 2);
}

#[test]
fn a_failure_inside_a_cycle_is_remembered_once_the_cycle_is_over() {
    static GROUP: Group<Plugin> = Group::new("test.two");
    static A: EntryPoint<Plugin> = EntryPoint::new("a", || Ok(Box::new(*GROUP.load("b")?)));
    static B: EntryPoint<Plugin> = EntryPoint::new("b", || Ok(Box::new(*GROUP.load("a")?)));
    GROUP.register(&A).unwrap();
    GROUP.register(&B).unwrap();
    within_a_minute(|| {
        let error = GROUP.load("a").unwrap_err().to_string();
        assert!(error.contains("a -> b -> a"), "{error}");
        assert!(matches!(GROUP.get("a").unwrap().state(), State::Failed { .. }));
        assert!(matches!(GROUP.get("b").unwrap().state(), State::Linked));
        let error = GROUP.load("b").unwrap_err().to_string();
        assert!(error.contains("`b`") && error.contains("a -> b -> a"), "{error}");
        assert!(matches!(GROUP.get("b").unwrap().state(), State::Failed { .. }));
    });
}

#[test]
fn two_threads_that_need_each_others_entry_do_not_hang() {
    static GROUP: Group<Plugin> = Group::new("test.across");
    static BOTH: Barrier = Barrier::new(2);
    static A: EntryPoint<Plugin> = EntryPoint::new("a", || {
        BOTH.wait();
        Ok(Box::new(*GROUP.load("b")?))
    });
    static B: EntryPoint<Plugin> = EntryPoint::new("b", || {
        BOTH.wait();
        Ok(Box::new(*GROUP.load("a")?))
    });
    GROUP.register(&A).unwrap();
    GROUP.register(&B).unwrap();
    let (a, b) = within_a_minute(|| {
        let a = thread::spawn(|| GROUP.load("a").unwrap_err().to_string());
        let b = GROUP.load("b").unwrap_err().to_string();
        (a.join().unwrap(), b)
    });
    // The thread that closed the cycle shows it from its own side. Both fail with it.
    for error in [&a, &b] {
        assert!(error.contains("a -> b -> a") || error.contains("b -> a -> b"), "{error}");
    }
}

#[test]
fn a_cycle_through_a_waiting_thread_and_a_middle_entry_taints_the_middle_too() {
    static GROUP: Group<Plugin> = Group::new("test.long");
    static BOTH: Barrier = Barrier::new(2);
    static FIRST_TIME: AtomicUsize = AtomicUsize::new(0);
    // Thread 1: a -> c -> (waits for b). Thread 2: b -> a closes the cycle, and `a` recovers from it.
    static A: EntryPoint<Plugin> = EntryPoint::new("a", || {
        assert!(GROUP.load("c").is_err());
        Ok(Box::new("a"))
    });
    static C: EntryPoint<Plugin> = EntryPoint::new("c", || {
        if FIRST_TIME.fetch_add(1, Ordering::SeqCst) == 0 {
            BOTH.wait();
        }
        GROUP.load("b")?;
        Ok(Box::new("c"))
    });
    static B_TIMES: AtomicUsize = AtomicUsize::new(0);
    static B: EntryPoint<Plugin> = EntryPoint::new("b", || {
        if B_TIMES.fetch_add(1, Ordering::SeqCst) == 0 {
            BOTH.wait();
            // Long enough for the other thread to wait for this one, which nothing shows.
            thread::sleep(Duration::from_millis(100));
        }
        GROUP.load("a")?;
        Ok(Box::new("b"))
    });
    for point in [&A, &B, &C] {
        GROUP.register(point).unwrap();
    }
    within_a_minute(|| {
        let other = thread::spawn(|| GROUP.load("b").is_err());
        assert_eq!(*GROUP.load("a").unwrap(), "a");
        other.join().unwrap();
        // Neither failure was b's or c's own.
        assert_eq!(*GROUP.load("c").unwrap(), "c");
        assert_eq!(*GROUP.load("b").unwrap(), "b");
    });
}

entry_points::group! {
    /// Plugins of a group with switches.
    static SWITCHED: [EntryPoint<Plugin>];
    /// The group of `SWITCHED`.
    fn switched() -> Group<Plugin> {
        Group::new("test.switched").switches("TEST_SWITCHED")
    }
}

#[test]
fn the_error_of_a_broken_plugin_says_how_to_turn_it_off() {
    static BROKEN: EntryPoint<Plugin> =
        EntryPoint::new("broken", || Err(LoadFailure::new("no table"))).in_package("plugin-broken", "1.0.0");
    static PANICS: EntryPoint<Plugin> =
        EntryPoint::new("panics", || panic!("on purpose")).in_package("plugin-panics", "1.0.0");
    static MISSING: EntryPoint<Plugin> =
        EntryPoint::new("missing", || Err(LoadFailure::unavailable("no driver")))
            .in_package("plugin-missing", "1.0.0");
    for point in [&BROKEN, &PANICS, &MISSING] {
        switched().register(point).unwrap();
    }
    let error = |name: &str| switched().load(name).unwrap_err().to_string();
    assert!(
        error("broken").ends_with(" failed to load: no table; TEST_SWITCHED_DISABLE=broken turns it off")
    );
    assert!(error("panics").ends_with(": on purpose; TEST_SWITCHED_DISABLE=panics turns it off"));
    // A driver that is missing has its own remedy.
    assert!(error("missing").ends_with(" is unavailable: no driver"));
}
