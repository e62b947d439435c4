//! Makes valid programs of random numbers: ranges lie inside their buffers and are aligned, and streams that
//! access the same bytes wait for each other.

use std::ops::Range;

use device_registry::Device;
use proptest::prelude::{Strategy, any};
use proptest::{array, collection};

use super::{By, Program, Step};
use crate::context::bytes;
use crate::failure::Failure;

/// The numbers that a program is made of. Smaller numbers and fewer steps make simpler programs.
#[derive(Clone, Debug)]
pub(crate) struct Draft {
    scale: u8,
    steps: Vec<[u16; 8]>,
}

/// Generates drafts of at most this many steps.
pub(super) fn drafts(most: usize) -> impl Strategy<Value = Draft> {
    let steps = collection::vec(array::uniform8(any::<u16>()), 1..=most);
    (any::<u8>(), steps).prop_map(|(scale, steps)| Draft { scale, steps })
}

impl Draft {
    pub(super) fn new(scale: u8, steps: Vec<[u16; 8]>) -> Self {
        Self { scale, steps }
    }

    /// Slightly simpler drafts: without one step, or with one smaller number.
    pub(super) fn simpler(&self) -> impl Iterator<Item = Self> {
        let scale = (self.scale > 0).then(|| Self { scale: 0, ..self.clone() });
        let without = (0..self.steps.len()).rev().map(|index| {
            let mut draft = self.clone();
            draft.steps.remove(index);
            draft
        });
        let places = (0..self.steps.len()).flat_map(|step| (0..8).map(move |number| (step, number)));
        let smaller = places.flat_map(move |(step, number)| {
            let now = self.steps[step][number];
            [0, 1, 2, 3, 4, 8, now / 2].into_iter().filter(move |&smaller| smaller < now).map(
                move |smaller| {
                    let mut draft = self.clone();
                    draft.steps[step][number] = smaller;
                    draft
                },
            )
        });
        without.chain(scale).chain(smaller)
    }
}

/// The kinds of steps. A list of them begins with the simple ones, because shrinking makes numbers smaller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Write,
    Fill,
    Copy,
    Read,
    Record,
    Wait,
    Call,
    Slice,
    Allocate,
    Drop,
}

/// What programs may contain.
#[derive(Clone, Debug)]
pub(crate) struct Rules {
    devices: Vec<Device>,
    /// Offsets are multiples of this, and so are lengths unless they reach the end. The largest alignment of
    /// the devices.
    alignment: usize,
    streams_each: usize,
    kinds: &'static [Kind],
    blocking: bool,
}

impl Rules {
    /// Programs with this many streams on each device, and steps of these kinds. A kind that is listed more
    /// often is drawn more often.
    pub(crate) fn new(
        devices: &[Device],
        streams_each: usize,
        kinds: &'static [Kind],
    ) -> Result<Self, Failure> {
        let mut alignment = 1;
        for device in devices {
            alignment = alignment.max(device.properties()?.copy_alignment);
        }
        Ok(Self { devices: devices.to_vec(), alignment, streams_each, kinds, blocking: false })
    }

    /// Has blocking calls do some of the work.
    pub(crate) fn with_blocking(self) -> Self {
        Self { blocking: true, ..self }
    }

    /// Makes a program of a draft.
    pub(super) fn program(&self, draft: &Draft) -> Program {
        /// The sizes of buffers range from a few bytes to a few pages.
        const SCALES: [usize; 4] = [1, 16, 3, 257];
        let mut drawing =
            Drawing::new(self, self.alignment * SCALES[usize::from(draft.scale) % SCALES.len()]);
        for index in 0..2 * self.devices.len() as u16 {
            drawing.allocate(&[0, index, 7 + index, 0, 0, 0, 0, index]);
        }
        for numbers in &draft.steps {
            // Skips a step that is invalid at its position.
            let _ = drawing.step(numbers);
        }
        drawing.end()
    }
}

/// A vector clock: for each stream, how much of its work is known to be done.
type Clock = Vec<u64>;

struct Drawing<'a> {
    rules: &'a Rules,
    unit: usize,
    streams: Vec<usize>,
    steps: Vec<Step>,
    allocations: Vec<Allocation>,
    /// By number. `None` for dropped ones.
    views: Vec<Option<View>>,
    events: Vec<Clock>,
    clocks: Vec<Clock>,
    host: Clock,
}

