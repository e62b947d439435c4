//! Open devices of a library, and their memory.

use std::any::Any;
use std::ffi::c_void;
use std::fmt;
use std::ptr::{self, NonNull};
use std::sync::Arc;

use device_registry::HostBuffer;
use device_registry::backend::{
    AllocateOptions, BackendError, DeviceDriver, Fault, FaultInjector, FillPattern, Memory, MemoryInfo,
    Priority, Span, StreamDriver, StreamOptions,
};
use parking_lot::Mutex;

use crate::abi::{self, HostBytes, Object, Str, Table};
use crate::load::backend::Claim;
use crate::load::bytes;
use crate::load::library::Library;
use crate::load::report::{call, made};
use crate::load::stream::LoadedStream;
use crate::load::tables::Tables;

/// A device whose backend is in a file.
///
/// A program gets it by [`Device::with_driver`](device_registry::Device::with_driver), and a kernel by
/// [`Launch::driver_as`](device_registry::backend::Launch::driver_as), for what the interface has beside
/// native handles.
pub struct LoadedDevice {
    tables: &'static Tables,
    object: Object,
}

// SAFETY: the rules of the interface allow the functions of a device on any thread.
unsafe impl Send for LoadedDevice {}
// SAFETY: the rules of the interface allow the functions of a device on any thread, at the same time.
unsafe impl Sync for LoadedDevice {}

impl LoadedDevice {
    /// The library's own object of the device, which is the first argument of the functions of an
    /// [extension](Self::extension), if they need one. It is valid forever.
    #[must_use]
    pub fn object(&self) -> *mut c_void {
        self.object
    }

    /// A table of functions that the backend's author defines, by its name. It is valid forever, and using it
    /// is unsafe. A backend of `export!` has none.
    #[must_use]
    pub fn extension(&self, name: &str) -> Option<NonNull<c_void>> {
        let extension = self.tables.device.extension?;
        // SAFETY: a device is never destroyed, and the text is valid during the call.
        NonNull::new(unsafe { extension(self.object, Str::of(name)) }.cast_mut())
    }

    /// Whether its backend is of a library.
    pub(crate) fn is_of(&self, library: &'static Library) -> bool {
        self.tables.library.is_some_and(|own| ptr::eq(own, library))
    }

    /// What its library calls its backend.
    pub(crate) fn entry(&self) -> &str {
        &self.tables.entry
    }

    /// A span of the device's memory, as the interface has it.
    pub(crate) fn span(&self, of: &Span) -> Result<abi::Span, BackendError> {
        span(self.tables, of)
    }
}

impl fmt::Debug for LoadedDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LoadedDevice").field("object", &self.object).finish_non_exhaustive()
    }
}

/// The driver.
pub(crate) struct LoadedDriver {
    device: Arc<LoadedDevice>,
    // The two of `device` again, without its indirection at each call.
    tables: &'static Tables,
    object: Object,
    has_faults: bool,
    /// `None` once it was closed or reset.
    claim: Mutex<Option<Claim>>,
}

// SAFETY: the rules of the interface allow the functions of a device on any thread.
unsafe impl Send for LoadedDriver {}
// SAFETY: the rules of the interface allow the functions of a device on any thread, at the same time.
unsafe impl Sync for LoadedDriver {}

/// A function of the table, or the error for one that the library does not have.
macro_rules! function {
    ($self:ident.$name:ident, $what:literal) => {
        match $self.tables.device.$name {
            Some(function) => function,
            None => return Err(BackendError::unsupported($what)),
        }
    };
}

impl LoadedDriver {
    /// # Safety
    ///
    /// The object is a device that a backend with these tables has opened.
    pub(crate) unsafe fn new(tables: &'static Tables, object: Object, claim: Claim) -> Self {
        // SAFETY: the caller promises that the device is open.
        let has_faults =
            tables.device.has_faults.is_some_and(|has_faults| unsafe { has_faults(object) } != 0);
        let device = Arc::new(LoadedDevice { tables, object });
        let claim = Mutex::new(Some(claim));
        Self { device, tables, object, has_faults, claim }
    }
}

impl LoadedDriver {
    fn take_claim(&self) -> Option<Claim> {
        self.claim.lock().take()
    }
}

/// The core never drops the driver of a device that it has opened. So no call has used this one, and it is
/// closed.
impl Drop for LoadedDriver {
    fn drop(&mut self) {
        if let Some(_claim) = self.take_claim()
            && let Some(close) = self.tables.device.close
        {
            // SAFETY: the device is open and unused, and this is its last call.
            let closed = call("close", |report| unsafe { close(self.object, report) });
            closed.unwrap_or_else(|error| log::warn!("a device that was opened and not used: {error}"));
        }
    }
}

