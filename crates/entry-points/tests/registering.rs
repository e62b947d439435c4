//! Registering, overriding and switching by hand.

#![allow(missing_docs)]

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use entry_points::{EntryPoint, Group, LoadError, RegisterError, State, Switches};

entry_points::group! {
    /// Numbers, one of which is linked.
    static NUMBERS: [EntryPoint<u32>];
    fn numbers() -> Group<u32> {
        Group::new("test.numbers").switches("TEST_NUMBERS")
    }
}

entry_points::group! {
    /// Letters, none of which is linked.
    static LETTERS: [EntryPoint<char>];
    fn letters() -> Group<char> {
        Group::new("test.letters")
    }
}

entry_points::entry_points! {
    #[distributed_slice(NUMBERS)]
    static ONE: EntryPoint<u32> = EntryPoint::new("one", || Ok(Box::new(1)));
    #[distributed_slice(NUMBERS)]
    static TWO: EntryPoint<u32> = EntryPoint::new("two", || Ok(Box::new(2)));
}

fn point(name: &'static str, package: &'static str) -> &'static EntryPoint<u32> {
    Box::leak(Box::new(EntryPoint::new(name, || Ok(Box::new(7))).in_package(package, "1.0.0")))
}

fn private() -> &'static Group<u32> {
    Box::leak(Box::new(Group::new("test.private")))
}

#[test]
fn registering_works_with_autoload_off_before_and_after_the_first_use() {
    numbers().configure(Switches { autoload: false, ..Switches::default() }).unwrap();
    numbers().register(&ONE).unwrap();
    assert_eq!(*numbers().load("one").unwrap(), 1);

    let error = numbers().load("two").unwrap_err();
    assert_eq!(
        error.to_string(),
        format!(
            "`two` of test.numbers (entry-points {}) is disabled by the program (Switches::autoload = false)",
            env!("CARGO_PKG_VERSION")
        )
    );
    numbers().register(&TWO).unwrap();
    assert_eq!(*numbers().load("two").unwrap(), 2);

    let error = numbers().configure(Switches::default()).unwrap_err();
    assert!(error.to_string().contains("test.numbers is already in use"), "{error}");
}

#[test]
fn registering_twice_is_registering_once() {
    let group = private();
    let x = point("x", "a");
    group.register(x).unwrap();
    group.register(x).unwrap();
    group.load("x").unwrap();
    group.register(x).unwrap();
    assert_eq!((group.len(), group.report().rows().len()), (1, 1));
}

#[test]
fn a_taken_name_is_refused_and_continues_to_work() {
    let group = private();
    group.register(point("x", "a")).unwrap();
    let error = group.register(point("x", "b")).unwrap_err();
    assert_eq!(
        error.to_string(),
        "`x` of test.private (a 1.0.0) already exists; b 1.0.0 cannot take its name, and `register_override` replaces it"
    );
    assert_eq!(group.get("x").unwrap().package(), Some("a"));
    group.load("x").unwrap();
    assert!(matches!(group.register(point("x", "c")), Err(RegisterError::InUse { .. })));
    let report = group.report().to_string();
    assert!(report.contains("x     b        1.0.0    duplicate of a 1.0.0"), "{report}");
    assert!(report.contains("x     c        1.0.0    duplicate of a 1.0.0"), "{report}");
}

#[test]
fn an_override_takes_effect_before_the_first_use_and_is_an_error_after_it() {
    let group = private();
    group.register(point("x", "a")).unwrap();
    let held = group.get("x").unwrap();
    group.register_override(point("x", "b")).unwrap();
    group.register_override(point("x", "c")).unwrap();
    // An entry stands for the name: one from before the override has the new entry point.
    assert_eq!(held.package(), Some("c"));
    held.load().unwrap();
    let error = group.register_override(point("x", "d")).unwrap_err();
    assert!(matches!(error, RegisterError::InUse { .. }), "{error}");
    assert_eq!(held.package(), Some("c"));
    // Without an entry point to override, it only registers.
    group.register_override(point("y", "d")).unwrap();
    assert_eq!(*group.load("y").unwrap(), 7);
}

#[test]
fn an_override_keeps_the_name_even_if_a_switch_disables_it() {
    static GROUP: Group<u32> = Group::new("test.held");
    GROUP.configure(Switches { disable: vec!["a/x".to_owned()], ..Switches::default() }).unwrap();
    GROUP.register_override(point("x", "a")).unwrap();
    assert!(matches!(GROUP.register(point("x", "b")), Err(RegisterError::Taken { .. })));
    assert!(matches!(GROUP.load("x"), Err(LoadError::Disabled { .. })));
    // Without an override, a disabled entry point leaves the name to others.
    static FREE: Group<u32> = Group::new("test.free");
    FREE.configure(Switches { disable: vec!["a/x".to_owned()], ..Switches::default() }).unwrap();
    FREE.register(point("x", "a")).unwrap();
    FREE.register(point("x", "b")).unwrap();
    assert_eq!(*FREE.load("x").unwrap(), 7);
}

