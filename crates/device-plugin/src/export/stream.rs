//! Queues of a device.

use std::cell::Cell;
use std::ptr;
use std::sync::Arc;

use device_registry::HostBuffer;
use device_registry::backend::{BackendError, EventOptions, StreamDriver};
use device_registry::plugin::{self, PluginDevice, ReadEnd};
use device_registry::registry::isolate;

use crate::abi::{self, Done, Failure, HostBytes, Object, Report, Status, Str, StreamApi, Watch};
use crate::export::bytes;
use crate::export::device::{invalid_options, pattern, span, write_handle};
use crate::export::event;
use crate::export::report::{guard, guard_quietly, log_isolated, status, with_failure};

pub(crate) static STREAM_API: StreamApi = StreamApi {
    destroy: Some(destroy),
    write: Some(write),
    read: Some(read),
    copy: Some(copy),
    fill: Some(fill),
    copy_from_peer: Some(copy_from_peer),
    record: Some(record),
    wait: Some(wait),
    launched: Some(launched),
    flush: Some(flush),
    query: Some(query),
    synchronize: Some(synchronize),
    native_handle: Some(native_handle),
    ..StreamApi::zeroed()
};

/// A queue, as the program has it.
struct Queue {
    device: &'static PluginDevice,
    driver: Box<dyn StreamDriver>,
}

pub(crate) fn into_object(device: &'static PluginDevice, driver: Box<dyn StreamDriver>) -> Object {
    Box::into_raw(Box::new(Queue { device, driver })).cast()
}

/// # Safety
///
/// The object is from [`into_object`], was not destroyed, and the program keeps what it guarantees to a driver.
unsafe fn stream<'a>(stream: Object) -> &'a dyn StreamDriver {
    // SAFETY: the caller promises that it is a box of this type.
    unsafe { &*(*stream.cast::<Queue>()).driver }
}

unsafe extern "C" fn destroy(object: Object) {
    guard_quietly("a panic while freeing a stream", || {
        // SAFETY: the object is from `into_object`, and the program destroys it once.
        drop(unsafe { Box::from_raw(object.cast::<Queue>()) })
    });
}

unsafe extern "C" fn write(
    object: Object,
    destination: *const abi::Span,
    source: *const HostBytes,
    report: *const Report,
) -> Status {
    // SAFETY: the program passes a stream and memory of this library, bytes that this side owns from now on, and a valid
    // report.
    unsafe {
        guard(report, || {
            let source = bytes::source(source)?;
            stream(object).write(&*span(destination)?, &source)
        })
    }
}

unsafe extern "C" fn read(
    object: Object,
    source: *const abi::Span,
    destination: *const HostBytes,
    done: *const Done,
    report: *const Report,
) -> Status {
    // SAFETY: the program passes a stream and memory of this library, bytes and an end that this side owns from now on, and a
    // valid report.
    unsafe {
        guard(report, || {
            let completion = plugin::completion(ProgramRead(done.read()));
            let destination = bytes::destination(destination)?;
            stream(object).read(&*span(source)?, destination, completion)
        })
    }
}

unsafe extern "C" fn copy(
    object: Object,
    source: *const abi::Span,
    destination: *const abi::Span,
    report: *const Report,
) -> Status {
    // SAFETY: the program passes a stream and memory of this library, and a valid report.
    unsafe { guard(report, || stream(object).copy(&*span(source)?, &*span(destination)?)) }
}

unsafe extern "C" fn fill(
    object: Object,
    destination: *const abi::Span,
    bytes: *const std::ffi::c_void,
    len: usize,
    report: *const Report,
) -> Status {
    // SAFETY: the program passes a stream and memory of this library, `len` bytes, and a valid report.
    unsafe { guard(report, || stream(object).fill(&*span(destination)?, &pattern(bytes, len)?)) }
}

unsafe extern "C" fn copy_from_peer(
    object: Object,
    source: *const abi::Span,
    destination: *const abi::Span,
    report: *const Report,
) -> Status {
    // SAFETY: the program passes a stream and memory of this library, and a valid report.
    unsafe { guard(report, || stream(object).copy_from_peer(&*span(source)?, &*span(destination)?)) }
}

unsafe extern "C" fn record(
    object: Object,
    options: *const abi::EventOptions,
    place: *mut Object,
    report: *const Report,
) -> Status {
    // SAFETY: the program passes a stream of this library, and options, a place and a report that are valid.
    unsafe {
        guard(report, || {
            let timed = abi::take(options).map_err(invalid_options)?.timed != 0;
            let options = if timed { EventOptions::new().timed() } else { EventOptions::new() };
            place.write(event::into_object(stream(object).record(&options)?));
            Ok(())
        })
    }
}

