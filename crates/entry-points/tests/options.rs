//! Options by name: set by the program and by a real variable of a real process.

#![allow(missing_docs)]

use entry_points::{EntryPoint, Group, LoadFailure, OptionError, OptionOrigin, OptionSpec, Options};

type Plugin = Vec<Option<String>>;

entry_points::group! {
    /// Stores, one of which has two packages.
    static STORES: [EntryPoint<Plugin>];
    fn stores() -> Group<Plugin> {
        Group::new("test.stores").noun("store").switches("TEST_STORE")
    }
}

entry_points::entry_points! {
    #[distributed_slice(STORES)]
    static NET: EntryPoint<Plugin> = EntryPoint::with_options("net", load, SPECS);
    #[distributed_slice(STORES)]
    static DISK: EntryPoint<Plugin> = EntryPoint::with_options(
        "disk",
        |options| Ok(Box::new(vec![options.get("path").map(str::to_owned)])),
        &[OptionSpec::new("path", "the path of a folder")],
    );
    #[distributed_slice(STORES)]
    static TWIN: EntryPoint<Plugin> =
        EntryPoint::with_options("twin", load, &[OptionSpec::new("left", "a number")]).in_package("left", "1.0.0");
    #[distributed_slice(STORES)]
    static OTHER_TWIN: EntryPoint<Plugin> =
        EntryPoint::with_options("twin", load, &[OptionSpec::new("right", "a number")]).in_package("right", "1.0.0");
    #[distributed_slice(STORES)]
    static PLAIN: EntryPoint<Plugin> = EntryPoint::new("plain", || Ok(Box::default()));
}

const SPECS: &[OptionSpec] = &[
    OptionSpec::new("servers", "addresses of the servers, separated by commas"),
    OptionSpec::new("copies", "a number of copies"),
];

fn load(options: &Options) -> Result<Box<Plugin>, LoadFailure> {
    let copies = options.parse::<u8>("copies")?;
    Ok(Box::new(vec![options.get("servers").map(str::to_owned), copies.map(|copies| copies.to_string())]))
}

fn some(values: &[Option<&str>]) -> Plugin {
    values.iter().map(|value| value.map(str::to_owned)).collect()
}

/// A group of its own with `net` and `plain`, in which nothing is set.
fn private() -> &'static Group<Plugin> {
    let group: &'static Group<Plugin> = Box::leak(Box::new(Group::new("test.private").noun("store")));
    group.register(&NET).unwrap();
    group.register(&PLAIN).unwrap();
    group
}

#[test]
fn an_entry_point_with_options_knows_them_and_its_path() {
    assert_eq!(NET.options(), SPECS);
    assert_eq!((NET.value(), DISK.value()), (Some("options::load"), Some("options::DISK")));
    assert_eq!((PLAIN.options().len(), PLAIN.value()), (0, Some("options::PLAIN")));
}

#[test]
fn load_gets_the_options_that_the_program_has_set() {
    assert_eq!(*private().load("net").unwrap(), some(&[None, None]));
    let group = private();
    group.set_option("net", "servers", "old").unwrap();
    group.set_option("net", "copies", "2").unwrap();
    group.set_option("net", "servers", String::from("a,b")).unwrap();
    assert_eq!(*group.load("net").unwrap(), some(&[Some("a,b"), Some("2")]));
    assert_eq!(*group.load("plain").unwrap(), some(&[]));
}

