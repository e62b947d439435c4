//! Streams, by the numbers that PyTorch has for them, and the current stream of each thread.

use std::cell::Cell;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use device_registry::{Event, EventOptions, Priority, Stream, StreamOptions};

use crate::devices;
use crate::failure::Failure;
use crate::memory::registered;

/// How many streams a pool has. PyTorch's own devices have as many: a program gets them in turn.
const POOL: usize = 32;
/// The default stream, a pool of normal priority, and one of high priority.
const STREAMS: usize = 1 + 2 * POOL;

/// The streams of a device. Each is created at its first use.
struct Streams {
    streams: [OnceLock<Stream>; STREAMS],
    given: [AtomicUsize; 2],
}

static DEVICES: [Streams; devices::MOST] = [const {
    Streams { streams: [const { OnceLock::new() }; STREAMS], given: [const { AtomicUsize::new(0) }; 2] }
}; devices::MOST];

thread_local! {
    /// Whether the thread computes in bytes of a device.
    static UNUSED: Cell<bool> = const { Cell::new(false) };

    /// The number of each device's current stream.
    static CURRENT: [Cell<u8>; devices::MOST] = const { [const { Cell::new(0) }; devices::MOST] };
}

/// The number of the thread's current stream.
pub(crate) fn current_number(device: usize) -> usize {
    CURRENT.try_with(|current| current.get(device).map_or(0, |number| number.get().into())).unwrap_or(0)
}

pub(crate) fn set_current(device: usize, number: usize) {
    // A number is below `STREAMS`, or no stream's, which its next use reports.
    let number = u8::try_from(number).unwrap_or(u8::MAX);
    let _ = CURRENT.try_with(|current| current.get(device).map(|place| place.set(number)));
}

/// The thread's current stream of the device.
pub(crate) fn current(device: usize) -> Result<&'static Stream, Failure> {
    get(device, current_number(device))
}

/// Runs a function, in which the thread may use no stream: it has bytes of a device, for which work of any
/// stream may wait.
pub(crate) fn while_unused(compute: impl FnOnce()) {
    struct Restore(bool);
    impl Drop for Restore {
        fn drop(&mut self) {
            UNUSED.set(self.0);
        }
    }
    let _restore = Restore(UNUSED.replace(true));
    compute();
}

/// Whether the thread may use no stream.
pub(crate) fn are_unused() -> bool {
    UNUSED.try_with(Cell::get).unwrap_or(false)
}

/// The stream with a number.
pub(crate) fn get(device: usize, number: usize) -> Result<&'static Stream, Failure> {
    if are_unused() {
        return Err(Failure::new(
            "a kernel of the CPU, which computes in the place of a device, used the device, which could wait for it \
             forever",
        ));
    }
    let place = DEVICES.get(device).and_then(|device| device.streams.get(number));
    let place = place.ok_or_else(|| Failure::new(format_args!("device {device} has no stream {number}")))?;
    if let Some(stream) = place.get() {
        devices::check_fork()?;
        return Ok(stream);
    }
    let registered = registered(device)?;
    let stream = match number {
        0 => registered.default_stream()?,
        _ => registered.create_stream_with(&StreamOptions::new().with_priority(priority(number)))?,
    };
    // For observers.
    stream.set_label(&format!("PyTorch stream {number}"));
    Ok(place.get_or_init(|| stream))
}

fn priority(number: usize) -> Priority {
    if number > POOL { Priority::High } else { Priority::Normal }
}

/// The number of the next stream of a pool.
pub(crate) fn next(device: usize, high_priority: bool) -> Result<usize, Failure> {
    registered(device)?;
    let given = DEVICES[device].given[usize::from(high_priority)].fetch_add(1, Ordering::Relaxed);
    let number = 1 + usize::from(high_priority) * POOL + given % POOL;
    get(device, number)?;
    Ok(number)
}

/// Records an event.
pub(crate) fn record(device: usize, number: usize, timed: bool) -> Result<Event, Failure> {
    let options = if timed { EventOptions::new().timed() } else { EventOptions::new() };
    Ok(get(device, number)?.record_with(&options)?)
}

/// Whether the device has a stream, and so is open.
pub(crate) fn is_used(device: usize) -> bool {
    let streams = DEVICES.get(device).map(|device| &device.streams);
    streams.is_some_and(|streams| streams.iter().any(|stream| stream.get().is_some()))
}

/// All streams that were used, of all devices.
pub(crate) fn used() -> impl Iterator<Item = &'static Stream> {
    DEVICES.iter().flat_map(|device| &device.streams).filter_map(OnceLock::get)
}
