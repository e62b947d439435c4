//! Threads that finish queued reads, for drivers whose device calls nothing back.

use std::collections::VecDeque;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use entry_points::message::panic_message;

use crate::backend::{BackendError, Completion, HostBuffer};
use crate::exit::at_exit;
use crate::sync::{Condvar, Mutex, lock, thread, wait, wait_timeout};

/// Finishes queued reads for a driver that has fences or a timeline, and no callbacks.
///
/// The driver keeps one of these in its device, and a [`ReadThread`] from it in each stream. With each read
/// it hands over a closure, which waits as [`synchronize`](crate::backend::StreamDriver::synchronize) does
/// and then copies:
///
/// ```
/// # use std::sync::Arc;
/// # use device_registry::backend::{BackendError, Completion, HostBuffer, ReadThread, Span};
/// # struct Staged { number: u64, bytes: Vec<u8> }
/// # struct Timeline;
/// # impl Timeline { fn wait(&self, _: u64) -> Result<(), BackendError> { Ok(()) } }
/// # struct Stream { timeline: Arc<Timeline>, reads: ReadThread }
/// # impl Stream {
/// #     fn copy_to_staging(&self, _: &Span) -> Result<Staged, BackendError> { unimplemented!() }
/// fn read(
///     &self,
///     source: &Span,
///     mut destination: HostBuffer,
///     completion: Completion,
/// ) -> Result<(), BackendError> {
///     let staged = self.copy_to_staging(source)?;
///     let timeline = Arc::clone(&self.timeline);
///     self.reads.finish(completion, move || {
///         timeline.wait(staged.number)?;
///         destination.copy_from_slice(&staged.bytes);
///         Ok(destination)
///     });
///     Ok(())
/// }
/// # }
/// ```
///
/// `close` and a `reset` that succeeds call [`close`](Self::close). The closures' waits end when the device
/// is lost, even waits for work that was never submitted: otherwise that call hangs.
///
/// When the process ends, no closure begins any more, and the end waits for those that run, for two seconds
/// at most: a driver's library may crash where a thread is in it while it is torn down. A driver starts the
/// first thread after its library has opened the device, so that this wait comes before the library's own
/// end.
pub struct ReadThreads {
    name: String,
    /// `None` once it is closed.
    threads: Mutex<Option<Vec<Weak<Shared>>>>,
}

/// A thread that finishes reads, one after the other: [`ReadThreads::start`] starts it.
///
/// So the reads end in the order in which the thread gets them, as the reads of one stream do. Streams that
/// share a thread hand over a read when its work is submitted, and not before: a read that waits for a flush
/// would hold up the others.
///
/// When it is dropped, the thread finishes the reads that it has, and ends. The drop does not wait.
pub struct ReadThread(Arc<Shared>);

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// Oldest first.
    reads: VecDeque<Read>,
    /// Whether the thread is in a closure of the driver.
    reading: bool,
    /// Whether the process ends, and no closure may begin.
    exits: bool,
    ends: bool,
    /// Whether the thread does no more reads.
    ended: bool,
    handle: Option<thread::JoinHandle<()>>,
}

struct Read {
    completion: Completion,
    read: Box<dyn FnOnce() -> Result<HostBuffer, BackendError> + Send>,
}

impl ReadThreads {
    /// Creates the read threads of one device. Their names begin with the device's, such as `vulkan:0`.
    #[must_use]
    pub fn new(device: impl fmt::Display) -> Self {
        Self { name: format!("{device} reads"), threads: Mutex::new(Some(Vec::new())) }
    }

    /// Starts a thread for the reads of a stream.
    ///
    /// # Errors
    ///
    /// If the thread does not start, or the device is closed.
    pub fn start(&self) -> Result<ReadThread, BackendError> {
        let mut threads = lock(&self.threads);
        let Some(threads) = &mut *threads else {
            return Err(BackendError::invalid("the device is closed"));
        };
        let shared = Arc::new(Shared::default());
        let works = Arc::clone(&shared);
        let handle = thread::Builder::new()
            .name(self.name.clone())
            .spawn(move || works.work())
            .map_err(|error| BackendError::other("the thread for reads does not start").with_source(error))?;
        lock(&shared.state).handle = Some(handle);
        stop_at_exit(&self.name, &shared);
        // At each doubling, so that a device with a million streams looks at each a few times.
        if threads.len() == threads.capacity() {
            threads.retain(|thread| thread.strong_count() > 0);
        }
        threads.push(Arc::downgrade(&shared));
        Ok(ReadThread(shared))
    }

