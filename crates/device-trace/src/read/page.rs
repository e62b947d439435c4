//! A trace as one page that needs nothing else: a timeline to zoom, and memory over time.

use std::collections::{HashMap, HashSet};

use serde_json::{Value, json};

use crate::read::{Clock, HOST, Outcome, Place, Slice, Trace, Track};

/// The page, with a place for the data, whose form it describes.
const PAGE: &str = include_str!("../trace.html");

/// The placeholder for the data.
const DATA: &str = "/*TRACE*/null";

/// The categories in the page's order.
const CATEGORIES: [&str; 12] = [
    "write",
    "read",
    "copy",
    "fill",
    "launch",
    "host call",
    "event",
    "wait",
    "span",
    "allocation",
    "device",
    "other",
];

impl Trace {
    /// The trace as a page of HTML with all that it needs, for any browser.
    #[must_use]
    pub fn to_html(&self) -> String {
        // The end of the element cannot stand in the data.
        let data = ascii(&self.data().to_string());
        PAGE.replacen(DATA, &data, 1)
    }

    fn data(&self) -> Value {
        let mut names = Names::default();
        let mut kinds = Kinds::default();
        // Threads, then each device with its streams, as the page draws them.
        // A stream's own thread shows its work in the track of the stream.
        let enqueued = self.enqueued.values().map(|&(place, _)| place);
        let with_marks: HashSet<Place> =
            enqueued.chain(self.instants.iter().map(|instant| instant.place)).collect();
        let has_any = |place: &Place, track: &Track| !track.slices.is_empty() || with_marks.contains(place);
        let threads = self.tracks.iter().filter(|(place, track)| place.0 == HOST && has_any(place, track));
        let mut order: Vec<(&Place, bool)> = threads.map(|(place, _)| (place, false)).collect();
        let streams: Vec<_> = self.tracks.keys().filter(|place| place.0 != HOST).collect();
        order.extend(streams.iter().map(|&place| (place, true)));
        let number_of: HashMap<Place, usize> =
            order.iter().enumerate().map(|(number, (place, _))| (**place, number)).collect();
        let mut first_of: HashMap<u64, usize> = HashMap::new();
        for (number, (place, _)) in order.iter().enumerate() {
            first_of.entry(place.0).or_insert(number);
        }

        let mut marks: Vec<(Place, u64, u64)> =
            self.enqueued.iter().map(|(&work, &(place, time))| (place, time, work)).collect();
        marks.sort_by_key(|&(place, time, work)| (number_of.get(&place).copied(), time, work));
        let mark_of: HashMap<u64, i64> =
            marks.iter().zip(1..).map(|(&(_, _, work), mark)| (work, mark)).collect();
        let mut marks_of: HashMap<Place, usize> = HashMap::new();
        marks.iter().for_each(|&(place, ..)| *marks_of.entry(place).or_default() += 1);

        let mut tracks = Vec::new();
        let mut slices = Columns::default();
        let mut last_start = 0;
        let mut last_mark = 0;
        for &(place, is_stream) in &order {
            let track = &self.tracks[place];
            for slice in &track.slices {
                let end = slice.duration.map_or(self.end, |duration| slice.start + duration);
                let mark = slice.work.and_then(|work| mark_of.get(&work)).copied().unwrap_or(0);
                slices.start.push(slice.start as i64 - last_start);
                slices.duration.push(end - slice.start);
                slices.kind.push(kinds.of(self, slice, &mut names));
                slices.bytes.push(slice.bytes);
                slices.mark.push(if mark == 0 { 0 } else { mark - last_mark });
                last_start = slice.start as i64;
                if mark != 0 {
                    last_mark = mark;
                }
            }
            tracks.push(json!({
                "kind": if is_stream { "stream" } else { "thread" },
                "name": track.name,
                "device": self.device(*place),
                "slices": track.slices.len(),
                "marks": marks_of.get(place).copied().unwrap_or(0),
            }));
        }
        let mark_times = differences(marks.iter().map(|&(_, time, _)| time));
        let instants: Vec<_> = self.instants.iter().filter(|instant| instant.count.is_none()).collect();
        let lost: Vec<_> = self.instants.iter().filter(|instant| instant.count.is_some()).collect();
        let track_of = |place: Place| {
            let of_device = || first_of.get(&place.0);
            number_of.get(&place).or_else(of_device).copied().unwrap_or(0)
        };
        let errors = self.errors();
        json!({
            "program": self.program,
            "devices": self.devices.iter().zip(errors).map(|(name, error)| json!({ "name": name, "error": error })).collect::<Vec<_>>(),
            "tracks": tracks,
            "slices": {
                "start": slices.start, "dur": slices.duration, "kind": slices.kind, "bytes": slices.bytes,
                "mark": slices.mark,
            },
            "marks": { "time": mark_times },
            "instants": {
                "track": instants.iter().map(|instant| track_of(instant.place)).collect::<Vec<_>>(),
                "time": instants.iter().map(|instant| instant.time).collect::<Vec<_>>(),
                "name": instants.iter().map(|instant| names.of(&instant.name)).collect::<Vec<_>>(),
                "bad": instants.iter().map(|instant| u8::from(matches!(instant.name.as_str(), "lost" | "out of memory"))).collect::<Vec<_>>(),
            },
            "lost": {
                "track": lost.iter().map(|instant| track_of(instant.place)).collect::<Vec<_>>(),
                "time": lost.iter().map(|instant| instant.time).collect::<Vec<_>>(),
                "count": lost.iter().map(|instant| instant.count).collect::<Vec<_>>(),
            },
            "counters": self.counters(),
            "kinds": kinds.into_json(),
            "strings": names.texts,
        })
    }

