//! The options and the environment variables that set the devices.

use device_conformance::process;
use device_registry::{backends, device, device_count, devices};

use crate::child::CHILD;

mod child;

device_registry::autoload!();

const TEST: &str = "variables_set_the_devices";

/// What a child with these variables prints of the devices of `openreg`.
fn printed(variables: &[(&str, &str)]) -> String {
    let output = CHILD.again(TEST, variables);
    assert!(output.status.success(), "{variables:?}: {output:?}");
    let stdout = String::from_utf8(output.stdout).unwrap();
    let (_, devices) = stdout.lines().find_map(|line| line.split_once("DEVICES ")).expect("it prints a line");
    devices.to_owned()
}

fn description() -> String {
    let (_, devices) = devices().find(|(backend, _)| backend.name() == "openreg").unwrap();
    match devices {
        Ok(devices) => {
            let total = |device: &device_registry::Device| device.memory_info().unwrap().total.unwrap();
            format!("{:?}", devices.iter().map(total).collect::<Vec<_>>())
        }
        Err(error) => error.to_string(),
    }
}

#[test]
fn variables_set_the_devices() {
    if process::is_child() {
        println!("DEVICES {}", description());
        return;
    }
    assert_eq!(printed(&[]), "[1073741824, 1073741824]");
    assert_eq!(
        printed(&[("OPENREG_DEVICES", "3"), ("OPENREG_MEMORY", "64MiB")]),
        "[67108864, 67108864, 67108864]"
    );
    assert_eq!(printed(&[("OPENREG_MEMORY", "4KiB,1MiB")]), "[4096, 1048576]");
    assert_eq!(printed(&[("OPENREG_DEVICES", "0")]), "[]");
    for (name, value, part) in [
        (
            "OPENREG_DEVICES",
            "many",
            "OPENREG_DEVICES=\"many\" is invalid: expected a number of devices from 0 to 65536",
        ),
        ("OPENREG_MEMORY", "1GB", "OPENREG_MEMORY=\"1GB\" is invalid: expected "),
        ("OPENREG_SLOW", "fast", "OPENREG_SLOW=\"fast\" is invalid: expected "),
        ("OPENREG_STALL", "0", "OPENREG_STALL=\"0\" is invalid: expected "),
    ] {
        let error = printed(&[(name, value)]);
        assert!(error.contains("openreg") && error.contains(part), "{error}");
    }
}

#[test]
fn options_take_precedence_over_variables() {
    let test = "options_take_precedence_over_variables";
    let variables = [
        ("DEVICE_BACKEND_OPTIONS", "openreg.devices=4; openreg.memory=4KiB"),
        ("OPENREG_DEVICES", "3"),
        ("OPENREG_MEMORY", "8KiB"),
    ];
    if !process::is_child() {
        return CHILD.passes(test, &variables);
    }
    backends().set_option("openreg", "memory", "64KiB").unwrap();
    let report = backends().report().to_string();
    let options = "linked; options: devices=4 (DEVICE_BACKEND_OPTIONS), memory=64KiB (the program)";
    assert!(report.contains(options), "{report}");
    assert_eq!(description(), "[65536, 65536, 65536, 65536]");
    let error = backends().set_option("openreg", "devices", "1").unwrap_err().to_string();
    assert!(error.contains("is already loaded"), "{error}");
}

#[test]
fn a_program_can_correct_an_option_of_the_environment_after_a_failed_load() {
    let test = "a_program_can_correct_an_option_of_the_environment_after_a_failed_load";
    if !process::is_child() {
        return CHILD.passes(test, &[("DEVICE_BACKEND_OPTIONS", "openreg.devices=many")]);
    }
    let error = device_count("openreg").unwrap_err().to_string();
    let expected = "failed to load: option devices=\"many\", set by DEVICE_BACKEND_OPTIONS, is invalid: expected a \
                    number of devices from 0 to 65536";
    assert!(error.contains(expected), "{error}");
    backends().set_option("openreg", "devices", "3").unwrap();
    assert!(device_count("openreg").is_err(), "a failure is remembered");
    assert!(backends().retry("openreg").is_ok());
    assert_eq!(device_count("openreg").unwrap(), 3);
}

#[test]
fn an_option_that_openreg_does_not_have_is_its_error_and_no_other_backends() {
    let test = "an_option_that_openreg_does_not_have_is_its_error_and_no_other_backends";
    if !process::is_child() {
        return CHILD.passes(test, &[("DEVICE_BACKEND_OPTIONS", "openreg.device=4")]);
    }
    let error = device("openreg").unwrap().allocate(1).unwrap_err().to_string();
    let expected =
        "unknown option `device`, set by DEVICE_BACKEND_OPTIONS; did you mean `devices`?\nthe options are:\n";
    assert!(error.contains(expected) && error.contains("\n  fail_copy        the number of"), "{error}");
    assert!(device("cpu").unwrap().allocate(1).is_ok());
}

#[test]
fn variables_are_read_once() {
    if !process::is_child() {
        return CHILD.passes("variables_are_read_once", &[("OPENREG_DEVICES", "1")]);
    }
    assert!(backends().load("openreg").is_ok());
    // SAFETY: no other thread of this process uses the environment: it runs only this test.
    unsafe { std::env::set_var("OPENREG_DEVICES", "4") };
    assert_eq!(device_count("openreg").unwrap(), 1);
}

#[test]
#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
fn there_can_be_more_memory_than_the_machine_has() {
    if !process::is_child() {
        return CHILD.passes("there_can_be_more_memory_than_the_machine_has", &[("OPENREG_MEMORY", "1TiB")]);
    }
    let buffer = device("openreg").unwrap().allocate(1 << 39).unwrap();
    buffer.write((1 << 39) - 3, b"end").unwrap();
    let mut bytes = [0; 4];
    buffer.read((1 << 39) - 4, &mut bytes).unwrap();
    assert_eq!(&bytes, b"\0end");
}

#[test]
#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
fn memory_that_cannot_be_addressed_is_an_error_of_opening() {
    if !process::is_child() {
        let variables = [("OPENREG_MEMORY", "1000000TiB,4KiB")];
        return CHILD.passes("memory_that_cannot_be_addressed_is_an_error_of_opening", &variables);
    }
    let error = device("openreg:0").unwrap().allocate(1).unwrap_err().to_string();
    assert!(
        error.contains("`openreg:0`") && error.contains("open: unavailable: the system refuses"),
        "{error}"
    );
    assert!(device("openreg:1").unwrap().allocate(1).is_ok());
}