unsafe extern "C" fn wait(object: Object, awaited: Object, report: *const Report) -> Status {
    // SAFETY: the program passes a stream and an event of this library, and a valid report.
    unsafe { guard(report, || stream(object).wait_event(event::event(awaited))) }
}

unsafe extern "C" fn launched(object: Object) {
    // SAFETY: the program passes a stream of this library.
    guard_quietly("a panic in `launched`", || unsafe { stream(object) }.launched());
}

unsafe extern "C" fn flush(object: Object, report: *const Report) -> Status {
    // SAFETY: the program passes a stream of this library and a valid report.
    unsafe { guard(report, || stream(object).flush()) }
}

unsafe extern "C" fn query(object: Object, done: *mut u32, report: *const Report) -> Status {
    // SAFETY: the program passes a stream of this library, a place and a report that are valid.
    unsafe {
        guard(report, || {
            done.write(stream(object).query()?.into());
            Ok(())
        })
    }
}

unsafe extern "C" fn synchronize(object: Object, report: *const Report) -> Status {
    // SAFETY: the program passes a stream of this library and a valid report.
    unsafe { guard(report, || stream(object).synchronize()) }
}

unsafe extern "C" fn native_handle(object: Object, kind: Str, handle: *mut u64) -> u32 {
    // SAFETY: the program passes a stream of this library, text and a place that are valid.
    unsafe {
        let device = (*object.cast::<Queue>()).device;
        write_handle(device, kind, handle, |kind| stream(object).native_handle(kind))
    }
}

/// The end of a read in the program.
struct ProgramRead(Done);

// SAFETY: any thread may finish a read, and look whether it is finished.
unsafe impl Send for ProgramRead {}
// SAFETY: any thread may finish a read, and look whether it is finished.
unsafe impl Sync for ProgramRead {}

impl ReadEnd for ProgramRead {
    fn finish(&self, outcome: Option<Result<HostBuffer, BackendError>>) {
        let Some(finish) = self.0.finish else { return };
        let context = self.0.context;
        let finished = Cell::new(false);
        let finish = |status, bytes: Option<&HostBytes>, failure: Option<&Failure>| {
            finished.set(true);
            let bytes = bytes.map_or(ptr::null(), ptr::from_ref);
            let failure = failure.map_or(ptr::null(), ptr::from_ref);
            // SAFETY: the core calls this function once, which calls this closure once. The pointers are null, or valid during
            // the call, and the bytes go to the program.
            unsafe { finish(context, status, bytes, failure) }
        };
        // An error's own code runs here: its text, and its drop.
        let outcome = isolate(|| match outcome {
            Some(Ok(buffer)) => finish(abi::OK, Some(&bytes::give(buffer)), None),
            Some(Err(error)) => {
                with_failure(&error, |failure| finish(status(error.kind()), None, Some(failure)));
            }
            None => finish(abi::DROPPED, None, None),
        });
        if let Err(panic) = outcome {
            log_isolated("a panic while finishing a read", &panic);
            if !finished.get() {
                let error = BackendError::other(format_args!("the backend panicked: {}", panic.message()));
                with_failure(&error, |failure| finish(abi::OTHER, None, Some(failure)));
            }
        }
    }

    fn watch(&self) -> Arc<dyn Fn() -> bool + Send + Sync> {
        let mut watch = Watch { watch: ptr::null_mut(), reserved: 0, is_finished: None, release: None };
        if let Some(begin) = self.0.watch {
            // SAFETY: the read is not finished, as its completion still exists, and the place is valid.
            unsafe { begin(self.0.context, &mut watch) }
        }
        let watch = ProgramWatch(watch);
        Arc::new(move || watch.is_finished())
    }
}

/// Whether the program has the result of a read.
struct ProgramWatch(Watch);

// SAFETY: any thread may look and release.
unsafe impl Send for ProgramWatch {}
// SAFETY: any thread may look, several at once.
unsafe impl Sync for ProgramWatch {}

impl ProgramWatch {
    fn is_finished(&self) -> bool {
        // SAFETY: it was not released, which only the drop does.
        self.0.is_finished.is_none_or(|is_finished| unsafe { is_finished(self.0.watch) } != 0)
    }
}

impl Drop for ProgramWatch {
    fn drop(&mut self) {
        if let Some(release) = self.0.release {
            // SAFETY: this side releases it once, and does not look any longer.
            unsafe { release(self.0.watch) }
        }
    }
}
