//! Pending reads, and the thread that finishes them when their context has failed.
//!
//! When a read is done, the driver calls a host function behind it. After the context has failed it does not,
//! and returns the failure only to other calls: a program that waits only for the read would wait forever.
//! So a thread queries the streams with pending reads from time to time.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use device_registry::backend::{BackendError, BackendErrorKind, Completion, HostBuffer};
use parking_lot::Mutex;

use crate::error::{CudaError, DEINITIALIZED};
use crate::library::{HostFunction, Library, Stream};

/// How often the thread queries streams: a read returns a failure at most about this much later.
const TICK: Duration = Duration::from_millis(20);

/// How many queries of a stream in a row have to return an error that is not a loss, before its reads return
/// it. Other code in the process can cause such an error, which says nothing about the reads, such as by
/// capturing a stream.
const PATIENCE: u32 = 100;

/// The pending reads of a context.
///
/// The driver's own thread takes this lock in host functions. So no call of CUDA may be made under it, and no
/// stream dropped: the watching thread takes streams out and drops them.
#[derive(Default)]
pub(crate) struct Reads(Mutex<Open>);

#[derive(Default)]
struct Open {
    /// By the streams' addresses, which are unique while the streams are in here.
    streams: BTreeMap<usize, Watched>,
    last: u64,
    has_thread: bool,
}

/// A stream with pending reads, or one that had some at the last tick.
struct Watched {
    stream: Arc<Stream>,
    completions: BTreeMap<u64, Completion>,
}

/// A read in a stream, which the host function behind it owns: the bytes that the driver writes to.
pub(crate) struct PendingRead {
    entry: Entry,
    destination: HostBuffer,
}

/// The place of a pending read's completion.
#[derive(Clone)]
pub(crate) struct Entry {
    reads: Arc<Reads>,
    stream: usize,
    number: u64,
}

impl Entry {
    /// Drops the completion of a refused read, whose caller gets the error.
    pub(crate) fn close(&self) {
        drop(self.take());
    }

    fn take(&self) -> Option<Completion> {
        self.reads.0.lock().streams.get_mut(&self.stream)?.completions.remove(&self.number)
    }
}

impl PendingRead {
    /// Adds a read. From now on its completion is finished, whatever becomes of the read.
    pub(crate) fn open(
        reads: &Arc<Reads>,
        stream: &Arc<Stream>,
        destination: HostBuffer,
        completion: Completion,
    ) -> Result<Self, BackendError> {
        let mut open = reads.0.lock();
        if !open.has_thread {
            let reads = Arc::clone(reads);
            let library = stream.context().library();
            thread::Builder::new()
                .name("cuda reads".to_owned())
                .spawn(move || {
                    relax(library);
                    reads.watch();
                })
                .map_err(|error| {
                    BackendError::other("the thread that watches reads did not start").with_source(error)
                })?;
            open.has_thread = true;
        }
        open.last += 1;
        let address = stream.address();
        let number = open.last;
        let watched = open.streams.entry(address);
        let watched =
            watched.or_insert_with(|| Watched { stream: Arc::clone(stream), completions: BTreeMap::new() });
        watched.completions.insert(number, completion);
        drop(open);
        Ok(Self { entry: Entry { reads: Arc::clone(reads), stream: address, number }, destination })
    }

    pub(crate) fn entry(&self) -> Entry {
        self.entry.clone()
    }

    /// The bytes that the driver writes to. They stay where they are when `self` is moved.
    pub(crate) fn bytes(&mut self) -> &mut [u8] {
        &mut self.destination
    }

    /// Drops a refused read, whose caller gets the error.
    pub(crate) fn refuse(self) {
        self.entry.close();
    }

    /// Drops a refused read and leaks its bytes, to which the device may still write.
    pub(crate) fn leak(self) {
        self.entry.close();
        std::mem::forget(self.destination);
    }
}

impl HostFunction for PendingRead {
    /// The driver calls this when the bytes are there, but not after the context has failed.
    fn run(self) {
        let Self { entry, destination } = self;
        match entry.take() {
            // It calls nothing of CUDA: the core frees later what has to be freed. It does not unwind.
            Some(completion) => completion.finish(Ok(destination)),
            // The read has returned an error already. Freeing the bytes may call CUDA.
            None => std::mem::forget(destination),
        }
    }
}

/// Keeps this thread from ending captures on other threads, and from failing because of them.
fn relax(library: Library) {
    match library.relax_capture_mode() {
        Ok(()) | Err(CudaError { code: DEINITIALIZED, .. }) => {}
        Err(error) => log::warn!("captures of streams may fail while reads are pending: {error}"),
    }
}

impl Reads {
    /// Runs the thread until there are no pending reads.
    fn watch(&self) {
        // How many queries of each stream in a row have returned an error.
        let mut refusals = BTreeMap::new();
        loop {
            thread::sleep(TICK);
            let Some(streams) = self.watched() else { return };
            refusals.retain(|address, _| streams.contains_key(address));
            for (&address, stream) in &streams {
                let error = match stream.is_done() {
                    Ok(_) => {
                        refusals.remove(&address);
                        continue;
                    }
                    // The process ends, and the driver and all waiting threads with it.
                    Err(CudaError { code: DEINITIALIZED, .. }) => return,
                    Err(error) => BackendError::from(error),
                };
                if error.kind() == BackendErrorKind::Lost {
                    // The context is lost, and so are the other streams.
                    streams.keys().for_each(|&address| self.fail(address, &error));
                    break;
                }
                let refused = refusals.entry(address).or_insert(0);
                *refused += 1;
                if *refused == PATIENCE {
                    refusals.remove(&address);
                    self.fail(address, &error);
                }
            }
        }
    }

    /// The streams with pending reads. `None` if there are none; then this thread has to end, and the next
    /// read starts another.
    fn watched(&self) -> Option<BTreeMap<usize, Arc<Stream>>> {
        let mut open = self.0.lock();
        let streams = std::mem::take(&mut open.streams);
        let (busy, idle): (BTreeMap<_, _>, BTreeMap<_, _>) =
            streams.into_iter().partition(|(_, watched)| !watched.completions.is_empty());
        open.streams = busy;
        let busy: BTreeMap<_, _> =
            open.streams.iter().map(|(&stream, watched)| (stream, Arc::clone(&watched.stream))).collect();
        open.has_thread = !busy.is_empty();
        drop(open);
        // This may destroy streams and release the context.
        drop(idle);
        (!busy.is_empty()).then_some(busy)
    }

    /// Finishes all pending reads of a stream with an error. Their bytes stay with their host functions.
    fn fail(&self, stream: usize, error: &BackendError) {
        let mut open = self.0.lock();
        let completions =
            open.streams.get_mut(&stream).map(|watched| std::mem::take(&mut watched.completions));
        drop(open);
        let completions = completions.into_iter().flatten();
        completions.for_each(|(_, completion)| completion.finish(Err(error.clone())));
    }
}
