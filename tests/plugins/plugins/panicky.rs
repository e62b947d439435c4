//! A backend for each function that may panic. The name of a backend is its function.
//!
//! A device has memory of the host. Backends whose names begin with `stream` or `event` have queues, which
//! work at once.

use std::panic::panic_any;
use std::ptr::NonNull;
use std::sync::Arc;
use std::time::Duration;
use std::{error, fmt};

use device_registry::HostBuffer;
use device_registry::backend::{
    AllocateOptions, Backend, BackendError, Completion, DeviceDriver, DeviceProperties, EventDriver,
    EventOptions, Fault, FaultInjector, FillPattern, LoadFailure, Memory, MemoryInfo, OpenedDevice, Presence,
    Span, StreamDriver, StreamOptions,
};
use parking_lot::{Mutex, MutexGuard};

macro_rules! backends {
    ($($name:ident)*) => {
        #[allow(non_upper_case_globals, reason = "they are the names of the backends")]
        mod descriptors {
            use device_registry::backend::BackendDescriptor;

            $(pub(super) static $name: BackendDescriptor =
                BackendDescriptor::new(stringify!($name), || super::load(super::Panicky(stringify!($name))));)*
        }

        device_plugin::export!($(descriptors::$name),*);
    };
}

backends! {
    load device_count presence properties open
    native_handle memory_info allocate write write_any write_error read copy fill copy_from_peer create_stream
    allocate_host host_drop reset close faults inject clear memory_native_handle memory_drop thread
    stream_write stream_read stream_copy stream_fill stream_copy_from_peer stream_record stream_wait stream_launched
    stream_flush stream_query stream_synchronize stream_native_handle stream_drop
    event_query event_is_over event_synchronize event_elapsed_since event_drop
}

fn load(panicky: Panicky) -> Result<Box<dyn Backend>, LoadFailure> {
    panicky.at("load");
    Ok(Box::new(panicky))
}

/// The backend, its devices and their streams, with the function that panics.
#[derive(Clone, Copy)]
struct Panicky(&'static str);

impl Panicky {
    fn at(self, function: &str) {
        assert!(self.0 != function, "in {function}");
    }

    fn has_queues(self) -> bool {
        self.0.starts_with("stream") || self.0.starts_with("event")
    }
}

/// Panics on drop, if its backend does.
struct Drops {
    panicky: Panicky,
    function: &'static str,
}

impl Drop for Drops {
    fn drop(&mut self) {
        self.panicky.at(self.function);
    }
}

impl Backend for Panicky {
    fn device_count(&self) -> Result<usize, BackendError> {
        self.at("device_count");
        Ok(2)
    }

    fn presence(&self, _ordinal: usize) -> Result<Presence, BackendError> {
        self.at("presence");
        Ok(Presence::Present)
    }

    fn properties(&self, _ordinal: usize) -> Result<DeviceProperties, BackendError> {
        self.at("properties");
        Ok(DeviceProperties::new("a device that panics"))
    }

    fn open(&self, _ordinal: usize) -> Result<OpenedDevice, BackendError> {
        self.at("open");
        // SAFETY: there is no kind.
        Ok(unsafe { OpenedDevice::new(self, *self).with_native_handles() })
    }
}

struct Bytes {
    bytes: Mutex<Vec<u8>>,
    drops: Drops,
}

impl Memory for Bytes {
    fn native_handle(&self, _kind: &str) -> Option<u64> {
        self.drops.panicky.at("memory_native_handle");
        Some(1)
    }
}

fn lock(span: &Span) -> Result<MutexGuard<'_, Vec<u8>>, BackendError> {
    Ok(span.memory_as::<Bytes>()?.bytes.lock())
}

fn move_in(destination: &Span, source: &[u8]) -> Result<(), BackendError> {
    lock(destination)?[destination.range()].copy_from_slice(source);
    Ok(())
}

fn move_out(source: &Span, destination: &mut [u8]) -> Result<(), BackendError> {
    destination.copy_from_slice(&lock(source)?[source.range()]);
    Ok(())
}

fn move_between(source: &Span, destination: &Span) -> Result<(), BackendError> {
    let bytes = lock(source)?[source.range()].to_vec();
    move_in(destination, &bytes)
}

fn repeat(destination: &Span, pattern: &FillPattern) -> Result<(), BackendError> {
    let bytes: Vec<u8> = pattern.as_bytes().iter().copied().cycle().take(destination.len()).collect();
    move_in(destination, &bytes)
}

impl DeviceDriver for Panicky {
    fn native_handle(&self, _kind: &str) -> Option<u64> {
        self.at("native_handle");
        Some(1)
    }

    fn memory_info(&self) -> Result<MemoryInfo, BackendError> {
        self.at("memory_info");
        Ok(MemoryInfo::unknown())
    }

    fn allocate(&self, options: &AllocateOptions) -> Result<Arc<dyn Memory>, BackendError> {
        self.at("allocate");
        let bytes = Mutex::new(vec![0; options.len]);
        Ok(Arc::new(Bytes { bytes, drops: Drops { panicky: *self, function: "memory_drop" } }))
    }

    fn write(&self, destination: &Span, source: &[u8]) -> Result<(), BackendError> {
        self.at("write");
        match self.0 {
            "write_any" => panic_any(Treacherous),
            "write_error" => return Err(BackendError::other("the fan is stuck").with_source(Unprintable)),
            "thread" => {
                let outcome = std::thread::spawn(|| panic!("in a thread of the library")).join();
                assert!(outcome.is_err());
            }
            _ => {}
        }
        move_in(destination, source)
    }

