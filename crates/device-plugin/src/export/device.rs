//! Open devices.

use std::mem::ManuallyDrop;
use std::time::Duration;
use std::{ptr, slice};

use device_registry::backend::{
    AllocateOptions, BackendError, DeviceDriver, Fault, FillPattern, Priority, Span, StreamOptions,
};
use device_registry::plugin::{self, PluginDevice, PluginMemory};

use crate::abi::{self, DeviceApi, HostBytes, Object, Report, Status, Str, Table};
use crate::export::bytes;
use crate::export::report::{guard, guard_quietly};
use crate::export::stream;

pub(crate) static DEVICE_API: DeviceApi = DeviceApi {
    memory_info: Some(memory_info),
    allocate: Some(allocate),
    free: Some(free),
    write: Some(write),
    read: Some(read),
    copy: Some(copy),
    fill: Some(fill),
    copy_from_peer: Some(copy_from_peer),
    create_stream: Some(create_stream),
    allocate_host: Some(allocate_host),
    reset: Some(reset),
    close: Some(close),
    has_faults: Some(has_faults),
    inject: Some(inject),
    clear_faults: Some(clear_faults),
    native_handle: Some(native_handle),
    memory_native_handle: Some(memory_native_handle),
    ..DeviceApi::ZEROED
};

/// # Safety
///
/// The object is of an open device.
pub(crate) unsafe fn opened(device: Object) -> &'static PluginDevice {
    // SAFETY: the caller promises that `open` has returned it; it is never freed.
    unsafe { &*device.cast::<PluginDevice>() }
}

/// # Safety
///
/// The object is of an open device, and the program keeps what it guarantees to a driver.
unsafe fn driver(device: Object) -> &'static dyn DeviceDriver {
    // SAFETY: the caller promises both.
    unsafe { opened(device).driver() }
}

/// The span of a call.
///
/// # Safety
///
/// The pointer is valid, and its memory is of this library and not freed for as long as the result is used.
#[inline]
pub(crate) unsafe fn span(span: *const abi::Span) -> Result<ManuallyDrop<Span>, BackendError> {
    // SAFETY: the caller promises that the pointer is valid.
    let span = unsafe { span.read() };
    // SAFETY: `allocate` has returned the memory, which the caller promises to be there.
    let found = unsafe { PluginMemory::span(span.memory.cast_const().cast(), span.offset, span.len) };
    found.ok_or_else(|| outside(span.offset, span.len))
}

#[cold]
fn outside(offset: usize, len: usize) -> BackendError {
    BackendError::invalid(format_args!("{len} bytes from {offset} on do not lie in the memory, or are none"))
}

/// The pattern of a fill.
///
/// # Safety
///
/// `len` bytes at `pattern` are valid for reads.
pub(crate) unsafe fn pattern(
    pattern: *const std::ffi::c_void,
    len: usize,
) -> Result<FillPattern, BackendError> {
    // SAFETY: the caller promises it.
    let pattern = plugin::fill_pattern(unsafe { slice::from_raw_parts(pattern.cast(), len) });
    pattern.ok_or_else(|| BackendError::invalid(format_args!("no pattern of a fill has {len} bytes")))
}

unsafe extern "C" fn memory_info(
    device: Object,
    info: *mut abi::MemoryInfo,
    report: *const Report,
) -> Status {
    // SAFETY: the program passes a device of this library, a place and a report that are valid.
    unsafe {
        guard(report, || {
            let known = driver(device).memory_info()?;
            let total = known.total.unwrap_or(abi::UNKNOWN);
            let free = known.free.unwrap_or(abi::UNKNOWN);
            abi::put(info, abi::MemoryInfo { total, free, ..abi::MemoryInfo::ZEROED })
                .map_err(|error| BackendError::invalid(format_args!("the place for the memory {error}")))
        })
    }
}

unsafe extern "C" fn allocate(
    device: Object,
    options: *const abi::AllocateOptions,
    memory: *mut Object,
    report: *const Report,
) -> Status {
    // SAFETY: the program passes a device of this library, and options, a place and a report that are valid.
    unsafe {
        guard(report, || {
            let len = abi::take(options).map_err(invalid_options)?.len;
            let allocated = driver(device).allocate(&AllocateOptions::new(len))?;
            memory.write(opened(device).own(allocated, len).into_raw().cast_mut().cast());
            Ok(())
        })
    }
}

pub(crate) fn invalid_options(error: abi::TableError) -> BackendError {
    BackendError::invalid(format_args!("the options {error}"))
}

unsafe extern "C" fn free(_device: Object, memory: Object) {
    guard_quietly("a panic while freeing memory", || {
        // SAFETY: `allocate` has returned the memory, and the program frees it once.
        drop(unsafe { PluginMemory::from_raw(memory.cast_const().cast()) })
    });
}

unsafe extern "C" fn write(
    device: Object,
    destination: *const abi::Span,
    source: *const std::ffi::c_void,
    report: *const Report,
) -> Status {
    // SAFETY: the program passes a device and memory of this library, as many bytes as the span has, and a
    // valid report.
    unsafe {
        guard(report, || {
            let destination = span(destination)?;
            let source = slice::from_raw_parts(source.cast(), destination.len());
            driver(device).write(&destination, source)
        })
    }
}

unsafe extern "C" fn read(
    device: Object,
    source: *const abi::Span,
    destination: Object,
    report: *const Report,
) -> Status {
    // SAFETY: the program passes a device and memory of this library, room for as many bytes as the span has,
    // and a valid report.
    unsafe {
        guard(report, || {
            let source = span(source)?;
            let destination = slice::from_raw_parts_mut(destination.cast(), source.len());
            driver(device).read(&source, destination)
        })
    }
}

