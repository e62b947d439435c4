//! Streams, events and errors in queued work, on a driver without queues and on one with queues of its own.

mod backends;

mod checks;
mod failures;
mod flushes;
mod host_calls;
mod loss;
mod native;
mod order;
mod ownership;
mod plugins;
mod queues;
mod reads;

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use device_registry::backend::{BackendError, BackendErrorKind};
use device_registry::{Buffer, Device, DeviceError, Stream};

use backends::{Control, both};

/// Runs on a separate thread, so that a deadlock fails the test instead of blocking it forever.
fn ends(run: impl FnOnce() + Send + 'static) {
    let (ended, end) = mpsc::channel();
    let thread = thread::spawn(move || {
        run();
        let _ = ended.send(());
    });
    match end.recv_timeout(Duration::from_secs(60)) {
        Ok(()) => {}
        Err(mpsc::RecvTimeoutError::Disconnected) => std::panic::resume_unwind(thread.join().unwrap_err()),
        Err(mpsc::RecvTimeoutError::Timeout) => panic!("it hangs"),
    }
}

fn on_both(run: impl Fn(Device, &'static Control) + Send + 'static) {
    ends(move || both().into_iter().for_each(|(device, control)| run(device, control)));
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
