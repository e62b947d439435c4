//! Each layer between the core and a backend passes on each function of a driver. Most have a default, with
//! which a layer that lacks them compiles, and says that the device does not support them.

use std::fs;

use device_registry_tests::workspace;

const CORE: &str = "crates/device-registry/src/backend";
const VALIDATION: &str = "crates/device-registry/src/runtime/validation";
const LOAD: &str = "crates/device-plugin/src/load";
const EXPORT: &str = "crates/device-plugin/src/export";

/// The file and the name of a trait, and the files that pass its functions on: each with those that it does
/// not, and why.
type Trait = (&'static str, &'static str, &'static [(&'static str, &'static str, &'static [&'static str])]);

const TRAITS: [Trait; 4] = [
    ("mod.rs", "Backend", &[(LOAD, "backend.rs", &[]), (EXPORT, "backend.rs", &[])]),
    (
        "driver.rs",
        "DeviceDriver",
        &[
            (VALIDATION, "device.rs", &[]),
            (LOAD, "device.rs", &[]),
            // Values of Rust's own types stay in their library, and faults are injected by options.
            (EXPORT, "device.rs", &["native", "faults"]),
        ],
    ),
    (
        "stream_driver.rs",
        "StreamDriver",
        &[
            (VALIDATION, "stream.rs", &[]),
            (LOAD, "stream.rs", &[]),
            // The interface calls it `wait`.
            (EXPORT, "stream.rs", &["native", "wait_event"]),
        ],
    ),
    (
        "event_driver.rs",
        "EventDriver",
        &[(VALIDATION, "stream.rs", &[]), (LOAD, "event.rs", &[]), (EXPORT, "event.rs", &[])],
    ),
];

fn read(folder: &str, file: &str) -> String {
    fs::read_to_string(workspace().join(folder).join(file)).expect("it is there")
}

/// The names of the functions of a text.
fn functions(text: &str) -> Vec<&str> {
    let names = text.split("fn ").skip(1).map(|rest| rest.split(['(', '<']).next().unwrap_or_default());
    names.filter(|name| !name.is_empty() && !name.contains(char::is_whitespace)).collect()
}

/// The functions of a trait of the core.
fn functions_of<'a>(core: &'a str, name: &str) -> Vec<&'a str> {
    let (_, body) = core.split_once(&format!("pub trait {name}:")).expect("it is there");
    functions(body.split_once("\n}").expect("it ends").0)
}

/// The functions that a layer neither passes on nor is excused from.
fn missing<'a>(wanted: &[&'a str], layer: &str, excused: &[&str]) -> Vec<&'a str> {
    let has = functions(layer);
    wanted.iter().copied().filter(|name| !has.contains(name) && !excused.contains(name)).collect()
}

#[test]
fn each_layer_passes_on_each_function_of_a_driver() {
    for (file, name, layers) in TRAITS {
        let core = read(CORE, file);
        let wanted = functions_of(&core, name);
        assert!(wanted.len() > 3, "{name}: {wanted:?}");
        for (folder, file, excused) in layers {
            let layer = read(folder, file);
            let missing = missing(&wanted, &layer, excused);
            assert!(missing.is_empty(), "{folder}/{file} does not pass on these of `{name}`: {missing:?}");
            let has = functions(&layer);
            for name in *excused {
                assert!(!has.contains(name), "{folder}/{file} passes on `{name}`: it needs no excuse");
            }
        }
    }
}

#[test]
fn a_function_that_is_not_passed_on_is_found() {
    let core = "pub trait Driver: Send {\n    fn write(&self);\n    fn read<T>(&self) {}\n    fn launched(&self) {}\n}\nfn other() {}";
    let wanted = functions_of(core, "Driver");
    assert_eq!(wanted, ["write", "read", "launched"]);
    assert_eq!(missing(&wanted, "fn write() {}\nfn launch() {}", &["read"]), ["launched"]);
}
