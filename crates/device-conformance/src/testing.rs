//! For a backend's own tests: functions that many of them need.

use std::sync::Barrier;
use std::thread;

use device_registry::{BackendErrorKind, Buffer, DeviceError, backends};
#[cfg(target_os = "linux")]
use device_registry::{Device, device};

#[cfg(target_os = "linux")]
use crate::process::{libraries, threads};

/// The kind of error that a call returned. `None` if the call succeeded.
///
/// # Panics
///
/// If the error is not the backend's.
#[track_caller]
pub fn error_kind<T>(result: Result<T, DeviceError>) -> Option<BackendErrorKind> {
    let error = result.err()?;
    Some(error.kind().unwrap_or_else(|| panic!("expected an error of the backend, got: {error:?}")))
}

/// The bytes of a buffer.
///
/// # Panics
///
/// If they cannot be read.
#[must_use]
#[track_caller]
pub fn read_all(buffer: &Buffer) -> Vec<u8> {
    // Not zeros: a read that does nothing must not look like one of zeroed memory.
    let mut bytes = vec![0xA5; buffer.len()];
    buffer.read(0, &mut bytes).expect("the buffer is readable");
    bytes
}

/// Lists a linked backend, uses the cpu, and parses a device name of the backend. Panics if any of that opens
/// a library or starts a thread.
///
/// It compares the whole process before and after. So call it first, from a test in its own process or
/// from the only test of its program. `is_driver` recognises the libraries that the backend opens on use,
/// none of which may be open yet.
///
/// # Panics
///
/// If the backend is not linked, a driver is open, or the libraries or threads of this process change.
#[cfg(target_os = "linux")]
#[track_caller]
pub fn opens_nothing_before_its_first_use(backend: &str, is_driver: impl Fn(&str) -> bool) {
    let libraries_before = libraries();
    let threads_before = threads();
    let open: Vec<_> = libraries_before.iter().filter(|file| is_driver(file)).collect();
    assert!(open.is_empty(), "drivers are open before any use of `{backend}`: {open:?}");
    assert!(backends().get(backend).is_some(), "`{backend}` is not linked into this program");

    let report = backends().report().to_string();
    assert!(report.contains(backend), "{report}");
    device("cpu").and_then(|cpu| cpu.allocate(16)).expect("the cpu has memory");
    let name = format!("{backend}:0");
    assert!(Device::parse(&name).is_ok() && device(&name).is_ok(), "`{name}` is not a device name");

    assert_eq!(libraries(), libraries_before, "a library was opened before any use of `{backend}`");
    assert_eq!(threads(), threads_before, "a thread was started before any use of `{backend}`");
}

/// Loads a backend and counts its devices, from eight threads at once. Returns the count or the error, which
/// has to be the same on all threads.
///
/// # Errors
///
/// The error of loading or counting, as text.
///
/// # Panics
///
/// If the threads get different results.
#[track_caller]
pub fn count_from_many_threads(backend: &str) -> Result<usize, String> {
    const THREADS: usize = 8;
    let barrier = Barrier::new(THREADS);
    let counts: Vec<Result<usize, String>> = thread::scope(|scope| {
        let count = || {
            barrier.wait();
            let backend = backends().load(backend).map_err(|error| error.to_string())?;
            backend.device_count().map_err(|error| error.to_string())
        };
        let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(count)).collect();
        threads.into_iter().map(|thread| thread.join().expect("counting does not panic")).collect()
    });
    assert!(counts.iter().all(|count| *count == counts[0]), "threads get different counts: {counts:?}");
    counts.into_iter().next().unwrap_or(Ok(0))
}

#[cfg(test)]
mod tests {
    use std::panic::catch_unwind;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use device_registry::Device;
    use device_registry::backend::{
        Backend, BackendDescriptor, BackendError, DeviceProperties, LoadFailure, OpenedDevice,
    };

    use super::*;

    /// Returns another count on each call.
    struct Counting(AtomicUsize);

    impl Backend for Counting {
        fn device_count(&self) -> Result<usize, BackendError> {
            Ok(self.0.fetch_add(1, Ordering::Relaxed))
        }

        fn properties(&self, _ordinal: usize) -> Result<DeviceProperties, BackendError> {
            Ok(DeviceProperties::new("counting"))
        }

        fn open(&self, _ordinal: usize) -> Result<OpenedDevice, BackendError> {
            Err(BackendError::other("it is never opened"))
        }
    }

    fn counting() -> Result<Box<dyn Backend>, LoadFailure> {
        Ok(Box::new(Counting(AtomicUsize::new(0))))
    }

    fn missing() -> Result<Box<dyn Backend>, LoadFailure> {
        Err(LoadFailure::unavailable("looked for libmissing.so"))
    }

    static COUNTING: BackendDescriptor = BackendDescriptor::new("testing_counting", counting);
    static MISSING: BackendDescriptor = BackendDescriptor::new("testing_missing", missing);

    #[test]
    fn the_kind_of_an_error_is_that_of_the_backend() {
        let stream = Device::cpu().create_stream().unwrap();
        assert_eq!(error_kind(stream.synchronize()), None);
        stream.launch(&[], |_| Err(BackendError::invalid("on purpose"))).unwrap();
        assert_eq!(error_kind(stream.synchronize()), Some(BackendErrorKind::Invalid));
        assert!(catch_unwind(|| error_kind(device_registry::device("not_linked"))).is_err());
    }

    #[test]
    fn all_bytes_of_a_buffer_are_read() {
        let buffer = Device::cpu().allocate(3).unwrap();
        buffer.write(0, b"abc").unwrap();
        assert_eq!(read_all(&buffer), b"abc");
    }

    #[test]
    fn counts_have_to_be_the_same_on_all_threads() {
        backends().register(&COUNTING).unwrap();
        backends().register(&MISSING).unwrap();
        assert_eq!(count_from_many_threads("cpu"), Ok(1));
        assert!(count_from_many_threads("testing_missing").unwrap_err().contains("libmissing.so"));
        assert!(catch_unwind(|| count_from_many_threads("testing_counting")).is_err());
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn an_open_library_and_a_backend_that_is_not_linked_panic() {
        use crate::process::{is_child, passes};
        if !is_child() {
            // Other tests start threads.
            let test = "testing::tests::an_open_library_and_a_backend_that_is_not_linked_panic";
            return passes(test, |child| child);
        }
        backends().register(&COUNTING).unwrap();
        opens_nothing_before_its_first_use("testing_counting", |_| false);
        let libc_is_open =
            || opens_nothing_before_its_first_use("testing_counting", |file| file.contains("libc.so"));
        assert!(catch_unwind(libc_is_open).is_err());
        assert!(catch_unwind(|| opens_nothing_before_its_first_use("not_linked", |_| false)).is_err());
    }
}
