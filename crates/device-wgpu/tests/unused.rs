//! Linked, and not asked for. A program of its own, as any use changes what it looks for.

#![cfg(target_os = "linux")]

use std::thread;
use std::time::{Duration, Instant};

use device_conformance::process::{self, threads};

device_registry::autoload!();

/// The libraries of GPUs that the process has opened.
fn libraries() -> Vec<String> {
    let names = ["libvulkan", "libEGL", "libGL", "VkLayer"];
    let is_of_gpus = |file: &String| names.iter().any(|name| file.contains(name));
    process::libraries().into_iter().filter(is_of_gpus).collect()
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
    // A thread gives itself its name, and one that was joined may be listed for a moment.
    let comes_to_poll = |polls: bool| {
        let started = Instant::now();
        while threads().contains(&"wgpu:0 reads".to_owned()) != polls {
            assert!(started.elapsed() < Duration::from_secs(10), "{:?}", threads());
            thread::sleep(Duration::from_millis(1));
        }
    };
    comes_to_poll(true);
    device.close().unwrap();
    comes_to_poll(false);
}
