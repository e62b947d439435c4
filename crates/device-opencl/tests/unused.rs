//! A program that has the crate linked and does not use it; and then the first use, by many threads at once.
//!
//! The only test of this program, because it is about the whole process.
#![cfg(target_os = "linux")]

use device_conformance::device_or_skip;
use device_conformance::process::libraries;
use device_conformance::testing::{count_from_many_threads, opens_nothing_before_its_first_use};

device_registry::autoload!();

fn is_driver(file: &str) -> bool {
    ["OpenCL", "pocl", "LLVM", "amdocl", "nvidia"].iter().any(|name| file.contains(name))
}

#[test]
fn nothing_is_opened_before_the_first_use_and_then_all_threads_see_the_same() {
    opens_nothing_before_its_first_use("opencl", is_driver);
    let count = count_from_many_threads("opencl");
    if device_or_skip("opencl").is_some() {
        assert!(matches!(count, Ok(1..)), "{count:?}");
        assert!(libraries().iter().any(|file| is_driver(file)), "the test does not see libraries");
    }
}
