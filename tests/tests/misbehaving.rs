//! One broken backend harms only itself. They are all in one program: `probe`.

use std::process::Command;

use device_registry::registry::Switches;

fn probe(arguments: &[&str]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_probe"));
    for variable in Switches::variables("DEVICE_BACKEND") {
        command.env_remove(variable);
    }
    let output = command.args(arguments).output().expect("the probe starts");
    let stdout = String::from_utf8(output.stdout).expect("the probe prints UTF-8");
    assert!(output.status.success(), "{stdout}{}", String::from_utf8_lossy(&output.stderr));
    stdout
}

/// The text that a use of `device` prints, after uses of all other broken backends in the same process.
fn after_all_others(device: &str) -> String {
    let all = ["absent", "aged", "empty", "failing", "panicking", "recursive", "treacherous", "twin", device];
    let out = probe(&[&["use"], &all[..]].concat());
    let prefix = format!("{device}: ");
    let at = out.rfind(&format!("\n{prefix}")).expect("the device was used last");
    out[at + 1 + prefix.len()..].trim_end().to_owned()
}

#[test]
fn the_sound_ones_go_on_working() {
    assert_eq!(after_all_others("steady"), "ok on steady:0");
    assert_eq!(after_all_others("cpu"), "ok on cpu");
}

#[test]
fn an_unavailable_backend_says_why() {
    assert_eq!(
        after_all_others("absent"),
        "error: backend `absent` (device-registry-tests 0.1.0) is unavailable: no driver: looked for \
         libabsent.so.1"
    );
}

#[test]
fn a_backend_that_fails_to_load_says_so() {
    assert!(
        after_all_others("failing").ends_with(
            "failed to load: the firmware is too old; DEVICE_BACKEND_DISABLE=failing turns it off"
        )
    );
}

#[test]
fn a_backend_that_panics_in_load_is_an_error() {
    assert!(after_all_others("panicking").ends_with(
        "panicked while loading: a bug in the backend; DEVICE_BACKEND_DISABLE=panicking turns it off"
    ));
}

#[test]
fn a_backend_that_uses_itself_while_loading_gets_an_error_with_the_cycle() {
    let error = after_all_others("recursive");
    assert!(error.contains("recursive -> recursive"), "{error}");
}

#[test]
fn a_backend_that_panics_when_counting_its_devices_is_an_error() {
    let error = after_all_others("treacherous");
    assert!(error.contains("cannot count"), "{error}");
}

#[test]
fn a_backend_without_devices_says_so() {
    assert_eq!(after_all_others("empty"), "error: unknown device index 0: `empty` has no devices");
}

#[test]
fn two_packages_with_one_name_are_both_named() {
    let error = after_all_others("twin");
    assert!(error.contains("is offered by device-castor 2.0.0 and device-twin 1.0.0"), "{error}");
}

#[test]
fn two_versions_of_one_package_point_to_cargo_tree() {
    let error = after_all_others("aged");
    assert!(error.contains("device-aged 0.1.0 and device-aged 0.2.0"), "{error}");
    assert!(error.contains("see `cargo tree -d`"), "{error}");
}

#[test]
fn a_backend_that_calls_itself_cpu_is_listed_as_a_duplicate_and_never_loaded() {
    assert_eq!(probe(&["use", "cpu"]), "cpu: ok on cpu\n");
    let report = probe(&["report"]);
    let row = report.lines().find(|line| line.contains("device-impostor")).expect("it is listed");
    assert!(row.ends_with("duplicate of the built-in `cpu`"), "{row}");
}

#[test]
fn the_report_has_the_state_of_each_backend() {
    let report = probe(&["use", "absent", "failing", "panicking", "recursive", "steady", "then", "report"]);
    for (name, state) in [
        ("absent", "unavailable: no driver: looked for libabsent.so.1"),
        ("empty", "linked"),
        ("failing", "failed: the firmware is too old: version 3, not 4"),
        ("panicking", "failed: panicked: a bug in the backend"),
        ("recursive", "failed: backend `recursive`"),
        ("steady", "loaded in "),
    ] {
        let row = report.lines().find(|line| line.starts_with(&format!("  {name} "))).expect(name);
        let (_, found) = row.split_once("0.1.0    ").expect("the state follows the version");
        assert!(found.starts_with(state), "{row}");
    }
}