impl DeviceDriver for LoadedDriver {
    fn native(&self) -> Option<Arc<dyn Any + Send + Sync>> {
        Some(Arc::<LoadedDevice>::clone(&self.device))
    }

    fn native_handle(&self, kind: &str) -> Option<u64> {
        let native_handle = self.tables.device.native_handle?;
        let mut handle = 0;
        // SAFETY: the device is open, and the text and the place are valid during the call.
        let found = unsafe { native_handle(self.object, Str::of(kind), &mut handle) };
        (found != 0).then_some(handle)
    }

    fn memory_info(&self) -> Result<MemoryInfo, BackendError> {
        let memory_info = function!(self.memory_info, "memory information");
        let mut info = abi::MemoryInfo { total: abi::UNKNOWN, free: abi::UNKNOWN, ..abi::MemoryInfo::ZEROED };
        // SAFETY: the device is open, and the place and the report are valid during the call.
        call("memory info", |report| unsafe { memory_info(self.object, &mut info, report) })?;
        let mut known = MemoryInfo::unknown();
        if info.total != abi::UNKNOWN {
            known = known.with_total(info.total);
        }
        Ok(if info.free == abi::UNKNOWN { known } else { known.with_free(info.free) })
    }

    fn allocate(&self, options: &AllocateOptions) -> Result<Arc<dyn Memory>, BackendError> {
        let allocate = function!(self.allocate, "allocating");
        let options = abi::AllocateOptions { len: options.len, ..abi::AllocateOptions::ZEROED };
        let mut object = std::ptr::null_mut();
        // SAFETY: the device is open, and the options, the place and the report are valid during the call.
        call("allocate", |report| unsafe { allocate(self.object, &options, &mut object, report) })?;
        let object = made(object, "memory")?;
        Ok(Arc::new(LoadedMemory { tables: self.tables, device: self.object, object }))
    }

    fn write(&self, destination: &Span, source: &[u8]) -> Result<(), BackendError> {
        let write = function!(self.write, "blocking writes");
        let destination = span(self.tables, destination)?;
        same_length(source.len(), destination.len)?;
        // SAFETY: the core keeps what the rules promise, and the source has the length of the span.
        call("write", |report| unsafe { write(self.object, &destination, source.as_ptr().cast(), report) })
    }

    fn read(&self, source: &Span, destination: &mut [u8]) -> Result<(), BackendError> {
        let read = function!(self.read, "blocking reads");
        let source = span(self.tables, source)?;
        same_length(destination.len(), source.len)?;
        // SAFETY: the core keeps what the rules promise, and the destination has the length of the span.
        call("read", |report| unsafe { read(self.object, &source, destination.as_mut_ptr().cast(), report) })
    }

    fn copy(&self, source: &Span, destination: &Span) -> Result<(), BackendError> {
        let copy = function!(self.copy, "blocking copies");
        let source = span(self.tables, source)?;
        let destination = span(self.tables, destination)?;
        // SAFETY: the core keeps what the rules promise.
        call("copy", |report| unsafe { copy(self.object, &source, &destination, report) })
    }

    fn fill(&self, destination: &Span, pattern: &FillPattern) -> Result<(), BackendError> {
        let fill = function!(self.fill, "filling");
        let destination = span(self.tables, destination)?;
        let pattern = pattern.as_bytes();
        // SAFETY: the core keeps what the rules promise, and the pattern is valid during the call.
        call("filling", |report| unsafe {
            fill(self.object, &destination, pattern.as_ptr().cast(), pattern.len(), report)
        })
    }

    fn copy_from_peer(&self, source: &Span, destination: &Span) -> Result<(), BackendError> {
        let copy = function!(self.copy_from_peer, "copying from a peer");
        let source = span(self.tables, source)?;
        let destination = span(self.tables, destination)?;
        // SAFETY: the core keeps what the rules promise.
        call("copying from a peer", |report| unsafe { copy(self.object, &source, &destination, report) })
    }

    fn create_stream(&self, options: &StreamOptions) -> Result<Box<dyn StreamDriver>, BackendError> {
        let create_stream = function!(self.create_stream, "streams of its own");
        let priority = match options.priority {
            Priority::Low => -1,
            Priority::High => 1,
            _ => 0,
        };
        let options = abi::StreamOptions { priority, ..abi::StreamOptions::ZEROED };
        let mut stream = std::ptr::null_mut();
        // SAFETY: the device is open, and the options, the place and the report are valid during the call.
        call("streams of its own", |report| unsafe {
            create_stream(self.object, &options, &mut stream, report)
        })?;
        let stream = made(stream, "stream")?;
        Ok(Box::new(LoadedStream::new(self.tables, stream)))
    }

