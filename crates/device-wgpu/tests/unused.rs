//! Linked, and not asked for. A program of its own, as any use changes what it looks for.

#![cfg(target_os = "linux")]

use std::time::{Duration, Instant};
use std::{fs, thread};

device_registry::autoload!();

/// The libraries of GPUs that the process has opened.
fn libraries() -> Vec<String> {
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    let files = maps.lines().filter_map(|line| line.split_whitespace().nth(5));
    let names = ["libvulkan", "libEGL", "libGL", "VkLayer"];
    let mut found: Vec<String> =
        files.filter(|file| names.iter().any(|name| file.contains(name))).map(str::to_owned).collect();
    found.dedup();
    found
}

fn threads() -> Vec<String> {
    let tasks = fs::read_dir("/proc/self/task").unwrap();
    let names = tasks.map(|task| fs::read_to_string(task.unwrap().path().join("comm")).unwrap());
    names.map(|name| name.trim().to_owned()).collect()
}

#[test]
fn a_program_that_does_not_ask_for_it_has_no_library_and_no_thread_of_it() {
    let before = threads();
    assert!(device_registry::backends().get("wgpu").is_some(), "it is linked");
    let listed = device_registry::backends().report().to_string();
    assert!(listed.contains("wgpu"), "{listed}");
    device_registry::device("wgpu:0").unwrap();
    assert_eq!(libraries(), [""; 0]);
    assert_eq!(threads(), before);

    // What was looked for is there once it is asked for.
    let Some(device) = device_conformance::device_or_skip("wgpu") else { return };
    assert!(libraries().iter().any(|library| library.contains("libvulkan")), "{:?}", libraries());
    // A thread gives itself its name.
    let polls = || threads().contains(&"wgpu:0 reads".to_owned());
    let started = Instant::now();
    while !polls() {
        assert!(started.elapsed() < Duration::from_secs(10), "{:?}", threads());
        thread::sleep(Duration::from_millis(1));
    }
    device.close().unwrap();
    assert!(!polls(), "it ends with the device: {:?}", threads());
}
