//! Entry points in files: which one has a name, what reports say of them, and what goes wrong.

use std::sync::atomic::{AtomicUsize, Ordering};

use entry_points::{EntryPoint, Group, Installed, LoadError, LoadFailure, RegisterError, State, Switches};

/// A file for a plugin that is the number `value`.
fn file(name: &str, path: &str, value: u8) -> Installed<u8> {
    Installed::new(name, path, move |_| Ok(Box::new(value))).package("from-file", "1.2.0")
}

fn rows(group: &'static Group<u8>) -> Vec<String> {
    let report = group.report();
    let row = |row: &entry_points::Row| match row.file {
        Some(file) => format!("{}: {}", file.display(), row.state),
        None => format!("{}: {}", row.package.unwrap_or("?"), row.state),
    };
    report.rows().iter().map(row).collect()
}

#[test]
fn an_installed_entry_point_is_opened_at_its_first_use() {
    static GROUP: Group<u8> = Group::new("test.first_use").noun("number");
    static OPENED: AtomicUsize = AtomicUsize::new(0);
    let load = |_: &_| {
        OPENED.fetch_add(1, Ordering::Relaxed);
        Ok(Box::new(7))
    };
    GROUP.install(Installed::new("seven", "/opt/seven.so", load).package("numbers", "0.3.0")).unwrap();
    let entry = GROUP.get("seven").unwrap();
    assert!(matches!(entry.state(), State::Installed) && entry.is_usable());
    assert_eq!(entry.file().unwrap().to_str(), Some("/opt/seven.so"));
    let table = "\
test.first_use: 1 number
  name   package  version  state
  seven  numbers  0.3.0    installed; file: /opt/seven.so";
    assert_eq!(GROUP.report().to_string(), table);
    assert_eq!(OPENED.load(Ordering::Relaxed), 0);
    assert_eq!((GROUP.load("seven").unwrap(), GROUP.load("seven").unwrap()), (&7, &7));
    assert_eq!(OPENED.load(Ordering::Relaxed), 1);
    assert!(matches!(entry.state(), State::Loaded { .. }));
}

#[test]
fn what_is_registered_goes_before_what_is_installed_in_either_order() {
    static GROUP: Group<u8> = Group::new("test.before");
    static FIRST: EntryPoint<u8> = EntryPoint::new("first", || Ok(Box::new(1))).in_package("linked", "0.1.0");
    static LATER: EntryPoint<u8> = EntryPoint::new("later", || Ok(Box::new(2))).in_package("linked", "0.1.0");
    GROUP.register(&FIRST).unwrap();
    GROUP.install(file("first", "/a.so", 10)).unwrap();
    GROUP.install(file("later", "/b.so", 20)).unwrap();
    GROUP.register(&LATER).unwrap();
    assert_eq!((GROUP.load("first").unwrap(), GROUP.load("later").unwrap()), (&1, &2));
    let state = |file: &str| rows(&GROUP).into_iter().find(|row| row.starts_with(file)).unwrap();
    assert_eq!(state("/a.so"), "/a.so: duplicate of linked 0.1.0");
    assert_eq!(state("/b.so"), "/b.so: duplicate of linked 0.1.0");
}

#[test]
fn a_disabled_entry_point_leaves_its_name_to_an_installed_one() {
    static GROUP: Group<u8> = Group::new("test.disabled");
    static OFF: EntryPoint<u8> = EntryPoint::new("x", || Ok(Box::new(1))).in_package("linked", "0.1.0");
    GROUP.configure(Switches { disable: vec!["linked/*".into()], ..Switches::default() }).unwrap();
    GROUP.register(&OFF).unwrap();
    GROUP.install(file("x", "/x.so", 2)).unwrap();
    assert_eq!(GROUP.load("x").unwrap(), &2);
}

#[test]
fn of_several_that_are_installed_the_first_has_the_name() {
    static GROUP: Group<u8> = Group::new("test.several");
    for (path, value) in [("/z.so", 1), ("/a.so", 2), ("/b.so", 3)] {
        GROUP.install(file("x", path, value)).unwrap();
    }
    assert_eq!(GROUP.load("x").unwrap(), &1);
    let of_first = "duplicate of from-file 1.2.0 in /z.so";
    assert_eq!(rows(&GROUP)[1..], [format!("/a.so: {of_first}"), format!("/b.so: {of_first}")]);
}

