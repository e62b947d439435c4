//! The switches as a user sets them: real variables of a real process.

use std::ffi::OsStr;
use std::process::Command;

use device_registry::registry::Switches;

/// The stdout of `probe` with these variables.
fn probe<V: AsRef<OsStr>>(variables: &[(&str, V)], arguments: &[&str]) -> String {
    let (stdout, _) = probe_both(variables, arguments);
    stdout
}

fn probe_both<V: AsRef<OsStr>>(variables: &[(&str, V)], arguments: &[&str]) -> (String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_probe"));
    command.args(arguments);
    for variable in Switches::variables("DEVICE_BACKEND") {
        command.env_remove(variable);
    }
    for (name, value) in variables {
        command.env(format!("DEVICE_BACKEND_{name}"), value);
    }
    let output = command.output().expect("the probe starts");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("the probe prints UTF-8");
    let (stdout, stderr) = (text(output.stdout), text(output.stderr));
    assert!(output.status.success(), "{stdout}{stderr}");
    (stdout, stderr)
}

const NONE: &[(&str, &str)] = &[];

/// The stdout of `probe use auto`, with this default selection.
fn auto(default: &str) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_probe"));
    let output =
        command.args(["use", "auto"]).env("DEVICE_DEFAULT", default).output().expect("the probe starts");
    String::from_utf8(output.stdout).expect("the probe prints UTF-8")
}

#[test]
fn the_default_selection_is_what_auto_means() {
    for (default, printed) in [
        ("failing,absent,steady,cpu", "auto: ok on steady:0\n"),
        ("steady:gpu,cpu", "auto: ok on cpu\n"),
        ("auto", "auto: error: DEVICE_DEFAULT: invalid device string `auto`: `auto` stands for this list"),
        ("cpu,stedy:gqu", "auto: error: DEVICE_DEFAULT: invalid item `stedy:gqu`, at character 5 of "),
        ("absent", "auto: error: none of these devices can be used:"),
        ("", "auto: error: `auto` is the list of devices in the variable DEVICE_DEFAULT, which is not set"),
    ] {
        let out = auto(default);
        assert!(out.starts_with(printed), "{default}: {out}");
    }
}

/// The program does not link `device-trace`.
#[test]
fn a_variable_of_a_crate_that_is_not_linked_is_noted() {
    let observers = |variable: &str, value: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_probe"));
        let output = command.arg("observers").env(variable, value).output().expect("the probe starts");
        String::from_utf8(output.stdout).expect("the probe prints UTF-8")
    };
    for variable in ["DEVICE_TRACE", "DEVICE_TRACE_ON_OOM", "DEVICE_FLIGHT_RECORDER"] {
        let expected = format!(
            "{variable} is set, and has no effect: this program does not link `device-trace`, which reads it"
        );
        let report = observers(variable, "1");
        assert!(report.contains(&expected), "{report}");
        assert!(!observers(variable, "").contains(variable));
    }
}

#[test]
fn without_variables_everything_sound_works() {
    assert_eq!(probe(NONE, &["use", "steady", "cpu"]), "steady: ok on steady:0\ncpu: ok on cpu\n");
}

#[test]
fn every_spelling_of_autoload() {
    for (value, on) in [
        ("0", false),
        ("false", false),
        ("FALSE", false),
        ("no", false),
        (" off ", false),
        ("1", true),
        ("true", true),
        ("Yes", true),
        ("on", true),
        ("", true),
        ("2", true),
        ("disabled", true),
    ] {
        let out = probe(&[("AUTOLOAD", value)], &["use", "steady", "cpu"]);
        let expected = if on {
            "steady: ok on steady:0\n".to_owned()
        } else {
            format!(
                "steady: error: backend `steady` (device-registry-tests 0.1.0) is disabled by \
                 DEVICE_BACKEND_AUTOLOAD={value}\n"
            )
        };
        assert_eq!(out, format!("{expected}cpu: ok on cpu\n"), "{value:?}");
    }
}

#[test]
fn a_spelling_that_is_neither_on_nor_off_stands_in_the_report() {
    let report = probe(&[("AUTOLOAD", "nope")], &["report"]);
    assert!(
        report
            .contains("note: DEVICE_BACKEND_AUTOLOAD=\"nope\" is invalid and counts as on: expected 1, true"),
        "{report}"
    );
    // The error for an unknown name shows it too, as it may be the cause.
    let error = probe(&[("AUTOLOAD", "nope")], &["use", "openrag"]);
    assert!(error.contains("DEVICE_BACKEND_AUTOLOAD=\"nope\""), "{error}");
}

