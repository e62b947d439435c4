//! Streams, each a thread with a queue, and events.

use std::cell::Cell;
use std::collections::VecDeque;
use std::ffi::c_void;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Weak};
use std::thread;
use std::time::{Duration, Instant};

use cudarc::driver::sys::{CUdeviceptr, CUevent, CUstream, CUstreamCaptureMode};
use parking_lot::{Condvar, Mutex};

use crate::kernel::Launch;
use crate::memory::{Place, Uses};
use crate::orders::is_set;
use crate::state::{self, alive, misuse, state};
use crate::{Answer, INVALID_VALUE, put};

pub(crate) enum Work {
    Write {
        from: HostPlace,
        to: Place,
    },
    Read {
        from: Place,
        to: HostPlace,
    },
    Copy {
        from: Place,
        to: Place,
    },
    Set {
        to: Place,
        pattern: Vec<u8>,
    },
    Host {
        function: unsafe extern "C" fn(*mut c_void),
        data: usize,
    },
    Record(Arc<Record>),
    Wait(Arc<Record>),
    Kernel(Launch),
    /// Memory that is taken back in this order.
    Free(CUdeviceptr),
}

/// A range of the host, in use if it is pinned.
pub(crate) struct HostPlace {
    start: usize,
    len: usize,
    pinned: Option<Uses>,
}

impl HostPlace {
    pub(crate) fn new(start: *mut c_void, len: usize) -> Self {
        if start.is_null() {
            misuse("a place of the host is null");
        }
        let pinned = state().pinned_use(start.addr(), len);
        Self { start: start.expose_provenance(), len, pinned }
    }

    pub(crate) fn is_pinned(&self) -> bool {
        self.pinned.is_some()
    }
}

pub(crate) struct Stream {
    device: usize,
    priority: i32,
    queue: Mutex<SimulatedQueue>,
    changed: Condvar,
    /// Whether the program captures the stream. The graph itself is not simulated.
    captured: AtomicBool,
}

#[derive(Default)]
struct SimulatedQueue {
    work: VecDeque<Work>,
    submitted: u64,
    finished: u64,
    destroyed: bool,
}

/// Host functions of all streams run one after the other, as the reference allows.
static HOST_FUNCTIONS: Mutex<()> = Mutex::new(());

thread_local! {
    static IN_HOST_FUNCTION: Cell<bool> = const { Cell::new(false) };
    static CAPTURE_MODE: Cell<CUstreamCaptureMode> =
        const { Cell::new(CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_GLOBAL) };
}

pub(crate) fn is_in_host_function() -> bool {
    IN_HOST_FUNCTION.try_with(Cell::get).unwrap_or(false)
}

pub(crate) fn exchange_capture_mode(place: *mut CUstreamCaptureMode) -> Answer {
    if place.is_null() {
        misuse("a place to write to is null");
    }
    // SAFETY: the caller vouches for a number there, and none is taken for a mode that is not one.
    let mode = match unsafe { place.cast::<u32>().read() } {
        0 => CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_GLOBAL,
        1 => CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL,
        2 => CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED,
        _ => return Err(INVALID_VALUE),
    };
    put(place, CAPTURE_MODE.replace(mode));
    Ok(())
}

/// For calls that are unsafe during a capture: on a thread of another mode the driver refuses them and ends
/// the capture.
pub(crate) fn leave_captures_alone() {
    let is_relaxed = CAPTURE_MODE.get() == CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;
    if !is_relaxed && is_set("SIMULATED_CUDA_CAPTURE") {
        misuse("it spoils the capture of a stream on another thread");
    }
}

/// The code of `SIMULATED_CUDA_FAULT`, and how many operations are left before it.
static FAULT: LazyLock<Option<(u32, AtomicU64)>> = LazyLock::new(|| {
    let text = std::env::var("SIMULATED_CUDA_FAULT").ok()?;
    let (code, nth) = text.split_once('@').expect("SIMULATED_CUDA_FAULT has the form 700@5");
    Some((code.parse().expect("a code"), AtomicU64::new(nth.parse().expect("a number"))))
});

impl Stream {
    pub(crate) fn create(device: usize, priority: i32) -> CUstream {
        let stream = Arc::new(Self {
            device,
            priority,
            queue: Mutex::default(),
            changed: Condvar::new(),
            captured: AtomicBool::new(false),
        });
        let works = Arc::clone(&stream);
        thread::Builder::new()
            .name("simulated".to_owned())
            .spawn(move || works.work())
            .unwrap_or_else(|error| misuse(format_args!("no thread for a stream: {error}")));
        let mut state = state();
        let handle = state.new_handle();
        state.streams.insert(handle, stream);
        ptr::without_provenance_mut(handle)
    }

