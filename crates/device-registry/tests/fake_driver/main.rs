//! What the core does with drivers, on a fake driver that each test controls.

mod fake;

mod device_values;
mod memory_cache;
mod memory_pressure;
mod silent_device;
mod stream_memory;
mod streams;

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use device_registry::backend::{BackendError, BackendErrorKind};
use device_registry::{Buffer, Device, DeviceError, MemoryStatistics, Stream};

use crate::fake::{Control, both};

/// Long enough for a machine under load. No test takes it.
const LONG: Duration = Duration::from_secs(60);

/// How long a test waits for what must not happen.
const SHORT: Duration = Duration::from_millis(20);

/// Runs a call on its own thread, since a test must not hang with it.
fn begin<T: Send + 'static>(call: impl FnOnce() -> T + Send + 'static) -> mpsc::Receiver<T> {
    let (sender, outcome) = mpsc::channel();
    let (begin, begun) = mpsc::channel();
    thread::spawn(move || {
        begin.send(()).unwrap();
        sender.send(call())
    });
    // A thread may take longer to begin than a test waits.
    begun.recv_timeout(LONG).expect("the thread begins");
    outcome
}

#[track_caller]
fn outcome<T>(outcome: mpsc::Receiver<T>) -> T {
    outcome.recv_timeout(LONG).expect("the call hangs")
}

/// A call that has not waited gets this long to return.
#[track_caller]
fn still_waits<T>(outcome: &mpsc::Receiver<T>) {
    let ends = outcome.recv_timeout(SHORT);
    assert!(matches!(ends, Err(mpsc::RecvTimeoutError::Timeout)), "the call has not waited");
}

/// Opens the gate a moment later, while the caller waits: no call of a driver shows that a thread waits in
/// the core.
fn open_later(control: &'static Control) {
    thread::spawn(|| {
        thread::sleep(SHORT);
        control.open();
    });
}

/// Runs on a separate thread, so that a deadlock fails the test instead of blocking it forever.
fn ends(run: impl FnOnce() + Send + 'static) {
    let (ended, end) = mpsc::channel();
    let thread = thread::spawn(move || {
        run();
        let _ = ended.send(());
    });
    match end.recv_timeout(LONG) {
        Ok(()) => {}
        Err(mpsc::RecvTimeoutError::Disconnected) => std::panic::resume_unwind(thread.join().unwrap_err()),
        Err(mpsc::RecvTimeoutError::Timeout) => panic!("it hangs"),
    }
}

fn on_both(run: impl Fn(Device, &'static Control) + Send + 'static) {
    ends(move || {
        for (device, control) in both() {
            run(device, control);
            control.has_kept_the_rules();
        }
    });
}

fn filled(device: Device, bytes: &[u8]) -> Buffer {
    let buffer = device.allocate(bytes.len()).unwrap();
    buffer.write(0, bytes).unwrap();
    buffer
}

fn content(buffer: &Buffer) -> Vec<u8> {
    let mut bytes = vec![0; buffer.len()];
    buffer.read(0, &mut bytes).unwrap();
    bytes
}

fn statistics(device: Device) -> MemoryStatistics {
    device.memory_statistics().unwrap()
}

fn kind(error: &DeviceError) -> BackendErrorKind {
    error.backend_error().unwrap_or_else(|| panic!("{error}")).kind()
}

fn error_text<T: std::fmt::Debug>(result: Result<T, DeviceError>) -> String {
    result.unwrap_err().to_string()
}

/// A stream whose first work has failed with `why`. The failure is not reported yet.
fn failed(device: Device, why: &'static str) -> Stream {
    let stream = device.create_stream().unwrap();
    stream.launch(&[], move |_| Err(BackendError::other(why))).unwrap_or_else(|error| {
        // A queue of the driver's refuses a kernel that it cannot submit.
        assert!(error.to_string().contains(why));
    });
    stream
}
