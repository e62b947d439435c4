//! A child of `fork` cannot use its parent's devices, and does not disturb them.

#![cfg(all(target_os = "linux", target_pointer_width = "64"))]

use device_conformance::process;
use device_conformance::testing::read_all;
use device_openreg::{OpenRegMemory, locate};
use device_registry::{BackendErrorKind, DeviceError, device};

use crate::child::CHILD;

mod child;

device_registry::autoload!();

/// Runs `work` in a child of `fork`. Returns the child's exit status, or the signal that ends it as an error.
fn forked(work: impl FnOnce()) -> Result<i32, i32> {
    // SAFETY: the allocator of the C library works in a child, whatever threads the parent has. The child
    // exits without running the parent's exit handlers, and `alarm` ends it if it hangs.
    let process = unsafe { libc::fork() };
    assert!(process >= 0);
    if process == 0 {
        // SAFETY: it takes a number.
        unsafe { libc::alarm(10) };
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
        // SAFETY: it runs no exit handlers, and nothing comes after it.
        unsafe { libc::_exit(i32::from(outcome.is_err())) };
    }
    let mut status = 0;
    // SAFETY: `status` is valid for writes during the call.
    assert_eq!(unsafe { libc::waitpid(process, &raw mut status, 0) }, process);
    if libc::WIFEXITED(status) { Ok(libc::WEXITSTATUS(status)) } else { Err(libc::WTERMSIG(status)) }
}

#[test]
fn a_child_that_drops_memory_of_its_parent_frees_nothing() {
    if !process::is_child() {
        return CHILD.passes("a_child_that_drops_memory_of_its_parent_frees_nothing", &[]);
    }
    // Enough that the pool returns pages to the system.
    const LEN: usize = 64 << 20;
    let device = device("openreg").unwrap();
    let mut buffer = Some(device.allocate(LEN).unwrap());
    buffer.as_ref().unwrap().write(0, &vec![7; LEN]).unwrap();
    let free = device.memory_info().unwrap().free;
    assert_eq!(forked(|| drop(buffer.take())), Ok(0));
    assert_eq!(device.memory_info().unwrap().free, free);
    assert!(read_all(buffer.as_ref().unwrap()).iter().all(|&byte| byte == 7));
}

#[test]
fn a_child_does_not_wait_for_threads_that_only_its_parent_has() {
    if !process::is_child() {
        return CHILD.passes("a_child_does_not_wait_for_threads_that_only_its_parent_has", &[]);
    }
    let device = device("openreg").unwrap();
    let ended = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !ended.load(std::sync::atomic::Ordering::Relaxed) {
                    drop(device.allocate(100).unwrap());
                }
            });
        }
        let mut buffer = Some(device.allocate(100).unwrap());
        let outcomes: Vec<_> =
            (0..50).map(|_| forked(|| drop(buffer.take()))).take_while(Result::is_ok).collect();
        ended.store(true, std::sync::atomic::Ordering::Relaxed);
        assert_eq!(outcomes, vec![Ok(0); 50]);
    });
}

#[test]
fn a_child_that_touches_a_device_of_its_parent_gets_an_error_and_does_not_hang() {
    if !process::is_child() {
        return CHILD
            .passes("a_child_that_touches_a_device_of_its_parent_gets_an_error_and_does_not_hang", &[]);
    }
    let openreg = device("openreg").unwrap();
    let (buffer, stream) = (openreg.allocate(5).unwrap(), openreg.create_stream().unwrap());
    let (held, hold) = std::sync::mpsc::channel::<()>();
    stream.host_call(move || hold.recv().unwrap_or_default()).unwrap();
    let read = stream.read(&buffer, 0..5).unwrap();
    let event = stream.record().unwrap();
    let touches = || {
        fn forked<T>(result: Result<T, DeviceError>) -> bool {
            matches!(result, Err(DeviceError::Forked { .. }))
        }
        assert!(forked(buffer.write(0, b"X")) && forked(buffer.read(0, &mut [0])));
        assert!(
            forked(openreg.allocate(1)) && forked(openreg.memory_info()) && forked(openreg.synchronize())
        );
        assert!(forked(stream.fill(&buffer, 0..5, &[1])) && forked(stream.synchronize()));
        assert!(forked(event.synchronize()) && forked(read.wait()));
        // The other device, which is not open, is of the same backend.
        assert!(forked(device("openreg:1").unwrap().allocate(1)));
    };
    assert_eq!(forked(touches), Ok(0));
    drop(held);
    openreg.synchronize().unwrap();
}

#[test]
fn a_child_that_opens_the_bytes_of_its_parents_device_gets_an_error() {
    if !process::is_child() {
        return CHILD.passes("a_child_that_opens_the_bytes_of_its_parents_device_gets_an_error", &[]);
    }
    let buffer = device("openreg").unwrap().allocate(5).unwrap();
    buffer.write(0, b"abcde").unwrap();
    // Without the core, like a kernel.
    let span = buffer.span().unwrap();
    let memory: &OpenRegMemory = span.memory_as().unwrap();
    let ended = std::sync::atomic::AtomicBool::new(false);
    let reaches = || {
        let error = memory.bytes().unwrap_err();
        assert_eq!(error.kind(), BackendErrorKind::Invalid);
        assert!(error.to_string().contains("forked"), "{error}");
        assert_eq!(locate(memory.address()), None);
    };
    let outcomes = std::thread::scope(|scope| {
        // One thread or the other holds the locks at most forks.
        for _ in 0..2 {
            scope.spawn(|| {
                while !ended.load(std::sync::atomic::Ordering::Relaxed) {
                    assert!(memory.bytes().is_ok() && locate(memory.address()).is_some());
                }
            });
        }
        let outcomes: Vec<_> = (0..50).map(|_| forked(reaches)).take_while(Result::is_ok).collect();
        ended.store(true, std::sync::atomic::Ordering::Relaxed);
        outcomes
    });
    assert_eq!(outcomes, vec![Ok(0); 50]);
    assert_eq!(read_all(&buffer), b"abcde");
}

#[test]
fn a_child_that_writes_to_open_bytes_of_its_parent_dies() {
    if !process::is_child() {
        return CHILD.passes("a_child_that_writes_to_open_bytes_of_its_parent_dies", &[]);
    }
    let buffer = device("openreg").unwrap().allocate(5).unwrap();
    buffer.write(0, b"abcde").unwrap();
    let span = buffer.span().unwrap();
    let bytes = span.memory_as::<OpenRegMemory>().unwrap().bytes().unwrap();
    assert_eq!(forked(|| bytes.write(0..5).unwrap().fill(b'X')), Err(libc::SIGSEGV));
    assert_eq!(read_all(&buffer), b"abcde");
}