#[test]
fn an_unknown_option_is_an_error_that_lists_the_options_and_suggests_one() {
    let group = private();
    let net = format!("store `net` (entry-points {})", env!("CARGO_PKG_VERSION"));
    let list = "
the options are:
  servers  addresses of the servers, separated by commas
  copies   a number of copies";
    let error = group.set_option("net", "sevrers", "a").unwrap_err();
    let expected = format!("{net}: unknown option `sevrers`; did you mean `servers`?{list}");
    assert_eq!(error.to_string(), expected);
    assert_eq!(format!("{error:?}"), expected);
    let OptionError::UnknownOption { option, .. } = error else { panic!("{error}") };
    assert_eq!((option.asked(), option.nearest(), option.known()), ("sevrers", Some("servers"), SPECS));

    let error = group.set_option("net", "x\u{1b}", "a").unwrap_err();
    assert_eq!(error.to_string(), format!("{net}: unknown option `x\\u{{1b}}`{list}"));
    let error = group.set_option("plain", "servers", "a").unwrap_err();
    assert!(error.to_string().ends_with(": unknown option `servers`; there are no options"), "{error}");

    // Nothing was set.
    assert_eq!(*group.load("net").unwrap(), some(&[None, None]));
}

#[test]
fn an_option_of_an_unknown_name_is_the_error_of_a_look_up() {
    let error = private().set_option("nett", "servers", "a").unwrap_err();
    assert!(matches!(error, OptionError::Unknown(_)));
    assert_eq!(error.to_string(), private().load("nett").unwrap_err().to_string());
    assert!(error.to_string().starts_with("no store is called `nett`; did you mean `net`?\n"), "{error}");
}

#[test]
fn an_option_of_a_loaded_entry_is_an_error_that_says_so() {
    let group = private();
    group.load("net").unwrap();
    let error = group.set_option("net", "copies", "1").unwrap_err();
    assert!(matches!(error, OptionError::Loaded { .. }));
    assert!(
        error
            .to_string()
            .ends_with("is already loaded; set its option `copies` before the first use of its name"),
        "{error}"
    );
    assert_eq!(group.report().rows()[0].options, []);
}

#[test]
fn an_option_of_an_entry_that_is_loading_is_an_error() {
    static GROUP: Group<Plugin> = Group::new("test.within");
    static SETS: EntryPoint<Plugin> = EntryPoint::with_options(
        "sets",
        |options| {
            let error = GROUP.set_option("sets", "x", "1").unwrap_err();
            assert!(matches!(error, OptionError::Loading { .. }), "{error}");
            assert_eq!(options.get("x"), None);
            Ok(Box::default())
        },
        &[OptionSpec::new("x", "anything")],
    );
    GROUP.register(&SETS).unwrap();
    GROUP.load("sets").unwrap();
}

#[test]
fn an_option_can_be_set_again_after_a_failed_load_and_a_retry_uses_it() {
    let group = private();
    group.set_option("net", "copies", "two").unwrap();
    let error = group.load("net").unwrap_err();
    let invalid = "option copies=\"two\", set by the program, is invalid: expected a number of copies";
    assert!(error.to_string().ends_with(&format!("failed to load: {invalid}")), "{error}");
    assert!(format!("{error:?}").ends_with("\ncaused by: invalid digit found in string"), "{error:?}");
    group.set_option("net", "copies", "2").unwrap();
    assert_eq!(group.load("net").unwrap_err().to_string(), error.to_string(), "the failure is remembered");
    assert_eq!(*group.retry("net").unwrap(), some(&[None, Some("2")]));
}

#[test]
fn an_option_that_an_override_does_not_declare_is_an_error_of_loading() {
    static OTHER: EntryPoint<Plugin> = EntryPoint::new("net", || unreachable!("its options are invalid"));
    let group = private();
    group.set_option("net", "servers", "a").unwrap();
    group.register_override(&OTHER).unwrap();
    let error = group.load("net").unwrap_err();
    let unknown = "failed to load: unknown option `servers`, set by the program; there are no options";
    assert!(error.to_string().ends_with(unknown), "{error}");
}

#[test]
fn each_of_two_packages_with_one_name_can_have_its_options_set() {
    stores().set_option("twin", "left", "1").unwrap();
    stores().set_option("twin", "right", "1").unwrap();
    assert!(matches!(stores().set_option("twin", "middle", "1"), Err(OptionError::UnknownOption { .. })));
    let report = stores().report();
    let twins: Vec<_> = report.rows().iter().filter(|row| row.name == "twin").collect();
    let names: Vec<_> = twins.iter().map(|row| row.options[0].name()).collect();
    assert_eq!((names, twins[0].options.len()), (vec!["left", "right"], 1));
}