    /// Ends all threads after they have finished their reads, and waits for them. Later calls do nothing.
    ///
    /// A closure may drop the driver's last handle of this value. So it may be called on one of the threads,
    /// which it does not wait for.
    pub fn close(&self) {
        let threads = lock(&self.threads).take().unwrap_or_default();
        let threads: Vec<_> = threads.iter().filter_map(Weak::upgrade).collect();
        threads.iter().for_each(|thread| thread.end());
        for thread in threads {
            let handle = lock(&thread.state).handle.take();
            if let Some(handle) = handle
                && handle.thread().id() != thread::current().id()
            {
                // It catches all panics.
                let _ = handle.join();
            }
        }
    }
}

impl Drop for ReadThreads {
    fn drop(&mut self) {
        self.close();
    }
}

impl ReadThread {
    /// Finishes `completion` with the result of `read`, which the thread calls after the reads before it. A
    /// panic in it is an error of the read.
    ///
    /// `read` waits for the work, copies the bytes and returns the buffer. It owns the staging memory, and
    /// after an error it keeps what the device may still write to. After [`ReadThreads::close`] it drops the
    /// read, which is an error of it.
    pub fn finish(
        &self,
        completion: Completion,
        read: impl FnOnce() -> Result<HostBuffer, BackendError> + Send + 'static,
    ) {
        let read = Read { completion, read: Box::new(read) };
        let mut state = lock(&self.0.state);
        if state.ended {
            // First: the drop of the completion runs wakers.
            drop(state);
            return drop(read);
        }
        state.reads.push_back(read);
        drop(state);
        self.0.changed.notify_one();
    }
}

impl Drop for ReadThread {
    fn drop(&mut self) {
        self.0.end();
    }
}

impl Shared {
    fn end(&self) {
        lock(&self.state).ends = true;
        self.changed.notify_one();
    }

    /// The loop of the thread.
    fn work(&self) {
        while let Some(Read { completion, read }) = self.next() {
            let read = catch_unwind(AssertUnwindSafe(read)).unwrap_or_else(|panic| {
                Err(BackendError::other(format_args!("the read panicked: {}", panic_message(panic))))
            });
            completion.finish(read);
        }
    }

    /// Waits for the next read. `None` after the last one.
    fn next(&self) -> Option<Read> {
        let mut state = lock(&self.state);
        state.reading = false;
        loop {
            if state.exits {
                // The end of the process waits for this, and ends the thread.
                self.changed.notify_all();
                state = wait(&self.changed, state);
                continue;
            }
            if let Some(read) = state.reads.pop_front() {
                state.reading = true;
                return Some(read);
            }
            if state.ends {
                state.ended = true;
                return None;
            }
            state = wait(&self.changed, state);
        }
    }
}

/// How long the end of the process waits for the closures of drivers.
const LAST_WAIT: Duration = Duration::from_secs(2);

/// The threads that may be in a driver when the process ends.
// Not the lock of `crate::sync`: no model ends its process.
static RUNNING: std::sync::Mutex<Running> =
    std::sync::Mutex::new(Running { process: 0, devices: Vec::new(), threads: Vec::new() });

struct Running {
    /// A child of `fork` has none of its parent's threads.
    process: u32,
    /// The devices for which [`stop_all`] was added.
    devices: Vec<String>,
    threads: Vec<Weak<Shared>>,
}

