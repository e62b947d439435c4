//! Nothing is left behind: counters are where they began, and the process is no larger.

#![cfg(target_os = "linux")]

use device_conformance::process;
use device_openreg::{OpenRegMemory, locate};
use device_registry::{Buffer, Device, Fault, MemoryStatistics, device};

use crate::child::CHILD;

mod child;

device_registry::autoload!();

/// Room that an allocator of the host may take or keep.
const SOME: usize = 32 << 20;

/// The memory of this process that is in use, in bytes.
fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<usize>().unwrap() << 10
}

fn count(folder: &str) -> usize {
    std::fs::read_dir(folder).unwrap().count()
}

/// Counters that must not grow: memory in use, by the devices and by the core, open files and threads.
#[derive(Clone, Debug, PartialEq)]
struct Counters {
    used: Vec<u64>,
    live: Vec<(u64, u64)>,
    files: usize,
    threads: usize,
}

fn counters(devices: &[Device]) -> Counters {
    let used = |device: &Device| {
        let memory = device.memory_info().unwrap();
        memory.total.unwrap() - memory.free.unwrap()
    };
    let live = |device: &Device| {
        let MemoryStatistics { allocated, live, .. } = device.memory_statistics().unwrap();
        (allocated, live)
    };
    Counters {
        used: devices.iter().map(used).collect(),
        live: devices.iter().map(live).collect(),
        files: count("/proc/self/fd"),
        threads: count("/proc/self/task"),
    }
}