#[test]
fn a_report_shows_the_options_in_force_and_where_they_were_set() {
    let group = private();
    group.set_option("net", "copies", "2").unwrap();
    group.set_option("net", "servers", "a\nb").unwrap();
    let report = group.report();
    let options = &report.rows()[0].options;
    let facts: Vec<_> = options.iter().map(|one| (one.name(), one.as_str(), one.origin())).collect();
    assert_eq!(facts, [("servers", "a\nb", &OptionOrigin::Program), ("copies", "2", &OptionOrigin::Program)]);
    let line = "linked; options: servers=a\\nb (the program), copies=2 (the program)\n";
    assert!(report.to_string().contains(line), "{report}");
    group.load("net").unwrap();
    let report = group.report().to_string();
    let line = report.lines().find(|line| line.contains("net")).unwrap();
    assert!(line.contains("loaded in ") && line.ends_with(", copies=2 (the program)"), "{report}");
    assert!(report.ends_with("  linked"), "an entry without options shows none: {report}");
}

#[cfg(not(any(miri, target_family = "wasm")))]
mod of_a_variable {
    use std::process::Command;

    use entry_points::{LoadError, State, Switches};

    use super::*;

    /// Runs one test of this file again, alone in a process with the variable.
    fn in_a_child(test: &str, options: &[u8]) {
        #[cfg(unix)]
        let options: std::ffi::OsString = std::os::unix::ffi::OsStringExt::from_vec(options.to_vec());
        #[cfg(not(unix))]
        let options: std::ffi::OsString = str::from_utf8(options).unwrap().into();
        run_alone(test, "TEST_STORE_OPTIONS", &options);
    }

