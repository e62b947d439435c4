//! An install that finds nothing is not a use of the group: the program may still set the switches.
#![cfg(feature = "load")]

mod common;

use device_plugin::Plugins;
use device_registry::backends;
use device_registry::registry::Switches;

#[test]
fn the_switches_can_be_set_after_an_install_that_finds_nothing() {
    let (_kept, path) = common::folder();
    let report = Plugins::new().folder(&path).install().unwrap();
    assert!(report.installed().is_empty(), "{report}");
    backends().configure(Switches::default()).unwrap();
}
