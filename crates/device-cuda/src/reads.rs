//! Reads that are not done yet, and who answers them.
//!
//! When a read is done, the driver calls a host function behind it. When the context has failed it does not, and says so
//! only to those who ask: a program that waits for nothing but the read would wait for ever. So a thread asks, now and
//! then, for as long as there are open reads.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use device_registry::backend::{BackendError, BackendErrorKind, Completion, HostBuffer};
use parking_lot::Mutex;

use crate::error::{CudaError, DEINITIALIZED};
use crate::library::{HostFunction, Library, Stream};

/// How long after a failure a read is told of it, if nobody else finds out before.
const TICK: Duration = Duration::from_millis(20);

/// How many times in a row a stream may answer with an error that is no loss, before its reads are told of it. Others in
/// the process can have such a one returned, which says nothing of the reads: while somebody captures a stream, say.
const PATIENCE: u32 = 100;

/// The open reads of a context.
///
/// The driver's own thread looks into it, so that nothing of CUDA's may be waited for or dropped under its lock. What it has
/// of CUDA's, streams, the watching thread takes out and drops.
#[derive(Default)]
pub(crate) struct Reads(Mutex<Open>);

#[derive(Default)]
struct Open {
    /// By the streams' addresses, which are nobody else's as long as the streams are here.
    streams: BTreeMap<usize, Watched>,
    last: u64,
    has_thread: bool,
}

/// A stream with open reads, or one that had some at the last tick.
struct Watched {
    stream: Arc<Stream>,
    completions: BTreeMap<u64, Completion>,
}

/// What a host function gets: the bytes that are read into, until they are.
pub(crate) struct PendingRead {
    entry: Entry,
    destination: HostBuffer,
}

/// Where the other end of an open read is.
#[derive(Clone)]
pub(crate) struct Entry {
    reads: Arc<Reads>,
    stream: usize,
    number: u64,
}

impl Entry {
    /// Forgets a read that was refused, and whose caller is told.
    pub(crate) fn close(&self) {
        drop(self.take());
    }

    fn take(&self) -> Option<Completion> {
        self.reads.0.lock().streams.get_mut(&self.stream)?.completions.remove(&self.number)
    }
}

impl PendingRead {
    /// Opens a read, of which somebody is told from now on whatever becomes of it.
    pub(crate) fn open(
        reads: &Arc<Reads>,
        stream: &Arc<Stream>,
        destination: HostBuffer,
        completion: Completion,
    ) -> Result<Self, BackendError> {
        let mut open = reads.0.lock();
        if !open.has_thread {
            let (reads, library) = (Arc::clone(reads), stream.context().library());
            thread::Builder::new()
                .name("cuda reads".to_owned())
                .spawn(move || {
                    relax(library);
                    reads.watch();
                })
                .map_err(|error| {
                    BackendError::other("the thread that watches reads does not start").with_source(error)
                })?;
            open.has_thread = true;
        }
        open.last += 1;
        let (address, number) = (stream.address(), open.last);
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

    /// Where the bytes go. They stay where they are when this is moved.
    pub(crate) fn bytes(&mut self) -> &mut [u8] {
        &mut self.destination
    }

    /// Gives up a read that was refused, and whose caller is told.
    pub(crate) fn refuse(self) {
        self.entry.close();
    }

    /// The same, where the device may still write to the bytes: they stay for good.
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
            // It calls nothing of CUDA: the core frees later what is to be freed. It does not unwind.
            Some(completion) => completion.finish(Ok(destination)),
            // The read has returned an error already. Freeing the bytes may call CUDA.
            None => std::mem::forget(destination),
        }
    }
}

/// Has this thread neither spoil captures on others nor fail because of them.
fn relax(library: Library) {
    match library.relax_capture_mode() {
        Ok(()) | Err(CudaError { code: DEINITIALIZED, .. }) => {}
        Err(error) => log::warn!("captures of streams may fail while reads are open: {error}"),
    }
}

impl Reads {
    /// What the thread does, until there are no open reads.
    fn watch(&self) {
        // How many times in a row a stream has answered with an error.
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
                    // The process ends, and the driver with it. Who waits for a read ends too, and is told nothing.
                    Err(CudaError { code: DEINITIALIZED, .. }) => return,
                    Err(error) => BackendError::from(error),
                };
                if error.kind() == BackendErrorKind::Lost {
                    // The context is, and so are the other streams.
                    streams.keys().for_each(|&address| self.answer(address, &error));
                    break;
                }
                let refused = refusals.entry(address).or_insert(0);
                *refused += 1;
                if *refused == PATIENCE {
                    refusals.remove(&address);
                    self.answer(address, &error);
                }
            }
        }
    }

    /// The streams with open reads; none if there are no such, and then this thread is not there any more for others.
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
        // Streams may be destroyed by this, and the context released.
        drop(idle);
        (!busy.is_empty()).then_some(busy)
    }

    /// Tells all who wait for reads in a stream of an error. The bytes are the host function's, if it is ever called.
    fn answer(&self, stream: usize, error: &BackendError) {
        let mut open = self.0.lock();
        let completions =
            open.streams.get_mut(&stream).map(|watched| std::mem::take(&mut watched.completions));
        drop(open);
        let completions = completions.into_iter().flatten();
        completions.for_each(|(_, completion)| completion.finish(Err(error.clone())));
    }
}
