//! A check that exceeded its time limit, and what it was doing.

use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;
use std::{fmt, fs};

use device_registry::{Device, DriverCall};

/// How many calls the message of a hang lists.
const LISTED: usize = 4;

/// How many of the last records it has, if the flight recorder of `device-trace` is on.
const RECORDS: usize = 40;

/// A check exceeded its time limit. Displays as its message.
#[derive(Debug)]
pub(crate) struct Hung {
    limit: Duration,
    /// The calls into drivers that were under way, as text.
    under_way: Vec<String>,
    callers: Vec<Arc<str>>,
    /// What devices did last, a line each. Empty without the flight recorder.
    records: String,
    /// How many threads of the machine want to run for each of its cores, where that is too many.
    load: Option<f32>,
    thread: JoinHandle<()>,
}

/// With this many threads for each core, a check may exceed its limit just because of them.
const BUSY: f32 = 2.0;

/// How many threads want to run for each core, as the average of a minute. `None` if they are few, or if the
/// system does not say.
fn load(averages: &str, cores: usize) -> Option<f32> {
    let minute: f32 = averages.split_whitespace().next()?.parse().ok()?;
    Some(minute / cores as f32).filter(|load| *load >= BUSY)
}

impl Hung {
    /// `name` is the name of the check's thread, and `calls` are all that are under way in this process.
    pub(crate) fn new(
        name: &str,
        device: Device,
        limit: Duration,
        calls: Vec<DriverCall>,
        thread: JoinHandle<()>,
    ) -> Self {
        let is_own = |call: &DriverCall| call.thread.as_deref() == Some(name);
        let of_backend: Vec<_> =
            calls.into_iter().filter(|call| is_own(call) || call.device.name() == device.name()).collect();
        // A shorter call of another thread is most likely one of a check that works.
        let matters = |call: &&DriverCall| is_own(call) || call.since.elapsed() >= limit / 10;
        let under_way = of_backend.iter().filter(matters).map(DriverCall::to_string).collect();
        let callers = of_backend.into_iter().filter_map(|call| call.thread).collect();
        let records = device_trace::last_records(RECORDS);
        let cores = thread::available_parallelism().map_or(1, usize::from);
        let load = fs::read_to_string("/proc/loadavg").ok().and_then(|averages| load(&averages, cores));
        Self { limit, under_way, callers, records, load, thread }
    }

    /// The names of the threads with calls into the backend under way, the oldest call first.
    pub(crate) fn callers(&self) -> &[Arc<str>] {
        &self.callers
    }

    /// Whether the check still runs.
    pub(crate) fn is_running(&self) -> bool {
        !self.thread.is_finished()
    }
}

impl fmt::Display for Hung {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "it exceeded the time limit of {:?}; ", self.limit)?;
        let listed = &self.under_way[..self.under_way.len().min(LISTED)];
        match self.under_way.len() - listed.len() {
            _ if listed.is_empty() => f.write_str("no call into a driver is under way")?,
            0 => write!(f, "under way: {}", listed.join("; "))?,
            more => write!(f, "under way: {}; and {more} more", listed.join("; "))?,
        }
        if let Some(load) = self.load {
            write!(
                f,
                "; the machine is busy, with {load:.1} threads for each core, and that may be all: \
                 DEVICE_CONFORMANCE_TIME_LIMIT sets another limit, in seconds"
            )?;
        }
        if !self.records.is_empty() {
            write!(f, "\nwhat devices did last:\n{}", self.records.trim_end())?;
        }
        Ok(())
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::sync::mpsc;

    use super::*;

    /// A hang whose thread ends when the sender is dropped.
    pub(crate) fn hung(callers: &[&str], under_way: &[&str]) -> (Hung, mpsc::Sender<()>) {
        let (end, ended) = mpsc::channel::<()>();
        let thread = thread::spawn(move || ended.recv().unwrap_or_default());
        let under_way = under_way.iter().map(|&text| text.to_owned()).collect();
        let callers = callers.iter().map(|&name| name.into()).collect();
        let limit = Duration::from_secs(30);
        let records = String::new();
        (Hung { limit, under_way, callers, records, load: None, thread }, end)
    }

    #[test]
    fn the_message_lists_the_calls_that_are_under_way() {
        let message = |under_way: &[&str]| hung(&[], under_way).0.to_string();
        assert_eq!(message(&[]), "it exceeded the time limit of 30s; no call into a driver is under way");
        assert_eq!(
            message(&["`acme:0` write"]),
            "it exceeded the time limit of 30s; under way: `acme:0` write"
        );
        assert_eq!(
            message(&["1", "2", "3", "4", "5", "6"]),
            "it exceeded the time limit of 30s; under way: 1; 2; 3; 4; and 2 more"
        );
    }

    #[test]
    fn the_message_says_that_the_machine_is_busy() {
        assert_eq!(load("31.50 20.00 9.00 40/700 1234\n", 2), Some(15.75));
        assert_eq!(load("1.90 20.00 9.00 1/700 1234\n", 2), None);
        assert_eq!(load("", 2), None);
        let mut hung = hung(&[], &[]).0;
        hung.load = Some(15.75);
        let message = hung.to_string();
        assert!(
            message.contains("under way; the machine is busy, with 15.8 threads for each core"),
            "{message}"
        );
    }
}