#[test]
fn every_pair_of_switches() {
    let (ok, auto, disable, select) =
        ("ok on steady:0", "AUTOLOAD=0", "DISABLE=st*", "SELECT=other, which does not match it");
    for (variables, linked, registered) in [
        (vec![("AUTOLOAD", "0")], auto, ok),
        (vec![("DISABLE", "st*")], disable, disable),
        (vec![("SELECT", "steady")], ok, ok),
        (vec![("SELECT", "other")], select, select),
        (vec![("AUTOLOAD", "0"), ("DISABLE", "st*")], auto, disable),
        (vec![("AUTOLOAD", "0"), ("SELECT", "steady")], auto, ok),
        (vec![("DISABLE", "st*"), ("SELECT", "steady")], ok, ok),
        (vec![("DISABLE", "st*"), ("SELECT", "other")], disable, disable),
        (vec![("AUTOLOAD", "0"), ("DISABLE", "st*"), ("SELECT", "steady")], auto, ok),
    ] {
        for (arguments, expected) in
            [(&["use", "steady"][..], linked), (&["register", "use", "steady"][..], registered)]
        {
            let (out, err) = probe_both(&variables, arguments);
            assert!(out.trim_end().ends_with(expected), "{variables:?} {arguments:?}: {out}");
            // A disabled backend's code is never run: its `load` would say so.
            let loads = err.matches("steady: loaded").count();
            assert_eq!(loads, usize::from(expected == ok), "{variables:?} {arguments:?}: {err}");
        }
    }
}

#[test]
fn a_package_pattern_is_the_remedy_for_a_duplicate() {
    let error = probe(NONE, &["use", "twin"]);
    let remedy = "DEVICE_BACKEND_DISABLE=device-castor/twin";
    assert!(
        error.contains("backend `twin` is offered by device-castor 2.0.0 and device-twin 1.0.0"),
        "{error}"
    );
    assert!(error.contains(remedy), "{error}");
    let (_, pattern) = remedy.split_once('=').unwrap();
    assert_eq!(probe(&[("DISABLE", pattern)], &["use", "twin"]), "twin: ok on twin:0\n");
}

#[test]
fn the_cpu_cannot_be_disabled() {
    for variables in [[("DISABLE", "*")], [("DISABLE", "cpu")], [("SELECT", "steady")], [("AUTOLOAD", "0")]] {
        assert_eq!(probe(&variables, &["use", "cpu"]), "cpu: ok on cpu\n", "{variables:?}");
    }
}

#[test]
fn a_pattern_that_matches_nothing_stands_in_the_report() {
    let report = probe(&[("DISABLE", "cuda*,steady")], &["report"]);
    assert!(
        report.contains("note: the pattern `cuda*` in DEVICE_BACKEND_DISABLE=cuda*,steady matches nothing"),
        "{report}"
    );
    assert!(!report.contains("pattern `steady`"), "{report}");
}

#[cfg(unix)]
#[test]
fn a_value_that_is_not_utf8_is_ignored_and_reported() {
    use std::os::unix::ffi::OsStrExt;
    for variable in ["AUTOLOAD", "DISABLE", "SELECT"] {
        let value = OsStr::from_bytes(b"steady\xff*");
        let out = probe(&[(variable, value)], &["use", "steady"]);
        assert_eq!(out, "steady: ok on steady:0\n", "{variable}");
        let report = probe(&[(variable, value)], &["report"]);
        assert!(
            report.contains(&format!("DEVICE_BACKEND_{variable} is ignored: expected UTF-8")),
            "{report}"
        );
    }
}

#[test]
fn what_is_disabled_has_no_place_among_the_devices() {
    let all = probe(NONE, &["devices"]);
    assert!(all.contains("steady: 1 devices") && all.contains("cpu: 1 devices"), "{all}");
    let (rest, stderr) = probe_both(&[("DISABLE", "steady")], &["devices"]);
    assert!(!rest.contains("steady") && rest.contains("openreg: 2 devices"), "{rest}");
    assert_eq!(stderr, "", "its code is not run");
}

#[test]
fn disabling_the_cpu_has_no_effect_and_says_so() {
    let report = probe(&[("DISABLE", "cpu")], &["report"]);
    assert!(
        report.contains(
            "`cpu` in DEVICE_BACKEND_DISABLE=cpu matches a built-in name, which cannot be disabled"
        ),
        "{report}"
    );
}

#[test]
fn a_misspelt_variable_is_a_note_in_the_report() {
    let report = probe(&[("DISABEL", "steady")], &["report"]);
    let note = "note: DEVICE_BACKEND_DISABEL has no effect; did you mean DEVICE_BACKEND_DISABLE?";
    assert!(report.contains(note), "{report}");
}

#[test]
fn a_misspelt_variable_of_any_crate_is_a_note_in_the_report() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_probe"));
    for name in ["DEVICE_MEMORY_RESUE", "DEVICE_KERNELS_DISABEL", "DEVICE_TRACES"] {
        command.env(name, "1");
    }
    let output = command.arg("report").env("DEVICE_MINE", "1").output().expect("the probe starts");
    let report = String::from_utf8(output.stdout).expect("the probe prints UTF-8");
    for note in [
        "note: DEVICE_MEMORY_RESUE has no effect; did you mean DEVICE_MEMORY_REUSE?",
        "note: DEVICE_KERNELS_DISABEL has no effect; did you mean DEVICE_KERNELS_DISABLE?",
        "note: DEVICE_TRACES has no effect; did you mean DEVICE_TRACE?",
    ] {
        assert!(report.contains(note), "{report}");
    }
    assert!(!report.contains("DEVICE_MINE"), "{report}");
}

#[test]
fn listing_and_reporting_load_nothing() {
    let (out, err) = probe_both(NONE, &["list", "report"]);
    assert!(out.starts_with("absent aged cpu empty failing"), "{out}");
    assert_eq!(err, "");
}