/// The memory of a buffer and its slices in the model.
struct Allocation {
    device: usize,
    bytes: Vec<u8>,
    accesses: Vec<Access>,
}

/// A buffer: a whole allocation or a slice of one.
#[derive(Clone)]
struct View {
    allocation: usize,
    range: Range<usize>,
}

/// An access of a stream to an allocation, with its position in the work of the stream.
struct Access {
    stream: usize,
    number: u64,
    range: Range<usize>,
    writes: bool,
}

fn overlap(a: &Range<usize>, b: &Range<usize>) -> bool {
    a.start < b.end && b.start < a.end
}

impl<'a> Drawing<'a> {
    fn new(rules: &'a Rules, unit: usize) -> Self {
        let each = |device| std::iter::repeat_n(device, rules.streams_each);
        let streams: Vec<usize> = (0..rules.devices.len()).flat_map(each).collect();
        let none = vec![0; streams.len()];
        Self {
            rules,
            unit,
            steps: Vec::new(),
            allocations: Vec::new(),
            views: Vec::new(),
            events: Vec::new(),
            clocks: vec![none.clone(); streams.len()],
            host: none,
            streams,
        }
    }

    /// Makes a step of numbers, if they make a valid one.
    fn step(&mut self, numbers: &[u16; 8]) -> Option<()> {
        let [kind, by, ..] = numbers;
        let stream = usize::from(*by) % self.streams.len();
        match self.rules.kinds[usize::from(*kind) % self.rules.kinds.len()] {
            Kind::Write => self.write(numbers),
            Kind::Fill => self.fill(numbers),
            Kind::Copy => self.copy(numbers),
            Kind::Read => self.read(numbers),
            Kind::Record => {
                self.record(stream);
                Some(())
            }
            Kind::Wait => {
                let event = usize::from(numbers[2]).checked_rem(self.events.len())?;
                self.wait(By::Stream(stream), event);
                Some(())
            }
            Kind::Call => {
                self.submit(stream);
                self.steps.push(Step::Call { stream, micros: 20 + u64::from(numbers[2]) % 300 });
                Some(())
            }
            Kind::Slice => {
                let (of, view) = self.view(numbers[2])?;
                let range = self.range(&view, numbers[3], numbers[4])?;
                let in_memory = view.range.start + range.start..view.range.start + range.end;
                self.views.push(Some(View { allocation: view.allocation, range: in_memory }));
                self.steps.push(Step::Slice { of, range });
                Some(())
            }
            Kind::Allocate => {
                self.allocate(numbers);
                Some(())
            }
            Kind::Drop => {
                let (buffer, _) = self.view(numbers[2])?;
                self.views[buffer] = None;
                self.steps.push(Step::Drop { buffer });
                Some(())
            }
        }
    }

    fn allocate(&mut self, &[_, device, units, tail, .., seed]: &[u16; 8]) {
        let device = usize::from(device) % self.rules.devices.len();
        // Some lengths are not multiples of the unit. Only ranges to the end reach the last bytes.
        let tail = if tail % 3 == 2 { usize::from(tail) % self.unit } else { 0 };
        let len = (1 + usize::from(units) % 24) * self.unit + tail;
        let seed = seed as u8;
        let allocation = self.allocations.len();
        self.allocations.push(Allocation { device, bytes: bytes(seed, len), accesses: Vec::new() });
        self.views.push(Some(View { allocation, range: 0..len }));
        self.steps.push(Step::Allocate { device, len, seed });
    }

    fn write(&mut self, &[_, by, buffer, start, len, .., seed]: &[u16; 8]) -> Option<()> {
        let (buffer, view) = self.view(buffer)?;
        let range = self.range(&view, start, len)?;
        let by = self.by(by, &view);
        let in_memory = self.touch(by, &[(&view, range.clone(), true)]).remove(0);
        let len = range.len();
        let seed = seed as u8;
        self.allocations[view.allocation].bytes[in_memory].copy_from_slice(&bytes(seed, len));
        self.steps.push(Step::Write { by, buffer, at: range.start, len, seed });
        Some(())
    }

