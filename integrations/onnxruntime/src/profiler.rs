//! What a device did, in the profile that ONNX Runtime writes: each piece of its work that a session has
//! enqueued, with the node that it is for.

use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::CString;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use device_registry::Device;
use device_registry::activity::{
    self, Activity, Batch, Clock, Id, Observation, Observer, Outcome, Record, SpanGuard, Work,
};
use ort_sys::OrtStatusPtr;
use parking_lot::Mutex;

use crate::abi::{EventCategory, EventsContainer, ProfilerImpl, ProfilingEvent, VERSION};
use crate::api::{Api, borrowed, text};
use crate::failure::Failure;
use crate::place::Place;

/// The profiler of a session. ONNX Runtime sees its table, which is first.
#[repr(C)]
struct Profiler {
    table: ProfilerImpl,
    api: Api,
    device: Device,
    /// Tells its spans from other sessions' ones.
    number: u64,
    under_way: Mutex<Option<UnderWay>>,
    /// The names of ONNX Runtime's events, by their numbers.
    names: Mutex<HashMap<u64, String>>,
}

/// A profile that is being made.
struct UnderWay {
    observation: Observation,
    seen: Arc<Mutex<Seen>>,
    /// When ONNX Runtime's profile has begun.
    start: Instant,
}

/// Makes a profiler that ONNX Runtime owns and releases.
pub(crate) fn create(api: Api, place: &'static Place) -> *mut ProfilerImpl {
    static NUMBERS: AtomicU64 = AtomicU64::new(1);
    let table = ProfilerImpl {
        ort_version_supported: VERSION,
        Release: Some(release),
        StartProfiling: Some(start),
        StartEvent: Some(start_event),
        StopEvent: Some(stop_event),
        EndProfiling: Some(end),
    };
    let made = Profiler {
        table,
        api,
        device: place.device,
        number: NUMBERS.fetch_add(1, Ordering::Relaxed),
        under_way: Mutex::new(None),
        names: Mutex::default(),
    };
    Box::into_raw(Box::new(made)).cast()
}

unsafe extern "system" fn release(table: *mut ProfilerImpl) {
    // SAFETY: it is one of `create`, and is not used again.
    drop(unsafe { Box::from_raw(table.cast::<Profiler>()) });
}

unsafe extern "system" fn start(table: *mut ProfilerImpl, since_start: i64) -> OrtStatusPtr {
    // SAFETY: a table of this module, as in the functions below.
    let profiler = unsafe { &*table.cast::<Profiler>() };
    profiler.api.guard(|| {
        let now = Instant::now();
        let since_start = Duration::from_nanos(since_start.max(0).unsigned_abs());
        let seen = Arc::<Mutex<Seen>>::default();
        let observer = OfDevice { device: profiler.device, seen: seen.clone() };
        let observation = activity::observe("ONNX Runtime's profile", observer)
            .map_err(|error| Failure::new(error).of("observing the device"))?;
        let start = now.checked_sub(since_start).unwrap_or(now);
        *profiler.under_way.lock() = Some(UnderWay { observation, seen, start });
        Ok(())
    })
}

thread_local! {
    /// The spans of ONNX Runtime's events that this thread is in.
    static EVENTS: RefCell<Vec<SpanGuard>> = const { RefCell::new(Vec::new()) };
}

unsafe extern "system" fn start_event(table: *mut ProfilerImpl, event: u64) -> OrtStatusPtr {
    // SAFETY: see `start`.
    let profiler = unsafe { &*table.cast::<Profiler>() };
    profiler.api.guard(|| {
        let span = activity::span(&format!("{}{event}", span_prefix(profiler.number)));
        EVENTS.with_borrow_mut(|events| events.push(span));
        Ok(())
    })
}