#[test]
fn an_override_settles_a_duplicate() {
    static BOTH: Group<u32> = Group::new("test.settled");
    let (a, b) = (point("x", "a"), point("x", "b"));
    BOTH.register(a).unwrap();
    BOTH.register(b).unwrap_err();
    BOTH.register_override(b).unwrap();
    assert_eq!(BOTH.get("x").unwrap().package(), Some("b"));
    BOTH.register_override(a).unwrap();
    assert_eq!(BOTH.get("x").unwrap().package(), Some("a"));
}

#[test]
fn a_built_in_name_and_a_reserved_word_cannot_be_registered() {
    static BUILT_IN: [EntryPoint<u32>; 1] = [EntryPoint::new("cpu", || Ok(Box::new(0)))];
    static GROUP: Group<u32> = Group::new("test.owned").built_in(&BUILT_IN).reserved(&["auto"]);
    for name in ["cpu", "auto"] {
        for result in [GROUP.register(point(name, "a")), GROUP.register_override(point(name, "b"))] {
            assert!(matches!(result, Err(RegisterError::BuiltIn { .. })), "{result:?}");
        }
    }
    GROUP.register(&BUILT_IN[0]).unwrap();
    assert_eq!(*GROUP.load("cpu").unwrap(), 0);
    assert!(GROUP.get("cpu").unwrap().is_usable());
    assert!(!GROUP.get("auto").unwrap().is_usable());
    assert!(matches!(GROUP.get("auto").unwrap().state(), State::Duplicate { .. }));
    let error = GROUP.load("auto").unwrap_err().to_string();
    assert!(error.contains("the group reserves this name"), "{error}");
}

#[test]
fn a_disabled_entry_point_never_runs_even_if_registered() {
    static GROUP: Group<u32> = Group::new("test.disabled");
    static POINT: EntryPoint<u32> = EntryPoint::new("x", || panic!("it is disabled"));
    GROUP.configure(Switches { disable: vec!["X".to_owned()], ..Switches::default() }).unwrap();
    GROUP.register(&POINT).unwrap();
    assert!(matches!(GROUP.load("x"), Err(LoadError::Disabled { .. })));
    assert!(matches!(GROUP.retry("x"), Err(LoadError::Disabled { .. })));
    assert!(matches!(GROUP.get("x").unwrap().load(), Err(LoadError::Disabled { .. })));
    assert!(!GROUP.get("x").unwrap().is_usable());
    assert_eq!(GROUP.load_all().len(), 0);
}

#[test]
fn the_error_for_an_unknown_name_lists_the_names_and_suggests_one() {
    let group = private();
    group.register(point("vorbis", "codec-vorbis")).unwrap();
    let error = group.load("vorbsi\n").unwrap_err();
    assert_eq!(
        error.to_string(),
        "\
no entry point of test.private is called `vorbsi\\n`; did you mean `vorbis`?
test.private: 1 entry point
  name    package       version  state
  vorbis  codec-vorbis  1.0.0    linked"
    );
    assert_eq!(error.name(), "vorbsi\n");
}

#[test]
fn registrations_after_the_first_use_do_not_disturb_look_ups() {
    let group = private();
    group.register(point("first", "a")).unwrap();
    let first: &'static u32 = group.load("first").unwrap();
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    assert!(std::ptr::eq(group.load("first").unwrap(), first));
                    assert!(group.names().is_sorted());
                }
            });
        }
        for n in 0..300 {
            let name: &'static str = format!("late_{n}").leak();
            group.register(point(name, "b")).unwrap();
            assert_eq!(*group.load(name).unwrap(), 7);
        }
        done.store(true, Ordering::Relaxed);
    });
    assert_eq!(group.len(), 301);
}

#[test]
fn one_name_registered_by_many_threads_has_one_owner() {
    let group = private();
    let won = thread::scope(|scope| {
        let threads: Vec<_> = (0..8)
            .map(|n| scope.spawn(move || group.register(point("x", ["a", "b"][n % 2])).is_ok()))
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).filter(|won| *won).count()
    });
    assert_eq!(won, 1);
    assert_eq!((group.len(), group.report().rows().len()), (1, 8));
}

#[test]
fn a_report_says_why_its_list_may_be_short_as_the_error_for_an_unknown_name_does() {
    let advice = "no `autoload!` line is found";
    let report = letters().report();
    assert!(report.advice().is_some_and(|text| text.starts_with(advice)), "{report}");
    assert!(report.to_string().contains(&format!("\nnote: {advice}")), "{report}");
    assert_eq!(report.notes(), [""; 0], "it is no mistake to name plugins by hand");
    let error = letters().load("c").unwrap_err().to_string();
    assert_eq!(error.matches(advice).count(), 1, "{error}");
    // No line would add a name to a group that collects nothing.
    assert_eq!(private().report().advice(), None);
}

#[test]
fn the_error_for_an_unknown_name_shows_the_first_of_many_rows() {
    let group = private();
    for n in 0..1_000 {
        group.register(point(format!("n{n:04}").leak(), "a")).unwrap();
    }
    let error = group.load("x").unwrap_err().to_string();
    assert!(error.contains("n0063  a        1.0.0    linked\n  … and 936 more"), "{error}");
    assert!(!error.contains("n0064"), "{error}");
    assert!(group.report().to_string().contains("n0999"), "the report has all of them");
}
