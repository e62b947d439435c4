//! The cache of freed memory, on devices that count what their driver allocates and frees.

use std::process::Command;
use std::sync::atomic::Ordering;
use std::sync::mpsc;
use std::thread;

use device_registry::backend::{BackendError, MemoryReuse};
use device_registry::{BackendErrorKind, Buffer, Device, DeviceError, Fault};

use crate::fake::{Control, Moment, create, properties};
use crate::{begin, outcome, statistics};

const MIB: usize = 1 << 20;

/// How much memory a device has.
const CAPACITY: usize = 62 * MIB;

fn caching() -> (Device, &'static Control) {
    let (device, control) = create(false, properties().with_memory_reuse(MemoryReuse::Rounded));
    control.capacity.store(CAPACITY, Ordering::SeqCst);
    (device, control)
}

/// The address of a buffer's memory.
fn place(buffer: &Buffer) -> *const u8 {
    std::ptr::from_ref(buffer.span().unwrap().memory()).cast()
}

#[test]
fn freed_memory_is_given_out_again() {
    let (device, control) = caching();
    let first = device.allocate(10_000).unwrap();
    first.write(0, b"mine").unwrap();
    let before = place(&first);
    drop(first);
    for len in [10_000, 9_500, 10_240] {
        let again = device.allocate(len).unwrap();
        assert_eq!((again.len(), place(&again)), (len, before));
        let now = statistics(device);
        assert_eq!((now.allocated, now.active, now.cached), (len as u64, 10_240, 0));
        let mut bytes = [0; 4];
        again.read(0, &mut bytes).unwrap();
        assert_eq!(&bytes, b"mine", "its content is unspecified, and is this program's own");
        assert!(matches!(again.write(len - 1, b"ab"), Err(DeviceError::OutOfRange { .. })));
    }
    assert_eq!(control.calls(), (1, 0));
    let now = statistics(device);
    assert_eq!((now.allocated, now.live, now.active, now.cached, now.reserved), (0, 0, 0, 10_240, 10_240));
    assert_eq!((now.reused, now.peak_reserved, now.peak), (3, 10_240, 10_240));
    device.empty_cache().unwrap();
    assert_eq!(control.calls(), (1, 1));
    assert_eq!(statistics(device).reserved, 0);
}

#[test]
fn small_memory_passes_by_a_cache_of_large_memory() {
    let (device, control) = create(false, properties().with_memory_reuse(MemoryReuse::Large { from: 4096 }));
    control.capacity.store(CAPACITY, Ordering::SeqCst);
    for round in 1..4 {
        let (small, large) = (device.allocate(4095).unwrap(), device.allocate(4097).unwrap());
        assert_eq!(control.calls(), (1 + round, round - 1), "the large one is allocated once");
        let now = statistics(device);
        assert_eq!((now.allocated, now.active, now.reserved), (4095 + 4097, 4095 + 4608, 4095 + 4608));
        drop((small, large));
        let now = statistics(device);
        assert_eq!((now.live, now.active, now.cached, now.reserved), (0, 0, 4608, 4608));
    }
    let now = statistics(device);
    assert_eq!((now.reused, now.peak_reserved), (2, 4095 + 4608));
    let _all_but_little = device.allocate(CAPACITY - 4096).unwrap();
    assert_eq!(statistics(device).peak_reserved, (CAPACITY - 4096) as u64);
    drop(device.allocate(4095).unwrap());
    assert_eq!(statistics(device).peak_reserved, CAPACITY as u64 - 1);
}

#[test]
fn a_full_device_empties_its_cache_for_small_memory_too() {
    let (device, control) = create(false, properties().with_memory_reuse(MemoryReuse::Large { from: 4096 }));
    control.capacity.store(8192, Ordering::SeqCst);
    drop(device.allocate(8192).unwrap());
    assert_eq!((statistics(device).cached, control.calls()), (8192, (1, 0)));
    let _small = device.allocate(100).unwrap();
    assert_eq!((statistics(device).retries, statistics(device).reserved, control.calls()), (1, 100, (2, 1)));
}

#[test]
fn the_cpu_uses_large_memory_again_and_its_bytes_are_the_programs_own() {
    const LEN: usize = 3 * MIB + 5;
    let cpu = Device::cpu();
    let first = cpu.allocate(LEN).unwrap();
    first.fill(.., b"m").unwrap();
    let before = place(&first);
    drop(first);
    let again = cpu.allocate(LEN - 1).unwrap();
    assert_eq!((place(&again), again.len()), (before, LEN - 1));
    let mut bytes = vec![0; LEN - 1];
    again.read(0, &mut bytes).unwrap();
    assert!(bytes.iter().all(|byte| *byte == b'm'));
}

