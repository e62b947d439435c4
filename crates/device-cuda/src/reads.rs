//! Reads that are not done yet, and who answers them.
//!
//! When a read is done, the driver calls a host function behind it. When the context has failed it does not, and says so
//! only to those who ask: a program that waits for nothing but the read would wait for ever. So a thread asks, now and
//! then, for as long as there are open reads.

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;
use std::time::Duration;

use cudarc::driver::sys::CUstream;
use device_registry::{BackendError, Completion, HostBuffer};

use crate::context::Context;
use crate::event::is_done;

/// How long after a failure a read is told of it, if nobody else finds out before.
const TICK: Duration = Duration::from_millis(20);

/// The open reads of a context. It holds nothing of CUDA's, as the driver's own thread looks into it.
#[derive(Default)]
pub(crate) struct Reads(Mutex<Open>);

#[derive(Default)]
struct Open {
    completions: BTreeMap<u64, Completion<HostBuffer>>,
    last: u64,
    has_thread: bool,
}

/// Streams that reads were put into, for the thread to ask. A lock apart from that of the reads: the driver is asked
/// under it, and must never have to wait for a host function that waits for the lock.
#[derive(Default)]
pub(crate) struct Asked(Mutex<Vec<Stream>>);

#[derive(Clone, Copy, PartialEq)]
struct Stream(CUstream);

// SAFETY: a stream is no thread's own, and it is on the list as long as it is there.
unsafe impl Send for Stream {}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing is half changed under these locks.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Asked {
    pub(crate) fn add(&self, stream: CUstream) {
        lock(&self.0).push(Stream(stream));
    }

    /// Comes before the stream is destroyed.
    pub(crate) fn remove(&self, stream: CUstream) {
        lock(&self.0).retain(|&asked| asked != Stream(stream));
    }
}

/// What a host function gets: the bytes that are read into, until they are.
pub(crate) struct Reading {
    reads: Arc<Reads>,
    number: u64,
    destination: HostBuffer,
}

impl Reading {
    /// Opens a read, of which somebody is told from now on whatever becomes of it.
    pub(crate) fn open(
        context: &Arc<Context>,
        destination: HostBuffer,
        completion: Completion<HostBuffer>,
    ) -> Result<Self, BackendError> {
        let reads = Arc::clone(context.reads());
        let mut open = lock(&reads.0);
        if !open.has_thread {
            let (reads, context) = (Arc::clone(&reads), Arc::downgrade(context));
            thread::Builder::new()
                .name("cuda reads".to_owned())
                .spawn(move || reads.watch(&context))
                .map_err(|error| {
                    BackendError::other("the thread that watches reads does not start").with_source(error)
                })?;
            open.has_thread = true;
        }
        open.last += 1;
        let number = open.last;
        open.completions.insert(number, completion);
        drop(open);
        Ok(Self { reads, number, destination })
    }

    /// Where the bytes go. They stay where they are when this is moved.
    pub(crate) fn start(&mut self) -> *mut u8 {
        self.destination.as_mut_ptr()
    }

    /// Forgets a read that was refused, and whose caller is told.
    pub(crate) fn refuse(self) {
        drop(self.reads.take(self.number));
    }

    /// The same, where the device may still write to the bytes: they stay for good.
    pub(crate) fn leak(self) {
        drop(self.reads.take(self.number));
        std::mem::forget(self.destination);
    }
}

/// What the driver calls, on a thread of its own, when a read is done; not if the context has failed.
///
/// # Safety
///
/// `reading` is a box of a [`Reading`], of which nobody else knows any more.
pub(crate) unsafe extern "C" fn finish_read(reading: *mut c_void) {
    // SAFETY: the caller's.
    let Reading { reads, number, destination } = *unsafe { Box::from_raw(reading.cast::<Reading>()) };
    match reads.take(number) {
        // It calls nothing of CUDA, which is not allowed here: the core frees later what is to be freed. Nothing may unwind
        // into the driver.
        Some(completion) => {
            let finish = AssertUnwindSafe(|| completion.finish(Ok(destination)));
            if catch_unwind(finish).is_err() {
                log::error!("a panic while a read was finished");
            }
        }
        // It was told of a loss already. To free the bytes may call CUDA.
        None => std::mem::forget(destination),
    }
}

impl Reads {
    fn take(&self, number: u64) -> Option<Completion<HostBuffer>> {
        lock(&self.0).completions.remove(&number)
    }

    /// What the thread does, until there are no open reads.
    fn watch(&self, context: &Weak<Context>) {
        loop {
            thread::sleep(TICK);
            let mut open = lock(&self.0);
            if open.completions.is_empty() {
                open.has_thread = false;
                return;
            }
            drop(open);
            let error = match context.upgrade() {
                Some(context) => match context.ask() {
                    Ok(()) => continue,
                    Err(error) => error,
                },
                None => BackendError::lost("the context is gone, and the read was never done"),
            };
            let completions = std::mem::take(&mut lock(&self.0).completions);
            completions.into_values().for_each(|completion| completion.finish(Err(error.clone())));
        }
    }
}

impl Context {
    /// Whether the streams that reads were put into go on.
    fn ask(&self) -> Result<(), BackendError> {
        let current = self.enter()?;
        let streams = lock(&self.asked().0);
        streams.iter().try_for_each(|stream| {
            // SAFETY: it is on the list until it is destroyed.
            is_done(unsafe { current.cuda().cuStreamQuery(stream.0) }).map(drop)
        })
    }
}