    /// By how many nanoseconds the clock of each device may be wrong.
    fn errors(&self) -> Vec<u64> {
        let mut errors = vec![0; self.devices.len()];
        for (&place, track) in &self.tracks {
            if let Some(device) = self.device(place) {
                let largest = track.slices.iter().map(|slice| slice.error).max().unwrap_or(0);
                errors[device] = errors[device].max(largest);
            }
        }
        errors
    }

    fn counters(&self) -> Vec<Value> {
        let mut counters = Vec::new();
        for device in 0..self.devices.len() {
            let points: Vec<_> = self.memory.iter().filter(|&&(of, ..)| of == device).collect();
            if points.is_empty() {
                continue;
            }
            let counter = |name: &str, times: Option<Vec<i64>>, values: Vec<i64>| {
                let mut counter = json!({ "name": name, "device": device, "unit": "bytes", "value": values });
                if let Some(times) = times {
                    counter["time"] = json!(times);
                }
                counter
            };
            let times = differences(points.iter().map(|&&(_, time, ..)| time));
            let allocated = differences(points.iter().map(|&&(_, _, allocated, _)| allocated));
            let reserved = differences(points.iter().map(|&&(.., reserved)| reserved));
            counters.push(counter("allocated", Some(times), allocated));
            counters.push(counter("reserved", None, reserved));
        }
        counters
    }
}

/// Each value minus the one before it.
fn differences(values: impl Iterator<Item = u64>) -> Vec<i64> {
    let mut before = 0;
    values.map(|value| value as i64 - std::mem::replace(&mut before, value as i64)).collect()
}

/// JSON without `<` and without letters that browsers read slowly.
fn ascii(json: &str) -> String {
    let mut ascii = String::with_capacity(json.len());
    for c in json.chars() {
        if c.is_ascii() && c != '<' {
            ascii.push(c);
        } else {
            c.encode_utf16(&mut [0; 2]).iter().for_each(|unit| ascii.push_str(&format!("\\u{unit:04x}")));
        }
    }
    ascii
}

#[derive(Default)]
struct Columns {
    start: Vec<i64>,
    duration: Vec<u64>,
    kind: Vec<usize>,
    bytes: Vec<u64>,
    mark: Vec<i64>,
}

/// Texts, each once.
#[derive(Default)]
struct Names {
    texts: Vec<String>,
    places: HashMap<String, usize>,
}

impl Names {
    fn of(&mut self, text: &str) -> usize {
        if let Some(&place) = self.places.get(text) {
            return place;
        }
        self.places.insert(text.to_owned(), self.texts.len());
        self.texts.push(text.to_owned());
        self.texts.len() - 1
    }
}

/// What slices have in common.
#[derive(Default)]
struct Kinds {
    places: HashMap<Kind, usize>,
    all: Vec<Kind>,
}

#[derive(Clone, PartialEq, Eq, Hash)]
struct Kind {
    name: usize,
    category: usize,
    device: Option<usize>,
    from: Option<i64>,
    to: Option<i64>,
    clock: usize,
    outcome: usize,
}

impl Kinds {
    fn of(&mut self, trace: &Trace, slice: &Slice, names: &mut Names) -> usize {
        let device = |name: &str| trace.devices.iter().position(|device| device == name);
        let place = |name: &Option<String>| name.as_deref().and_then(device).map(|device| device as i64);
        let (from, to) = match slice.category.as_str() {
            "write" => (Some(-1), place(&slice.to)),
            "read" => (place(&slice.from), Some(-1)),
            _ => (place(&slice.from), place(&slice.to)),
        };
        let kind = Kind {
            name: names.of(&slice.name),
            category: CATEGORIES
                .iter()
                .position(|other| *other == slice.category)
                .unwrap_or(CATEGORIES.len() - 1),
            device: slice.device.as_deref().and_then(device),
            from,
            to,
            clock: match slice.clock {
                Clock::Host => 0,
                Clock::Noticed => 1,
                Clock::Device => 2,
            },
            outcome: match (slice.duration, slice.outcome) {
                (None, _) => 3,
                (_, Outcome::Done) => 0,
                (_, Outcome::Failed) => 1,
                (_, Outcome::Skipped) => 2,
            },
        };
        if let Some(&place) = self.places.get(&kind) {
            return place;
        }
        self.places.insert(kind.clone(), self.all.len());
        self.all.push(kind);
        self.all.len() - 1
    }

    fn into_json(self) -> Value {
        let column = |value: &dyn Fn(&Kind) -> Value| self.all.iter().map(value).collect::<Vec<_>>();
        json!({
            "name": column(&|kind| kind.name.into()),
            "cat": column(&|kind| kind.category.into()),
            "device": column(&|kind| kind.device.into()),
            "from": column(&|kind| kind.from.into()),
            "to": column(&|kind| kind.to.into()),
            "clock": column(&|kind| kind.clock.into()),
            "outcome": column(&|kind| kind.outcome.into()),
        })
    }
}