#[test]
fn memory_that_queued_work_uses_is_not_given_out() {
    let (device, control) = caching();
    let (stream, buffer) = (device.create_stream().unwrap(), device.allocate(MIB).unwrap());
    let (release, released) = mpsc::channel::<()>();
    stream.host_call(move || released.recv().unwrap_or(())).unwrap();
    stream.write(&buffer, 0, vec![7; MIB]).unwrap();
    drop(buffer);
    let other = device.allocate(MIB).unwrap();
    assert_eq!(control.calls(), (2, 0));
    drop(release);
    stream.synchronize().unwrap();
    let again = device.allocate(MIB).unwrap();
    assert_eq!(control.calls(), (2, 0), "the work is done");
    assert_ne!(place(&again), place(&other));
}

#[test]
fn a_full_device_empties_its_cache_before_it_fails() {
    let (device, control) = caching();
    let blocks: Vec<_> = (0..6).map(|_| device.allocate(10 * MIB).unwrap()).collect();
    drop(blocks);
    assert_eq!(statistics(device).cached, 60 << 20);
    // The cache makes room before it calls the driver, except for a block of 10 MiB, with which the device is
    // too full.
    let large = device.allocate(56 * MIB).unwrap();
    assert_eq!(control.calls(), (7, 6));
    let now = statistics(device);
    assert_eq!((now.retries, now.cached, now.reserved), (1, 0, 56 << 20));
    let error = device.allocate(56 * MIB).unwrap_err();
    let asked = BackendErrorKind::OutOfMemory { asked: 56 << 20, free: Some(6 << 20) };
    assert_eq!(error.kind(), Some(asked), "{error}");
    drop(large);
    // Rounded up to 64 MiB it would be more than the device has.
    let most = device.allocate(CAPACITY - 1).unwrap();
    assert_eq!(statistics(device).reserved, CAPACITY as u64 - 1);
    let error = device.allocate(100).unwrap_err();
    assert_eq!(error.kind(), Some(BackendErrorKind::OutOfMemory { asked: 100, free: Some(1) }));
    drop(most);
    device.allocate(56 * MIB).unwrap();
    assert_eq!(statistics(device).retries, 1);
}

#[test]
fn a_limit_of_zero_turns_it_off() {
    let (device, control) = caching();
    drop(device.allocate(5000).unwrap());
    device.set_cache_limit(0).unwrap();
    assert_eq!(control.calls(), (1, 1));
    (0..3).for_each(|_| drop(device.allocate(5000).unwrap()));
    assert_eq!((control.calls(), statistics(device).cached), ((4, 4), 0));
    device.set_cache_limit(u64::MAX).unwrap();
    (0..3).for_each(|_| drop(device.allocate(5000).unwrap()));
    assert_eq!(control.calls(), (5, 4));
}

#[test]
fn a_close_and_a_loss_give_everything_back() {
    let (device, control) = caching();
    let kept = device.allocate(5000).unwrap();
    drop(device.allocate(9000).unwrap());
    device.close().unwrap();
    assert_eq!(control.calls(), (2, 1));
    drop(kept);
    assert_eq!(control.calls(), (2, 2), "a closed device keeps nothing");

    let kept = device.allocate(5000).unwrap();
    drop(device.allocate(9000).unwrap());
    // The driver's thread may not call the driver: the next call that may frees the memory.
    control.report(BackendError::lost("unplugged"));
    drop(kept);
    device.reset().unwrap();
    drop(device.allocate(100).unwrap());
    let (allocated, freed) = control.calls();
    assert_eq!(
        (allocated, freed, statistics(device).cached),
        (5, 4, 512),
        "the cached one is the new device's"
    );
}

#[test]
fn a_loss_wakes_waiting_threads_before_it_frees_what_is_cached() {
    let (device, control) = caching();
    let (stream, buffer) = (device.create_stream().unwrap(), device.allocate(5000).unwrap());
    drop(device.allocate(9000).unwrap());
    let (release, released) = mpsc::channel::<()>();
    stream.host_call(move || released.recv().unwrap_or(())).unwrap();
    let event = stream.record().unwrap();
    let waits = begin(move || event.synchronize().unwrap_err().kind());
    let (free, may_free) = mpsc::channel::<()>();
    control.on(Moment::Free, move || may_free.recv().unwrap_or(()));
    control.fail(BackendError::lost("unplugged"));
    let loses = begin(move || buffer.read(0, &mut [0]).unwrap_err());
    assert_eq!(outcome(waits), Some(BackendErrorKind::Lost), "the event's thread");
    drop((free, release));
    outcome(loses);
}

#[test]
fn memory_is_kept_by_a_thread_that_may_not_call_the_driver() {
    let (device, control) = caching();
    let (stream, buffer) = (device.create_stream().unwrap(), device.allocate(5000).unwrap());
    let before = place(&buffer) as usize;
    stream.host_call(move || drop(buffer)).unwrap();
    stream.synchronize().unwrap();
    assert_eq!(place(&device.allocate(5000).unwrap()) as usize, before);
    assert_eq!(control.calls(), (1, 0));
}

#[test]
fn memory_that_other_code_holds_is_not_given_out() {
    let (device, control) = caching();
    control.holds_memory.store(true, Ordering::SeqCst);
    let before = place(&device.allocate(5000).unwrap());
    assert_ne!(place(&device.allocate(5000).unwrap()), before);
    assert_eq!((control.calls(), statistics(device).reserved), ((2, 0), 0));
    control.release_memory();
    assert_eq!(control.calls(), (2, 2));
}

