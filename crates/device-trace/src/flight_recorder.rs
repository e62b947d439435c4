//! The flight recorder: the last records, printed when something goes wrong.

use std::collections::VecDeque;
use std::fmt::Write;
use std::panic;
use std::sync::{Arc, Once};
use std::time::{Duration, Instant};

use device_registry::activity::{self, Activity, Batch, Observer, Record, Thread};
use device_registry::backend::LoadFailure;
use parking_lot::Mutex;

/// The variable that turns the recorder on.
pub(crate) const VARIABLE: &str = "DEVICE_FLIGHT_RECORDER";

/// How many records are kept.
const MOST: usize = 10_000;

/// How many of them a loss or a panic prints.
const PRINTED: usize = 40;

static KEPT: Mutex<VecDeque<(Arc<Thread>, Record)>> = Mutex::new(VecDeque::new());

/// The last records as text, a line each, the newest last: what devices did before something went wrong. It
/// is empty unless `DEVICE_FLIGHT_RECORDER=1` was set when the program first used a backend.
///
/// With that variable, the loss of a device and a panic print the last 40 to standard error. The recorder
/// keeps 10,000. Waits for the observers, at most for a fifth of a second.
#[must_use]
pub fn last_records(count: usize) -> String {
    activity::flush(Duration::from_millis(200));
    tail(count)
}

fn tail(count: usize) -> String {
    let mut records: Vec<_> = KEPT.lock().iter().cloned().collect();
    records.sort_by_key(|(_, record)| record.time);
    let now = Instant::now();
    let mut text = String::new();
    for (thread, record) in &records[records.len().saturating_sub(count)..] {
        let ago = now.saturating_duration_since(record.time);
        let _ = write!(text, "{:>12.6} s ago  ", ago.as_secs_f64());
        let name = thread.name.as_deref().unwrap_or("a thread without a name");
        let _ = write!(text, "[{name}] ");
        if let Some(device) = record.device {
            let _ = write!(text, "{device} ");
        }
        if let Some(stream) = record.stream {
            let _ = write!(text, "stream {stream} ");
        }
        let _ = writeln!(text, "{}", described(&record.activity));
    }
    text
}

/// What happened, in words.
fn described(activity: &Activity) -> String {
    match activity {
        Activity::Allocated { allocation, bytes, .. } => format!("allocated {bytes} bytes, {allocation}"),
        Activity::AllocationFailed { bytes, memory, .. } => {
            format!("out of memory: {bytes} bytes asked for, {} allocated", memory.allocated)
        }
        Activity::Freed { allocation, bytes, .. } => format!("freed {bytes} bytes, {allocation}"),
        Activity::Enqueued { work, what, .. } => format!("enqueued {}, work {work}", with_bytes(what)),
        Activity::Begun { work, .. } => format!("began work {work}"),
        Activity::Ended { work, outcome, .. } => format!("ended work {work}: {outcome:?}"),
        Activity::Called { call, what, .. } => format!("called {}, call {call}", with_bytes(what)),
        Activity::Returned { call, failed, .. } => {
            format!("returned from call {call}{}", if *failed { ", which failed" } else { "" })
        }
        Activity::Entered { name, .. } => format!("entered `{name}`"),
        other => format!("{other:?}"),
    }
}

fn with_bytes(what: &activity::Work) -> String {
    match what.bytes() {
        Some(bytes) => format!("{what} of {bytes} bytes"),
        None => what.to_string(),
    }
}

/// Loads the observer of the variable.
pub(crate) fn load() -> Result<Box<dyn Observer>, LoadFailure> {
    if !crate::is_on(VARIABLE)? {
        return Err(LoadFailure::unavailable(format_args!("{VARIABLE} is not set: `1` turns it on")));
    }
    print_at_panics();
    Ok(Box::new(Recorder))
}

struct Recorder;

impl Observer for Recorder {
    fn observe(&self, batch: &Batch) {
        let mut kept = KEPT.lock();
        let new = batch.records.iter().map(|record| (Arc::clone(&batch.thread), *record));
        kept.extend(new);
        let too_many = kept.len().saturating_sub(MOST);
        kept.drain(..too_many);
        drop(kept);
        let lost = batch.records.iter().find(|record| matches!(record.activity, Activity::Lost));
        if let Some(device) = lost.and_then(|record| record.device) {
            eprintln!("`{device}` is lost. The last records:\n{}", tail(PRINTED));
        }
    }
}

/// Prints the last records after the message of each panic, also of one that the core catches in a driver.
fn print_at_panics() {
    static PRINTS: Once = Once::new();
    PRINTS.call_once(|| {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            before(info);
            let records = last_records(PRINTED);
            if !records.is_empty() {
                eprintln!("The last records of devices:\n{records}");
            }
        }));
    });
}
