//! Queues of a device.

use std::any::Any;
use std::cell::Cell;
use std::ptr;
use std::sync::Arc;

use device_registry::HostBuffer;
use device_registry::backend::{BackendError, EventOptions, StreamDriver};
use device_registry::plugin::{self, PluginDevice, ReadEnd};
use device_registry::registry::isolate;

use crate::abi::{self, Done, Failure, HostBytes, Object, Report, Status, Str, StreamApi, Table, Watch};
use crate::export::bytes;
use crate::export::device::{invalid_options, pattern, span, write_handle};
use crate::export::event;
use crate::export::report::{guard, guard_quietly, log_isolated, status, with_failure};
use crate::export::sources::Sources;

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
    ..StreamApi::ZEROED
};

/// A queue, as the program has it.
struct ExportedQueue {
    device: &'static PluginDevice,
    /// Dropped first: with that, it ends the work that uses the sources.
    driver: Box<dyn StreamDriver>,
    sources: Arc<Sources>,
}

pub(crate) fn into_object(device: &'static PluginDevice, driver: Box<dyn StreamDriver>) -> Object {
    Box::into_raw(Box::new(ExportedQueue { device, driver, sources: Arc::default() })).cast()
}

/// # Safety
///
/// The object is from [`into_object`], was not destroyed, and the program keeps what it guarantees to a
/// driver.
unsafe fn queue<'a>(stream: Object) -> &'a ExportedQueue {
    // SAFETY: the caller promises that it is a box of this type.
    unsafe { &*stream.cast::<ExportedQueue>() }
}

/// # Safety
///
/// The object is from [`into_object`], was not destroyed, and the program keeps what it guarantees to a
/// driver.
unsafe fn stream<'a>(stream: Object) -> &'a dyn StreamDriver {
    // SAFETY: the caller promises the same.
    unsafe { &*queue(stream).driver }
}

/// Runs a kernel with a queue, and keeps what it keeps.
///
/// # Safety
///
/// The same as for [`queue`].
pub(crate) unsafe fn launch(
    stream: Object,
    kernel: impl FnOnce(&dyn StreamDriver) -> (Result<(), BackendError>, Vec<Box<dyn Any + Send>>),
) -> Result<(), BackendError> {
    // SAFETY: the caller promises the same.
    let ExportedQueue { driver, sources, .. } = unsafe { queue(stream) };
    let (outcome, kept) = kernel(&**driver);
    // Also the sources of a failed one: part of its work may be submitted.
    sources.keep(kept);
    outcome
}

unsafe extern "C" fn destroy(object: Object) {
    guard_quietly("a panic while freeing a stream", || {
        // SAFETY: the object is from `into_object`, and the program destroys it once.
        drop(unsafe { Box::from_raw(object.cast::<ExportedQueue>()) })
    });
}

unsafe extern "C" fn write(
    object: Object,
    destination: *const abi::Span,
    source: *const HostBytes,
    report: *const Report,
) -> Status {
    // SAFETY: the program passes a stream and memory of this library, bytes that this side owns from now on,
    // and a valid report.
    unsafe {
        guard(report, || {
            let ExportedQueue { driver, sources, .. } = queue(object);
            let source = sources.keep_after(bytes::source(source)?);
            driver.write(&*span(destination)?, &source)
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
    // SAFETY: the program passes a stream and memory of this library, bytes and an end that this side owns
    // from now on, and a valid report.
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
            let ExportedQueue { driver, sources, .. } = queue(object);
            let reached = sources.reached();
            place.write(event::into_object(driver.record(&options)?, sources, reached));
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
            let ExportedQueue { driver, sources, .. } = queue(object);
            // Read before the query, which says nothing about later work.
            let reached = sources.reached();
            let is_done = driver.query()?;
            if is_done {
                sources.release(reached);
            }
            done.write(is_done.into());
            Ok(())
        })
    }
}

unsafe extern "C" fn synchronize(object: Object, report: *const Report) -> Status {
    // SAFETY: the program passes a stream of this library and a valid report.
    unsafe {
        guard(report, || {
            let ExportedQueue { driver, sources, .. } = queue(object);
            // Read before the wait, which does not cover later work.
            let reached = sources.reached();
            driver.synchronize()?;
            sources.release(reached);
            Ok(())
        })
    }
}

