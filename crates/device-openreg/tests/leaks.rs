//! Nothing is left behind: counters are where they began, and the process is no larger.

#![cfg(target_os = "linux")]

use device_openreg::{OpenRegMemory, locate};
use device_registry::{Buffer, Device, device};

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

/// What must not grow: memory in use on the devices, open files and threads.
fn counters(devices: &[Device]) -> (Vec<u64>, usize, usize) {
    let used = |device: &Device| {
        let memory = device.memory_info().unwrap();
        memory.total.unwrap() - memory.free.unwrap()
    };
    (devices.iter().map(used).collect(), count("/proc/self/fd"), count("/proc/self/task"))
}

/// Runs `work` in a process of its own, and fails if anything of it is left.
fn leaves_nothing(test: &str, work: impl Fn([Device; 2])) {
    if !child::is_this() {
        return child::passes(test, &[]);
    }
    let devices = ["openreg:0", "openreg:1"].map(|name| device(name).unwrap());
    for device in devices {
        device.allocate(1).unwrap();
    }
    let (before, size) = (counters(&devices), resident());
    assert_eq!(before.0, [0, 0]);
    work(devices);
    assert_eq!(counters(&devices), before);
    let grown = resident().saturating_sub(size);
    // What is freed may keep its pages, but for so much on each device.
    assert!(grown < 2 * (32 << 20) + SOME, "{} MiB are left", grown >> 20);
}

fn address(buffer: &Buffer) -> *const u8 {
    buffer.span().unwrap().memory_as::<OpenRegMemory>().unwrap().address()
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
fn a_million_allocations_and_copies_leave_nothing() {
    const MANY: usize = 500_000;
    leaves_nothing("a_million_allocations_and_copies_leave_nothing", |devices| {
        let mut held: Vec<Option<Buffer>> = vec![None; 500];
        let mut copies = 0;
        for round in 0..MANY {
            let buffer = devices[round % 2].allocate(1 + round * 37 % 5000).unwrap();
            // From the one or the other device, in turns.
            if let Some(source) = &held[round * 7 % 500] {
                let len = source.len().min(buffer.len());
                buffer.copy_from(0, source, 0..len).unwrap();
                copies += 1;
            }
            held[round % 500] = Some(buffer);
        }
        assert!(copies > MANY - 1000);
        let address = held[0].as_ref().map(address).unwrap();
        drop(held);
        assert_eq!(locate(address), None);
    });
}
