//! Traces from files, for tools: their summaries and pages.

mod memory;
mod page;
mod summary;

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

use flate2::read::MultiGzDecoder;
use serde_json::Value;

pub use crate::read::memory::TraceMemory;
use crate::trace::before;

/// A trace that this crate has written.
///
/// A file that ends early, because its program was killed, is read as far as it goes.
#[derive(Debug, Default)]
pub struct Trace {
    pub(crate) program: String,
    /// The names of the devices; the process of the first is 2.
    pub(crate) devices: Vec<String>,
    pub(crate) tracks: BTreeMap<Place, Track>,
    pub(crate) instants: Vec<Instant>,
    /// The memory of devices over time: the number of the device, the time, and the bytes allocated and
    /// reserved.
    pub(crate) memory: Vec<(usize, u64, u64, u64)>,
    pub(crate) allocations: Vec<Allocation>,
    /// Allocations that are not freed, by their numbers.
    live: HashMap<u64, usize>,
    /// When work was enqueued: its number, where, and when.
    pub(crate) enqueued: HashMap<u64, (Place, u64)>,
    pub(crate) end: u64,
    /// Whether the file ended within an event.
    pub(crate) is_cut: bool,
}

/// A process and a thread of the format: a device and a stream, or the host and one of its threads.
pub(crate) type Place = (u64, u64);

/// The process of the host.
pub(crate) const HOST: u64 = 1;

/// The longest line, in bytes. The texts in it are the program's: this crate sets no limit when it writes.
const LINE: u64 = 1 << 20;

/// The most devices. A page looks for each of them in all records.
const DEVICES: usize = 4096;

/// The largest time in nanoseconds, and the largest number of bytes or records: a file may be from anybody,
/// and the sum of two is a number too.
const LARGEST: u64 = 1 << 62;

/// A thread of the host, or a stream.
#[derive(Debug, Default)]
pub(crate) struct Track {
    pub(crate) name: String,
    pub(crate) slices: Vec<Slice>,
    /// Slices that have not ended, the innermost last, by their places in `slices`.
    open: Vec<usize>,
}

/// What took some time.
#[derive(Debug)]
pub(crate) struct Slice {
    pub(crate) name: String,
    pub(crate) category: String,
    /// Nanoseconds since the trace began.
    pub(crate) start: u64,
    /// `None` if it had not ended when the trace did.
    pub(crate) duration: Option<u64>,
    pub(crate) bytes: u64,
    /// The number of queued work.
    pub(crate) work: Option<u64>,
    pub(crate) from: Option<String>,
    pub(crate) to: Option<String>,
    pub(crate) device: Option<String>,
    pub(crate) clock: Clock,
    /// By how many nanoseconds a time of the device may be wrong.
    pub(crate) error: u64,
    pub(crate) outcome: Outcome,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Clock {
    Host,
    Noticed,
    Device,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Done,
    Failed,
    Skipped,
}

/// What happened at one moment.
#[derive(Debug)]
pub(crate) struct Instant {
    pub(crate) place: Place,
    pub(crate) time: u64,
    pub(crate) name: String,
    /// The number of records, for lost ones.
    pub(crate) count: Option<u64>,
}

#[derive(Debug)]
pub(crate) struct Allocation {
    pub(crate) device: usize,
    pub(crate) bytes: u64,
    pub(crate) since: u64,
    pub(crate) until: Option<u64>,
    pub(crate) span: Option<String>,
}

/// Why a file is no trace.
#[derive(Debug)]
pub enum ReadError {
    /// The file cannot be read.
    Io(io::Error),
    /// A line is not an event of this crate.
    Line(usize, String),
    /// There is no event in it.
    Empty,
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => error.fmt(f),
            Self::Line(number, found) => write!(
                f,
                "expected a trace that `device-trace` has written, with an event in each line; found in line \
                 {number}: {found}"
            ),
            Self::Empty => f.write_str("expected a trace that `device-trace` has written, found no event"),
        }
    }
}

impl std::error::Error for ReadError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io(error) => Some(error),
            Self::Line(..) | Self::Empty => None,
        }
    }
}

impl Trace {
    /// Reads a file, compressed or not, and before it what [a limit](crate::write_to) has left in another.
    ///
    /// # Errors
    ///
    /// If the file cannot be read, or a line before the last is not an event that this crate writes.
    pub fn read(path: impl AsRef<Path>) -> Result<Self, ReadError> {
        let path = path.as_ref();
        let mut trace = Self::default();
        let file = File::open(path).map_err(ReadError::Io)?;
        match File::open(before(path)) {
            Ok(before) => trace.add_file(before)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(ReadError::Io(error)),
        }
        trace.add_file(file)?;
        if trace.program.is_empty() {
            return Err(ReadError::Empty);
        }
        trace.finish();
        Ok(trace)
    }

    fn add_file(&mut self, file: File) -> Result<(), ReadError> {
        let mut file = BufReader::new(file);
        let start = file.fill_buf().map_err(ReadError::Io)?;
        if start.starts_with(&[0x1f, 0x8b]) {
            self.add_lines(BufReader::new(MultiGzDecoder::new(file)))
        } else {
            self.add_lines(file)
        }
    }

