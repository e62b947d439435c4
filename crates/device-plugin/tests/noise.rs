//! Many malformed manifests do not fill every report of the group.
#![cfg(feature = "load")]

mod common;

use common::{folder, write};
use device_plugin::Plugins;
use device_registry::backends;

#[test]
fn of_many_skipped_manifests_the_group_notes_the_first_ones_and_the_number_of_the_others() {
    let (_kept, path) = folder();
    for number in 10..30 {
        write(&path.join(format!("{number}.plugin.json")), "");
    }
    let plugins = Plugins::new().folder(&path);
    let report = plugins.install().unwrap();
    plugins.install().unwrap();
    assert_eq!(report.skipped().len(), 20);
    let notes = backends().report().notes().to_vec();
    let notes: Vec<_> = notes.iter().filter(|note| note.contains("skipped")).collect();
    assert_eq!(notes.len(), 9, "{notes:?}");
    assert_eq!(*notes[7], report.skipped()[7].to_string());
    assert_eq!(notes[8], "12 more are skipped, which the report of `Plugins::install` lists");
}
