//! What lived in the memory of devices, as lines of text.

use std::collections::BTreeMap;
use std::fmt;

use crate::read::summary::{bytes, sum, time};
use crate::read::{Allocation, Trace};

/// How many kinds of allocations are listed.
const LINES: usize = 30;

/// What lived in the memory of each device when the most was allocated, and at the end: of
/// [`Trace::memory`]. Displays as a table for each.
#[derive(Debug)]
pub struct TraceMemory<'a>(&'a Trace);

impl Trace {
    /// What lived in the memory of each device when the most was allocated, and at the end of the trace.
    #[must_use]
    pub fn memory(&self) -> TraceMemory<'_> {
        TraceMemory(self)
    }

    /// When the most of a device's memory was allocated, and how much. `None` if nothing was.
    pub(super) fn peak(&self, device: usize) -> Option<(u64, u64)> {
        let of_device = self.memory.iter().filter(|&&(of, ..)| of == device);
        let peak = of_device.max_by_key(|&&(_, time, allocated, _)| (allocated, std::cmp::Reverse(time)));
        peak.map(|&(_, time, allocated, _)| (time, allocated))
    }

    /// The allocations of a device that lived at a time.
    pub(super) fn living(&self, device: usize, at: u64) -> impl Iterator<Item = &Allocation> {
        self.allocations.iter().filter(move |allocation| {
            allocation.device == device
                && allocation.since <= at
                && allocation.until.is_none_or(|until| until > at)
        })
    }
}

impl fmt::Display for TraceMemory<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let trace = self.0;
        let peaks: Vec<_> =
            (0..trace.devices.len()).filter_map(|device| Some((device, trace.peak(device)?.0))).collect();
        if peaks.is_empty() {
            return writeln!(f, "nothing was allocated");
        }
        for (device, peak) in peaks {
            let name = &trace.devices[device];
            self.fmt_moment(f, device, peak, &format!("{name}, when the most was allocated"))?;
            self.fmt_moment(f, device, trace.end, &format!("{name}, at the end"))?;
        }
        Ok(())
    }
}

/// Allocations of one length, in one span.
struct Kind {
    count: u64,
    oldest: u64,
}

impl TraceMemory<'_> {
    fn fmt_moment(&self, f: &mut fmt::Formatter<'_>, device: usize, at: u64, title: &str) -> fmt::Result {
        let mut kinds: BTreeMap<(u64, &str), Kind> = BTreeMap::new();
        for allocation in self.0.living(device, at) {
            let span = allocation.span.as_deref().unwrap_or("outside of any span");
            let kind = kinds.entry((allocation.bytes, span)).or_insert(Kind { count: 0, oldest: u64::MAX });
            kind.count += 1;
            kind.oldest = kind.oldest.min(allocation.since);
        }
        let total = sum(kinds.iter().map(|((each, _), kind)| each.saturating_mul(kind.count)));
        let count: u64 = kinds.values().map(|kind| kind.count).sum();
        writeln!(f, "{title} ({}): {} in {count} allocations", time(at), bytes(total))?;
        let mut kinds: Vec<_> = kinds.into_iter().collect();
        kinds.sort_by_key(|((each, _), kind)| std::cmp::Reverse(each.saturating_mul(kind.count)));
        if !kinds.is_empty() {
            writeln!(f, "{:>12} {:>9} {:>12} {:>14}  span", "bytes", "count", "each", "the oldest of")?;
        }
        for ((each, span), Kind { count, oldest }) in kinds.iter().take(LINES) {
            let all = bytes(each.saturating_mul(*count));
            let each = bytes(*each);
            let since = time(*oldest);
            writeln!(f, "{all:>12} {count:>9} {each:>12} {since:>14}  {span}")?;
        }
        match kinds.len().saturating_sub(LINES) {
            0 => Ok(()),
            more => writeln!(f, "{:>12} and {more} more", ""),
        }
    }
}