#[test]
fn eight_threads_never_share_memory_and_it_stays_flat() {
    let (device, control) = caching();
    thread::scope(|scope| {
        for id in 0..8_u8 {
            scope.spawn(move || {
                let stream = device.create_stream().unwrap();
                for round in 0..500_usize {
                    let len = 1 + (round * 7919 + usize::from(id) * 104_729) % 40_000;
                    let buffer = device.allocate(len).unwrap();
                    stream.fill(&buffer, .., &[id]).unwrap();
                    let read = stream.read(&buffer, ..).unwrap();
                    drop(buffer);
                    let bytes = read.wait().unwrap();
                    assert!(bytes.iter().all(|&byte| byte == id), "another thread had the memory");
                }
                stream.synchronize().unwrap();
            });
        }
    });
    let now = statistics(device);
    assert_eq!((now.allocated, now.live), (0, 0));
    assert!(now.reused > 2000 && now.reserved <= (16 << 20), "{now:?}");
    device.empty_cache().unwrap();
    let (allocated, freed) = control.calls();
    assert_eq!((allocated, control.in_use()), (freed, 0));
}

#[test]
fn lengths_without_a_block_go_to_the_driver() {
    let (device, control) = caching();
    for len in [usize::MAX, isize::MAX as usize, isize::MAX as usize - 1] {
        let error = device.allocate(len).unwrap_err();
        assert!(matches!(error.kind(), Some(BackendErrorKind::OutOfMemory { .. })), "{error}");
    }
    assert!(device.allocate(0).unwrap().is_empty());
    assert_eq!((control.calls(), statistics(device).reserved), ((0, 0), 0));
    // A device that is not open has nothing to give back.
    caching().0.empty_cache().unwrap();
    Device::cpu().empty_cache().unwrap();
}

/// What a process does in which the variable turns the cache off.
#[test]
#[ignore = "runs in a process of its own, of the test below"]
fn without_reuse() {
    let (device, control) = caching();
    (0..3).for_each(|_| drop(device.allocate(5000).unwrap()));
    assert_eq!((control.calls(), statistics(device).cached), ((3, 3), 0));
}

#[test]
fn a_variable_turns_it_off_and_another_value_is_an_error() {
    let run = |value| {
        let mut test = Command::new(std::env::current_exe().unwrap());
        test.args(["--exact", "memory_cache::without_reuse", "--ignored", "--nocapture"]);
        let output = test.env("DEVICE_MEMORY_REUSE", value).env("RUST_BACKTRACE", "0").output().unwrap();
        (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let (passed, printed) = run("0");
    assert!(passed, "{printed}");
    let (passed, printed) = run("never");
    assert!(!passed && printed.contains("invalid DEVICE_MEMORY_REUSE"), "{printed}");
}

#[test]
fn while_faults_are_injected_each_allocation_is_one_of_the_drivers() {
    let (device, control) = caching();
    let faults = device.faults().unwrap();
    drop(device.allocate(40 * MIB).unwrap());
    assert_eq!(control.calls(), (1, 0));
    faults.inject(Fault::FailAllocation { nth: 2 }).unwrap();
    assert_eq!(control.calls(), (1, 1), "freed memory would leave too little for the driver");
    let kept = device.allocate(40 * MIB).unwrap();
    let error = device.allocate(5000).unwrap_err();
    assert_eq!(error.kind(), Some(BackendErrorKind::OutOfMemory { asked: 5000, free: None }));
    assert!(error.to_string().contains("injected"), "{error}");
    drop(kept);
    drop(device.allocate(5000).unwrap());
    drop(device.allocate(5000).unwrap());
    assert_eq!((control.calls(), statistics(device).live), ((4, 4), 0));
    faults.clear().unwrap();
    drop(device.allocate(5000).unwrap());
    drop(device.allocate(5000).unwrap());
    assert_eq!(control.calls(), (5, 4), "it is given out again");
}

#[test]
fn memory_that_is_freed_while_faults_are_injected_goes_back_to_the_driver() {
    let (device, control) = caching();
    let faults = device.faults().unwrap();
    let buffer = device.allocate(40 * MIB).unwrap();
    faults.inject(Fault::FailAllocation { nth: 100 }).unwrap();
    drop(buffer);
    assert_eq!(control.calls(), (1, 1));
    drop(device.allocate(40 * MIB).expect("the device is empty"));
    faults.clear().unwrap();
}

#[test]
fn a_fault_that_is_refused_changes_no_allocation() {
    let (device, control) = caching();
    let fault = Fault::FailAllocation { nth: 0 };
    assert_eq!(device.faults().unwrap().inject(fault).unwrap_err().kind(), Some(BackendErrorKind::Invalid));
    drop(device.allocate(5000).unwrap());
    drop(device.allocate(5000).unwrap());
    assert_eq!(control.calls(), (1, 0), "it is given out again");
}
