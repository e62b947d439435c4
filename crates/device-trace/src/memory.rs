//! What lives in the memory of devices: for how long, and which part of the program has allocated it.

use std::collections::HashMap;
use std::fmt;
use std::time::{Duration, Instant};

use device_registry::Device;
use device_registry::activity::{self, Activity, Batch, Id, MemoryInUse, Name, Observation, Observer};
use device_registry::backend::LoadFailure;
use parking_lot::Mutex;

/// The variable that prints a snapshot when there is not enough memory.
pub(crate) const VARIABLE: &str = "DEVICE_TRACE_ON_OOM";

/// What lives in the memory of devices.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct MemorySnapshot {
    /// The devices that have allocated since the watch began, and what lives there. The largest come first.
    pub devices: Vec<(Device, MemoryInUse, Vec<LiveAllocation>)>,
}

/// An allocation that is not freed.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct LiveAllocation {
    /// Its length in bytes.
    pub bytes: usize,
    /// How long ago it was made.
    pub age: Duration,
    /// The [span](activity::span) of the program that it was made in.
    pub span: Option<String>,
    /// The name of the thread that has made it, if it has one.
    pub thread: Option<String>,
}

/// Watches memory until the returned value is dropped: [`memory_snapshot`] then says what was allocated since
/// this call and lives. The variable `DEVICE_TRACE_ON_OOM=1` watches the whole run of a program, and prints a
/// snapshot to standard error whenever an allocation fails for want of memory.
///
/// # Errors
///
/// If the system cannot start a thread.
pub fn watch_memory() -> std::io::Result<Observation> {
    activity::observe("memory", Watch::new(false))
}

/// What lives in the memory of devices, of what was allocated since [`watch_memory`] or since the program
/// began to use devices. Waits for the observers, at most for a second.
///
/// ```
/// use device_registry::{activity, device};
///
/// let watch = device_trace::watch_memory()?;
/// let _span = activity::span("weights");
/// let weights = device("cpu")?.allocate(1 << 20)?;
/// let snapshot = device_trace::memory_snapshot();
/// let (_, _, live) = &snapshot.devices[0];
/// assert_eq!((live[0].bytes, live[0].span.as_deref()), (1 << 20, Some("weights")));
/// println!("{snapshot}");
/// # drop(watch);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use]
pub fn memory_snapshot() -> MemorySnapshot {
    activity::flush(Duration::from_secs(1));
    STATE.lock().get_or_insert_default().snapshot()
}

#[derive(Default)]
struct State {
    live: HashMap<Id, Live>,
    in_use: HashMap<Device, MemoryInUse>,
    spans: HashMap<Id, Name>,
}

struct Live {
    device: Device,
    bytes: usize,
    since: Instant,
    span: Option<Name>,
    thread: Option<String>,
}

static STATE: Mutex<Option<State>> = Mutex::new(None);

/// How many watches there are. Without one, frees are not seen, so nothing is remembered.
static WATCHES: Mutex<usize> = Mutex::new(0);

impl State {
    fn snapshot(&self) -> MemorySnapshot {
        let now = Instant::now();
        let mut devices: Vec<_> =
            self.in_use.iter().map(|(&device, &in_use)| (device, in_use, Vec::new())).collect();
        devices.sort_by_key(|(device, ..)| *device);
        for live in self.live.values() {
            let allocation = LiveAllocation {
                bytes: live.bytes,
                age: now.saturating_duration_since(live.since),
                span: live.span.map(|name| name.to_string()),
                thread: live.thread.clone(),
            };
            if let Some((_, _, of_device)) = devices.iter_mut().find(|(device, ..)| *device == live.device) {
                of_device.push(allocation);
            }
        }
        for (_, _, live) in &mut devices {
            live.sort_by_key(|allocation| (std::cmp::Reverse(allocation.bytes), allocation.age));
        }
        MemorySnapshot { devices }
    }
}

/// Loads the observer of the variable.
pub(crate) fn load() -> Result<Box<dyn Observer>, LoadFailure> {
    if crate::is_on(VARIABLE)? {
        Ok(Box::new(Watch::new(true)))
    } else {
        Err(LoadFailure::unavailable(format_args!("{VARIABLE} is not set: `1` turns it on")))
    }
}

