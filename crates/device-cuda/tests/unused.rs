//! A program that has the crate linked and does not use it: no library is opened, and no thread is started.
//!
//! The only test of this program, because it is about the whole process. It runs on the simulated driver. So
//! there is a driver to open, and the test sees it when it is open.
#![cfg(target_os = "linux")]

use device_conformance::process::{self, libraries, threads, wait_for_threads};
use device_conformance::testing::{count_from_many_threads, opens_nothing_before_its_first_use};
use device_registry::device;

mod child;

device_registry::autoload!();

fn is_driver(file: &str) -> bool {
    file.contains("libcuda.so")
}

#[test]
fn nothing_is_opened_before_the_first_use_and_then_all_threads_see_the_same() {
    const TEST: &str = "nothing_is_opened_before_the_first_use_and_then_all_threads_see_the_same";
    if !process::is_child() {
        return child::passes(TEST, Some(&child::simulated()), &[]);
    }
    opens_nothing_before_its_first_use("cuda", is_driver);
    let threads_before = threads();
    assert_eq!(count_from_many_threads("cuda"), Ok(2));
    assert!(libraries().iter().any(|file| is_driver(file)), "the test does not see libraries");

    // Counting and describing make no context and no stream.
    device("cuda:1").unwrap().properties().unwrap();
    wait_for_threads(|threads| threads == threads_before);
    device("cuda:1").unwrap().allocate(16).unwrap();
    assert!(
        threads().len() > threads_before.len(),
        "the test does not see threads: each simulated stream has one"
    );
}
