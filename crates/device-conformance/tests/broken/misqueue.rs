//! Defects of queues and events. Each function does nothing without one of its defects.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::Receiver;
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use device_registry::backend::{BackendError, Completion, EventOptions, HostBuffer, Priority, StreamOptions};
use parking_lot::Mutex;

use crate::defect::Defect::{self, *};
use crate::event::{Point, TwinEvent};
use crate::progress::{Outcome, Progress, Work};
use crate::wrong::{is_any_wrong, wrong};

/// How long the defects that give up wait.
pub(crate) const A_WHILE: Duration = Duration::from_millis(5);

/// The number of streams that were created, and of those that are not dropped.
static MADE: AtomicUsize = AtomicUsize::new(0);
static HELD: AtomicUsize = AtomicUsize::new(0);

/// Runs before each stream is created.
pub(crate) fn create(options: &StreamOptions) -> Result<(), BackendError> {
    if wrong(StreamsAreNotReturned) && MADE.load(Ordering::Relaxed) >= 200
        || wrong(FewStreams) && HELD.load(Ordering::Relaxed) >= 32
    {
        return Err(BackendError::other("there are no more streams"));
    }
    if wrong(UrgentStreamsAreRefused) && options.priority == Priority::High {
        return Err(BackendError::invalid("priority out of range"));
    }
    Ok(())
}

/// The error of queued work, as a loader of backends in files gives it if the report cannot be read.
pub(crate) fn reported(error: BackendError, defect: Defect) -> BackendError {
    if !wrong(defect) {
        return error;
    }
    BackendError::other("the report of the plugin has a `struct_size` of 0, which no table can have")
}

/// Work, in the order in which the queue executes it.
pub(crate) fn ordered(work: Receiver<Work>) -> impl Iterator<Item = Work> {
    let mut waiting = VecDeque::new();
    std::iter::from_fn(move || {
        if !wrong(TheLastIsFirst) {
            return work.recv().ok();
        }
        waiting.extend(work.try_iter());
        waiting.pop_back().or_else(|| work.recv().ok())
    })
}

/// The state of a stream that its defects need.
pub(crate) struct TwinQueue {
    progress: Arc<Progress>,
    /// Identifies the device.
    device: usize,
    number: usize,
    made: Instant,
    made_by: ThreadId,
    point: Arc<Point>,
    /// When the last work was submitted.
    last: Mutex<Instant>,
    events: Arc<()>,
}

impl TwinQueue {
    pub(crate) fn new(progress: &Arc<Progress>, device: usize) -> Self {
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        HELD.fetch_add(1, Ordering::Relaxed);
        let (progress, made_by) = (Arc::clone(progress), thread::current().id());
        let (point, events, made) = (Arc::default(), Arc::default(), Instant::now());
        Self { progress, device, number, made, made_by, point, last: Mutex::new(made), events }
    }

    /// The work to submit in place of the given work, if any.
    pub(crate) fn submitted(&self, work: Work) -> Option<Work> {
        static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
        *self.last.lock() = Instant::now();
        if wrong(QueuesAreShort) && self.progress.len() > 1000
            || wrong(StreamsAreOfTheirThread) && thread::current().id() != self.made_by
            || wrong(EverySecondStreamIsLost) && self.number % 2 == 1
        {
            return None;
        }
        if wrong(OneQueueRunsAtATime) {
            return Some(Box::new(move |before| {
                let _alone = ONE_AT_A_TIME.lock();
                work(before)
            }));
        }
        if wrong(WorkRunsBesideOther) && self.progress.submitted().is_multiple_of(2) {
            return Some(Box::new(move |before| {
                thread::spawn(move || {
                    thread::sleep(Duration::from_millis(20));
                    work(before)
                });
                Outcome::Done
            }));
        }
        Some(work)
    }

    /// Whether a query returns that all work is done, whatever is true.
    pub(crate) fn query(&self) -> bool {
        wrong(StreamsAreAlwaysDone)
            || wrong(StreamsAreDoneAfterAWhile) && self.last.lock().elapsed() >= A_WHILE
    }

    pub(crate) fn event(&self, options: &EventOptions) -> Result<TwinEvent, BackendError> {
        if wrong(FewEvents) && Arc::strong_count(&self.events) > 1000 {
            return Err(BackendError::other("there are no more events"));
        }
        let point = if wrong(EventsShareAPoint) { Arc::clone(&self.point) } else { Arc::default() };
        point.start_again();
        let record = Record {
            time: FREE.lock().pop().unwrap_or_default(),
            progress: Arc::clone(&self.progress),
            device: self.device,
            stream_made: self.made,
            made: Instant::now(),
            behind: self.progress.submitted(),
            while_idle: self.progress.is_idle().then(|| self.progress.submitted() + 1),
            _one_of: Arc::clone(&self.events),
        };
        Ok(TwinEvent::new(point, options, record))
    }