struct Watch {
    /// Whether it prints a snapshot when an allocation fails.
    prints: bool,
}

impl Watch {
    fn new(prints: bool) -> Self {
        *WATCHES.lock() += 1;
        Self { prints }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let mut watches = WATCHES.lock();
        *watches -= 1;
        if *watches == 0 {
            *STATE.lock() = None;
        }
    }
}

impl Observer for Watch {
    fn observe(&self, batch: &Batch) {
        let mut state = STATE.lock();
        let state = state.get_or_insert_default();
        for record in &batch.records {
            let Some(device) = record.device else {
                match record.activity {
                    Activity::Entered { span, name, .. } => drop(state.spans.insert(span, name)),
                    Activity::Left { span, .. } => drop(state.spans.remove(&span)),
                    _ => {}
                }
                continue;
            };
            match record.activity {
                Activity::Allocated { allocation, bytes, memory, .. } => {
                    let span = record.span.and_then(|span| state.spans.get(&span)).copied();
                    let thread = batch.thread.name.as_deref().map(str::to_owned);
                    state.live.insert(allocation, Live { device, bytes, since: record.time, span, thread });
                    state.in_use.insert(device, memory);
                }
                Activity::Freed { allocation, memory, .. } => {
                    state.live.remove(&allocation);
                    state.in_use.insert(device, memory);
                }
                Activity::AllocationFailed { bytes, memory, .. } => {
                    state.in_use.insert(device, memory);
                    if self.prints {
                        // What comes after it in the batch may free what was there.
                        let lives = state.snapshot();
                        eprintln!("`{device}`: no memory for {bytes} bytes. What lives there:\n{lives}");
                    }
                }
                // They change no memory.
                Activity::Loaded { .. }
                | Activity::Opened { .. }
                | Activity::Closed
                | Activity::Lost
                | Activity::Reset
                | Activity::StreamCreated { .. }
                | Activity::StreamLabeled { .. }
                | Activity::Enqueued { .. }
                | Activity::Begun { .. }
                | Activity::Ended { .. }
                | Activity::Called { .. }
                | Activity::Returned { .. } => {}
                // From a later version of the core.
                _ => {}
            }
        }
    }
}

impl fmt::Display for MemorySnapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        /// The others are added up.
        const LINES: usize = 20;

        if self.devices.is_empty() {
            return writeln!(f, "nothing was allocated since the watch began");
        }
        for (device, in_use, live) in &self.devices {
            let MemoryInUse { allocated, reserved, .. } = in_use;
            writeln!(f, "{device}: {allocated} bytes allocated, {reserved} reserved")?;
            let mut by_span: Vec<(Option<&str>, usize, usize)> = Vec::new();
            for allocation in live {
                let span = allocation.span.as_deref();
                match by_span.iter_mut().find(|(other, ..)| *other == span) {
                    Some((_, count, bytes)) => (*count, *bytes) = (*count + 1, *bytes + allocation.bytes),
                    None => by_span.push((span, 1, allocation.bytes)),
                }
            }
            by_span.sort_by_key(|&(_, _, bytes)| std::cmp::Reverse(bytes));
            for (span, count, bytes) in by_span {
                let span = span.unwrap_or("outside of any span");
                writeln!(f, "  {bytes:>14} bytes in {count} allocations, {span}")?;
            }
            writeln!(f, "  the largest:")?;
            for allocation in live.iter().take(LINES) {
                let LiveAllocation { bytes, age, span, thread } = allocation;
                let span = span.as_deref().map(|span| format!(", in {span}")).unwrap_or_default();
                let thread = thread.as_deref().map(|name| format!(", by {name}")).unwrap_or_default();
                writeln!(f, "  {bytes:>14} bytes for {:.3} s{span}{thread}", age.as_secs_f64())?;
            }
            if let Some(more) = live.len().checked_sub(LINES).filter(|&more| more > 0) {
                let bytes: usize = live[LINES..].iter().map(|allocation| allocation.bytes).sum();
                writeln!(f, "  {bytes:>14} bytes in {more} more")?;
            }
        }
        Ok(())
    }
}