    fn add_lines(&mut self, mut lines: impl BufRead) -> Result<(), ReadError> {
        let mut line = Vec::new();
        for number in 1.. {
            line.clear();
            // What is compressed may end early: what was read of it is whole.
            let read = lines.by_ref().take(LINE).read_until(b'\n', &mut line);
            let is_whole = line.ends_with(b"\n");
            if !is_whole && line.len() as u64 == LINE {
                return Err(ReadError::Line(number, format!("more than {LINE} bytes")));
            }
            self.is_cut = read.is_err() || (!is_whole && !line.is_empty());
            if self.is_cut || line.is_empty() {
                if let (1, Err(error)) = (number, read) {
                    return Err(ReadError::Io(error));
                }
                break;
            }
            let text = line.trim_ascii();
            // The end of the array, which a program that was killed has not written.
            if text == b"]" {
                continue;
            }
            let text = text.strip_prefix(b"[").or_else(|| text.strip_prefix(b",")).unwrap_or(text);
            let refused = || {
                let text = String::from_utf8_lossy(text);
                ReadError::Line(number, text.chars().take(60).collect())
            };
            let event: Value = serde_json::from_slice(text).map_err(|_| refused())?;
            self.add(&event).ok_or_else(refused)?;
        }
        Ok(())
    }

    /// Adds an event; `None` if it is not one of this crate's.
    fn add(&mut self, event: &Value) -> Option<()> {
        let phase = event["ph"].as_str()?;
        let name = event["name"].as_str()?;
        let place = (event["pid"].as_u64()?, event["tid"].as_u64().unwrap_or(0));
        let args = &event["args"];
        let number = |name: &str| args[name].as_u64();
        let text = |name: &str| args[name].as_str().map(str::to_owned);
        let is_small = |name: &str| number(name).is_none_or(|number| number <= LARGEST);
        if !["bytes", "count", "allocated", "reserved"].into_iter().all(is_small) {
            return None;
        }
        if phase == "M" {
            let given = args["name"].as_str()?.to_owned();
            match (name, place.0) {
                ("process_name", HOST) => self.program = given,
                // A further file has the names once more.
                ("process_name", _) if self.device(place).is_some() => {}
                ("process_name", _) if self.devices.len() == DEVICES => return None,
                ("process_name", _) => self.devices.push(given),
                _ => self.tracks.entry(place).or_default().name = given,
            }
            return Some(());
        }
        // Nothing is before the beginning but what was under way then.
        let time = nanoseconds(event["ts"].as_f64()?)?;
        self.end = self.end.max(time);
        let device = || usize::try_from(place.0.checked_sub(HOST + 1)?).ok();
        match phase {
            "B" | "X" => {
                let duration = match event["dur"].as_f64() {
                    Some(duration) => Some(nanoseconds(duration)?),
                    None => None,
                };
                let category = event["cat"].as_str().unwrap_or_default();
                self.end = self.end.max(time + duration.unwrap_or(0));
                if category == "enqueue" {
                    self.enqueued.insert(number("work")?, (place, time));
                    return Some(());
                }
                let slice = Slice {
                    name: name.to_owned(),
                    category: category.to_owned(),
                    start: time,
                    duration,
                    bytes: number("bytes").unwrap_or(0),
                    work: number("work"),
                    from: text("from"),
                    to: text("to"),
                    device: text("device"),
                    clock: match args["clock"].as_str() {
                        Some("device") => Clock::Device,
                        Some("noticed") => Clock::Noticed,
                        _ => Clock::Host,
                    },
                    error: number("error ns").unwrap_or(0),
                    outcome: outcome(args),
                };
                let track = self.tracks.entry(place).or_default();
                if phase == "B" {
                    track.open.push(track.slices.len());
                }
                track.slices.push(slice);
            }
            "E" => {
                let track = self.tracks.entry(place).or_default();
                // Its beginning may be lost.
                if let Some(slice) = track.open.pop().and_then(|open| track.slices.get_mut(open)) {
                    slice.duration = Some(time.saturating_sub(slice.start));
                    slice.outcome = outcome(args);
                }
            }
            "i" => {
                let count = number("count");
                self.instants.push(Instant { place, time, name: name.to_owned(), count });
            }
            "C" => self.memory.push((device()?, time, number("allocated")?, number("reserved")?)),
            "N" => {
                let bytes = number("bytes")?;
                let span = text("span");
                let id = event["id"].as_str()?.parse::<u64>().ok()?;
                self.live.insert(id, self.allocations.len());
                self.allocations.push(Allocation {
                    device: device()?,
                    bytes,
                    since: time,
                    until: None,
                    span,
                });
            }
            "D" => {
                let id = event["id"].as_str()?.parse::<u64>().ok()?;
                if let Some(allocation) = self.live.remove(&id).and_then(|at| self.allocations.get_mut(at)) {
                    allocation.until = Some(time);
                }
            }
            // The ends of arrows.
            "s" | "f" => {}
            _ => return None,
        }
        Some(())
    }

    fn finish(&mut self) {
        for track in self.tracks.values_mut() {
            track
                .slices
                .sort_by_key(|slice| (slice.start, std::cmp::Reverse(slice.duration.unwrap_or(u64::MAX))));
        }
        self.instants.sort_by_key(|instant| instant.time);
        self.memory.sort_by_key(|&(device, time, ..)| (device, time));
    }

    /// The name of the device of a process; `None` for the host.
    pub(crate) fn device(&self, (process, _): Place) -> Option<usize> {
        let device = usize::try_from(process).ok()?.checked_sub(HOST as usize + 1)?;
        (device < self.devices.len()).then_some(device)
    }
}

fn outcome(args: &Value) -> Outcome {
    match args["outcome"].as_str() {
        Some("skipped") => Outcome::Skipped,
        Some(_) => Outcome::Failed,
        None if args["failed"].as_u64() == Some(1) => Outcome::Failed,
        None => Outcome::Done,
    }
}

/// Nanoseconds of microseconds with three digits. `None` if it is no time of a trace.
fn nanoseconds(microseconds: f64) -> Option<u64> {
    // A larger one becomes the largest integer.
    let nanoseconds = (microseconds * 1000.0).round().max(0.0) as u64;
    (nanoseconds <= LARGEST).then_some(nanoseconds)
}
