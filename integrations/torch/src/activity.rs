//! What devices did while PyTorch's profiler records: a row for each piece of work, from the registry's
//! records.
//!
//! PyTorch's profiler names the operator that a thread is in by a number. A span of the registry stands for
//! it, so that work carries the operator that enqueued it, on whatever thread it runs.

use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

use device_registry::activity::{
    self, Activity, Batch, Clock, Id, Name, Observation, Observer, Outcome, Record, SpanGuard, Work,
};
use device_registry::{Device, ErrorChain};
use parking_lot::Mutex;

use crate::devices;
use crate::failure::Failure;
use crate::streams;

/// How long the end of a recording waits for the observer.
const LAST_WAIT: Duration = Duration::from_secs(30);

/// The number of the recording that runs; 0 without one.
static CURRENT: AtomicU64 = AtomicU64::new(0);

/// The operators of the recording, by their spans. Not in the observer's lock: operators would wait for it.
static OPERATORS: Mutex<Option<HashMap<Id, Operator>>> = Mutex::new(None);

#[derive(Clone, Copy)]
struct Operator {
    /// PyTorch's number.
    number: u64,
    /// The system's number of its thread.
    thread: i64,
}

/// A recording, which runs until [`end`](Self::end).
pub(crate) struct Recording {
    observation: Observation,
    pieces: Arc<Mutex<Pieces>>,
    /// One moment on the clocks of the registry and of PyTorch.
    moment: (Instant, SystemTime),
}

/// What was recorded of each piece of work and each blocking call. The records of one piece come from several
/// threads, in any order.
#[derive(Default)]
struct Pieces {
    pieces: HashMap<Id, Piece>,
    /// The system's numbers of threads, by the registry's.
    threads: HashMap<u64, i64>,
    labels: HashMap<Id, Name>,
    lost: u64,
}

#[derive(Default)]
struct Piece {
    asked: Option<Asked>,
    begun: Option<Instant>,
    ended: Option<(Instant, Clock)>,
}

/// What a piece is, from the thread that enqueued or called it.
#[derive(Clone, Copy)]
struct Asked {
    what: Work,
    time: Instant,
    device: Option<Device>,
    stream: Option<Id>,
    span: Option<Id>,
    /// The registry's number of the thread.
    thread: u64,
}

/// A piece of work, or a wait of the host.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) kind: Kind,
    /// Its name, such as the kernel's.
    pub(crate) name: Cow<'static, str>,
    /// The index of the device in PyTorch.
    pub(crate) device: i32,
    /// The registry's number of the stream, and its name; 0 for a blocking call.
    pub(crate) stream: u64,
    pub(crate) stream_name: Cow<'static, str>,
    /// The system's number of the thread that asked for it; 0 if it is not known.
    pub(crate) thread: i64,
    /// PyTorch's number of the operator; 0 for work outside of one.
    pub(crate) operator: u64,
    pub(crate) bytes: u64,
    /// Nanoseconds since 1970.
    pub(crate) begin: i64,
    pub(crate) end: i64,
    /// By how many nanoseconds the times may be wrong; negative for an end that was only noticed later.
    pub(crate) error: i64,
}

/// The kinds of `device_torch.h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub(crate) enum Kind {
    Kernel = 0,
    Copy = 1,
    Fill = 2,
    /// A wait of a thread of the host.
    Wait = 3,
}

impl Recording {
    /// Begins a recording; there is one at a time.
    pub(crate) fn begin() -> Result<Self, Failure> {
        static NUMBER: AtomicU64 = AtomicU64::new(1);

        devices::check_fork()?;
        let mut operators = OPERATORS.lock();
        if operators.is_some() {
            return Err(Failure::new("another profiler records what devices do"));
        }
        let pieces = Arc::new(Mutex::new(Pieces::default()));
        let observation = activity::observe("PyTorch's profiler", Collector(Arc::clone(&pieces)))
            .map_err(|error| Failure::new(format_args!("activities cannot be observed: {error}")))?;
        *operators = Some(HashMap::new());
        CURRENT.store(NUMBER.fetch_add(1, Ordering::Relaxed), Ordering::Relaxed);
        Ok(Self { observation, pieces, moment: (Instant::now(), SystemTime::now()) })
    }