unsafe extern "system" fn stop_event(
    table: *mut ProfilerImpl,
    number: u64,
    event: *const ProfilingEvent,
) -> OrtStatusPtr {
    // SAFETY: see `start`.
    let profiler = unsafe { &*table.cast::<Profiler>() };
    profiler.api.guard(|| {
        drop(EVENTS.with_borrow_mut(Vec::pop));
        let mut name = ptr::null();
        // SAFETY: the event is alive, and there is room for a pointer.
        let name = unsafe {
            profiler.api.check((profiler.api.ep.ProfilingEvent_GetName)(event, &raw mut name))?;
            borrowed(name)
        };
        profiler.names.lock().insert(number, name.to_owned());
        Ok(())
    })
}

/// How the spans of a profiler begin; the number of the event follows.
fn span_prefix(number: u64) -> String {
    format!("ONNX Runtime {number}, event ")
}

unsafe extern "system" fn end(table: *mut ProfilerImpl, events: *mut EventsContainer) -> OrtStatusPtr {
    // SAFETY: see `start`.
    let profiler = unsafe { &*table.cast::<Profiler>() };
    profiler.api.guard(|| {
        let Some(UnderWay { observation, seen, start }) = profiler.under_way.lock().take() else {
            return Ok(());
        };
        // It hands over what was recorded until now.
        drop(observation);
        let names = std::mem::take(&mut *profiler.names.lock());
        let seen = std::mem::take(&mut *seen.lock());
        if seen.lost > 0 {
            log::warn!(
                "{} records of `{}` came too fast for ONNX Runtime's profile",
                seen.lost,
                profiler.device
            );
        }
        let prefix = span_prefix(profiler.number);
        let mut pieces: Vec<_> = seen.pieces.values().filter_map(Piece::whole).collect();
        pieces.sort_by_key(|(_, begun, _)| *begun);
        for (enqueued, begun, ended) in pieces {
            if let Some(event) = seen.event_of(enqueued.span, &prefix) {
                let node = names.get(&event).map_or("", String::as_str);
                profiler.add(enqueued, (begun, ended), node, start, events)?;
            }
        }
        Ok(())
    })
}

impl Profiler {
    /// Adds a piece of work to the profile.
    fn add(
        &self,
        enqueued: &Enqueued,
        (begun, ended): (Instant, &Ended),
        node: &str,
        start: Instant,
        events: *mut EventsContainer,
    ) -> Result<(), Failure> {
        let micros = |time: Duration| i64::try_from(time.as_micros()).unwrap_or(i64::MAX);
        let clock = match ended.clock {
            Clock::Device { .. } => "device",
            Clock::Noticed => "noticed by the host",
            _ => "host",
        };
        let mut arguments = vec![
            ("device", self.device.to_string()),
            ("parent_name", node.to_owned()),
            ("clock", clock.to_owned()),
        ];
        arguments.extend(enqueued.what.bytes().map(|bytes| ("bytes", bytes.to_string())));
        match ended.outcome {
            Outcome::Failed => arguments.push(("outcome", "failed".to_owned())),
            Outcome::Skipped => arguments.push(("outcome", "skipped".to_owned())),
            _ => {}
        }
        let (keys, values): (Vec<CString>, Vec<CString>) =
            arguments.iter().map(|(key, value)| (text(key), text(value))).unzip();
        let keys: Vec<_> = keys.iter().map(|key| key.as_ptr()).collect();
        let values: Vec<_> = values.iter().map(|value| value.as_ptr()).collect();
        let name = text(&enqueued.what.to_string());
        let stream = enqueued.stream.map_or(-1, |stream| i32::try_from(stream.get()).unwrap_or(-1));
        let mut event = ptr::null_mut();
        // SAFETY: all are texts, which are copied, and there are as many keys as values; there is room for a
        // pointer. The container is alive.
        unsafe {
            self.api.check((self.api.ep.CreateProfilingEvent)(
                EventCategory::KERNEL,
                -1,
                stream,
                name.as_ptr(),
                micros(begun.saturating_duration_since(start)),
                micros(ended.time.saturating_duration_since(begun)),
                keys.as_ptr(),
                values.as_ptr(),
                keys.len(),
                &raw mut event,
            ))?;
            let one = [event.cast_const()];
            let added = (self.api.ep.ProfilingEventsContainer_AddEvents)(events, one.as_ptr(), one.len());
            (self.api.ep.ReleaseProfilingEvent)(event);
            self.api.check(added)
        }
    }
}