    fn allocate_host(&self, len: usize) -> Result<HostBuffer, BackendError> {
        let allocate_host = function!(self.allocate_host, "pinned host memory");
        let none = std::ptr::null_mut();
        let mut bytes = HostBytes { start: none, len: 0, owner: none, reserved: 0, release: None };
        // SAFETY: the device is open, and the place and the report are valid during the call.
        call("pinned host memory", |report| unsafe { allocate_host(self.object, len, &mut bytes, report) })?;
        // SAFETY: the library has given these bytes to this side.
        let buffer = unsafe { bytes::foreign(bytes) }?;
        same_length(buffer.len(), len)?;
        Ok(buffer)
    }

    fn reset(&self) -> Result<(), BackendError> {
        let reset = function!(self.reset, "resetting the device; the process has to be started again");
        // SAFETY: the core calls it as the rules promise.
        call("reset", |report| unsafe { reset(self.object, report) })?;
        drop(self.take_claim());
        Ok(())
    }

    fn close(&self) -> Result<(), BackendError> {
        // It counts as closed after an error too.
        let _claim = self.take_claim();
        let Some(close) = self.tables.device.close else { return Ok(()) };
        // SAFETY: the core calls it as the rules promise, once.
        call("close", |report| unsafe { close(self.object, report) })
    }

    fn faults(&self) -> Option<&dyn FaultInjector> {
        self.has_faults.then_some(self)
    }
}

impl FaultInjector for LoadedDriver {
    fn inject(&self, fault: Fault) -> Result<(), BackendError> {
        let inject = function!(self.inject, "fault injection");
        let nanoseconds = |by: std::time::Duration| u64::try_from(by.as_nanos()).unwrap_or(u64::MAX);
        let (kind, nth, nanoseconds) = match fault {
            Fault::FailAllocation { nth } => (abi::FAIL_ALLOCATION, nth, 0),
            Fault::FailCopy { nth } => (abi::FAIL_COPY, nth, 0),
            Fault::LoseDevice { nth } => (abi::LOSE_DEVICE, nth, 0),
            Fault::Unplug => (abi::UNPLUG, 0, 0),
            Fault::Slow { by } => (abi::SLOW, 0, nanoseconds(by)),
            Fault::Stall { nth } => (abi::STALL, nth, 0),
            _ => return Err(BackendError::unsupported("injecting this fault into a device of a plugin")),
        };
        let fault = abi::Fault { kind, nth, nanoseconds, ..abi::Fault::ZEROED };
        // SAFETY: the device is open, and the fault and the report are valid during the call.
        call("injecting this fault", |report| unsafe { inject(self.object, &fault, report) })
    }

    fn clear(&self) {
        if let Some(clear_faults) = self.tables.device.clear_faults {
            // SAFETY: the device is open.
            unsafe { clear_faults(self.object) }
        }
    }
}

/// Compares two lengths that an unsafe block relies on to be equal.
fn same_length(host: usize, device: usize) -> Result<(), BackendError> {
    if host == device {
        return Ok(());
    }
    Err(BackendError::invalid(format_args!("expected {device} bytes, found {host}")))
}

/// Memory of a library.
struct LoadedMemory {
    tables: &'static Tables,
    device: Object,
    object: Object,
}

// SAFETY: the rules of the interface allow memory on any thread.
unsafe impl Send for LoadedMemory {}
// SAFETY: a shared reference only gives the pointer, which the library's functions take on any thread.
unsafe impl Sync for LoadedMemory {}

impl Memory for LoadedMemory {
    fn native_handle(&self, kind: &str) -> Option<u64> {
        let native_handle = self.tables.device.memory_native_handle?;
        let mut handle = 0;
        // SAFETY: device and memory are of this library, and the text and the place are valid during the
        // call.
        let found = unsafe { native_handle(self.device, self.object, Str::of(kind), &mut handle) };
        (found != 0).then_some(handle)
    }
}

impl Drop for LoadedMemory {
    fn drop(&mut self) {
        if let Some(free) = self.tables.device.free {
            // SAFETY: the library has allocated it, and no work uses it any longer.
            unsafe { free(self.device, self.object) }
        }
    }
}

