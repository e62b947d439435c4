//! Switches and options below the environment, as a configuration file sets them.

use std::process::Command;

use entry_points::by_name::{self, Effect};
use entry_points::{
    Defaults, DefaultsError, EntryPoint, Group, LoadError, OptionSpec, Options, Switches, groups,
};

type Level = String;

const OPTIONS: &[OptionSpec] =
    &[OptionSpec::new("level", "a number"), OptionSpec::new("order", "`up` or `down`")];

fn level(options: &Options) -> Result<Box<Level>, entry_points::LoadFailure> {
    Ok(Box::new(format!("{:?}", options.parse::<u8>("level")?)))
}

static HIGH: EntryPoint<Level> = EntryPoint::with_options("high", level, OPTIONS).in_package("a", "0.1.0");
static LOW: EntryPoint<Level> = EntryPoint::with_options("low", level, OPTIONS).in_package("a", "0.1.0");

fn with_both(group: &'static Group<Level>) -> &'static Group<Level> {
    group.register(&HIGH).unwrap();
    group.register(&LOW).unwrap();
    group
}

#[test]
fn defaults_come_before_the_first_use_once_and_not_beside_switches_in_code() {
    static USED: Group<Level> = Group::new("test.used");
    static CONFIGURED: Group<Level> = Group::new("test.configured");
    static TWICE: Group<Level> = Group::new("test.twice");
    let some = || Defaults::new().disable(["low"], "f.toml:3");

    with_both(&USED);
    let error = USED.set_defaults(some()).unwrap_err();
    assert!(matches!(error, DefaultsError::InUse { group: "test.used", .. }));
    assert_eq!(
        error.to_string(),
        "test.used is already in use; set its defaults before the first look-up, listing or registration"
    );
    assert!(USED.load("low").is_ok(), "nothing was set");

    CONFIGURED.configure(Switches::default()).unwrap();
    let error = CONFIGURED.set_defaults(some()).unwrap_err().to_string();
    assert_eq!(error, "the program sets the switches of test.configured in code, by `Group::configure`");

    TWICE.set_defaults(some()).unwrap();
    let error = TWICE.set_defaults(some()).unwrap_err().to_string();
    assert_eq!(error, "test.twice has defaults already, from f.toml:3");
    let error = TWICE.configure(Switches::default()).unwrap_err().to_string();
    assert_eq!(
        error,
        "test.twice has its switches from f.toml:3; set them there, in the environment, or in code alone"
    );
    assert!(with_both(&TWICE).load("low").is_err(), "the first ones hold");
}

#[test]
fn what_a_default_disables_names_its_origin() {
    static GROUP: Group<Level> = Group::new("test.origins");
    GROUP.set_defaults(Defaults::new().disable(["l*", "nosuch"], "/etc/f.toml:3")).unwrap();
    with_both(&GROUP);
    let LoadError::Disabled { by, .. } = GROUP.load("low").unwrap_err() else { panic!() };
    assert_eq!(&*by, "/etc/f.toml:3 (disable = [\"l*\", \"nosuch\"])");
    let note = "the pattern `nosuch` in /etc/f.toml:3 (disable = [\"l*\", \"nosuch\"]) matches nothing";
    assert_eq!(GROUP.report().notes(), [note]);
}

#[test]
fn an_option_of_a_default_is_used_and_the_program_replaces_it() {
    static GROUP: Group<Level> = Group::new("test.options_of_defaults").noun("level");
    let defaults = Defaults::new()
        .option("high", "level", "1", "f:1")
        .option("high", "level", "7", "f:4")
        .option("low", "level", "many", "f:5")
        .option("hihg", "level", "7", "f:6")
        .option("low", "levle", "7", "f:7");
    GROUP.set_defaults(defaults).unwrap();
    with_both(&GROUP);
    assert_eq!(*GROUP.load("high").unwrap(), "Some(7)");
    let report = GROUP.report().to_string();
    assert!(report.contains("options: level=7 (f:4)"), "{report}");
    assert!(
        report.contains("`hihg.level` in f:6 has no effect: no level is called `hihg`; did you mean `high`?")
    );
    let error = GROUP.load("low").unwrap_err().to_string();
    let start =
        "level `low` (a 0.1.0) failed to load: unknown option `levle`, set by f:7; did you mean `level`?";
    assert!(error.starts_with(start), "{error}");

    let effect = |name: &str, option: &str| by_name::effect_of_option(GROUP.name(), name, option);
    assert_eq!(effect("high", "level"), Effect::InForce);
    let Effect::UnknownOption(unknown) = effect("low", "levle") else { panic!() };
    assert!(unknown.to_string().starts_with("unknown option `levle`; did you mean `level`?\n"), "{unknown}");
    assert_eq!(effect("hihg", "level"), Effect::UnknownName { noun: "level", nearest: Some("high") });
    GROUP.set_option("low", "level", "9").unwrap();
    assert_eq!(effect("low", "level"), Effect::Replaced { by: "the program".to_owned() });
}

#[test]
fn an_invalid_value_names_its_origin() {
    static GROUP: Group<Level> = Group::new("test.invalid_default");
    GROUP.set_defaults(Defaults::new().option("low", "level", "many", "f:5")).unwrap();
    let error = with_both(&GROUP).load("low").unwrap_err().to_string();
    assert!(error.ends_with("option level=\"many\", set by f:5, is invalid: expected a number"), "{error}");
}

mod declared {
    entry_points::group! {
        /// The test is its first use.
        pub static LEVELS: [entry_points::EntryPoint<String>];
        pub fn levels() -> Group<String> {
            entry_points::Group::new("test.declared").switches("TEST_DECLARED")
        }
    }
}

#[test]
fn a_variable_goes_before_each_default_by_itself() {
    let group = declared::levels();
    if std::env::var_os("TEST_DECLARED_DISABLE").is_none() {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["a_variable_goes_before_each_default_by_itself", "--exact"]);
        command.env("TEST_DECLARED_DISABLE", "high").env("TEST_DECLARED_AUTOLOAD", "");
        command.env("TEST_DECLARED_OPTIONS", "low.level=3; none.x=1");
        let output = command.output().unwrap();
        let stdout = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && stdout.contains("1 passed"), "{output:?}");
        return;
    }
    // Its name is known, and it is not used.
    assert!(by_name::names().contains(&"test.declared"));
    assert_eq!(by_name::accepts_defaults("test.declared"), Ok(()));
    let defaults = Defaults::new()
        .autoload(false, "f:1")
        .disable(["low"], "f:2")
        .option("low", "level", "9", "f:3")
        .option("low", "order", "up", "f:4")
        .option("none", "x", "2", "f:5");
    by_name::set_defaults("test.declared", &defaults).unwrap();
    with_both(group);
    assert!(group.load("high").unwrap_err().to_string().ends_with("disabled by TEST_DECLARED_DISABLE=high"));
    assert_eq!(*group.load("low").unwrap(), "Some(3)");
    let report = groups().get("test.declared").unwrap().to_string();
    assert!(report.contains("options: level=3 (TEST_DECLARED_OPTIONS), order=up (f:4)"), "{report}");
    let notes = report.lines().filter(|line| line.contains("`none.x`")).count();
    assert_eq!(notes, 1, "what a variable replaces is not spoken of: {report}");
    let replaced = |by: &str| Effect::Replaced { by: by.to_owned() };
    let switch = |switch| by_name::effect_of_switch("test.declared", switch);
    assert_eq!(switch("disable"), replaced("TEST_DECLARED_DISABLE=high"));
    assert_eq!(switch("autoload"), Effect::InForce);
    let option = |option| by_name::effect_of_option("test.declared", "low", option);
    assert_eq!(option("level"), replaced("TEST_DECLARED_OPTIONS"));
    assert_eq!(option("order"), Effect::InForce);
}