    fn fill(&mut self, &[_, by, buffer, start, len, pattern, _, seed]: &[u16; 8]) -> Option<()> {
        let (buffer, view) = self.view(buffer)?;
        let range = self.range(&view, start, len)?;
        let mut pattern = bytes(seed as u8, 1 << (pattern % 5));
        let first = view.range.start + range.start;
        if !first.is_multiple_of(pattern.len()) || !range.len().is_multiple_of(pattern.len()) {
            pattern.truncate(1);
        }
        let by = self.by(by, &view);
        let in_memory = self.touch(by, &[(&view, range.clone(), true)]).remove(0);
        let repeated = pattern.repeat(range.len() / pattern.len());
        self.allocations[view.allocation].bytes[in_memory].copy_from_slice(&repeated);
        self.steps.push(Step::Fill { by, buffer, range, pattern });
        Some(())
    }

    fn copy(&mut self, &[_, by, from, start, len, to, at, _]: &[u16; 8]) -> Option<()> {
        let ((from, source), (to, destination)) = (self.view(from)?, self.view(to)?);
        let mut range = self.range(&source, start, len)?;
        let room = destination.range.len();
        let is_whole = |len: usize| len.is_multiple_of(self.unit);
        // A range that ends with part of a unit, at the end of one buffer, has to reach the end of the other
        // buffer too.
        let both_end = range.len() <= room && self.ends(&destination) && is_whole(room - range.len());
        let at = if !is_whole(range.len()) && both_end {
            room - range.len()
        } else {
            let len = range.len().min(room) / self.unit * self.unit;
            range.end = range.start + len;
            usize::from(at) % ((room - len) / self.unit + 1) * self.unit
        };
        let first = source.range.start + range.start;
        let second = destination.range.start + at;
        let overlaps = source.allocation == destination.allocation
            && overlap(&(first..first + range.len()), &(second..second + range.len()));
        if range.is_empty() || overlaps {
            return None;
        }
        let by = self.by(by, &destination);
        let touched = [(&source, range.clone(), false), (&destination, at..at + range.len(), true)];
        let in_memory = self.touch(by, &touched);
        let copied = self.allocations[source.allocation].bytes[in_memory[0].clone()].to_vec();
        self.allocations[destination.allocation].bytes[in_memory[1].clone()].copy_from_slice(&copied);
        self.steps.push(Step::Copy { by, from, range, to, at });
        Some(())
    }

    fn read(&mut self, &[_, by, buffer, start, len, ..]: &[u16; 8]) -> Option<()> {
        let (buffer, view) = self.view(buffer)?;
        let range = self.range(&view, start, len)?;
        let by = self.by(by, &view);
        let in_memory = self.touch(by, &[(&view, range.clone(), false)]).remove(0);
        let expected = self.allocations[view.allocation].bytes[in_memory].to_vec();
        self.steps.push(Step::Read { by, buffer, range, expected });
        Some(())
    }

    /// A buffer that is not dropped, and its number.
    fn view(&self, number: u16) -> Option<(usize, View)> {
        let there = self.views.iter().enumerate().filter_map(|(index, view)| Some((index, view.clone()?)));
        let there: Vec<_> = there.collect();
        there.get(usize::from(number).checked_rem(there.len())?).cloned()
    }

    fn ends(&self, view: &View) -> bool {
        view.range.end == self.allocations[view.allocation].bytes.len()
    }

    /// A range of a buffer: of whole units, or to the end of the allocation.
    fn range(&self, view: &View, start: u16, len: u16) -> Option<Range<usize>> {
        let start = start.into();
        let len = usize::from(len);
        let whole = view.range.len() / self.unit;
        if self.ends(view) && (whole == 0 || len % 4 == 3) {
            return Some(start % whole.max(1) * self.unit..view.range.len());
        }
        let start = usize::checked_rem(start, whole)?;
        let units = 1 + len / 4 % (whole - start);
        Some(start * self.unit..(start + units) * self.unit)
    }

    /// What executes a step on this buffer: a stream of its device, or the host.
    fn by(&self, number: u16, of: &View) -> By {
        let each = self.rules.streams_each;
        let number = usize::from(number);
        if self.rules.blocking && number % 4 == 3 {
            By::Host
        } else {
            By::Stream(self.allocations[of.allocation].device * each + number / 4 % each)
        }
    }

