//! Manifests for groups that do not load, or that are off.
#![cfg(feature = "load")]

mod common;

use std::path::Path;

use common::{folder, manifest, write};
use device_plugin::Plugins;
use device_plugin::group::{FILE_GROUPS, FileGroupDescriptor, file_groups};
use device_registry::backend::LoadFailure;
use device_registry::registry::Switches;

entry_points::entry_points! {
    /// A group that lacks something.
    #[distributed_slice(FILE_GROUPS)]
    static LACKING: FileGroupDescriptor = FileGroupDescriptor::new("tests_lacking", || {
        Err(LoadFailure::new("it lacks something").with_source(std::io::Error::other("namely this")))
    });

    /// A group that panics.
    #[distributed_slice(FILE_GROUPS)]
    static PANICKING: FileGroupDescriptor = FileGroupDescriptor::new("tests_panicking", || panic!("at once"));

    /// A group that the program turns off.
    #[distributed_slice(FILE_GROUPS)]
    static OFF: FileGroupDescriptor = FileGroupDescriptor::new("tests_off", || panic!("it is off"));
}

#[test]
fn manifests_of_a_group_that_does_not_load_are_shown_with_the_cause() {
    file_groups().configure(Switches { disable: vec!["tests_off".into()], ..Switches::default() }).unwrap();
    let (_kept, path) = folder();
    for group in ["lacking", "panicking", "off", "unknown"] {
        let text = manifest("acme", Path::new("libacme.so"), "");
        let text = text.replace("device.backends", &format!("tests.{group}"));
        write(&path.join(format!("{group}.plugin.json")), text);
    }
    let report = Plugins::new().folder(&path).install().unwrap();
    assert!(report.installed().is_empty(), "{report}");
    let [lacking, panicking] = report.skipped() else { panic!("{report}") };
    for (skipped, name, cause) in [
        (lacking, "lacking", " failed to load: it lacks something"),
        (panicking, "panicking", " panicked while loading: at once"),
    ] {
        let causes = if name == "lacking" { " (caused by: namely this)" } else { "" };
        let cause = format!("{cause}; DEVICE_FILE_GROUPS_DISABLE=tests_{name} turns it off{causes}");
        assert!(skipped.what().ends_with(&format!("{name}.plugin.json")), "{report}");
        let begin = format!("its group does not load: file group `tests_{name}` ");
        assert!(skipped.reason().starts_with(&begin), "{report}");
        assert!(skipped.reason().ends_with(&cause), "{report}");
        // It is in the report of the backends too, which support tools print.
        let note = skipped.to_string();
        assert!(device_registry::backends().report().to_string().contains(&note), "{note}");
    }
}