    fn read(&self, source: &Span, destination: &mut [u8]) -> Result<(), BackendError> {
        self.at("read");
        move_out(source, destination)
    }

    fn copy(&self, source: &Span, destination: &Span) -> Result<(), BackendError> {
        self.at("copy");
        move_between(source, destination)
    }

    fn fill(&self, destination: &Span, pattern: &FillPattern) -> Result<(), BackendError> {
        self.at("fill");
        repeat(destination, pattern)
    }

    fn copy_from_peer(&self, source: &Span, destination: &Span) -> Result<(), BackendError> {
        self.at("copy_from_peer");
        move_between(source, destination)
    }

    fn create_stream(&self, _options: &StreamOptions) -> Result<Box<dyn StreamDriver>, BackendError> {
        self.at("create_stream");
        if !self.has_queues() {
            return Err(BackendError::unsupported("streams of its own"));
        }
        Ok(Box::new(Stream(Drops { panicky: *self, function: "stream_drop" })))
    }

    fn allocate_host(&self, len: usize) -> Result<HostBuffer, BackendError> {
        self.at("allocate_host");
        let start = NonNull::from(vec![0_u8; len].leak()).cast();
        let owner = Drops { panicky: *self, function: "host_drop" };
        // SAFETY: the bytes are leaked, and nothing else accesses them.
        Ok(unsafe { HostBuffer::from_raw_parts(start, len, owner) })
    }

    fn reset(&self) -> Result<(), BackendError> {
        self.at("reset");
        Ok(())
    }

    fn close(&self) -> Result<(), BackendError> {
        self.at("close");
        Ok(())
    }

    fn faults(&self) -> Option<&dyn FaultInjector> {
        self.at("faults");
        Some(self)
    }
}

impl FaultInjector for Panicky {
    fn inject(&self, fault: Fault) -> Result<(), BackendError> {
        self.at("inject");
        // Lost, so that a reset may follow.
        match fault {
            Fault::Unplug => Err(BackendError::lost("unplugged")),
            _ => Ok(()),
        }
    }

    fn clear(&self) {
        self.at("clear");
    }
}

struct Stream(Drops);

impl StreamDriver for Stream {
    fn native_handle(&self, _kind: &str) -> Option<u64> {
        self.0.panicky.at("stream_native_handle");
        Some(1)
    }

    fn write(&self, destination: &Span, source: &Arc<HostBuffer>) -> Result<(), BackendError> {
        self.0.panicky.at("stream_write");
        move_in(destination, source)
    }

    fn read(
        &self,
        source: &Span,
        mut destination: HostBuffer,
        completion: Completion,
    ) -> Result<(), BackendError> {
        self.0.panicky.at("stream_read");
        move_out(source, &mut destination)?;
        completion.finish(Ok(destination));
        Ok(())
    }

    fn copy(&self, source: &Span, destination: &Span) -> Result<(), BackendError> {
        self.0.panicky.at("stream_copy");
        move_between(source, destination)
    }

    fn fill(&self, destination: &Span, pattern: &FillPattern) -> Result<(), BackendError> {
        self.0.panicky.at("stream_fill");
        repeat(destination, pattern)
    }

    fn copy_from_peer(&self, source: &Span, destination: &Span) -> Result<(), BackendError> {
        self.0.panicky.at("stream_copy_from_peer");
        move_between(source, destination)
    }

    fn record(&self, _options: &EventOptions) -> Result<Box<dyn EventDriver>, BackendError> {
        self.0.panicky.at("stream_record");
        Ok(Box::new(Event(Drops { panicky: self.0.panicky, function: "event_drop" })))
    }

    fn wait_event(&self, _event: &dyn EventDriver) -> Result<(), BackendError> {
        self.0.panicky.at("stream_wait");
        Ok(())
    }

    fn launched(&self) {
        self.0.panicky.at("stream_launched");
    }

    fn flush(&self) -> Result<(), BackendError> {
        self.0.panicky.at("stream_flush");
        Ok(())
    }

    fn query(&self) -> Result<bool, BackendError> {
        self.0.panicky.at("stream_query");
        Ok(true)
    }

    fn synchronize(&self) -> Result<(), BackendError> {
        self.0.panicky.at("stream_synchronize");
        Ok(())
    }
}

struct Event(Drops);

impl EventDriver for Event {
    fn query(&self) -> Result<bool, BackendError> {
        self.0.panicky.at("event_query");
        Ok(true)
    }

    fn is_over(&self) -> Result<bool, BackendError> {
        self.0.panicky.at("event_is_over");
        Ok(true)
    }

    fn synchronize(&self) -> Result<(), BackendError> {
        self.0.panicky.at("event_synchronize");
        Ok(())
    }

    fn elapsed_since(&self, _start: &dyn EventDriver) -> Result<Duration, BackendError> {
        self.0.panicky.at("event_elapsed_since");
        Ok(Duration::ZERO)
    }
}

/// A panic with a value that panics again when it is dropped.
struct Treacherous;

impl Drop for Treacherous {
    fn drop(&mut self) {
        panic!("in the drop of a panic's value");
    }
}

/// An error that cannot be printed.
#[derive(Debug)]
struct Unprintable;

impl fmt::Display for Unprintable {
    fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        panic!("in the text of an error")
    }
}

impl error::Error for Unprintable {}
