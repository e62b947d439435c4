//! A child of `fork` gets errors from what its parent used, and does not hang.

#![cfg(unix)]

use std::ffi::c_int;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use device_registry::activity::{self, Batch, Observer};
use device_registry::backend::HostMemory;
use device_registry::{Buffer, Device, DeviceError, HostBuffer, Pending, device_count};

unsafe extern "C" {
    fn fork() -> c_int;
    fn waitpid(process: c_int, status: *mut c_int, options: c_int) -> c_int;
    fn kill(process: c_int, signal: c_int) -> c_int;
    fn _exit(status: c_int) -> !;
}

/// Runs in a child of `fork`, and returns its exit status: the number of wrong results that `run` has
/// counted.
fn in_a_fork(run: impl FnOnce() -> usize) -> c_int {
    const NO_HANG: c_int = 1;
    const KILL: c_int = 9;
    // SAFETY: the child calls the code under test, which must not take locks that other threads of the parent
    // may hold. It ends without unwinding out of this function and without running exit handlers.
    let child = unsafe { fork() };
    if child == 0 {
        let wrong = std::panic::catch_unwind(std::panic::AssertUnwindSafe(run)).unwrap_or(100);
        // SAFETY: it ends this process and nothing else.
        unsafe { _exit(wrong as c_int) };
    }
    let (start, mut status) = (Instant::now(), 0);
    // SAFETY: the child is ours, and the status a variable of this function.
    while unsafe { waitpid(child, &mut status, NO_HANG) } == 0 {
        if start.elapsed() > Duration::from_secs(20) {
            // SAFETY: the child is ours. `waitpid` has not returned it, so no other process can have its
            // number.
            unsafe { kill(child, KILL) };
            panic!("the child hangs");
        }
        // No wait for a process has a time limit.
        std::thread::sleep(Duration::from_millis(5));
    }
    status
}

fn is_forked<T>(result: Result<T, DeviceError>) -> bool {
    matches!(&result, Err(error @ DeviceError::Forked { .. }) if error.to_string().contains("when this process was forked"))
}

static RELEASED: AtomicBool = AtomicBool::new(false);

/// Memory of another library, which notes its release.
fn foreign() -> HostMemory {
    struct Owner(#[expect(dead_code, reason = "it owns the byte")] Vec<u8>);
    impl Drop for Owner {
        fn drop(&mut self) {
            RELEASED.store(true, Ordering::Relaxed);
        }
    }
    let mut bytes = vec![1];
    let start = NonNull::from(&mut bytes[0]);
    // SAFETY: the vector has one initialised byte there, which stays in place and which nothing else uses.
    unsafe { HostMemory::from_raw_parts(start, 1, Owner(bytes)) }
}

// One test, so that no other thread of the harness is at work when the process is forked.
#[test]
fn a_child_gets_errors_from_devices_of_its_parent_and_the_parent_continues() {
    let device = Device::cpu();
    a_child_has_no_observers();
    assert_eq!(
        in_a_fork(|| usize::from(device.allocate(1).is_err())),
        0,
        "a child can open a device that its parent has not used"
    );
    let (buffer, stream) = (device.allocate(4).unwrap(), device.create_stream().unwrap());
    stream.write(&buffer, 0, b"rust").unwrap();
    let event = stream.record().unwrap();
    let (held, hold) = std::sync::mpsc::channel::<()>();
    stream.host_call(move || hold.recv().unwrap_or_default()).unwrap();
    // In the child no thread does this work.
    let read = stream.read(&buffer, 0..4).unwrap();
    let later = stream.record().unwrap();
    let again = buffer.clone();
    let imported = Buffer::from_host_memory(foreign()).unwrap();
    let status = in_a_fork(|| {
        let results = [
            is_forked(buffer.write(0, b"x")),
            is_forked(buffer.read(0, &mut [0])),
            is_forked(buffer.slice(..1).unwrap().copy_from(&buffer.slice(1..2).unwrap())),
            is_forked(device.allocate(1)),
            is_forked(device.open()),
            is_forked(device_count(device.name())),
            is_forked(device.properties()),
            is_forked(device.memory_info()),
            is_forked(device.memory_statistics()),
            is_forked(device.synchronize()),
            is_forked(device.reset()),
            is_forked(device.create_stream()),
            is_forked(device.current_stream()),
            is_forked(stream.write(&buffer, 0, b"x")),
            is_forked(stream.host_call(|| ())),
            is_forked(stream.query()),
            is_forked(stream.synchronize()),
            is_forked(event.synchronize()),
            is_forked(later.synchronize()),
            read.is_ready(),
            !device_registry::is_available("cpu"),
            is_forked(Buffer::from_host_memory(HostBuffer::from([1]).into())),
            is_forked(imported.read(0, &mut [0])),
            {
                drop(imported);
                !RELEASED.load(Ordering::Relaxed)
            },
        ];
        drop((buffer, stream, event));
        results.iter().filter(|&&right| !right).count()
    });
    assert_eq!(status, 0, "the child's exit status: wrong results, or a signal");
    // From now on blocking calls look for a default stream.
    device.default_stream().unwrap();
    a_child_does_not_wait_for_threads_of_its_parent(&read, &again);
    drop(held);
    device.synchronize().unwrap();
    device.allocate(1).unwrap().write(0, b"x").unwrap();
    assert!(RELEASED.load(Ordering::Relaxed), "the parent has released it");
}

/// It makes no records, and waits for no thread of an observer's.
fn a_child_has_no_observers() {
    struct Counts;

    static SEEN: AtomicUsize = AtomicUsize::new(0);

    impl Observer for Counts {
        fn observe(&self, batch: &Batch) {
            SEEN.fetch_add(batch.records.len(), Ordering::Relaxed);
        }
    }

    let observation = activity::observe("counts", Counts).unwrap();
    drop(activity::span("one"));
    assert!(activity::flush(Duration::from_secs(20)));
    assert_eq!(SEEN.load(Ordering::Relaxed), 2);
    let in_child = || {
        let span = activity::span("another");
        let id = span.id();
        drop(span);
        let results = [id.is_none(), !observation.is_active(), activity::flush(Duration::ZERO)];
        drop(observation);
        results.iter().filter(|&&right| !right).count()
    };
    assert_eq!(in_a_fork(in_child), 0);
}

/// Each fork may come while another thread of the parent holds the lock of the work, which that thread would
/// release.
fn a_child_does_not_wait_for_threads_of_its_parent(read: &Pending, buffer: &Buffer) {
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while !ended.load(Ordering::Relaxed) && !read.is_ready() {
                    std::hint::spin_loop()
                }
            });
            scope.spawn(|| {
                while !ended.load(Ordering::Relaxed) && buffer.read(0, &mut [0]).is_ok() {
                    std::hint::spin_loop()
                }
            });
        }
        for _ in 0..200 {
            let wrong = || {
                let results = [read.is_ready(), is_forked(buffer.read(0, &mut [0]))];
                results.iter().filter(|&&right| !right).count()
            };
            assert_eq!(in_a_fork(wrong), 0);
        }
        ended.store(true, Ordering::Relaxed);
    });
}
