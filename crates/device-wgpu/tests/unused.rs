//! A program that has the crate linked and does not use it, and then its first use.
//!
//! The only test of this program, because it is about the whole process.

#![cfg(target_os = "linux")]

use device_conformance::device_or_skip;
use device_conformance::process::{libraries, wait_for_threads};
use device_conformance::testing::opens_nothing_before_its_first_use;

device_registry::autoload!();

fn is_driver(file: &str) -> bool {
    ["libvulkan", "libEGL", "libGL", "VkLayer"].iter().any(|name| file.contains(name))
}

#[test]
fn nothing_is_opened_before_the_first_use() {
    opens_nothing_before_its_first_use("wgpu", is_driver);

    let Some(device) = device_or_skip("wgpu") else { return };
    assert!(libraries().iter().any(|file| file.contains("libvulkan")), "{:?}", libraries());
    let reads = "wgpu:0 reads".to_owned();
    wait_for_threads(|threads| threads.contains(&reads));
    device.close().unwrap();
    wait_for_threads(|threads| !threads.contains(&reads));
}