/// Makes a thread leave the driver before the process ends.
fn stop_at_exit(device: &str, thread: &Arc<Shared>) {
    let mut running = RUNNING.lock().unwrap_or_else(|poison| poison.into_inner());
    if running.process != process::id() {
        running.process = process::id();
        running.threads.clear();
    }
    if running.threads.len() == running.threads.capacity() {
        running.threads.retain(|thread| thread.strong_count() > 0);
    }
    running.threads.push(Arc::downgrade(thread));
    // Once more for each device: its driver's library may have been loaded later, and is then torn down
    // earlier.
    if !running.devices.iter().any(|known| known == device) {
        running.devices.push(device.to_owned());
        at_exit(stop_all);
    }
}

extern "C" fn stop_all() {
    // A panic must not leave a function that C calls, and nothing can report it any more.
    let _ = catch_unwind(|| {
        let running = RUNNING.lock().unwrap_or_else(|poison| poison.into_inner());
        if running.process == process::id() {
            let deadline = Instant::now() + LAST_WAIT;
            running.threads.iter().filter_map(Weak::upgrade).for_each(|thread| thread.stop(deadline));
        }
    });
}

impl Shared {
    /// Lets no closure begin any more, and waits until none runs.
    fn stop(&self, deadline: Instant) {
        let mut state = lock(&self.state);
        state.exits = true;
        let is_this =
            state.handle.as_ref().is_some_and(|handle| handle.thread().id() == thread::current().id());
        while state.reading && !is_this {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            state = wait_timeout(&self.changed, state, left);
        }
    }
}

impl fmt::Debug for ReadThreads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReadThreads").field("name", &self.name).finish_non_exhaustive()
    }
}