unsafe extern "C" fn copy(
    device: Object,
    source: *const abi::Span,
    destination: *const abi::Span,
    report: *const Report,
) -> Status {
    // SAFETY: the program passes a device and memory of this library, and a valid report.
    unsafe { guard(report, || driver(device).copy(&*span(source)?, &*span(destination)?)) }
}

unsafe extern "C" fn fill(
    device: Object,
    destination: *const abi::Span,
    bytes: *const std::ffi::c_void,
    len: usize,
    report: *const Report,
) -> Status {
    // SAFETY: the program passes a device and memory of this library, `len` bytes, and a valid report.
    unsafe { guard(report, || driver(device).fill(&*span(destination)?, &pattern(bytes, len)?)) }
}

unsafe extern "C" fn copy_from_peer(
    device: Object,
    source: *const abi::Span,
    destination: *const abi::Span,
    report: *const Report,
) -> Status {
    // SAFETY: the program passes a device and memory of this library, and a valid report.
    unsafe { guard(report, || driver(device).copy_from_peer(&*span(source)?, &*span(destination)?)) }
}

unsafe extern "C" fn create_stream(
    device: Object,
    options: *const abi::StreamOptions,
    place: *mut Object,
    report: *const Report,
) -> Status {
    // SAFETY: the program passes a device of this library, and options, a place and a report that are valid.
    unsafe {
        guard(report, || {
            let priority = match abi::take(options).map_err(invalid_options)?.priority {
                ..=-1 => Priority::Low,
                0 => Priority::Normal,
                1.. => Priority::High,
            };
            let created = driver(device).create_stream(&StreamOptions::new().with_priority(priority))?;
            place.write(stream::into_object(opened(device), created));
            Ok(())
        })
    }
}

unsafe extern "C" fn allocate_host(
    device: Object,
    len: usize,
    place: *mut HostBytes,
    report: *const Report,
) -> Status {
    // SAFETY: the program passes a device of this library, and a place and a report that are valid.
    unsafe {
        guard(report, || {
            place.write(bytes::give(driver(device).allocate_host(len)?));
            Ok(())
        })
    }
}

unsafe extern "C" fn reset(device: Object, report: *const Report) -> Status {
    // SAFETY: the program passes a device of this library and a valid report.
    unsafe {
        guard(report, || {
            opened(device).end_values();
            driver(device).reset()
        })
    }
}

unsafe extern "C" fn close(device: Object, report: *const Report) -> Status {
    // SAFETY: the program passes a device of this library and a valid report.
    unsafe {
        guard(report, || {
            opened(device).end_values();
            driver(device).close()
        })
    }
}

unsafe extern "C" fn has_faults(device: Object) -> u32 {
    let mut has_faults = false;
    // SAFETY: the program passes a device of this library.
    guard_quietly("a panic in `faults`", || has_faults = unsafe { driver(device) }.faults().is_some());
    has_faults.into()
}

unsafe extern "C" fn inject(device: Object, fault: *const abi::Fault, report: *const Report) -> Status {
    // SAFETY: the program passes a device of this library, and a fault and a report that are valid.
    unsafe {
        guard(report, || {
            let fault = abi::take(fault).map_err(invalid_options)?;
            let nth = fault.nth;
            let unsupported = || BackendError::unsupported("injecting this fault");
            let injected = match fault.kind {
                abi::FAIL_ALLOCATION => Fault::FailAllocation { nth },
                abi::FAIL_COPY => Fault::FailCopy { nth },
                abi::LOSE_DEVICE => Fault::LoseDevice { nth },
                abi::UNPLUG => Fault::Unplug,
                abi::SLOW => Fault::Slow { by: Duration::from_nanos(fault.nanoseconds) },
                abi::STALL => Fault::Stall { nth },
                _ => return Err(unsupported()),
            };
            driver(device).faults().ok_or_else(unsupported)?.inject(injected)
        })
    }
}

unsafe extern "C" fn clear_faults(device: Object) {
    guard_quietly("a panic while clearing faults", || {
        // SAFETY: the program passes a device of this library.
        unsafe { driver(device) }.faults().into_iter().for_each(|faults| faults.clear())
    });
}

unsafe extern "C" fn native_handle(device: Object, kind: Str, handle: *mut u64) -> u32 {
    // SAFETY: the program passes a device of this library, text and a place that are valid.
    unsafe { write_handle(opened(device), kind, handle, |kind| driver(device).native_handle(kind)) }
}

unsafe extern "C" fn memory_native_handle(
    device: Object,
    memory: Object,
    kind: Str,
    handle: *mut u64,
) -> u32 {
    // SAFETY: the program passes a device of this library. `allocate` has returned the memory, which the
    // program still owns; text and place are valid.
    unsafe {
        let memory = ManuallyDrop::new(PluginMemory::from_raw(memory.cast_const().cast()));
        write_handle(opened(device), kind, handle, |kind| memory.native_handle(kind))
    }
}

/// Writes a native handle of a device, if there is one and the backend has declared that it has any. Returns
/// whether it has written one.
///
/// # Safety
///
/// The text and the place are valid.
pub(crate) unsafe fn write_handle(
    device: &PluginDevice,
    kind: Str,
    place: *mut u64,
    handle: impl FnOnce(&str) -> Option<u64>,
) -> u32 {
    if !device.has_native_handles() {
        return 0;
    }
    let mut found = None;
    guard_quietly("a panic in `native_handle`", || {
        // SAFETY: the caller promises that the text is valid.
        found = unsafe { kind.text() }.ok().and_then(|kind| handle(&kind));
    });
    let Some(handle) = found else { return 0 };
    // SAFETY: the caller promises that the place is valid.
    unsafe { ptr::write(place, handle) }
    1
}
