//! A trace in some lines of text.

use std::collections::BTreeMap;
use std::fmt;

use crate::read::{Clock, HOST, Slice, Trace};

/// How many lines a table has at most.
const LINES: usize = 15;

/// The summary: the time by kernel and by direction of copies, and by span, how much of the time each stream
/// was idle, the longest waits of the host, and memory.
impl fmt::Display for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "trace of {}: {}", self.program, time(self.end))?;
        writeln!(f, "{}", if self.is_cut { ", and the file ends early" } else { "" })?;
        let lost = sum(self.instants.iter().filter_map(|instant| instant.count));
        if lost > 0 {
            writeln!(f, "{lost} records were lost: what follows lacks them")?;
        }
        for instant in self.instants.iter().filter(|instant| instant.count.is_none()) {
            let device = self.device(instant.place).map_or("the host", |device| &self.devices[device]);
            writeln!(f, "{} after {}: {device}", instant.name, time(instant.time))?;
        }
        self.fmt_work(f)?;
        self.fmt_spans(f)?;
        self.fmt_streams(f)?;
        self.fmt_waits(f)?;
        self.fmt_memory(f)
    }
}

#[derive(Default)]
struct Total {
    /// In nanoseconds.
    durations: Vec<u64>,
    nanoseconds: u64,
    bytes: u64,
    failed: u64,
}

impl Trace {
    /// Work of devices and blocking calls of the host.
    fn fmt_work(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let totals = self.totals(is_work, described);
        Self::fmt_totals(f, totals, "work")
    }

    /// Spans of the program, and of the crates that it uses: kernels that are compiled are such.
    fn fmt_spans(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let totals = self.totals(|slice| slice.category == "span", |slice, _| slice.name.clone());
        Self::fmt_totals(f, totals, "span")
    }

    /// The slices of a kind, by their names, the longest first.
    fn totals(
        &self,
        is_meant: fn(&Slice) -> bool,
        name: fn(&Slice, device: &str) -> String,
    ) -> Vec<(String, Total)> {
        let mut totals: BTreeMap<String, Total> = BTreeMap::new();
        for (&place, track) in &self.tracks {
            let of_track = self.device(place).map(|device| self.devices[device].as_str());
            for slice in track.slices.iter().filter(|slice| is_meant(slice)) {
                let device = of_track.or(slice.device.as_deref()).unwrap_or_default();
                let total = totals.entry(name(slice, device)).or_default();
                let duration = slice.duration.unwrap_or(self.end - slice.start);
                total.durations.push(duration);
                total.nanoseconds = total.nanoseconds.saturating_add(duration);
                total.bytes = total.bytes.saturating_add(slice.bytes);
                total.failed += u64::from(slice.outcome != super::Outcome::Done);
            }
        }
        let mut totals: Vec<_> = totals.into_iter().collect();
        totals.sort_by_key(|(_, total)| std::cmp::Reverse(total.nanoseconds));
        totals
    }

    fn fmt_totals(f: &mut fmt::Formatter<'_>, mut totals: Vec<(String, Total)>, title: &str) -> fmt::Result {
        if totals.is_empty() {
            return Ok(());
        }
        let rates = if totals.iter().any(|(_, total)| total.bytes > 0) { "GB/s" } else { "" };
        writeln!(
            f,
            "\n{:>12} {:>9} {:>12} {:>12} {rates:>10}  {title}",
            "time", "count", "median", "longest"
        )?;
        for (name, total) in totals.iter_mut().take(LINES) {
            total.durations.sort_unstable();
            let rate = match total.bytes {
                0 => String::new(),
                bytes => format!("{:.2}", bytes as f64 / total.nanoseconds.max(1) as f64),
            };
            let failed = match total.failed {
                0 => String::new(),
                failed => format!(", {failed} failed or skipped"),
            };
            let count = total.durations.len();
            let [all, median, longest] =
                [total.nanoseconds, total.durations[count / 2], total.durations[count - 1]].map(time);
            writeln!(f, "{all:>12} {count:>9} {median:>12} {longest:>12} {rate:>10}  {name}{failed}")?;
        }
        more(f, totals.len())
    }

    fn fmt_streams(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let streams: Vec<_> =
            self.tracks.iter().filter(|(place, track)| place.0 != HOST && !track.slices.is_empty()).collect();
        if streams.is_empty() {
            return Ok(());
        }
        writeln!(f, "\n{:>12} {:>9}  stream, from its first work to its last", "busy", "idle")?;
        for (&place, track) in streams {
            let device = self.device(place).map_or("", |device| &self.devices[device]);
            let first = track.slices.first().map_or(0, |slice| slice.start);
            let mut busy = 0;
            let mut until = first;
            for slice in &track.slices {
                let end = slice.duration.map_or(self.end, |duration| slice.start + duration);
                busy += end.saturating_sub(until.max(slice.start));
                until = until.max(end);
            }
            let idle = 100.0 * (1.0 - busy as f64 / (until - first).max(1) as f64);
            let noticed = track.slices.iter().any(|slice| slice.clock == Clock::Noticed);
            let noticed = if noticed { "; its ends were noticed late" } else { "" };
            writeln!(f, "{:>12} {idle:>7.1} %  {device}, {}{noticed}", time(busy), track.name)?;
        }
        Ok(())
    }