#[test]
fn a_broken_file_that_hides_another_names_it_in_its_error() {
    static GROUP: Group<u8> = Group::new("test.hides").switches("TEST_HIDES");
    let broken = |_: &_| Err(LoadFailure::new("cannot open it"));
    GROUP.install(Installed::new("x", "/stale/x.so", broken).package("from-file", "1.1.0")).unwrap();
    GROUP.install(file("x", "/lib/x.so", 1)).unwrap();
    GROUP.install(Installed::new("y", "/stale/y.so", broken).package("from-file", "1.1.0")).unwrap();
    assert_eq!(
        GROUP.load("x").unwrap_err().to_string(),
        "`x` of test.hides (from-file 1.1.0 in /stale/x.so) failed to load: cannot open it; TEST_HIDES_DISABLE=x turns \
         it off; `/lib/x.so` offers it too, and has the name where this file is not installed"
    );
    assert!(GROUP.load("y").unwrap_err().to_string().ends_with("TEST_HIDES_DISABLE=y turns it off"));
}

#[test]
fn one_file_is_installed_once() {
    static GROUP: Group<u8> = Group::new("test.once");
    (0..3).for_each(|_| GROUP.install(file("x", "/x.so", 1)).unwrap());
    GROUP.install(file("y", "/x.so", 1)).unwrap();
    assert_eq!(rows(&GROUP), ["/x.so: installed", "/x.so: installed"]);
}

#[test]
fn a_name_in_use_stays_as_it_is() {
    static GROUP: Group<u8> = Group::new("test.in_use");
    static LATE: EntryPoint<u8> = EntryPoint::new("x", || Ok(Box::new(9)));
    GROUP.install(file("x", "/x.so", 1)).unwrap();
    assert_eq!(GROUP.load("x").unwrap(), &1);
    GROUP.install(file("x", "/other.so", 2)).unwrap();
    let error = GROUP.register(&LATE).unwrap_err();
    assert!(matches!(error, RegisterError::InUse { .. }), "{error}");
    assert!(error.to_string().contains("from-file 1.2.0 in /x.so"), "{error}");
    assert_eq!(GROUP.load("x").unwrap(), &1);
}

#[test]
fn an_override_replaces_an_installed_one() {
    static GROUP: Group<u8> = Group::new("test.override");
    static OVER: EntryPoint<u8> = EntryPoint::new("x", || Ok(Box::new(9)));
    GROUP.install(file("x", "/x.so", 1)).unwrap();
    GROUP.register_override(&OVER).unwrap();
    assert_eq!(GROUP.load("x").unwrap(), &9);
}

#[test]
fn each_switch_holds_for_what_is_installed() {
    static GROUPS: [Group<u8>; 4] = [
        Group::new("test.installed"),
        Group::new("test.autoload"),
        Group::new("test.disable"),
        Group::new("test.select"),
    ];
    let all = Switches::default;
    let switches = [
        Switches { installed: false, ..all() },
        Switches { autoload: false, ..all() },
        Switches { disable: vec!["from-file/x".into()], ..all() },
        Switches { select: vec!["y".into()], ..all() },
    ];
    let causes = [
        "(Switches::installed = false)",
        "(Switches::autoload = false)",
        "(Switches::disable = [\"from-file/x\"])",
        "(Switches::select = [\"y\"])",
    ];
    for ((group, switches), cause) in GROUPS.iter().zip(switches).zip(causes) {
        group.configure(switches).unwrap();
        group
            .install(Installed::new("x", "/x.so", |_| unreachable!()).package("from-file", "1.0.0"))
            .unwrap();
        let error = group.load("x").unwrap_err();
        assert!(matches!(error, LoadError::Disabled { .. }), "{error}");
        assert!(error.to_string().contains(cause), "{error}");
    }
}

#[test]
fn what_is_installed_can_be_off_while_what_is_linked_is_on() {
    static GROUP: Group<u8> = Group::new("test.only_installed");
    static X: EntryPoint<u8> = EntryPoint::new("x", || Ok(Box::new(1)));
    GROUP.configure(Switches { installed: false, ..Switches::default() }).unwrap();
    GROUP.register(&X).unwrap();
    GROUP.install(file("y", "/y.so", 2)).unwrap();
    assert!(GROUP.load("x").is_ok() && GROUP.load("y").is_err());
}