    /// Ends the recording when all work is done that was enqueued until now. Returns the rows in the order of
    /// their times, and what is missing.
    pub(crate) fn end(self) -> (Vec<Row>, Vec<String>) {
        CURRENT.store(0, Ordering::Relaxed);
        OPEN.try_with(|open| open.borrow_mut().renew(0)).ok();
        if devices::check_fork().is_err() {
            std::mem::forget(self);
            return (Vec::new(), Vec::new());
        }
        let stopped = Instant::now();
        let mut problems = Vec::new();
        for stream in streams::used() {
            // A synchronization reports the failure of work, which the program has to get. An event has it
            // too, and does not report it. Without a failure, the core notices what has ended.
            let is_done = stream.record().and_then(|event| event.synchronize());
            if is_done.is_ok()
                && let Err(error) = stream.synchronize()
            {
                problems.push(ErrorChain::new(&error).to_string());
            }
        }
        activity::flush(LAST_WAIT);
        drop(self.observation);
        let operators = OPERATORS.lock().take().unwrap_or_default();
        let mut pieces = std::mem::take(&mut *self.pieces.lock());
        let to_nanoseconds = |time: Instant| {
            let (instant, system) = self.moment;
            let since = |time: SystemTime| time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
            let moment = i64::try_from(since(system).as_nanos()).unwrap_or(i64::MAX);
            let distance = |from: Instant, to: Instant| {
                i64::try_from(to.saturating_duration_since(from).as_nanos()).unwrap_or(i64::MAX)
            };
            moment.saturating_add(distance(instant, time)).saturating_sub(distance(time, instant))
        };
        let threads = std::mem::take(&mut pieces.threads);
        let labels = std::mem::take(&mut pieces.labels);
        let stream_name = |stream: Option<Id>| match stream {
            None => Cow::from("blocking calls"),
            Some(id) => {
                labels.get(&id).map_or_else(|| format!("stream {id}"), |label| label.to_string()).into()
            }
        };
        if pieces.lost > 0 {
            problems.push(format!("{} records were lost, as they came too fast", pieces.lost));
        }
        let row = |piece: Piece| {
            // Not the waits above.
            let asked = piece.asked.filter(|asked| asked.time < stopped)?;
            let (end, clock) = piece.ended?;
            let (kind, name) = kind_and_name(&asked.what)?;
            let device = devices::all().iter().position(|device| Some(*device) == asked.device)?;
            let operator = asked.span.and_then(|span| operators.get(&span));
            let thread =
                operator.map(|operator| operator.thread).or_else(|| threads.get(&asked.thread).copied());
            Some(Row {
                kind,
                name,
                device: i32::try_from(device).ok()?,
                stream: asked.stream.map_or(0, Id::get),
                stream_name: stream_name(asked.stream),
                thread: thread.unwrap_or(0),
                operator: operator.map_or(0, |operator| operator.number),
                bytes: asked.what.bytes().unwrap_or(0) as u64,
                begin: to_nanoseconds(piece.begun.unwrap_or(asked.time)),
                end: to_nanoseconds(end),
                error: match clock {
                    Clock::Device { error, .. } => i64::try_from(error.as_nanos()).unwrap_or(i64::MAX),
                    Clock::Noticed => -1,
                    _ => 0,
                },
            })
        };
        let mut rows: Vec<Row> = pieces.pieces.into_values().filter_map(row).collect();
        rows.sort_by_key(|row| (row.begin, row.end));
        one_after_the_other(&mut rows);
        (rows, problems)
    }
}

/// A stream does one thing after the other. Where only the host noticed the ends, a piece begins at the end
/// of the one before.
fn one_after_the_other(rows: &mut [Row]) {
    let mut ends: HashMap<u64, i64> = HashMap::new();
    for row in rows.iter_mut().filter(|row| row.stream != 0) {
        let before = ends.entry(row.stream).or_insert(row.begin);
        if row.error < 0 {
            row.begin = row.begin.max(*before).min(row.end);
        }
        *before = row.end.max(*before);
    }
}