    /// Adds waits, so that earlier accesses to the same bytes are done before a step reads or writes these
    /// ranges of buffers. Returns the ranges in their allocations.
    fn touch(&mut self, by: By, ranges: &[(&View, Range<usize>, bool)]) -> Vec<Range<usize>> {
        let in_memory = |(view, range, _): &(&View, Range<usize>, bool)| {
            view.range.start + range.start..view.range.start + range.end
        };
        for touched @ (view, _, writes) in ranges {
            let range = in_memory(touched);
            let mut needed = vec![0; self.streams.len()];
            for access in &self.allocations[view.allocation].accesses {
                if overlap(&access.range, &range)
                    && (access.writes || *writes)
                    && by != By::Stream(access.stream)
                {
                    needed[access.stream] = access.number.max(needed[access.stream]);
                }
            }
            for (stream, number) in needed.into_iter().enumerate() {
                if self.clock(by)[stream] < number {
                    // Prefers an existing event. A new one would also wait for later work.
                    let event = self.events.iter().position(|clock| clock[stream] >= number);
                    let event = event.unwrap_or_else(|| self.record(stream));
                    self.wait(by, event);
                }
            }
        }
        if let By::Stream(stream) = by {
            let number = self.submit(stream);
            for touched @ (view, _, writes) in ranges {
                let access = Access { stream, number, range: in_memory(touched), writes: *writes };
                self.allocations[view.allocation].accesses.push(access);
            }
        }
        ranges.iter().map(in_memory).collect()
    }

    fn clock(&mut self, by: By) -> &mut Clock {
        match by {
            By::Host => &mut self.host,
            By::Stream(stream) => &mut self.clocks[stream],
        }
    }

    /// Adds work to a stream. It comes after the stream's own work, and after all work that the host has
    /// waited for.
    fn submit(&mut self, stream: usize) -> u64 {
        let host = self.host.clone();
        merge(&mut self.clocks[stream], &host);
        self.clocks[stream][stream] += 1;
        self.clocks[stream][stream]
    }

    fn record(&mut self, stream: usize) -> usize {
        self.submit(stream);
        self.events.push(self.clocks[stream].clone());
        self.steps.push(Step::Record { stream });
        self.events.len() - 1
    }

    fn wait(&mut self, by: By, event: usize) {
        if let By::Stream(stream) = by {
            self.submit(stream);
        }
        let reached = self.events[event].clone();
        merge(self.clock(by), &reached);
        self.steps.push(Step::Wait { by, event });
    }

    fn end(self) -> Program {
        let mut end: Vec<(usize, Vec<u8>)> = Vec::new();
        for (index, view) in self.views.into_iter().enumerate() {
            if let Some(View { allocation, range }) = view {
                end.push((index, self.allocations[allocation].bytes[range].to_vec()));
            }
        }
        Program { devices: self.rules.devices.clone(), streams: self.streams, steps: self.steps, end }
    }
}

fn merge(clock: &mut Clock, other: &Clock) {
    clock.iter_mut().zip(other).for_each(|(number, other)| *number = (*number).max(*other));
}

#[cfg(test)]
mod tests {
    use proptest::strategy::ValueTree;
    use proptest::test_runner::TestRunner;

    use super::*;

    const KINDS: &[Kind] = &[
        Kind::Write,
        Kind::Fill,
        Kind::Copy,
        Kind::Read,
        Kind::Record,
        Kind::Wait,
        Kind::Slice,
        Kind::Allocate,
        Kind::Drop,
    ];

    fn programs(alignment: usize) -> impl Iterator<Item = Program> {
        let cpu = Device::cpu();
        let rules =
            Rules { devices: vec![cpu, cpu], alignment, streams_each: 2, kinds: KINDS, blocking: true };
        let mut runner = TestRunner::deterministic();
        (0..300).map(move |_| rules.program(&drafts(40).new_tree(&mut runner).unwrap().current()))
    }

    /// The allocation and the first byte of each buffer, by number.
    fn places(program: &Program) -> Vec<(usize, usize, usize)> {
        let mut places: Vec<(usize, usize, usize)> = Vec::new();
        let mut allocations = 0;
        for step in &program.steps {
            match step {
                Step::Allocate { len, .. } => {
                    places.push((allocations, 0, *len));
                    allocations += 1;
                }
                Step::Slice { of, range } => {
                    places.push((places[*of].0, places[*of].1 + range.start, range.len()));
                }
                _ => {}
            }
        }
        places
    }

