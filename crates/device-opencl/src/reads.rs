//! Reads in a queue, the callbacks that say when they are over, and the thread of a device that ends them.
//!
//! A driver may hold one of its locks while it calls back, and then functions that take the lock do not
//! return: Rusticl of Mesa 22.3 holds the event's lock. Ending a read runs the wakers of tasks, which may
//! wait for threads that are in such functions. So a callback neither calls the driver nor ends the read: it
//! hands the read over to a thread. Each device has its own, because a driver that does not return holds it
//! up.
//!
//! OpenCL calls back when a command is done or has failed. PoCL does so only when it is done: it forgets the
//! callback of a command that fails, and one that is registered after the failure gets the status of a
//! success. So the thread looks at the event of a read whose callback has come, and while there are reads
//! without one it looks at the streams from time to time.

use std::ffi::c_void;
use std::mem;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use device_registry::backend::{BackendError, Completion, HostBuffer};
use parking_lot::Mutex;

use crate::commands::Commands;
use crate::error::OpenClError;
use crate::event;
use crate::handle::Handle;
use crate::sys::{CL_COMPLETE, cl_event, cl_int};

/// The function that enqueues a read.
pub(crate) const CALL: &str = "clEnqueueReadBuffer";

/// How long a read that has failed without a callback may take to end.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// The reads of an open device, and the thread that ends them.
///
/// Callbacks take the lock, so no OpenCL function is called under it.
#[derive(Default)]
pub(crate) struct Reads {
    state: Mutex<State>,
    /// How many reads were opened and have not ended.
    open: AtomicUsize,
    /// Whether there is a thread. Changed under the lock of the state.
    runs: AtomicBool,
    /// Whether the thread waits for a read to be opened.
    sleeps: AtomicBool,
    /// Held while the thread has events.
    looks: Mutex<()>,
}

#[derive(Default)]
struct State {
    /// The reads whose commands are over, but which the thread has not ended.
    over: Vec<Arc<QueuedRead>>,
    streams: Vec<Weak<Commands>>,
    thread: Option<Thread>,
    /// Whether the device is closed.
    closed: bool,
}

/// A read that is about to be enqueued, or that was. The thread looks at the streams as long as it exists.
pub(crate) struct OpenRead(Arc<Reads>);

impl Reads {
    /// Makes the thread look at the commands of a stream.
    pub(crate) fn add_stream(&self, commands: &Arc<Commands>) {
        let streams = &mut self.state.lock().streams;
        // At each doubling, so that a device with many streams looks at each a few times.
        if streams.len() == streams.capacity() {
            streams.retain(|commands| commands.strong_count() > 0);
        }
        streams.push(Arc::downgrade(commands));
    }

    /// Counts a read that is about to be enqueued, and starts the thread unless it runs.
    ///
    /// # Errors
    ///
    /// If it does not start. A read must not be enqueued then, as it would never end.
    pub(crate) fn open(self: &Arc<Self>) -> Result<OpenRead, BackendError> {
        self.open.fetch_add(1, Ordering::SeqCst);
        let open = OpenRead(Arc::clone(self));
        if !self.runs.load(Ordering::SeqCst) {
            self.start()?;
        }
        if self.sleeps.load(Ordering::SeqCst) {
            self.wake();
        }
        Ok(open)
    }

    #[cold]
    fn start(self: &Arc<Self>) -> Result<(), BackendError> {
        let mut state = self.state.lock();
        if state.thread.is_none() {
            let reads = Arc::clone(self);
            let name = "opencl reads".to_owned();
            let started = thread::Builder::new().name(name).spawn(move || reads.run()).map_err(|error| {
                BackendError::other("the thread that ends reads does not start").with_source(error)
            })?;
            state.thread = Some(started.thread().clone());
            self.runs.store(true, Ordering::SeqCst);
        }
        Ok(())
    }

    #[cold]
    fn wake(&self) {
        if let Some(thread) = &self.state.lock().thread {
            thread.unpark();
        }
    }

    /// Ends the thread when it has no read left. Waits until it has released the events that it looks at.
    pub(crate) fn close(&self) {
        self.state.lock().closed = true;
        self.wake();
        drop(self.looks.lock());
    }

    fn hand_over(&self, read: Arc<QueuedRead>) {
        let mut state = self.state.lock();
        state.over.push(read);
        if let Some(thread) = &state.thread {
            thread.unpark();
        }
    }

    fn run(&self) {
        let mut over = Vec::new();
        let mut next_look = Instant::now() + LOOK_EVERY;
        loop {
            mem::swap(&mut over, &mut self.state.lock().over);
            self.end(&mut over);
            let now = Instant::now();
            if now < next_look {
                thread::park_timeout(next_look - now);
                continue;
            }
            if self.open.load(Ordering::SeqCst) > 0 {
                self.look_at_streams();
            } else if self.is_over() {
                return;
            }
            next_look = Instant::now() + LOOK_EVERY;
        }
    }

    /// Ends reads, and leaves the list empty.
    fn end(&self, over: &mut Vec<Arc<QueuedRead>>) {
        if over.is_empty() {
            return;
        }
        let looks = self.looks.lock();
        over.iter().for_each(|read| read.look());
        drop(looks);
        over.drain(..).for_each(|read| read.end());
    }

