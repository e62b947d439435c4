//! Observers, both linked ones and ones that a program starts in code.

use std::fmt;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use entry_points::{EntryPoint, State};

use crate::runtime::activity::hub::{HUB, Seat};
use crate::runtime::activity::record::Batch;
use crate::runtime::device_use;
use crate::runtime::fork::Process;
use crate::runtime::isolation::log_isolated;
use crate::sync::pause;

/// Gets records of what devices and the threads that use them do.
///
/// The functions run on the observer's own thread, some milliseconds after the records were made, and never
/// two at the same time. They may block: records that come meanwhile wait, up to 262,144 of them, and
/// more are [lost](Batch::lost). They may not use devices: such a call returns
/// [`DeviceError::InHostCall`](crate::DeviceError::InHostCall), as in a logger. A panic ends the observation,
/// with a line in the log.
pub trait Observer: Send + Sync {
    /// Gets records of one thread. Batches of several threads come in any order.
    fn observe(&self, batch: &Batch);

    /// Writes what it has kept, if anything. It is called by [`flush`](super::flush), at the end of the
    /// observation, and at the end of the process if that runs the functions of `atexit`.
    fn flush(&self) {}

    /// Whether to measure with the device's clock when work in queues of a driver begins and ends, where its
    /// events have timestamps. That costs two more events for each piece of work, and the first work waits
    /// for the device, to compare the clocks. By default it is not measured.
    fn wants_device_times(&self) -> bool {
        false
    }
}

impl<O: Observer + ?Sized> Observer for &'static O {
    fn observe(&self, batch: &Batch) {
        (**self).observe(batch);
    }

    fn flush(&self) {
        (**self).flush();
    }

    fn wants_device_times(&self) -> bool {
        (**self).wants_device_times()
    }
}

/// An observer as constant data: its name, its package, and the function that loads it.
///
/// A crate declares one in an [`entry_points!`](crate::backend::entry_points) block at its root and registers
/// it in [`OBSERVERS`]. A `load` that returns
/// [`LoadFailure::unavailable`](crate::backend::LoadFailure::unavailable) says that it is not switched on.
pub type ObserverDescriptor = EntryPoint<dyn Observer>;

entry_points::group! {
    /// The distributed slice that crates with observers register in.
    pub static OBSERVERS: [ObserverDescriptor];

    /// The group `device.observers`: the observers that are linked into the program. They begin when the
    /// program first uses a backend or enters a [span](super::span), and run until its end. Variables with
    /// the prefix `DEVICE_OBSERVERS` switch them on and off: see [`Switches`](crate::registry::Switches).
    pub fn observers() -> Group<dyn Observer> {
        entry_points::Group::new("device.observers")
            .noun("observer")
            .switches("DEVICE_OBSERVERS")
            .read_by(&[
                ("DEVICE_TRACE", "device-trace"),
                ("DEVICE_TRACE_ON_OOM", "device-trace"),
                ("DEVICE_FLIGHT_RECORDER", "device-trace"),
            ])
            .autoload_line("device_registry::autoload!();")
    }
}

/// An observer that gets records until this is dropped: see [`observe`].
#[must_use = "the observation ends when it is dropped"]
pub struct Observation(Arc<Seat>);

impl fmt::Debug for Observation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Observation").field(&self.0.name).finish()
    }
}

impl Observation {
    /// Whether the observer still gets records: it has not panicked, and this process began the observation
    /// and is not a child of the one that did.
    #[must_use]
    pub fn is_active(&self) -> bool {
        HUB.current().has(&self.0)
    }
}

/// Dropping it hands over the earlier records, waits at most a second for that, and ends the observation.
impl Drop for Observation {
    fn drop(&mut self) {
        HUB.current().end(&self.0);
    }
}

/// Begins an observation: the observer gets the records that all threads make from now on. The name is for
/// the log and for the thread.
///
/// ```
/// use std::sync::Mutex;
///
/// use device_registry::activity::{self, Batch, Observer};
/// use device_registry::device;
///
/// struct Lines(&'static Mutex<Vec<String>>);
///
/// impl Observer for Lines {
///     fn observe(&self, batch: &Batch) {
///         let lines = batch.records.iter().map(|record| format!("{record:?}"));
///         self.0.lock().unwrap().extend(lines);
///     }
/// }
///
/// static LINES: Mutex<Vec<String>> = Mutex::new(Vec::new());
///
/// let observation = activity::observe("lines", Lines(&LINES))?;
/// device("cpu")?.allocate(64)?;
/// drop(observation);
/// assert!(LINES.lock().unwrap().iter().any(|line| line.contains("Allocated")));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
///
/// If the system cannot start a thread, or [`Observer::wants_device_times`] panics.
pub fn observe(name: &str, observer: impl Observer + 'static) -> io::Result<Observation> {
    HUB.current().begin(name, Box::new(observer)).map(Observation)
}

/// Hands over the records that were made before this call, and calls [`Observer::flush`]. Blocks until all
/// observers have returned, at most for `timeout`. Returns whether they have.
///
/// If an observer calls it, it returns `false`.
pub fn flush(timeout: Duration) -> bool {
    HUB.current().flush(timeout)
}

/// Begins the observations by the observers that are linked, at the first call. Other threads that call it
/// meanwhile wait, as records of what they do would be lost.
#[inline]
pub(crate) fn begin_linked() {
    if !BEGUN.load(Ordering::Acquire) {
        begin_or_wait();
    }
}

static BEGUN: AtomicBool = AtomicBool::new(false);

/// The load of the observers by one thread.
struct Loading {
    process: Process,
    /// When other threads no longer wait: an observer that waits for one of them would never begin.
    until: OnceLock<Instant>,
}

/// How long threads wait in all.
const PATIENCE: Duration = Duration::from_secs(1);

#[cold]
fn begin_or_wait() {
    static LOADING: OnceLock<Loading> = OnceLock::new();

    let mut is_first = false;
    let loading = LOADING.get_or_init(|| {
        is_first = true;
        Loading { process: Process::current(), until: OnceLock::new() }
    });
    if is_first {
        load_linked();
        BEGUN.store(true, Ordering::Release);
    } else if loading.process.is_current() && !device_use::is_forbidden() {
        // Code of an observer that is being loaded does not wait for itself, nor a child of `fork` for a
        // thread that it does not have.
        let until = *loading.until.get_or_init(|| Instant::now() + PATIENCE);
        while !BEGUN.load(Ordering::Acquire) && Instant::now() < until {
            pause();
        }
    }
}

#[cold]
fn load_linked() {
    // It runs code of observers.
    device_use::forbid(|| {
        for entry in observers().iter().filter(|entry| entry.is_usable()) {
            let begun = match entry.load() {
                Ok(observer) => {
                    HUB.current().begin(entry.name(), Box::new(observer)).map_err(|e| e.to_string())
                }
                // The observer is not switched on.
                Err(_) if matches!(entry.state(), State::Unavailable { .. }) => continue,
                Err(error) => Err(error.to_string()),
            };
            if let Err(error) = begun {
                log_isolated(|| log::error!("the observer `{}` does not run: {error}", entry.name()));
            }
        }
    });
}