    fn run_alone(test: &str, variable: &str, value: &std::ffi::OsStr) {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args([test, "--exact", "--nocapture"]).env(variable, value);
        let output = command.output().unwrap();
        let stdout = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && stdout.contains("1 passed"), "{output:?}");
    }

    fn is_child() -> bool {
        std::env::var_os("TEST_STORE_OPTIONS").is_some()
    }

    #[test]
    fn a_variable_sets_options_and_the_program_overrides_them_one_by_one() {
        if !is_child() {
            let name = "of_a_variable::a_variable_sets_options_and_the_program_overrides_them_one_by_one";
            return in_a_child(name, b" net.servers = a:1,b:2 ;net.copies=2; disk.path=/tmp;");
        }
        // The switches come from the program then, and the options still from the variable.
        stores().configure(Switches::default()).unwrap();
        stores().set_option("net", "copies", "3").unwrap();
        let report = stores().report();
        let row = report.rows().iter().find(|row| row.name == "net").unwrap();
        assert_eq!(row.options[0].origin(), &OptionOrigin::Variable("TEST_STORE_OPTIONS".into()));
        let shown = "linked; options: servers=a:1,b:2 (TEST_STORE_OPTIONS), copies=3 (the program)\n";
        assert!(report.to_string().contains(shown), "{report}");
        assert_eq!(report.notes(), [""; 0]);
        assert_eq!(*stores().load("net").unwrap(), some(&[Some("a:1,b:2"), Some("3")]));
        assert_eq!(*stores().load("disk").unwrap(), some(&[Some("/tmp")]));
        // A group without the prefix does not read it, nor does one with another prefix.
        assert_eq!(*private().load("net").unwrap(), some(&[None, None]));
        // An entry that is registered later has its options too.
        static LATE: EntryPoint<Plugin> = EntryPoint::new("late", || Ok(Box::default()));
        stores().register(&LATE).unwrap();
        stores().load("late").unwrap();
    }

    #[test]
    fn a_misspelt_variable_is_a_note_although_the_program_sets_the_switches() {
        const MISSPELT: &str = "TEST_STORE_OPTION";
        if std::env::var_os(MISSPELT).is_none() {
            let name = "of_a_variable::a_misspelt_variable_is_a_note_although_the_program_sets_the_switches";
            return run_alone(name, MISSPELT, "net.copies=2".as_ref());
        }
        stores().configure(Switches::default()).unwrap();
        let note = "TEST_STORE_OPTION has no effect; did you mean TEST_STORE_OPTIONS?";
        assert_eq!(stores().report().notes(), [note]);
    }

    #[test]
    fn an_unknown_option_in_the_variable_is_the_error_of_its_entry_only() {
        if !is_child() {
            let name = "of_a_variable::an_unknown_option_in_the_variable_is_the_error_of_its_entry_only";
            return in_a_child(name, b"net.sevrers=a;net.copies=2;late.level=1;plain.x=1");
        }
        static LATE: EntryPoint<Plugin> = EntryPoint::new("late", || Ok(Box::default()));
        stores().register(&LATE).unwrap();
        let unknown = "unknown option `sevrers`, set by TEST_STORE_OPTIONS; did you mean `servers`?";
        let report = stores().report();
        assert_eq!(report.notes()[1], format!("store `net`: {unknown}"));
        assert_eq!(report.notes().len(), 3, "{report}");
        assert!(report.to_string().contains("linked; options: copies=2 (TEST_STORE_OPTIONS)\n"), "{report}");

        let error = stores().load("net").unwrap_err();
        let list = "\nthe options are:\n  servers  addresses of the servers, separated by commas\n  copies   a number of copies";
        let off = "TEST_STORE_DISABLE=net turns it off";
        assert!(error.to_string().ends_with(&format!(" failed to load: {unknown}{list}\n{off}")), "{error}");
        assert!(matches!(error, LoadError::Failed { .. }));
        assert!(matches!(stores().get("net").unwrap().state(), State::Failed { .. }));
        let report = stores().report().to_string();
        assert!(
            report.contains(&format!("failed: {unknown}…; options: copies=2 (TEST_STORE_OPTIONS)")),
            "{report}"
        );
        for name in ["plain", "late"] {
            let error = stores().load(name).unwrap_err().to_string();
            assert!(error.contains(", set by TEST_STORE_OPTIONS; there are no options"), "{error}");
        }
        assert_eq!(*stores().load("disk").unwrap(), some(&[None]));
    }

    #[test]
    fn pieces_of_the_variable_without_effect_stand_in_the_report() {
        if !is_child() {
            let name = "of_a_variable::pieces_of_the_variable_without_effect_stand_in_the_report";
            let not_utf8: &[u8] = if cfg!(unix) { b";disk.path=\xff" } else { b"" };
            return in_a_child(
                name,
                &[b"nett.servers=a;net.copies=1;copies;net.copies=2".as_slice(), not_utf8].concat(),
            );
        }
        let report = stores().report();
        let mut expected = vec![
            "`copies` in TEST_STORE_OPTIONS is ignored: expected `name.option=value`",
            "`net.copies=2` in TEST_STORE_OPTIONS takes the place of an earlier value: it sets net.copies twice",
        ];
        expected.extend(
            cfg!(unix).then_some("`disk.path=\\xFF` in TEST_STORE_OPTIONS is ignored: expected UTF-8"),
        );
        expected.push(
        "`nett.servers` in TEST_STORE_OPTIONS has no effect: no store is called `nett`; did you mean `net`?",
    );
        assert_eq!(report.notes(), expected);
        assert!(
            stores()
                .load("missing")
                .unwrap_err()
                .to_string()
                .contains("`nett.servers` in TEST_STORE_OPTIONS")
        );
        assert_eq!(*stores().load("net").unwrap(), some(&[None, Some("2")]));
        assert_eq!(*stores().load("disk").unwrap(), some(&[None]));
    }
}
