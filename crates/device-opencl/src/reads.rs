//! Reads in a queue, and the callbacks that finish them.
//!
//! OpenCL calls back when a command is done or has failed. PoCL does so only when it is done: it forgets the
//! callback of a command that fails, and one that is registered after the failure gets the status of a
//! success. So a callback looks at the event, and one thread for all devices looks for reads that have failed
//! without one.

use std::ffi::c_void;
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, OnceLock, Weak};
use std::thread;
use std::time::Duration;

use device_registry::backend::{BackendError, Completion, HostBuffer};
use parking_lot::{Condvar, Mutex};

use crate::error::OpenClError;
use crate::event;
use crate::handle::Handle;
use crate::sys::{CL_COMPLETE, cl_event, cl_int};

/// The function that enqueues a read.
const CALL: &str = "clEnqueueReadBuffer";

/// How long a read that has failed without a callback may take to end.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// A read that was enqueued. Its callback owns it.
pub(crate) struct QueuedRead {
    /// Its stream drops the event when it has found the command done, or failed.
    event: Weak<Handle>,
    /// Until the callback or the thread takes it.
    end: Mutex<Option<End>>,
    /// The failure of its command, found without the callback.
    failure: OnceLock<OpenClError>,
}

struct End {
    destination: HostBuffer,
    completion: Completion,
}

impl QueuedRead {
    /// Registers the callback for a read's event. The read ends from here on.
    ///
    /// # Errors
    ///
    /// If OpenCL refuses the callback. The read has ended then.
    pub(crate) fn begin(
        event: &Arc<Handle>,
        destination: HostBuffer,
        completion: Completion,
    ) -> Result<Weak<Self>, OpenClError> {
        let (functions, end) = (event.functions(), Mutex::new(Some(End { destination, completion })));
        let read = Arc::new(Self { event: Arc::downgrade(event), end, failure: OnceLock::new() });
        let weak = Arc::downgrade(&read);
        let owned = Arc::into_raw(read);
        // SAFETY: the event is valid, and the callback owns what its argument points to.
        let registered = unsafe {
            functions.clSetEventCallback(event.get(), CL_COMPLETE, Some(called_back), owned.cast_mut().cast())
        };
        if let Err(error) = registered {
            // Without a callback this waits for the command. If it cannot, the bytes are leaked.
            if event::wait(CALL, event).is_ok() {
                // SAFETY: `into_raw` made the pointer above, and the refused callback does not have it.
                drop(unsafe { Arc::from_raw(owned) });
            }
            return Err(error);
        }
        watch(Weak::clone(&weak));
        Ok(weak)
    }

    /// Notes that the command has failed. The thread ends the read, unless the callback does.
    pub(crate) fn fail(&self, error: OpenClError) {
        self.failure.get_or_init(|| error);
    }

    /// Fails if the command has failed.
    fn look(&self) -> Result<(), OpenClError> {
        if let Some(event) = self.event.upgrade()
            && let Err(error) = event::status(&event).and_then(|status| event::outcome(CALL, status))
        {
            self.fail(error);
        }
        self.failure.get().map_or(Ok(()), |error| Err(*error))
    }

    /// Ends the read if its command is known to have failed. This runs the wakers of tasks.
    pub(crate) fn end_if_failed(&self) {
        if let Some(error) = self.failure.get() {
            self.end(Err(error.own()));
        }
    }

    fn end(&self, result: Result<(), BackendError>) {
        // A separate statement, to release the lock: the completion runs wakers.
        let end = self.end.lock().take();
        let Some(End { destination, completion }) = end else { return };
        completion.finish(match result {
            Ok(()) => Ok(destination),
            Err(error) => {
                // A device that has failed may still write to the bytes. And pinned memory must not be freed
                // on a thread of the driver's.
                mem::forget(destination);
                Err(error)
            }
        });
    }
}

/// OpenCL calls this once, on any thread, when the command is done or has failed. Or it never does.
unsafe extern "system" fn called_back(_event: cl_event, status: cl_int, read: *mut c_void) {
    // SAFETY: `begin` made the pointer by `into_raw`, and this call alone gets it.
    let read = unsafe { Arc::from_raw(read.cast_const().cast::<QueuedRead>()) };
    // The status may be the one that was waited for, in place of the one that is.
    let outcome = event::outcome(CALL, status).and_then(|()| read.look());
    read.end(outcome.map_err(OpenClError::own));
}

#[derive(Default)]
struct Thread {
    added: Vec<Weak<QueuedRead>>,
    exists: bool,
    sleeps: bool,
}

static THREAD: Mutex<Thread> = Mutex::new(Thread { added: Vec::new(), exists: false, sleeps: false });
static ADDED: Condvar = Condvar::new();

/// Held while the thread has events.
static LOOKS: Mutex<()> = Mutex::new(());

/// Waits until the thread has released the events that it looks at.
pub(crate) fn release_events() {
    drop(LOOKS.lock());
}

/// Starts the thread that looks for failed reads, unless it runs.
///
/// # Errors
///
/// If it does not start. A read must not be enqueued then: if it fails, it may never end.
pub(crate) fn start_thread() -> Result<(), BackendError> {
    let mut thread = THREAD.lock();
    if !thread.exists {
        thread::Builder::new().name("opencl reads".to_owned()).spawn(look_at_reads).map_err(|error| {
            BackendError::other("the thread that looks for failed reads does not start").with_source(error)
        })?;
        thread.exists = true;
    }
    Ok(())
}

/// Has the thread look at a read until it has ended.
fn watch(read: Weak<QueuedRead>) {
    let mut thread = THREAD.lock();
    thread.added.push(read);
    if mem::take(&mut thread.sleeps) {
        ADDED.notify_one();
    }
}

fn look_at_reads() {
    let mut watched: Vec<Weak<QueuedRead>> = Vec::new();
    loop {
        let mut thread = THREAD.lock();
        while watched.is_empty() && thread.added.is_empty() {
            thread.sleeps = true;
            ADDED.wait(&mut thread);
        }
        watched.append(&mut thread.added);
        drop(thread);
        thread::sleep(LOOK_EVERY);
        let mut failed = Vec::new();
        let looks = LOOKS.lock();
        watched.retain(|read| {
            let Some(read) = read.upgrade() else { return false };
            if read.end.lock().is_none() {
                return false;
            }
            if read.look().is_err() {
                failed.push(read);
            }
            true
        });
        drop(looks);
        for read in failed {
            // A waker that panics must not end the thread.
            let _ = catch_unwind(AssertUnwindSafe(|| read.end_if_failed()));
        }
    }
}
