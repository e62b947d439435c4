//! Streams of ONNX Runtime. Each run of a session has one of its own, which later runs use again.

use std::collections::BTreeSet;
use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use device_registry::{Buffer, Event, Stream};
use ort_sys::{OrtStatusPtr, OrtSyncStream};
use parking_lot::{Mutex, RwLock};

use crate::abi::{Notification, StreamImpl, VERSION};
use crate::api::Api;
use crate::failure::Failure;
use crate::place::Place;

/// The stream of one run at a time.
#[derive(Debug)]
pub(crate) struct RunStream {
    stream: Stream,
    pub(crate) place: &'static Place,
    /// How many operations were enqueued, and how many of them something has waited for.
    enqueued: AtomicU64,
    done: AtomicU64,
    /// A failure that ONNX Runtime has only logged, until the end of the run.
    failure: Mutex<Option<Failure>>,
}

impl RunStream {
    /// Enqueues an operation.
    pub(crate) fn enqueue<E: Into<Failure>>(
        &self,
        operation: impl FnOnce(&Stream) -> Result<(), E>,
    ) -> Result<(), Failure> {
        let enqueued = operation(&self.stream);
        // Not before: until then, another thread's wait does not include it.
        self.enqueued.fetch_add(1, Ordering::Release);
        enqueued.map_err(E::into)
    }

    /// Allocates memory that work of the stream uses first.
    pub(crate) fn allocate(&self, len: usize) -> Result<Buffer, Failure> {
        Ok(self.stream.allocate(len)?)
    }

    fn is_busy(&self) -> bool {
        self.enqueued.load(Ordering::Acquire) != self.done.load(Ordering::Acquire)
    }

    /// An event behind all work, if there may be some that nothing has waited for.
    fn event(&self) -> Result<Option<Event>, Failure> {
        if self.is_busy() { Ok(Some(self.stream.record()?)) } else { Ok(None) }
    }

    /// Waits for all work. A failure is reported once, to the first that waits.
    pub(crate) fn synchronize(&self) -> Result<(), Failure> {
        let enqueued = self.enqueued.load(Ordering::Acquire);
        let done = self.stream.synchronize();
        self.done.fetch_max(enqueued, Ordering::Release);
        Ok(done?)
    }

    /// Waits for the work that is enqueued, for a copy outside of runs. The run that fails hears of it too.
    pub(crate) fn wait_for_copy(&self) -> Result<(), Failure> {
        let Some(event) = self.event()? else { return Ok(()) };
        event.synchronize().map_err(|error| {
            let _ = self.keep(self.synchronize());
            error.into()
        })
    }

    /// Keeps a failure for the end of the run, as ONNX Runtime would only log it.
    fn keep(&self, done: Result<(), Failure>) -> Result<(), Failure> {
        if let Err(failure) = &done {
            self.failure.lock().get_or_insert_with(|| failure.clone());
        }
        done
    }

    /// Forgets failures, once an error has ended the run: then ONNX Runtime does not call [`run_end`], and
    /// the next run has the stream.
    pub(crate) fn forget_failures(&self) {
        let _ = self.synchronize();
        self.failure.lock().take();
    }
}

/// A stream as ONNX Runtime has it. It sees its table, which is first.
#[repr(C)]
struct Handle {
    table: StreamImpl,
    api: Api,
    stream: Arc<RunStream>,
}

/// The addresses of all handles.
static HANDLES: RwLock<BTreeSet<usize>> = RwLock::new(BTreeSet::new());

/// Makes a stream that ONNX Runtime owns and releases.
pub(crate) fn create(api: Api, place: &'static Place) -> Result<*mut StreamImpl, Failure> {
    let stream = place.device.create_stream()?;
    stream.set_label("ONNX Runtime");
    let stream = Arc::new(RunStream {
        stream,
        place,
        enqueued: AtomicU64::new(0),
        done: AtomicU64::new(0),
        failure: Mutex::new(None),
    });
    place.add_stream(&stream)?;
    let table = StreamImpl {
        ort_version_supported: VERSION,
        Release: Some(release),
        GetHandle: Some(handle),
        CreateNotification: Some(create_notification),
        Flush: Some(flush),
        OnSessionRunEnd: Some(run_end),
    };
    let handle = Box::into_raw(Box::new(Handle { table, api, stream }));
    HANDLES.write().insert(handle.addr());
    Ok(handle.cast())
}

/// The stream of a kernel's call, by the handle that [`create`] gave ONNX Runtime; `None` without one.
///
/// # Safety
///
/// The handle is null or of a stream of this module that is alive.
pub(crate) unsafe fn of_handle<'a>(handle: *mut c_void) -> Option<&'a Arc<RunStream>> {
    // SAFETY: see above.
    unsafe { handle.cast::<Handle>().as_ref() }.map(|handle| &handle.stream)
}