unsafe extern "C" fn native_handle(object: Object, kind: Str, handle: *mut u64) -> u32 {
    // SAFETY: the program passes a stream of this library, text and a place that are valid.
    unsafe {
        let device = (*object.cast::<ExportedQueue>()).device;
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
            // SAFETY: the core calls this function once, which calls this closure once. The pointers are
            // null, or valid during the call, and the bytes go to the program.
            unsafe { finish(context, status, bytes, failure) }
        };
        // The error's own code runs here: for its text, and its drop.
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

#[cfg(test)]
mod tests {
    use std::sync::Weak;
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
    use std::time::Duration;

    use device_registry::backend::{
        AllocateOptions, Completion, DeviceDriver, EventDriver, FillPattern, Memory, MemoryInfo,
        OpenedDevice, Span, backends,
    };
    use parking_lot::Mutex;

    use super::*;
    use crate::abi::EventApi;
    use crate::export::event::EVENT_API;

    /// The program's bytes, which it frees when they are released.
    struct Bytes(Mutex<[u8; 4]>, AtomicUsize);

    impl Bytes {
        fn new() -> &'static Self {
            Box::leak(Box::new(Self(Mutex::new(*b"rust"), AtomicUsize::new(0))))
        }

        fn released(&self) -> usize {
            self.1.load(Ordering::SeqCst)
        }

        fn for_library(&'static self) -> HostBytes {
            unsafe extern "C" fn release(owner: Object) {
                // SAFETY: the owner is a reference that is valid forever.
                let bytes = unsafe { &*owner.cast::<Bytes>() };
                bytes.0.lock().fill(0xDB);
                bytes.1.fetch_add(1, Ordering::SeqCst);
            }
            let start = self.0.lock().as_mut_ptr().cast();
            let owner = ptr::from_ref(self).cast_mut().cast();
            HostBytes { start, len: 4, owner, reserved: 0, release: Some(release) }
        }
    }

    /// A queue that relies on the core to keep the sources of its writes.
    #[derive(Default)]
    struct Lazy {
        sources: Mutex<Vec<Weak<HostBuffer>>>,
        runs: Arc<AtomicBool>,
        refuses: Arc<AtomicBool>,
    }

    impl Lazy {
        /// Does the work, and with it reads the sources, once it runs.
        fn is_done(&self) -> Result<bool, BackendError> {
            let runs = self.runs.load(Ordering::SeqCst);
            for source in self.sources.lock().drain(..).filter(|_| runs) {
                let source = source.upgrade().ok_or_else(|| BackendError::other("the source is freed"))?;
                assert_eq!(**source, *b"rust");
            }
            Ok(runs)
        }
    }

    impl StreamDriver for Lazy {
        fn write(&self, _destination: &Span, source: &Arc<HostBuffer>) -> Result<(), BackendError> {
            self.sources.lock().push(Arc::downgrade(source));
            if self.refuses.load(Ordering::SeqCst) {
                return Err(BackendError::other("the queue is full"));
            }
            Ok(())
        }
        fn read(&self, _: &Span, _: HostBuffer, _: Completion) -> Result<(), BackendError> {
            Err(BackendError::unsupported("reads"))
        }
        fn copy(&self, _: &Span, _: &Span) -> Result<(), BackendError> {
            Err(BackendError::unsupported("copies"))
        }
        fn fill(&self, _: &Span, _: &FillPattern) -> Result<(), BackendError> {
            Err(BackendError::unsupported("fills"))
        }
        fn record(&self, _: &EventOptions) -> Result<Box<dyn EventDriver>, BackendError> {
            Ok(Box::new(Mark(Arc::clone(&self.runs))))
        }
        fn query(&self) -> Result<bool, BackendError> {
            self.is_done()
        }
        fn synchronize(&self) -> Result<(), BackendError> {
            self.is_done().map(drop)
        }
    }

    struct Mark(Arc<AtomicBool>);

    impl EventDriver for Mark {
        fn query(&self) -> Result<bool, BackendError> {
            Ok(self.0.load(Ordering::SeqCst))
        }
        fn synchronize(&self) -> Result<(), BackendError> {
            Ok(())
        }
        fn elapsed_since(&self, _: &dyn EventDriver) -> Result<Duration, BackendError> {
            Ok(Duration::ZERO)
        }
    }

    struct NoMemory;
    impl Memory for NoMemory {}

    struct Driver;
    impl DeviceDriver for Driver {
        fn memory_info(&self) -> Result<MemoryInfo, BackendError> {
            Ok(MemoryInfo::unknown())
        }
        fn allocate(&self, _: &AllocateOptions) -> Result<Arc<dyn Memory>, BackendError> {
            Ok(Arc::new(NoMemory))
        }
    }

    /// The functions of a queue, as a program calls them.
    struct Program {
        queue: Object,
        memory: Object,
        runs: Arc<AtomicBool>,
        refuses: Arc<AtomicBool>,
    }

    impl Program {
        fn new() -> Self {
            let backend = backends().load("cpu").unwrap();
            let device =
                PluginDevice::new("cpu", backend, 0, OpenedDevice::new(backend, Driver), |_| ()).unwrap();
            let lazy = Lazy::default();
            let runs = Arc::clone(&lazy.runs);
            let refuses = Arc::clone(&lazy.refuses);
            let memory = device.own(Arc::new(NoMemory), 4).into_raw().cast_mut().cast();
            Self { queue: into_object(device, Box::new(lazy)), memory, runs, refuses }
        }

        fn write(&self) -> (&'static Bytes, Status) {
            let bytes = Bytes::new();
            let span = abi::Span { memory: self.memory, offset: 0, len: 4 };
            // SAFETY: the queue and the memory are alive, and the bytes are valid until they are released.
            let status = unsafe { write(self.queue, &span, &bytes.for_library(), &report()) };
            (bytes, status)
        }

        fn call(&self, function: unsafe extern "C" fn(Object, *const Report) -> Status) {
            // SAFETY: the queue is alive.
            assert_eq!(unsafe { function(self.queue, &report()) }, abi::OK);
        }

        fn query(&self, function: unsafe extern "C" fn(Object, *mut u32, *const Report) -> Status) -> u32 {
            ask(function, self.queue)
        }

        fn record(&self) -> Object {
            let options = abi::EventOptions::ZEROED;
            let mut event = ptr::null_mut();
            // SAFETY: the queue is alive, and the place is valid.
            let status = unsafe { record(self.queue, &options, &mut event, &report()) };
            assert_eq!(status, abi::OK);
            event
        }
    }

    fn ask(function: unsafe extern "C" fn(Object, *mut u32, *const Report) -> Status, object: Object) -> u32 {
        let mut answer = 7;
        // SAFETY: the object is alive, and the place is valid.
        assert_eq!(unsafe { function(object, &mut answer, &report()) }, abi::OK);
        answer
    }

    fn report() -> Report {
        unsafe extern "C" fn fail(_context: Object, _failure: *const Failure) {}
        Report { fail: Some(fail), ..Report::ZEROED }
    }

    /// What a kernel keeps for its queued work.
    struct Scratch(Arc<AtomicUsize>);

    impl Drop for Scratch {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    #[test]
    fn what_a_kernel_keeps_stays_until_the_queue_is_done_also_if_it_fails_or_panics() {
        type End = fn() -> Result<(), BackendError>;
        let ends: [(End, &str); 3] = [
            (|| Ok(()), ""),
            (|| Err(BackendError::other("not today")), "not today"),
            (|| panic!("on purpose"), "the kernel panicked: on purpose"),
        ];
        for (end, message) in ends {
            let program = Program::new();
            let dropped = Arc::<AtomicUsize>::default();
            let scratch = Scratch(Arc::clone(&dropped));
            // SAFETY: the queue is alive.
            let outcome = unsafe {
                launch(program.queue, |stream| {
                    queue(program.queue).device.launch(Some(stream), &[], |launch| {
                        launch.keep(scratch);
                        end()
                    })
                })
            };
            assert_eq!(outcome.err().map_or(String::new(), |error| error.message().to_owned()), message);
            assert_eq!((program.query(query), dropped.load(Ordering::SeqCst)), (0, 0), "{message}");
            program.runs.store(true, Ordering::SeqCst);
            assert_eq!((program.query(query), dropped.load(Ordering::SeqCst)), (1, 1), "{message}");
        }
    }

    #[test]
    fn a_panic_in_the_drop_of_what_a_kernel_keeps_is_no_failure_of_the_queue() {
        struct Panics;
        impl Drop for Panics {
            fn drop(&mut self) {
                panic!("on purpose");
            }
        }
        let program = Program::new();
        program.runs.store(true, Ordering::SeqCst);
        // SAFETY: the queue is alive.
        unsafe { &queue(program.queue).sources }.keep(vec![Box::new(Panics)]);
        assert_eq!(program.query(query), 1);
    }

    #[test]
    fn the_source_of_a_write_is_released_when_the_queue_says_that_it_is_done() {
        for synchronizes in [false, true] {
            let program = Program::new();
            let (first, status) = program.write();
            assert_eq!((status, program.query(query), first.released()), (abi::OK, 0, 0));
            program.refuses.store(true, Ordering::SeqCst);
            let (refused, status) = program.write();
            assert_eq!((status, first.released(), refused.released()), (abi::OTHER, 0, 0));
            program.runs.store(true, Ordering::SeqCst);
            if synchronizes {
                program.call(synchronize);
            } else {
                assert_eq!(program.query(query), 1);
            }
            assert_eq!((first.released(), refused.released()), (1, 1));
        }
    }

    #[test]
    fn the_source_of_a_write_is_released_when_an_event_behind_it_is_over() {
        let EventApi { query, is_over, synchronize, destroy, .. } = &EVENT_API;
        for function in [query, is_over, &None] {
            let program = Program::new();
            let (before, _) = program.write();
            let event = program.record();
            let (behind, _) = program.write();
            match function {
                Some(function) => {
                    assert_eq!((ask(*function, event), before.released()), (0, 0));
                    program.runs.store(true, Ordering::SeqCst);
                    assert_eq!((ask(*function, event), before.released()), (1, 1));
                }
                None => {
                    // SAFETY: the event is alive.
                    assert_eq!(unsafe { synchronize.unwrap()(event, &report()) }, abi::OK);
                }
            }
            assert_eq!((before.released(), behind.released()), (1, 0));
            // SAFETY: the event is alive, and is not used any longer.
            unsafe { destroy.unwrap()(event) };
        }
    }

    #[test]
    fn the_source_of_a_write_that_was_not_done_at_a_loss_is_never_released() {
        let program = Program::new();
        let (bytes, _) = program.write();
        let event = program.record();
        // SAFETY: the queue and the event are alive, and are not used any longer.
        unsafe {
            destroy(program.queue);
            EVENT_API.destroy.unwrap()(event);
        }
        assert_eq!(bytes.released(), 0);
    }
}
