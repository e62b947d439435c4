//! A program that has the crate linked and does not use it; and then the first use, by many threads at once.
//!
//! One test, as it is about the process.
#![cfg(target_os = "linux")]

use std::collections::BTreeSet;
use std::sync::Barrier;
use std::thread;

use device_conformance::process::{libraries, threads};
use device_registry::{Device, backends, device};

device_registry::autoload!();

fn is_of_opencl(file: &str) -> bool {
    ["OpenCL", "pocl", "LLVM", "amdocl", "nvidia"].iter().any(|name| file.contains(name))
}

#[test]
fn nothing_is_opened_before_the_name_is_asked_for_and_then_all_threads_see_the_same() {
    assert!(backends().iter().any(|backend| backend.name() == "opencl"), "it is not linked");
    let (libraries_before, threads_before) = (libraries(), threads());
    assert!(!libraries_before.iter().any(|file| is_of_opencl(file)), "{libraries_before:?}");

    // Others are used, and `opencl` is named.
    device("cpu").unwrap().allocate(16).unwrap();
    assert!(Device::parse("opencl:0").is_ok());
    assert_eq!(libraries(), libraries_before);
    assert_eq!(threads(), threads_before);

    let barrier = Barrier::new(8);
    let counts: BTreeSet<_> = thread::scope(|scope| {
        let count = || {
            barrier.wait();
            let backend = backends().get("opencl").unwrap().load().map_err(|error| error.to_string())?;
            backend.device_count().map_err(|error| error.to_string())
        };
        let threads: Vec<_> = (0..8).map(|_| scope.spawn(count)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(counts.len(), 1, "{counts:?}");
    if device_conformance::device_or_skip("opencl").is_some() {
        assert!(matches!(counts.first(), Some(Ok(1..))), "{counts:?}");
        assert!(libraries().iter().any(|file| is_of_opencl(file)), "the test does not see libraries");
    }
}