    /// The stream of a handle, whose context has to be current.
    pub(crate) fn of(handle: CUstream) -> Result<Arc<Self>, u32> {
        let current = state::current()?;
        let found = state().streams.get(&handle.addr()).cloned();
        match found {
            Some(stream) if stream.device == current => Ok(stream),
            Some(_) => misuse("a stream of another context than the current one"),
            None if handle.is_null() => misuse("the null stream, which waits for streams of others"),
            None => misuse(format_args!("{handle:?} is no stream, or was destroyed")),
        }
    }

    /// Returns at once: what is queued is still done.
    pub(crate) fn destroy(handle: CUstream) -> Answer {
        let stream = Self::of(handle)?;
        state().streams.remove(&handle.addr());
        stream.queue.lock().destroyed = true;
        stream.changed.notify_all();
        Ok(())
    }

    pub(crate) fn device(&self) -> usize {
        self.device
    }

    pub(crate) fn priority(&self) -> i32 {
        self.priority
    }

    pub(crate) fn is_captured(&self) -> bool {
        self.captured.load(Ordering::SeqCst)
    }

    pub(crate) fn set_captured(&self, captured: bool) {
        if self.captured.swap(captured, Ordering::SeqCst) == captured {
            misuse("a capture begins or ends twice");
        }
    }

    /// For queries, which end the capture of the stream.
    pub(crate) fn expect_no_capture(&self) {
        if self.is_captured() {
            misuse("it ends the capture of the stream");
        }
    }

    pub(crate) fn submit(&self, work: Work) {
        if self.is_captured() {
            misuse("work for a graph is not simulated");
        }
        let mut queue = self.queue.lock();
        queue.work.push_back(work);
        queue.submitted += 1;
        drop(queue);
        self.changed.notify_all();
    }

    pub(crate) fn is_done(&self) -> bool {
        let queue = self.queue.lock();
        queue.finished == queue.submitted
    }

    pub(crate) fn synchronize(&self) -> Answer {
        let mut queue = self.queue.lock();
        let all = queue.submitted;
        while queue.finished < all {
            self.changed.wait(&mut queue);
        }
        drop(queue);
        alive(self.device)
    }

    fn work(&self) {
        let mut queue = self.queue.lock();
        loop {
            match queue.work.pop_front() {
                Some(work) => {
                    drop(queue);
                    // `execute` releases the memory that the work uses before the work counts as done.
                    self.execute(work);
                    queue = self.queue.lock();
                    queue.finished += 1;
                    self.changed.notify_all();
                }
                None if queue.destroyed => return,
                None => self.changed.wait(&mut queue),
            }
        }
    }

    fn execute(&self, work: Work) {
        static EXECUTED: AtomicU64 = AtomicU64::new(0);
        // Late from time to time, so that callers that do not wait are found.
        if EXECUTED.fetch_add(1, Ordering::Relaxed).is_multiple_of(16) {
            thread::sleep(Duration::from_micros(300));
        }
        let is_operation =
            !matches!(work, Work::Host { .. } | Work::Record(_) | Work::Wait(_) | Work::Free(_));
        if let Some((code, left)) = &*FAULT
            && is_operation
            && left.fetch_sub(1, Ordering::SeqCst) == 1
        {
            state::fail(self.device, *code);
        }
        let failed = alive(self.device).is_err();
        match work {
            Work::Record(record) => record.reach(),
            // After a failure no work is done, and no host function is called.
            Work::Free(pointer) if failed => state().free(self.device, pointer),
            _ if failed => {}
            Work::Write { from, to } => to.change(|bytes| {
                // SAFETY: the caller that submitted the write keeps the bytes until it is done.
                unsafe {
                    ptr::copy_nonoverlapping(
                        ptr::with_exposed_provenance(from.start),
                        bytes.as_mut_ptr(),
                        from.len,
                    )
                };
            }),
            Work::Read { from, to } => {
                let bytes = from.read();
                // SAFETY: the caller that submitted the read keeps the bytes and does not touch them until it
                // is done.
                unsafe {
                    ptr::copy_nonoverlapping(
                        bytes.as_ptr(),
                        ptr::with_exposed_provenance_mut(to.start),
                        to.len,
                    )
                };
            }
            Work::Copy { from, to } => {
                let bytes = from.read();
                to.change(|to| to.copy_from_slice(&bytes));
            }
            Work::Set { to, pattern } => to.change(|bytes| match *pattern {
                [value] => bytes.fill(value),
                _ => bytes.chunks_exact_mut(pattern.len()).for_each(|to| to.copy_from_slice(&pattern)),
            }),
            Work::Host { function, data } => {
                let _turn = HOST_FUNCTIONS.lock();
                IN_HOST_FUNCTION.set(true);
                // SAFETY: the caller that submitted the function promised that it can be called once with
                // this argument.
                unsafe { function(ptr::with_exposed_provenance_mut(data)) };
                IN_HOST_FUNCTION.set(false);
            }
            Work::Wait(record) => record.wait(),
            Work::Kernel(launch) => launch.run(),
            Work::Free(pointer) => state().free(self.device, pointer),
        }
    }
}