#[test]
fn invalid_names_and_options_are_errors_that_name_the_file() {
    static GROUP: Group<u8> = Group::new("test.invalid");
    let expected = "expected 1 to 32 bytes of a-z, 0-9 and _, without a digit at the start";
    for name in ["", "Open-Reg", "1a", "a\nb", &"a".repeat(33)] {
        let error = GROUP.install(file(name, "/bad.so", 1)).unwrap_err();
        let message = format!("cannot install `{}` from /bad.so: {expected}", name.replace('\n', "\\n"));
        assert_eq!(error.to_string(), message);
    }
    for options in [vec!["a-b"], vec!["a", "b", "a"]] {
        let installed = options.iter().fold(file("x", "/bad.so", 1), |file, name| file.option(*name, "text"));
        let error = GROUP.install(installed).unwrap_err().to_string();
        assert!(error.contains("`x` with the option `a") && error.ends_with("each option once"), "{error}");
    }
    assert!(GROUP.is_empty());
}

#[test]
fn built_in_and_reserved_names_stay() {
    static BUILT_IN: &[EntryPoint<u8>] = &[EntryPoint::new("own", || Ok(Box::new(0)))];
    static GROUP: Group<u8> = Group::new("test.reserved").built_in(BUILT_IN).reserved(&["auto"]);
    for name in ["own", "auto"] {
        let error = GROUP.install(file(name, "/x.so", 1)).unwrap_err();
        assert!(matches!(error, RegisterError::BuiltIn { .. }), "{error}");
        assert!(error.to_string().contains("from-file 1.2.0 in /x.so"), "{error}");
    }
    assert_eq!(GROUP.load("own").unwrap(), &0);
    assert!(GROUP.load("auto").is_err());
}

#[test]
fn options_reach_the_file_and_unknown_ones_are_errors() {
    static GROUP: Group<u8> = Group::new("test.options");
    let load = |options: &entry_points::Options| Ok(Box::new(options.parse("level")?.unwrap_or(1)));
    GROUP.install(Installed::new("x", "/x.so", load).option("level", "a number")).unwrap();
    let error = GROUP.set_option("x", "lebel", "2").unwrap_err().to_string();
    assert!(error.contains("did you mean `level`?") && error.contains("(/x.so)"), "{error}");
    GROUP.set_option("x", "level", "2").unwrap();
    assert_eq!(GROUP.load("x").unwrap(), &2);
}

#[test]
fn errors_and_panics_of_a_file_name_it() {
    static GROUP: Group<u8> = Group::new("test.errors").noun("number");
    let fails = |_: &_| Err(LoadFailure::new("no symbol `number`"));
    GROUP.install(Installed::new("fails", "/fails.so", fails).package("numbers", "0.3.0")).unwrap();
    GROUP.install(Installed::new("panics", "/panics.so", |_| panic!("on purpose"))).unwrap();
    let error = GROUP.load("fails").unwrap_err().to_string();
    assert_eq!(error, "number `fails` (numbers 0.3.0 in /fails.so) failed to load: no symbol `number`");
    let error = GROUP.load("panics").unwrap_err().to_string();
    assert_eq!(error, "number `panics` (/panics.so) panicked while loading: on purpose");
}

#[test]
fn notes_are_in_reports_and_in_the_error_for_an_unknown_name_once() {
    static GROUP: Group<u8> = Group::new("test.notes");
    let note = "/opt/decoders was searched: it has no manifests";
    (0..3).for_each(|_| GROUP.add_note(note));
    assert_eq!(GROUP.report().notes(), [note]);
    assert!(GROUP.load("vorbis").unwrap_err().to_string().contains(&format!("note: {note}")));
}

#[test]
fn threads_that_install_one_name_at_once_agree_on_its_holder() {
    static GROUP: Group<u8> = Group::new("test.threads");
    std::thread::scope(|scope| {
        for value in 0..8 {
            scope.spawn(move || GROUP.install(file("x", &format!("/{value}.so"), value)).unwrap());
        }
    });
    let held = *GROUP.load("x").unwrap();
    let states = rows(&GROUP);
    assert_eq!(states.iter().filter(|row| row.contains("duplicate")).count(), 7, "{states:?}");
    assert!(states.iter().any(|row| row.starts_with(&format!("/{held}.so: loaded"))), "{states:?}");
}