/// What was recorded.
#[derive(Default)]
struct Seen {
    pieces: HashMap<Id, Piece>,
    /// The name of each span, and the span around it.
    spans: HashMap<Id, (String, Option<Id>)>,
    lost: u64,
}

/// A piece of work. Records of several threads come in any order.
#[derive(Default)]
struct Piece {
    enqueued: Option<Enqueued>,
    begun: Option<Instant>,
    ended: Option<Ended>,
}

struct Enqueued {
    what: Work,
    stream: Option<Id>,
    span: Option<Id>,
    time: Instant,
}

struct Ended {
    time: Instant,
    clock: Clock,
    outcome: Outcome,
}

impl Piece {
    /// What it is, when it has begun, and how it has ended; `None` unless all is known.
    fn whole(&self) -> Option<(&Enqueued, Instant, &Ended)> {
        let enqueued = self.enqueued.as_ref()?;
        Some((enqueued, self.begun.unwrap_or(enqueued.time), self.ended.as_ref()?))
    }
}

impl Seen {
    /// The event of ONNX Runtime in which a span is, of the session whose spans begin so.
    fn event_of(&self, mut span: Option<Id>, prefix: &str) -> Option<u64> {
        loop {
            let (name, outer) = self.spans.get(&span?)?;
            if let Some(event) = name.strip_prefix(prefix) {
                return event.parse().ok();
            }
            span = *outer;
        }
    }

    fn add(&mut self, record: &Record) {
        let enqueued = |what| Enqueued { what, stream: record.stream, span: record.span, time: record.time };
        match record.activity {
            Activity::Entered { span, name, .. } => {
                self.spans.insert(span, (name.to_string(), record.span));
            }
            Activity::Enqueued { work, what, .. } if is_shown(&what) => {
                self.pieces.entry(work).or_default().enqueued = Some(enqueued(what));
            }
            Activity::Begun { work, .. } => self.pieces.entry(work).or_default().begun = Some(record.time),
            Activity::Ended { work, clock, outcome, .. } => {
                let ended = Ended { time: record.time, clock, outcome };
                self.pieces.entry(work).or_default().ended = Some(ended);
            }
            Activity::Called { call, what, .. } if is_shown(&what) => {
                self.pieces.entry(call).or_default().enqueued = Some(enqueued(what));
            }
            Activity::Returned { call, failed, .. } => {
                let outcome = if failed { Outcome::Failed } else { Outcome::Done };
                let ended = Ended { time: record.time, clock: Clock::Host, outcome };
                self.pieces.entry(call).or_default().ended = Some(ended);
            }
            Activity::Loaded { .. }
            | Activity::Opened { .. }
            | Activity::Closed
            | Activity::Lost
            | Activity::Reset
            | Activity::StreamCreated { .. }
            | Activity::StreamLabeled { .. }
            | Activity::Allocated { .. }
            | Activity::AllocationFailed { .. }
            | Activity::Freed { .. }
            | Activity::Enqueued { .. }
            | Activity::Called { .. }
            | Activity::Left { .. }
            | _ => {}
        }
    }
}

/// Whether the device has something to do for it.
fn is_shown(what: &Work) -> bool {
    match what {
        Work::Write { .. }
        | Work::Read { .. }
        | Work::Copy { .. }
        | Work::Fill { .. }
        | Work::Launch { .. }
        | Work::HostCall => true,
        Work::Record | Work::WaitForEvent { .. } | Work::Wait(_) | _ => false,
    }
}

/// Keeps the records of a device.
struct OfDevice {
    device: Device,
    seen: Arc<Mutex<Seen>>,
}

impl Observer for OfDevice {
    fn observe(&self, batch: &Batch) {
        let mut seen = self.seen.lock();
        seen.lost += batch.lost;
        // Spans are of no device.
        let is_of_it = |record: &&Record| record.device.is_none_or(|device| device == self.device);
        batch.records.iter().filter(is_of_it).for_each(|record| seen.add(record));
    }

    fn wants_device_times(&self) -> bool {
        true
    }
}