/// Submits a memset of this many values.
pub(crate) fn set(to: CUdeviceptr, value: &[u8], count: usize, stream: CUstream) -> Answer {
    let stream = Stream::of(stream)?;
    if !to.is_multiple_of(value.len() as CUdeviceptr) {
        misuse(format_args!("a memset of {} bytes at {to:#x}", value.len()));
    }
    let to = Place::new(stream.device, to, count * value.len());
    stream.submit(Work::Set { to, pattern: value.to_vec() });
    Ok(())
}

/// An event as it was recorded once.
#[derive(Default)]
pub(crate) struct Record {
    reached: Mutex<Option<Instant>>,
    changed: Condvar,
}

impl Record {
    fn reach(&self) {
        *self.reached.lock() = Some(Instant::now());
        self.changed.notify_all();
    }

    pub(crate) fn is_done(&self) -> bool {
        self.reached.lock().is_some()
    }

    pub(crate) fn wait(&self) {
        let mut reached = self.reached.lock();
        while reached.is_none() {
            self.changed.wait(&mut reached);
        }
    }
}

pub(crate) struct Event {
    device: usize,
    timed: bool,
    recorded: Mutex<Option<Arc<Record>>>,
    /// The stream that recorded it last.
    stream: Mutex<Weak<Stream>>,
}

impl Event {
    pub(crate) fn create(device: usize, timed: bool) -> CUevent {
        let mut state = state();
        let handle = state.new_handle();
        state.events.insert(
            handle,
            Arc::new(Self { device, timed, recorded: Mutex::default(), stream: Mutex::default() }),
        );
        ptr::without_provenance_mut(handle)
    }

    pub(crate) fn of(handle: CUevent) -> Arc<Self> {
        let found = state().events.get(&handle.addr()).cloned();
        found.unwrap_or_else(|| misuse(format_args!("{handle:?} is no event, or was destroyed")))
    }

    /// Waits for the event continue.
    pub(crate) fn destroy(handle: CUevent) {
        let destroyed = state().events.remove(&handle.addr());
        if destroyed.is_none() {
            misuse(format_args!("{handle:?} is no event, or was destroyed before"));
        }
    }

    pub(crate) fn device(&self) -> usize {
        self.device
    }

    /// For queries, which end the capture of the stream that has recorded the event.
    pub(crate) fn expect_no_capture(&self) {
        let stream = self.stream.lock().upgrade();
        if let Some(stream) = stream {
            stream.expect_no_capture();
        }
    }

    pub(crate) fn recorded(&self) -> Option<Arc<Record>> {
        self.recorded.lock().clone()
    }

    /// Replaces the recorded point.
    pub(crate) fn record(&self, stream: &Arc<Stream>) -> Arc<Record> {
        *self.stream.lock() = Arc::downgrade(stream);
        let record = Arc::new(Record::default());
        *self.recorded.lock() = Some(Arc::clone(&record));
        record
    }

    /// Milliseconds.
    pub(crate) fn elapsed(start: &Self, end: &Self) -> f32 {
        let times = [start, end].map(|event| {
            if !event.timed {
                misuse("the time of an event without one");
            }
            let record =
                event.recorded().unwrap_or_else(|| misuse("the time of an event that was not recorded"));
            let time = *record.reached.lock();
            time.unwrap_or_else(|| misuse("the time of an event that is not done"))
        });
        if start.device != end.device {
            misuse("the time between events of two contexts");
        }
        let [start, end] = times;
        match end.checked_duration_since(start) {
            Some(time) => time.as_secs_f32() * 1000.0,
            None => -start.duration_since(end).as_secs_f32() * 1000.0,
        }
    }
}
