//! A program that has the crate linked and does not use it: no library is opened, and no thread is started.
//!
//! One test, as it is about the process. It runs on the simulated driver, so that something could be opened, and the test
//! sees it when it is.
#![cfg(target_os = "linux")]

use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use device_conformance::process::{libraries, threads};
use device_registry::{Device, backends, device};

mod child;

device_registry::autoload!();

fn has_driver(libraries: &[String]) -> bool {
    libraries.iter().any(|file| file.contains("libcuda.so"))
}

#[test]
fn nothing_is_opened_before_the_name_is_asked_for_and_then_all_threads_see_the_same() {
    const TEST: &str = "nothing_is_opened_before_the_name_is_asked_for_and_then_all_threads_see_the_same";
    if !child::is_this() {
        return child::passes(TEST, Some(&child::simulated()), &[]);
    }
    assert!(backends().iter().any(|backend| backend.name() == "cuda"), "it is not linked");
    let (libraries_before, threads_before) = (libraries(), threads());
    assert!(!has_driver(&libraries_before), "{libraries_before:?}");

    // Others are used, and `cuda` is named.
    device("cpu").unwrap().allocate(16).unwrap();
    assert!(Device::parse("cuda:0").is_ok());
    assert_eq!(libraries(), libraries_before);
    assert_eq!(threads(), threads_before);

    let barrier = Barrier::new(8);
    let counts: Vec<_> = thread::scope(|scope| {
        let count = || {
            barrier.wait();
            backends().load("cuda").unwrap().device_count().unwrap()
        };
        let threads: Vec<_> = (0..8).map(|_| scope.spawn(count)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(counts, [2; 8]);
    assert!(has_driver(&libraries()), "the test does not see libraries");
    // Counting and describing make no context and no stream.
    device("cuda:1").unwrap().properties().unwrap();
    // Those that were joined may be listed for a moment.
    let started = Instant::now();
    while threads() != threads_before {
        assert!(started.elapsed() < Duration::from_secs(10), "{:?}", threads());
        thread::sleep(Duration::from_millis(1));
    }
    device("cuda:1").unwrap().allocate(16).unwrap();
    assert!(
        threads().len() > threads_before.len(),
        "the test does not see threads: each simulated stream has one"
    );
}
