//! Each viewer of the activity of devices says what it does with each kind of record. The enums of the core
//! are open, so that the compiler accepts a viewer that drops a new kind.

use std::fs;

use device_registry_tests::workspace;

/// The viewers and the page of the enum itself, with the enums of which they name each variant.
/// `flight_recorder.rs` prints what it does not know as well.
const VIEWERS: [(&str, &[&str]); 6] = [
    ("crates/device-registry/src/activity.rs", &["Activity"]),
    ("crates/device-trace/src/chrome.rs", &["Activity", "Work"]),
    ("crates/device-trace/src/events.rs", &["Activity"]),
    ("crates/device-trace/src/memory.rs", &["Activity"]),
    ("integrations/onnxruntime/src/profiler.rs", &["Activity", "Work"]),
    ("integrations/torch/src/activity.rs", &["Activity", "Work"]),
];

fn read(path: &str) -> String {
    fs::read_to_string(workspace().join(path)).expect("it is there")
}

/// The variants of an enum of the core.
fn variants<'a>(core: &'a str, name: &str) -> Vec<&'a str> {
    let (_, body) = core.split_once(&format!("pub enum {name} {{\n")).expect("it is there");
    let (body, _) = body.split_once("\n}").expect("it ends");
    let lines = body.lines().filter_map(|line| line.strip_prefix("    "));
    let variants = lines.filter(|line| line.starts_with(|c: char| c.is_ascii_uppercase()));
    variants.map(|line| line.split([' ', '(', ',']).next().unwrap_or_default()).collect()
}

/// The variants that a viewer does not name.
fn unnamed<'a>(viewer: &str, name: &str, variants: &[&'a str]) -> Vec<&'a str> {
    let is_named = |variant: &str| {
        viewer.match_indices(&format!("{name}::{variant}")).any(|(at, found)| {
            let behind = viewer[at + found.len()..].chars().next();
            behind.is_none_or(|c| !c.is_alphanumeric())
        })
    };
    variants.iter().copied().filter(|variant| !is_named(variant)).collect()
}

#[test]
fn each_viewer_names_each_kind_of_record() {
    let core = read("crates/device-registry/src/runtime/activity/record.rs");
    assert_eq!(variants(&core, "Clock"), ["Host", "Noticed", "Device"]);
    for (path, enums) in VIEWERS {
        let viewer = read(path);
        for name in enums {
            let variants = variants(&core, name);
            assert!(variants.len() > 8, "{variants:?}");
            let unnamed = unnamed(&viewer, name, &variants);
            assert!(unnamed.is_empty(), "{path} drops these of `{name}` without a word: {unnamed:?}");
        }
    }
}

#[test]
fn a_kind_that_a_viewer_does_not_name_is_found() {
    let viewer = "match a { Activity::Closed | Activity::LostAll => {} _ => {} }";
    assert_eq!(unnamed(viewer, "Activity", &["Closed", "Lost", "LostAll", "Reset"]), ["Lost", "Reset"]);
}