/// What a piece is for PyTorch; `None` for what has no row.
fn kind_and_name(what: &Work) -> Option<(Kind, Cow<'static, str>)> {
    let (kind, name) = match *what {
        Work::Launch { kernel, .. } => (Kind::Kernel, kernel.unwrap_or("launch")),
        // The words of PyTorch's own devices, which tools that read traces look for.
        Work::Write { .. } => (Kind::Copy, "Memcpy HtoD"),
        Work::Read { .. } => (Kind::Copy, "Memcpy DtoH"),
        Work::Copy { from, to, .. } if from.device == to.device => (Kind::Copy, "Memcpy DtoD"),
        Work::Copy { .. } => (Kind::Copy, "Memcpy PtoP"),
        Work::Fill { .. } => (Kind::Fill, "Memset"),
        Work::Wait(_) => return Some((Kind::Wait, what.to_string().into())),
        Work::HostCall | Work::Record | Work::WaitForEvent { .. } => return None,
        // From a later version of the core.
        _ => return None,
    };
    Some((kind, name.into()))
}

struct Collector(Arc<Mutex<Pieces>>);

impl Observer for Collector {
    fn observe(&self, batch: &Batch) {
        let mut pieces = self.0.lock();
        pieces.lost += batch.lost;
        for record in &batch.records {
            pieces.add(record, batch.thread.number);
        }
    }

    fn wants_device_times(&self) -> bool {
        true
    }
}

impl Pieces {
    fn add(&mut self, record: &Record, thread: u64) {
        let Record { time, device, stream, span, activity, .. } = *record;
        let asked = |what| Some(Asked { what, time, device, stream, span, thread });
        match activity {
            Activity::Enqueued { work, what, .. } => self.piece(work).asked = asked(what),
            Activity::Begun { work, .. } => self.piece(work).begun = Some(time),
            // What was skipped did not run.
            Activity::Ended { outcome: Outcome::Skipped, .. } => {}
            Activity::Ended { work, clock, .. } => self.piece(work).ended = Some((time, clock)),
            Activity::Called { call, what, .. } => self.piece(call).asked = asked(what),
            Activity::Returned { call, .. } => self.piece(call).ended = Some((time, Clock::Host)),
            Activity::StreamLabeled { label, .. } => {
                self.labels.extend(stream.map(|stream| (stream, label)));
            }
            Activity::Entered { span, .. } if !self.threads.contains_key(&thread) => {
                let operators = OPERATORS.lock();
                let operator = operators.as_ref().and_then(|operators| operators.get(&span));
                if let Some(operator) = operator {
                    self.threads.insert(thread, operator.thread);
                }
            }
            // PyTorch's profiler has no row for them; its own hooks report memory.
            Activity::Loaded { .. }
            | Activity::Opened { .. }
            | Activity::Closed
            | Activity::Lost
            | Activity::Reset
            | Activity::StreamCreated { .. }
            | Activity::Allocated { .. }
            | Activity::AllocationFailed { .. }
            | Activity::Freed { .. }
            | Activity::Entered { .. }
            | Activity::Left { .. } => {}
            // From a later version of the core.
            _ => {}
        }
    }

    fn piece(&mut self, id: Id) -> &mut Piece {
        self.pieces.entry(id).or_default()
    }
}

/// The operators that a thread is in, of one recording.
#[derive(Default)]
struct Open {
    recording: u64,
    spans: Vec<SpanGuard>,
}

impl Open {
    /// Leaves the operators of another recording: PyTorch does not say so.
    fn renew(&mut self, recording: u64) {
        if self.recording != recording {
            self.recording = recording;
            while let Some(innermost) = self.spans.pop() {
                drop(innermost);
            }
        }
    }
}

thread_local! {
    static OPEN: RefCell<Open> = RefCell::default();
}

/// The thread, by the system's number, enters an operator, by PyTorch's.
pub(crate) fn enter_operator(number: u64, thread: i64) {
    let recording = CURRENT.load(Ordering::Relaxed);
    if recording == 0 {
        return;
    }
    let _ = OPEN.try_with(|open| {
        let mut open = open.borrow_mut();
        open.renew(recording);
        let span = activity::span(&format!("PyTorch's operator {number}"));
        if let Some((id, operators)) = span.id().zip(OPERATORS.lock().as_mut()) {
            operators.insert(id, Operator { number, thread });
        }
        open.spans.push(span);
    });
}

/// The thread leaves the operator that it entered last.
pub(crate) fn leave_operator() {
    let _ = OPEN.try_with(|open| {
        let mut open = open.borrow_mut();
        open.renew(CURRENT.load(Ordering::Relaxed));
        let innermost = open.spans.pop();
        drop(innermost);
    });
}