    fn fmt_waits(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut waits: Vec<_> = self
            .tracks
            .iter()
            .filter(|(place, _)| place.0 == HOST)
            .flat_map(|(_, track)| track.slices.iter().map(move |slice| (track, slice)))
            .filter(|(_, slice)| slice.category == "wait")
            .map(|(track, slice)| (slice.duration.unwrap_or(self.end - slice.start), track, slice))
            .collect();
        if waits.is_empty() {
            return Ok(());
        }
        waits.sort_by_key(|&(duration, ..)| std::cmp::Reverse(duration));
        let all = sum(waits.iter().map(|&(duration, ..)| duration));
        let times = if waits.len() == 1 { "once" } else { &format!("{} times", waits.len()) };
        writeln!(f, "\nThe host waited {times}, {} in all. The longest:", time(all))?;
        for (duration, track, slice) in waits.iter().take(5) {
            let device = slice.device.as_deref().unwrap_or_default();
            let open = if slice.duration.is_none() { ", and still does" } else { "" };
            writeln!(
                f,
                "{:>12} after {}: {}, {device}, on `{}`{open}",
                time(*duration),
                time(slice.start),
                slice.name,
                track.name
            )?;
        }
        Ok(())
    }

    fn fmt_memory(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (device, name) in self.devices.iter().enumerate() {
            let Some((at, peak)) = self.peak(device) else { continue };
            let of_device = self.memory.iter().filter(|&&(of, ..)| of == device);
            let reserved = of_device.map(|&(_, _, _, reserved)| reserved).max().unwrap_or(0);
            writeln!(
                f,
                "\nmemory of {name}: at most {} allocated, after {}; {} reserved",
                bytes(peak),
                time(at),
                bytes(reserved)
            )?;
            let mut by_span: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
            for allocation in self.living(device, at) {
                let of_span =
                    by_span.entry(allocation.span.as_deref().unwrap_or("outside of any span")).or_default();
                *of_span = (of_span.0 + 1, of_span.1.saturating_add(allocation.bytes));
            }
            let mut by_span: Vec<_> = by_span.into_iter().collect();
            by_span.sort_by_key(|&(_, (_, bytes))| std::cmp::Reverse(bytes));
            for &(span, (count, total)) in by_span.iter().take(LINES) {
                writeln!(f, "{:>12} in {count} allocations then, {span}", bytes(total))?;
            }
            more(f, by_span.len())?;
        }
        Ok(())
    }
}

/// Says how many lines a table leaves out.
fn more(f: &mut fmt::Formatter<'_>, lines: usize) -> fmt::Result {
    match lines.checked_sub(LINES).filter(|&more| more > 0) {
        Some(more) => writeln!(f, "{:>12} and {more} more", ""),
        None => Ok(()),
    }
}

fn is_work(slice: &Slice) -> bool {
    !matches!(slice.category.as_str(), "span" | "wait" | "event" | "device")
}

/// What it is, and for which devices.
fn described(slice: &Slice, device: &str) -> String {
    match (&slice.from, &slice.to) {
        (Some(from), Some(to)) if from == to => format!("{}, within {from}", slice.name),
        (Some(from), Some(to)) => format!("{}, {from} to {to}", slice.name),
        (Some(from), None) => format!("{}, {from} to the host", slice.name),
        (None, Some(to)) if slice.category == "write" => format!("{}, the host to {to}", slice.name),
        (None, Some(to)) => format!("{}, {to}", slice.name),
        (None, None) => format!("{}, {device}", slice.name),
    }
}

/// The sum, or the largest number: a file may have any numbers.
pub(super) fn sum(numbers: impl Iterator<Item = u64>) -> u64 {
    numbers.fold(0, u64::saturating_add)
}

/// A time with three or four digits.
pub(super) fn time(nanoseconds: u64) -> String {
    let value = nanoseconds as f64;
    match nanoseconds {
        0..1000 => format!("{nanoseconds} ns"),
        1000..1_000_000 => format!("{:.2} µs", value / 1e3),
        1_000_000..1_000_000_000 => format!("{:.2} ms", value / 1e6),
        _ => format!("{:.2} s", value / 1e9),
    }
}

pub(super) fn bytes(bytes: u64) -> String {
    let value = bytes as f64;
    match bytes {
        0..1024 => format!("{bytes} B"),
        1024..1_048_576 => format!("{:.1} KiB", value / 1024.0),
        1_048_576..1_073_741_824 => format!("{:.1} MiB", value / 1_048_576.0),
        _ => format!("{:.2} GiB", value / 1_073_741_824.0),
    }
}