    /// The accesses of a step: the buffer, the range in it, and whether it writes.
    fn touched(step: &Step) -> Vec<(By, usize, Range<usize>, bool)> {
        match step {
            Step::Write { by, buffer, at, len, .. } => vec![(*by, *buffer, *at..at + len, true)],
            Step::Fill { by, buffer, range, .. } => vec![(*by, *buffer, range.clone(), true)],
            Step::Read { by, buffer, range, .. } => vec![(*by, *buffer, range.clone(), false)],
            Step::Copy { by, from, range, to, at } => {
                vec![(*by, *from, range.clone(), false), (*by, *to, *at..at + range.len(), true)]
            }
            _ => vec![],
        }
    }

    #[test]
    fn steps_that_touch_the_same_bytes_are_ordered() {
        for program in programs(1) {
            let places = places(&program);
            // Computes the order independently of `draw`, as a graph of steps.
            let mut after: Vec<Vec<usize>> = Vec::new();
            let mut last = [None; 4];
            let mut last_of_host = None;
            let mut recorded = Vec::new();
            for (index, step) in program.steps.iter().enumerate() {
                let by = match step {
                    Step::Record { stream } | Step::Call { stream, .. } => By::Stream(*stream),
                    Step::Write { by, .. }
                    | Step::Fill { by, .. }
                    | Step::Copy { by, .. }
                    | Step::Read { by, .. }
                    | Step::Wait { by, .. } => *by,
                    _ => By::Host,
                };
                let mut before: Vec<usize> = Vec::new();
                // Enqueued work comes after all work that the host has waited for.
                before.extend(last_of_host);
                match by {
                    By::Host => last_of_host = Some(index),
                    By::Stream(stream) => before.extend(last[stream].replace(index)),
                }
                match step {
                    Step::Record { .. } => recorded.push(index),
                    Step::Wait { event, .. } => before.push(recorded[*event]),
                    _ => {}
                }
                let mut all: Vec<usize> = before.iter().flat_map(|&step| after[step].clone()).collect();
                all.extend(before);
                all.sort_unstable();
                all.dedup();
                for (_, buffer, range, writes) in touched(step) {
                    let (allocation, start, _) = places[buffer];
                    let range = start + range.start..start + range.end;
                    for (earlier, other) in program.steps[..index].iter().enumerate() {
                        for (by, buffer, other, other_writes) in touched(other) {
                            let (of, start, _) = places[buffer];
                            let same = of == allocation
                                && overlap(&range, &(start + other.start..start + other.end));
                            let ordered = all.binary_search(&earlier).is_ok() || by == By::Host;
                            assert!(!same || !(writes || other_writes) || ordered, "{index}: {program}");
                        }
                    }
                }
                after.push(all);
            }
        }
    }

    #[test]
    fn ranges_are_aligned_or_reach_the_end() {
        for (alignment, program) in [1, 4, 64].into_iter().flat_map(|a| programs(a).map(move |p| (a, p))) {
            let places = places(&program);
            let mut lens = std::collections::BTreeMap::new();
            places.iter().for_each(|&(allocation, start, len)| {
                let end: &mut usize = lens.entry(allocation).or_default();
                *end = (*end).max(start + len);
            });
            for step in &program.steps {
                for (_, buffer, range, _) in touched(step) {
                    let (allocation, start, len) = places[buffer];
                    assert!(!range.is_empty() && range.end <= len, "{step:?}");
                    let to_the_end = start + range.end == lens[&allocation];
                    assert!((start + range.start).is_multiple_of(alignment), "{step:?}");
                    assert!(range.len().is_multiple_of(alignment) || to_the_end, "{step:?}");
                }
            }
        }
    }

    #[test]
    fn programs_are_of_all_kinds_and_not_empty() {
        let mut seen = std::collections::BTreeSet::new();
        let mut steps = 0;
        for program in programs(1) {
            steps += program.steps.len();
            seen.extend(program.steps.iter().map(|step| {
                let shown = format!("{step:?}");
                shown.split(' ').next().map(str::to_owned).unwrap_or_default()
            }));
        }
        assert!(steps > 300 * 15, "{steps}");
        for kind in ["Allocate", "Slice", "Drop", "Write", "Fill", "Copy", "Read", "Record", "Wait"] {
            assert!(seen.contains(kind), "{seen:?}");
        }
    }
}