impl fmt::Debug for ReadThread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pending = lock(&self.0.state).reads.len();
        f.debug_struct("ReadThread").field("pending", &pending).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;
    use crate::backend::{Finish, Watched};

    type Result = std::result::Result<HostBuffer, BackendError>;

    /// A waiting end of reads, which sends the results.
    struct Sent(Mutex<mpsc::Sender<Result>>, Box<dyn Fn() + Send + Sync>);

    impl Finish for Sent {
        fn call(&self) -> &'static str {
            "read"
        }

        fn finish(self: Arc<Self>, result: Result) {
            (self.1)();
            let _ = lock(&self.0).send(result);
        }

        fn watched(&self) -> Arc<dyn Watched> {
            unimplemented!("no test watches")
        }

        fn drop_unfinished(self: Arc<Self>) {
            let _ = lock(&self.0).send(Err(BackendError::other("the read was dropped unfinished")));
        }
    }

    fn completion(results: &mpsc::Sender<Result>) -> Completion {
        Completion::new(Arc::new(Sent(Mutex::new(results.clone()), Box::new(|| ()))))
    }

    fn bytes(byte: u8) -> HostBuffer {
        HostBuffer::from(vec![byte])
    }

    #[test]
    fn reads_end_in_their_order_and_one_that_panics_harms_no_other() {
        let (threads, (results, received)) = (ReadThreads::new("fenced:0"), mpsc::channel());
        let thread = threads.start().unwrap();
        let (go, waits) = mpsc::channel();
        thread.finish(completion(&results), move || {
            waits.recv().unwrap();
            Ok(bytes(1))
        });
        thread.finish(completion(&results), || panic!("on purpose"));
        thread.finish(completion(&results), || Ok(bytes(3)));
        go.send(()).unwrap();
        let mut received = received.into_iter();
        assert_eq!(received.next().unwrap().unwrap()[..], [1]);
        let error = received.next().unwrap().unwrap_err().to_string();
        assert_eq!(error, "the read panicked: on purpose");
        assert_eq!(received.next().unwrap().unwrap()[..], [3]);
    }

    #[test]
    fn a_read_of_one_thread_does_not_wait_for_those_of_another() {
        let (threads, (results, received)) = (ReadThreads::new("fenced:0"), mpsc::channel());
        let [long, short] = [(); 2].map(|()| threads.start().unwrap());
        let (go, waits) = mpsc::channel();
        long.finish(completion(&results), move || {
            waits.recv().unwrap();
            Ok(bytes(1))
        });
        short.finish(completion(&results), || Ok(bytes(2)));
        assert_eq!(received.recv().unwrap().unwrap()[..], [2]);
        go.send(()).unwrap();
        assert_eq!(received.recv().unwrap().unwrap()[..], [1]);
    }

    #[test]
    fn a_close_waits_for_the_threads_and_their_reads_also_of_streams_that_were_dropped() {
        let (threads, (results, received)) = (ReadThreads::new("fenced:0"), mpsc::channel());
        let [kept, dropped] = [(); 2].map(|()| threads.start().unwrap());
        let running = [&kept, &dropped].map(|thread| Arc::downgrade(&thread.0));
        for thread in [&kept, &dropped] {
            thread.finish(completion(&results), || {
                // Longer than a close that does not wait for it.
                std::thread::sleep(std::time::Duration::from_millis(20));
                Ok(bytes(0))
            });
        }
        drop(dropped);
        threads.close();
        assert_eq!(received.try_iter().count(), 2);
        assert_eq!(running[1].strong_count(), 0, "the thread has not ended");
        assert_eq!(running[0].strong_count(), 1, "the thread has not ended");
        assert!(threads.start().unwrap_err().to_string().contains("the device is closed"));
        threads.close();
    }

    #[test]
    fn a_read_after_the_close_is_dropped_and_no_hang() {
        let (threads, (results, received)) = (ReadThreads::new("fenced:0"), mpsc::channel());
        let thread = threads.start().unwrap();
        threads.close();
        thread.finish(completion(&results), || Ok(bytes(1)));
        let error = received.try_recv().expect("the read is not dropped").unwrap_err().to_string();
        assert_eq!(error, "the read was dropped unfinished");
    }

    #[test]
    #[cfg_attr(
        any(miri, not(unix)),
        ignore = "it starts a process, and `exit` has to run what C's `atexit` has"
    )]
    fn the_end_of_the_process_waits_for_a_read_and_begins_no_other() {
        const CHILD: &str = "DEVICE_REGISTRY_TEST_READS_AT_EXIT";
        const NAME: &str =
            "backend::read_threads::tests::the_end_of_the_process_waits_for_a_read_and_begins_no_other";
        extern "C" fn library_ends() {
            eprintln!("the library ends");
        }
        if std::env::var_os(CHILD).is_none() {
            let mut child = process::Command::new(std::env::current_exe().unwrap());
            let child = child.args(["--exact", NAME, "--nocapture"]).env(CHILD, "1").output().unwrap();
            let printed = String::from_utf8_lossy(&child.stderr);
            assert_eq!(child.status.code(), Some(7), "{printed}");
            assert!(printed.contains("the read ends\nthe library ends"), "{printed}");
            assert!(!printed.contains("another read begins"), "{printed}");
            return;
        }
        // Like a driver's library, which is there before the device's threads.
        at_exit(library_ends);
        let (threads, (results, _received)) = (ReadThreads::new("fenced:0"), mpsc::channel());
        let thread = threads.start().unwrap();
        let (begin, begun) = mpsc::channel();
        thread.finish(completion(&results), move || {
            begin.send(()).unwrap();
            std::thread::sleep(Duration::from_millis(50));
            eprintln!("the read ends");
            Ok(bytes(1))
        });
        thread.finish(completion(&results), || {
            eprintln!("another read begins");
            Ok(bytes(2))
        });
        begun.recv().unwrap();
        process::exit(7);
    }

    #[test]
    fn a_close_on_one_of_the_threads_ends_it_without_waiting_for_it() {
        let (threads, (results, received)) = (Arc::new(ReadThreads::new("fenced:0")), mpsc::channel());
        let thread = threads.start().unwrap();
        let closes = Arc::clone(&threads);
        let sent = Sent(Mutex::new(results), Box::new(move || closes.close()));
        thread.finish(Completion::new(Arc::new(sent)), || Ok(bytes(7)));
        assert_eq!(received.recv().unwrap().unwrap()[..], [7]);
        // The thread drops its end when it has ended.
        while Arc::strong_count(&thread.0) > 1 {
            std::thread::yield_now();
        }
    }
}
