//! A check that exceeded its time limit, and what it was doing.

use std::fmt;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

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
    thread: JoinHandle<()>,
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
        Self { limit, under_way, callers, records, thread }
    }

    /// The names of the threads that had calls to the backend under way, that of the oldest call first.
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
        if !self.records.is_empty() {
            write!(f, "\nwhat devices did last:\n{}", self.records.trim_end())?;
        }
        Ok(())
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::sync::mpsc;
    use std::thread;

    use super::*;

    /// A hang whose thread ends when the sender is dropped.
    pub(crate) fn hung(callers: &[&str], under_way: &[&str]) -> (Hung, mpsc::Sender<()>) {
        let (end, ended) = mpsc::channel::<()>();
        let thread = thread::spawn(move || ended.recv().unwrap_or_default());
        let under_way = under_way.iter().map(|&text| text.to_owned()).collect();
        let callers = callers.iter().map(|&name| name.into()).collect();
        let (limit, records) = (Duration::from_secs(30), String::new());
        (Hung { limit, under_way, callers, records, thread }, end)
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
}