    /// Finds the reads that have failed without a callback: their streams hand them over.
    fn look_at_streams(&self) {
        let looks = self.looks.lock();
        let streams: Vec<_> = self.state.lock().streams.iter().filter_map(Weak::upgrade).collect();
        streams.iter().for_each(|commands| commands.look());
        // This may release the events of a stream that was dropped meanwhile.
        drop(streams);
        drop(looks);
    }

    /// Waits for a read to be opened, in a thread without reads. Returns whether there will be no more.
    fn is_over(&self) -> bool {
        let mut state = self.state.lock();
        if state.closed {
            self.runs.store(false, Ordering::SeqCst);
            if self.open.load(Ordering::SeqCst) == 0 {
                state.thread = None;
                return true;
            }
            self.runs.store(true, Ordering::SeqCst);
            return false;
        }
        drop(state);
        self.sleeps.store(true, Ordering::SeqCst);
        if self.open.load(Ordering::SeqCst) == 0 {
            thread::park();
        }
        self.sleeps.store(false, Ordering::SeqCst);
        false
    }
}

impl Drop for OpenRead {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::SeqCst);
    }
}

/// A read that was enqueued. Its callback and its stream own it.
pub(crate) struct QueuedRead {
    reads: Arc<Reads>,
    /// Its stream drops the event when it has found the command done, or failed.
    event: Weak<Handle>,
    /// Until the thread takes it.
    end: Mutex<Option<End>>,
    /// Set by the first one that finds the command over, or failed.
    outcome: OnceLock<Result<(), OpenClError>>,
    /// Set by the first of two: the callback, and the registration of the callback when it returns.
    first: AtomicBool,
}

struct End {
    destination: HostBuffer,
    completion: Completion,
    _open: OpenRead,
}

impl QueuedRead {
    /// Registers the callback for a read's event. The read ends from here on.
    ///
    /// # Errors
    ///
    /// If OpenCL refuses the callback. The read has ended then.
    pub(crate) fn begin(
        open: OpenRead,
        event: &Arc<Handle>,
        destination: HostBuffer,
        completion: Completion,
    ) -> Result<Arc<Self>, OpenClError> {
        let functions = event.functions();
        let reads = Arc::clone(&open.0);
        let end = Mutex::new(Some(End { destination, completion, _open: open }));
        let read = Arc::new(Self {
            reads,
            event: Arc::downgrade(event),
            end,
            outcome: OnceLock::new(),
            first: AtomicBool::new(false),
        });
        let owned = Arc::into_raw(Arc::clone(&read));
        // SAFETY: the event is valid, and the callback owns what its argument points to.
        let registered = unsafe {
            functions.clSetEventCallback(event.get(), CL_COMPLETE, Some(called_back), owned.cast_mut().cast())
        };
        let Err(error) = registered else {
            // Many commands are over by now, and their callbacks have come. That needs no other thread.
            if read.first.swap(true, Ordering::AcqRel) {
                read.look();
                read.end();
            }
            return Ok(read);
        };
        // SAFETY: `into_raw` made the pointer above, and the refused callback does not have it.
        drop(unsafe { Arc::from_raw(owned) });
        let end = read.end.lock().take();
        // Without a callback this waits for the command. If it cannot, the bytes are leaked.
        if event::wait(CALL, event).is_err() {
            mem::forget(end.map(|end| end.destination));
        }
        Err(error)
    }

    /// Notes that the command has failed, and makes the thread end the read.
    pub(crate) fn fail(self: Arc<Self>, error: OpenClError) {
        self.outcome.get_or_init(|| Err(error));
        self.hand_over();
    }

    /// The outcome of the command, as far as it is known without a look at the event.
    pub(crate) fn outcome(&self) -> Option<Result<(), OpenClError>> {
        self.outcome.get().copied()
    }

    fn hand_over(self: Arc<Self>) {
        let reads = Arc::clone(&self.reads);
        reads.hand_over(self);
    }

    /// Finds the outcome of the command, which is over.
    fn look(&self) {
        self.outcome.get_or_init(|| match self.event.upgrade() {
            Some(event) => event::status(&event).and_then(|status| event::check(CALL, status)),
            // Its stream has found the command done, and no failure.
            None => Ok(()),
        });
    }

    fn end(&self) {
        // A separate statement, to release the lock: the completion runs wakers.
        let end = self.end.lock().take();
        let Some(End { destination, completion, _open }) = end else { return };
        completion.finish(match self.outcome() {
            Some(Err(error)) => {
                // A device that has failed may still write to the bytes.
                mem::forget(destination);
                Err(error.own())
            }
            _ => Ok(destination),
        });
    }
}

/// OpenCL calls this once, on any thread, when the command is done or has failed. Or it never does.
unsafe extern "system" fn called_back(_event: cl_event, status: cl_int, read: *mut c_void) {
    // SAFETY: `begin` made the pointer with `into_raw`, and only this call gets it.
    let read = unsafe { Arc::from_raw(read.cast_const().cast::<QueuedRead>()) };
    // A success may be the status that was waited for rather than the actual one. A failure is always one,
    // even if the event says otherwise.
    if let Err(error) = event::check(CALL, status) {
        read.outcome.get_or_init(|| Err(error));
    }
    // Otherwise `begin` ends the read.
    if read.first.swap(true, Ordering::AcqRel) {
        read.hand_over();
    }
}