/// A span as the interface has it, valid for as long as the argument, for functions of these tables.
///
/// The core passes memory of one backend only. Memory of another library would be an object that these
/// functions misread, so that is compared again.
#[inline]
pub(crate) fn span(tables: &'static Tables, span: &Span) -> Result<abi::Span, BackendError> {
    let memory = span.memory_as::<LoadedMemory>()?;
    of_this_library(tables, memory.tables, "memory")?;
    Ok(abi::Span { memory: memory.object, offset: span.offset(), len: span.len() })
}

/// Checks that an object is of the backend whose functions get it.
///
/// # Errors
///
/// [`BackendError::unsupported`] if it is not, so that the core does the work itself where it can.
#[inline]
pub(crate) fn of_this_library(
    asked: &'static Tables,
    of: &'static Tables,
    what: &str,
) -> Result<(), BackendError> {
    if ptr::eq(asked, of) { Ok(()) } else { Err(foreign(what)) }
}

#[cold]
fn foreign(what: &str) -> BackendError {
    BackendError::unsupported(format_args!("{what} of another backend in a file"))
}

#[cfg(test)]
mod tests {
    use device_registry::backend::{Backend, BackendErrorKind, EventDriver, OpenedDevice, backends};
    use device_registry::plugin::{PluginDevice, PluginMemory};

    use super::*;
    use crate::abi::{BackendApi, DeviceApi, EventApi, Report, Status, StreamApi};
    use crate::load::event::LoadedEvent;

    /// Tables whose functions would misread an object of another library.
    fn tables() -> &'static Tables {
        unsafe extern "C" fn copy(
            _device: Object,
            _source: *const abi::Span,
            _destination: *const abi::Span,
            _report: *const Report,
        ) -> Status {
            abi::OK
        }
        unsafe extern "C" fn wait(_stream: Object, _event: Object, _report: *const Report) -> Status {
            abi::OK
        }
        unsafe extern "C" fn elapsed(
            _end: Object,
            _start: Object,
            _place: *mut u64,
            _report: *const Report,
        ) -> Status {
            abi::OK
        }
        Box::leak(Box::new(Tables {
            library: None,
            entry: String::new(),
            object: ptr::null_mut(),
            backend: BackendApi::ZEROED,
            device: DeviceApi { copy: Some(copy), copy_from_peer: Some(copy), ..DeviceApi::ZEROED },
            stream: StreamApi {
                copy: Some(copy),
                copy_from_peer: Some(copy),
                wait: Some(wait),
                ..StreamApi::ZEROED
            },
            event: EventApi { elapsed_since: Some(elapsed), ..EventApi::ZEROED },
        }))
    }

    fn driver(tables: &'static Tables) -> LoadedDriver {
        // SAFETY: the functions of these tables use no object.
        unsafe { LoadedDriver::new(tables, ptr::null_mut(), Claim::new(&Arc::default(), 0).unwrap()) }
    }

    fn is_unsupported(result: Result<impl Sized, BackendError>) -> bool {
        result.is_err_and(|error| error.kind() == BackendErrorKind::Unsupported)
    }

    #[test]
    fn objects_of_another_library_never_reach_a_function() {
        let own = tables();
        let other = tables();
        // The core's spans, of memory that belongs to one library each.
        let backend: &dyn Backend = backends().load("cpu").unwrap();
        let opened = OpenedDevice::new(backend, driver(own));
        let device = PluginDevice::new("cpu", backend, 0, opened, |_| ()).unwrap();
        let [own_span, other_span] = [own, other].map(|tables| {
            let none = ptr::null_mut();
            let memory = device.own(Arc::new(LoadedMemory { tables, device: none, object: none }), 8);
            // SAFETY: the pointer is from `into_raw`, and the memory is never dropped.
            unsafe { PluginMemory::span(memory.into_raw(), 0, 8) }.unwrap()
        });
        let driver = driver(own);
        let stream = LoadedStream::new(own, ptr::null_mut());
        driver.copy_from_peer(&own_span, &own_span).unwrap();
        stream.copy_from_peer(&own_span, &own_span).unwrap();
        for (source, destination) in [(&own_span, &other_span), (&other_span, &own_span)] {
            assert!(is_unsupported(driver.copy(source, destination)));
            assert!(is_unsupported(driver.copy_from_peer(source, destination)));
            assert!(is_unsupported(stream.copy(source, destination)));
            assert!(is_unsupported(stream.copy_from_peer(source, destination)));
        }
        let [own_event, other_event] = [own, other].map(|tables| LoadedEvent::new(tables, ptr::null_mut()));
        stream.wait_event(&own_event).unwrap();
        assert!(is_unsupported(stream.wait_event(&other_event)));
        own_event.elapsed_since(&own_event).unwrap();
        assert!(is_unsupported(own_event.elapsed_since(&other_event)));
    }
}
