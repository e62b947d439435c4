//! Records of all threads in the order of their times.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use device_registry::activity::{Batch, Record, Thread};

/// How long a record waits for earlier records of other threads. The core collects all threads in one round,
/// so a round later none is missing.
const WAIT: Duration = Duration::from_millis(40);

/// One record, or the news that some were lost.
pub(crate) enum Entry {
    Record(Record),
    Lost(u64),
}

/// Records that wait for their turn.
#[derive(Default)]
pub(crate) struct Order {
    /// By their time, and then by when they came.
    waiting: BTreeMap<(Instant, u64), (Arc<Thread>, Entry)>,
    came: u64,
    newest: Option<Instant>,
}

impl Order {
    /// Adds the records of a thread.
    pub(crate) fn add(&mut self, batch: &Batch) {
        let first = batch.records.first().map(|record| record.time).or(self.newest);
        if batch.lost > 0
            && let Some(time) = first
        {
            self.insert(time, &batch.thread, Entry::Lost(batch.lost));
        }
        for record in &batch.records {
            self.newest = self.newest.max(Some(record.time));
            self.insert(record.time, &batch.thread, Entry::Record(*record));
        }
    }

    fn insert(&mut self, time: Instant, thread: &Arc<Thread>, entry: Entry) {
        self.waiting.insert((time, self.came), (Arc::clone(thread), entry));
        self.came += 1;
    }

    /// Takes the oldest record, if no older one can come.
    pub(crate) fn next(&mut self) -> Option<(Instant, Arc<Thread>, Entry)> {
        let (&(time, _), _) = self.waiting.first_key_value()?;
        if self.newest.is_some_and(|newest| newest.saturating_duration_since(time) < WAIT) {
            return None;
        }
        self.take()
    }

    /// Takes the oldest record.
    pub(crate) fn take(&mut self) -> Option<(Instant, Arc<Thread>, Entry)> {
        let ((time, _), (thread, entry)) = self.waiting.pop_first()?;
        Some((time, thread, entry))
    }
}
