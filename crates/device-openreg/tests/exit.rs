//! A program ends while its devices are at work: with its own exit code, at once, and without a crash.

use std::time::{Duration, Instant};

use device_conformance::process;
use device_registry::{Device, Fault, device};

use crate::child::CHILD;

mod child;

device_registry::autoload!();

fn openreg() -> Device {
    device("openreg").unwrap()
}

/// Ends within a child that has begun `work`, with an exit code that nothing else has.
fn ends_with_work_in_flight(test: &str, work: impl FnOnce()) {
    const CODE: i32 = 42;
    if process::is_child() {
        work();
        std::process::exit(CODE);
    }
    let start = Instant::now();
    let output = CHILD.again(test, &[]);
    assert_eq!(output.status.code(), Some(CODE), "{output:?}");
    assert!(start.elapsed() < Duration::from_secs(30));
}

#[test]
fn a_program_ends_while_a_host_call_runs() {
    ends_with_work_in_flight("a_program_ends_while_a_host_call_runs", || {
        let stream = openreg().create_stream().unwrap();
        stream.host_call(|| std::thread::sleep(Duration::from_secs(3600))).unwrap();
        let buffer = openreg().allocate(100).unwrap();
        stream.fill(&buffer, 0..100, &[1]).unwrap();
        drop(stream.read(&buffer, 0..100).unwrap());
    });
}

#[test]
fn a_program_ends_while_copies_run() {
    ends_with_work_in_flight("a_program_ends_while_copies_run", || {
        const LEN: usize = 64 << 20;
        let (first, second) = (openreg().allocate(LEN).unwrap(), openreg().allocate(LEN).unwrap());
        for _ in 0..4 {
            let stream = openreg().create_stream().unwrap();
            for _ in 0..200 {
                stream.copy(&first, &second).unwrap();
            }
        }
    });
}

#[test]
fn a_program_ends_while_its_device_stalls() {
    ends_with_work_in_flight("a_program_ends_while_its_device_stalls", || {
        let buffer = openreg().allocate(100).unwrap();
        openreg().faults().and_then(|faults| faults.inject(Fault::Stall { nth: 1 })).unwrap();
        let stream = openreg().create_stream().unwrap();
        stream.fill(&buffer, 0..100, &[1]).unwrap();
        while stream.query().unwrap() {}
    });
}