/// The counters once they are as expected, or after four seconds. Threads of dropped streams end without a
/// wait.
fn settled(devices: &[Device], expected: &Counters) -> Counters {
    for _ in 0..200 {
        let now = counters(devices);
        if now == *expected {
            return now;
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    counters(devices)
}

/// Runs `work` in its own process, and fails if it leaks.
fn leaves_nothing(test: &str, work: impl Fn([Device; 2])) {
    if !process::is_child() {
        return CHILD.passes(test, &[]);
    }
    let devices = ["openreg:0", "openreg:1"].map(|name| device(name).unwrap());
    for device in devices {
        // The first use creates what stays, such as the default stream.
        let buffer = device.allocate(1).unwrap();
        device.current_stream().unwrap().fill(&buffer, 0..1, &[1]).unwrap();
        buffer.read(0, &mut [0]).unwrap();
    }
    let (before, size) = (counters(&devices), resident());
    assert_eq!((before.used.as_slice(), before.live.as_slice()), (&[0, 0][..], &[(0, 0); 2][..]));
    work(devices);
    assert_eq!(settled(&devices, &before), before);
    let grown = resident().saturating_sub(size);
    // Each device may keep the pages of this much freed memory.
    assert!(grown < 2 * (256 << 20) + SOME, "{} MiB are left", grown >> 20);
}

fn address(buffer: &Buffer) -> *const u8 {
    buffer.span().unwrap().memory_as::<OpenRegMemory>().unwrap().address()
}

/// As many bytes of both as the shorter has.
fn fitting(source: &Buffer, destination: &Buffer) -> [Buffer; 2] {
    let len = source.len().min(destination.len());
    [source, destination].map(|buffer| buffer.slice(..len).unwrap())
}

#[test]
fn large_allocations_that_are_made_again_and_again_leave_nothing() {
    const LEN: usize = 50 << 20;
    leaves_nothing("large_allocations_that_are_made_again_and_again_leave_nothing", |devices| {
        let bytes = vec![3; LEN];
        for round in 0..50 {
            devices[round % 2].allocate(LEN).unwrap().write(0, &bytes).unwrap();
        }
    });
}

#[test]
fn allocations_of_all_sizes_leave_nothing() {
    leaves_nothing("allocations_of_all_sizes_leave_nothing", |devices| {
        for round in 0..200 {
            let buffers: Vec<Buffer> =
                (0..20).map(|power| devices[round % 2].allocate((1 << power) + round).unwrap()).collect();
            buffers.iter().for_each(|buffer| buffer.write(0, &vec![1; buffer.len()]).unwrap());
        }
    });
}

#[test]
fn allocations_that_fail_leave_nothing() {
    leaves_nothing("allocations_that_fail_leave_nothing", |devices| {
        for round in 0..10_000 {
            assert!(devices[round % 2].allocate((1 << 30) + 1 + round).is_err());
        }
    });
}

#[test]
fn a_million_allocations_copies_and_events_leave_nothing() {
    const ROUNDS: usize = 200_000;
    leaves_nothing("a_million_allocations_copies_and_events_leave_nothing", |devices| {
        let streams = devices.map(|device| device.create_stream().unwrap());
        let mut held: Vec<Option<Buffer>> = vec![None; 500];
        let (mut allocations, mut copies, mut events) = (0, 0, 0);
        for round in 0..ROUNDS {
            let (device, stream) = (devices[round % 2], &streams[round % 2]);
            let [buffer, other] = [37, 91].map(|step| device.allocate(1 + round * step % 5000).unwrap());
            allocations += 2;
            // A copy now, and one later, from the one or the other device in turns.
            if let Some(source) = &held[round * 7 % 500] {
                let [source, other] = fitting(source, &other);
                stream.copy(&source, &other).unwrap();
                copies += 1;
            }
            let [source, destination] = fitting(&other, &buffer);
            destination.copy_from(&source).unwrap();
            copies += 1;
            let event = stream.record().unwrap();
            events += 1;
            if round % 16 == 0 {
                streams[(round + 1) % 2].wait_event(&event).unwrap();
            }
            held[round % 500] = Some(buffer);
            if round % 256 == 0 {
                event.synchronize().unwrap();
            }
        }
        assert!(allocations + copies + events >= 999_000, "{allocations} {copies} {events}");
        let address = held[0].as_ref().map(address).unwrap();
        drop(held);
        devices.into_iter().for_each(|device| device.synchronize().unwrap());
        assert_eq!(locate(address), None);
    });
}

#[test]
fn streams_that_are_dropped_leave_no_thread() {
    leaves_nothing("streams_that_are_dropped_leave_no_thread", |devices| {
        for round in 0..500 {
            let (device, stream) = (devices[round % 2], devices[round % 2].create_stream().unwrap());
            let buffer = device.allocate(100).unwrap();
            stream.fill(&buffer, 0..100, &[1]).unwrap();
            stream.read(&buffer, 0..100).unwrap().wait().unwrap();
        }
    });
}

#[test]
fn work_that_fails_or_is_skipped_leaves_nothing() {
    leaves_nothing("work_that_fails_or_is_skipped_leaves_nothing", |devices| {
        let stream = devices[0].create_stream().unwrap();
        for _ in 0..1000 {
            let buffer = devices[0].allocate(10_000).unwrap();
            devices[0].faults().and_then(|faults| faults.inject(Fault::FailCopy { nth: 1 })).unwrap();
            for _ in 0..3 {
                stream.fill(&buffer, 0..10_000, &[1]).unwrap();
            }
            let read = stream.read(&buffer, 0..10_000).unwrap();
            assert!(stream.synchronize().is_err() && read.wait().is_err());
        }
    });
}

/// How many mappings of the memory of `openreg:0` there are. A device that is open has two.
fn mappings() -> usize {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    maps.lines().filter(|line| line.contains("memfd:openreg:0")).count()
}

#[test]
fn a_device_that_is_closed_or_reset_gives_its_memory_back_with_the_last_of_what_is_held() {
    const TEST: &str = "a_device_that_is_closed_or_reset_gives_its_memory_back_with_the_last_of_what_is_held";
    if !process::is_child() {
        return CHILD.passes(TEST, &[]);
    }
    let device = device("openreg:0").unwrap();
    for lost in [false, true, false] {
        let held = device.allocate(100).unwrap();
        let stream = device.default_stream().unwrap();
        stream.fill(&held, .., &[1]).unwrap();
        stream.synchronize().unwrap();
        assert_eq!(mappings(), 2);
        let address = address(&held);
        if lost {
            device.faults().and_then(|faults| faults.inject(Fault::LoseDevice { nth: 1 })).unwrap();
            held.fill(.., &[2]).unwrap_err();
            device.reset().unwrap();
        } else {
            device.close().unwrap();
        }
        assert_eq!(mappings(), 2, "the program still holds a buffer");
        assert!(held.read(0, &mut [0; 100]).is_err());
        assert!(held.span().unwrap().memory_as::<OpenRegMemory>().unwrap().bytes().is_err());
        assert_eq!(locate(address).map(|found| found.len), Some(100));
        drop(held);
        assert_eq!(mappings(), 0);
        assert_eq!(locate(address), None);
        // The stream is still there.
        drop(stream);
    }
}