/// The stream that ONNX Runtime names in a call; `None` if it is null, of another library, or one of its own:
/// it allocates the memory of a whole run on a stream without a device.
///
/// # Safety
///
/// The stream is null or alive.
pub(crate) unsafe fn of_runtime<'a>(api: Api, stream: *mut OrtSyncStream) -> Option<&'a Arc<RunStream>> {
    if stream.is_null() {
        return None;
    }
    // SAFETY: the stream is alive. `SyncStream_GetImpl` would take it for one of a library.
    let handle = unsafe { (api.ort.SyncStream_GetHandle)(stream) };
    // SAFETY: a handle of this module is alive as long as its stream.
    if HANDLES.read().contains(&handle.addr()) { unsafe { of_handle(handle) } } else { None }
}

/// # Safety
///
/// `table` is one of [`create`].
unsafe fn of_table<'a>(table: *mut StreamImpl) -> &'a Handle {
    // SAFETY: see above. The table is first.
    unsafe { &*table.cast() }
}

unsafe extern "system" fn release(table: *mut StreamImpl) {
    HANDLES.write().remove(&table.addr());
    // SAFETY: it is one of `create`, and is not used again.
    let handle = unsafe { Box::from_raw(table.cast::<Handle>()) };
    // Later work may use memory that this stream still writes to. A panic of a driver ends here.
    let _ = crate::api::caught(|| if handle.stream.is_busy() { handle.stream.synchronize() } else { Ok(()) });
}

unsafe extern "system" fn handle(table: *mut StreamImpl) -> *mut c_void {
    table.cast()
}

unsafe extern "system" fn flush(table: *mut StreamImpl) -> OrtStatusPtr {
    // SAFETY: a table of this module, as in the functions below.
    let handle = unsafe { of_table(table) };
    handle.api.guard(|| handle.stream.keep(handle.stream.synchronize()))
}

unsafe extern "system" fn run_end(table: *mut StreamImpl) -> OrtStatusPtr {
    // SAFETY: see `flush`.
    let handle = unsafe { of_table(table) };
    handle.api.guard(|| {
        let waited = handle.stream.synchronize();
        handle.stream.failure.lock().take().map_or(waited, Err).map_err(|failure| {
            failure.of("work of this run, or of one before it that another error had ended")
        })
    })
}

/// What work of other streams waits for. ONNX Runtime sees its table, which is first.
#[repr(C)]
struct Notified {
    table: Notification,
    api: Api,
    stream: Arc<RunStream>,
    event: Mutex<Option<Event>>,
}

impl Notified {
    fn guard(&self, function: impl FnOnce() -> Result<(), Failure>) -> OrtStatusPtr {
        self.api.status(self.stream.keep(crate::api::caught(function)))
    }
}

unsafe extern "system" fn create_notification(
    table: *mut StreamImpl,
    notification: *mut *mut Notification,
) -> OrtStatusPtr {
    // SAFETY: see `flush`.
    let handle = unsafe { of_table(table) };
    handle.api.guard(|| {
        let table = Notification {
            ort_version_supported: VERSION,
            Release: Some(release_notification),
            Activate: Some(activate),
            WaitOnDevice: Some(wait_on_device),
            WaitOnHost: Some(wait_on_host),
        };
        let stream = handle.stream.clone();
        let made = Box::new(Notified { table, api: handle.api, stream, event: Mutex::new(None) });
        // SAFETY: there is room for a pointer.
        unsafe { *notification = Box::into_raw(made).cast() };
        Ok(())
    })
}

unsafe extern "system" fn release_notification(table: *mut Notification) {
    // SAFETY: it is one of `create_notification`, and is not used again.
    drop(unsafe { Box::from_raw(table.cast::<Notified>()) });
}

unsafe extern "system" fn activate(table: *mut Notification) -> OrtStatusPtr {
    // SAFETY: it is one of `create_notification`, as in the functions below.
    let notified = unsafe { &*table.cast::<Notified>() };
    notified.guard(|| {
        *notified.event.lock() = notified.stream.event()?;
        Ok(())
    })
}

unsafe extern "system" fn wait_on_device(
    table: *mut Notification,
    consumer: *mut OrtSyncStream,
) -> OrtStatusPtr {
    // SAFETY: see `activate`.
    let notified = unsafe { &*table.cast::<Notified>() };
    notified.guard(|| {
        let Some(event) = notified.event.lock().clone() else { return Ok(()) };
        // SAFETY: the stream is alive.
        match unsafe { of_runtime(notified.api, consumer) } {
            Some(consumer) => consumer.enqueue(|stream| stream.wait_event(&event)),
            None => Ok(event.synchronize()?),
        }
    })
}

unsafe extern "system" fn wait_on_host(table: *mut Notification) -> OrtStatusPtr {
    // SAFETY: see `activate`.
    let notified = unsafe { &*table.cast::<Notified>() };
    notified.guard(|| notified.stream.synchronize())
}