    /// The point to wait for in place of the event, if any.
    pub(crate) fn waits_for(&self, event: &TwinEvent) -> Option<Arc<Point>> {
        if wrong(WaitsAreIgnored) || wrong(WaitsForPeersAreIgnored) && event.record.device != self.device {
            return None;
        }
        Some(if wrong(WaitsNeverEnd) { Arc::default() } else { event.point() })
    }
}

impl Drop for TwinQueue {
    fn drop(&mut self) {
        HELD.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Where the time of an event is written.
pub(crate) type TimePlace = Arc<Mutex<Option<Instant>>>;

/// The places of dropped events.
static FREE: Mutex<Vec<TimePlace>> = Mutex::new(Vec::new());

/// Runs when a queue reaches an event.
pub(crate) fn note_time(place: &TimePlace) {
    if wrong(TimesOfDroppedEventsAreWritten) {
        *place.lock() = Some(Instant::now());
    }
}

/// The state of an event that its defects need.
pub(crate) struct Record {
    time: TimePlace,
    progress: Arc<Progress>,
    device: usize,
    stream_made: Instant,
    made: Instant,
    /// The number of pieces of work before it.
    behind: u64,
    /// The number of pieces of work in the stream at the time, if all were done.
    while_idle: Option<u64>,
    _one_of: Arc<()>,
}

impl Drop for Record {
    fn drop(&mut self) {
        if wrong(TimesOfDroppedEventsAreWritten) {
            FREE.lock().push(Arc::clone(&self.time));
        }
    }
}

impl Record {
    pub(crate) fn time_place(&self) -> TimePlace {
        Arc::clone(&self.time)
    }

    /// A wrong result, if there is a defect.
    pub(crate) fn query(&self) -> Option<bool> {
        if wrong(EventsAreDoneAtOnce) || wrong(EventsAreAlwaysDone) {
            Some(true)
        } else if wrong(EventsAreDoneAfterAWhile) {
            (self.made.elapsed() >= A_WHILE).then_some(true)
        } else if wrong(EventsAreABatchEarly) {
            (self.progress.done() + 32 >= self.behind).then_some(true)
        } else if wrong(EventsAreNeverDone) {
            Some(false)
        } else if wrong(EventsAreDoneWithTheirStream) {
            Some(self.progress.is_idle())
        } else {
            let waits = wrong(EventsWaitForLaterWork) && self.while_idle == Some(self.progress.submitted());
            waits.then_some(false)
        }
    }

    /// The time from the start event, at `from`, to this event, at `to`.
    pub(crate) fn elapsed(&self, start: &Self, from: Instant, to: Instant) -> Option<Duration> {
        let noted = [&start.time, &self.time].map(|place| *place.lock());
        if let [Some(from), Some(to)] = noted {
            return to.checked_duration_since(from);
        }
        let elapsed = to.checked_duration_since(from);
        if wrong(TimesAreZero) {
            elapsed.map(|_| Duration::ZERO)
        } else if wrong(TimesAreConstant) {
            elapsed.map(|_| Duration::from_millis(10))
        } else if wrong(TimesAreInOtherUnits) {
            elapsed.map(|elapsed| elapsed * 1000)
        } else if wrong(TimesHaveNoSign) {
            Some(elapsed.unwrap_or_else(|| from - to))
        } else if wrong(TimesHaveAnOverhead) {
            elapsed.map(|elapsed| elapsed + Duration::from_millis(2))
        } else if wrong(EachStreamHasAClock) {
            (to - self.stream_made).checked_sub(from - start.stream_made)
        } else {
            elapsed
        }
    }
}

/// Runs before each operation in a queue. With any defect it takes a while, so that an early result is
/// noticed.
pub(crate) fn take_time() {
    if is_any_wrong() {
        thread::sleep(Duration::from_micros(100));
    }
}

/// Finishes a read.
pub(crate) fn complete(completion: Completion, mut read: Result<HostBuffer, BackendError>) {
    static LAST: Mutex<Vec<u8>> = Mutex::new(Vec::new());
    if wrong(ReadsAreForgotten) {
        return std::mem::forget(completion);
    }
    if wrong(ReadsAreDropped) {
        return;
    }
    if wrong(ReadsGetTheBytesBefore)
        && let Ok(bytes) = &mut read
    {
        let before = std::mem::replace(&mut *LAST.lock(), bytes.to_vec());
        let both = before.len().min(bytes.len());
        bytes[..both].copy_from_slice(&before[..both]);
    }
    if wrong(QueuedReadsAreShort) {
        read = read.map(|bytes| HostBuffer::from(&bytes[1..]));
    }
    completion.finish(read);
}
