//! The bytes of a call's arrays, opened together.

use std::ops::Range;

use device_kernels::Call;
use device_registry::backend::{BackendError, HostMemory, Span, open_all_windows, open_windows};
use smallvec::SmallVec;

/// The bytes of an array in its memory.
struct Place<'a> {
    memory: &'a HostMemory,
    bytes: Range<usize>,
}

/// An input of a call.
#[derive(Clone, Copy)]
pub(crate) enum Source<'a> {
    Scalar,
    Bytes(&'a [u8]),
    /// The bytes of the output with this number: an operator on elements may read each before it writes it.
    Output(usize),
}

impl<'a> Source<'a> {
    /// The bytes of an array. `before` is what the output had before it was written.
    pub(crate) fn bytes(self, before: &'a [u8]) -> Option<&'a [u8]> {
        match self {
            Self::Scalar => None,
            Self::Bytes(bytes) => Some(bytes),
            Self::Output(_) => Some(before),
        }
    }
}

/// Calls `work` with each input, and the bytes of each output. The bytes are those from the first element of
/// an array to its last.
pub(crate) fn with_bytes<'a>(
    call: &Call,
    spans: &'a [Option<Span>],
    memory: fn(&Span) -> Result<&HostMemory, BackendError>,
    work: impl FnOnce(&[Source<'_>], &mut [&mut [u8]]) -> Result<(), BackendError>,
) -> Result<(), BackendError> {
    let mut places = SmallVec::<[Place<'a>; 5]>::new();
    for (bytes, span) in call.byte_ranges().iter().zip(spans) {
        let span = span.as_ref().ok_or_else(|| BackendError::invalid("an array of a call has no bytes"))?;
        let start = span.offset();
        places.push(Place { memory: memory(span)?, bytes: start + bytes.start..start + bytes.end });
    }
    let (places, outputs) = places.split_at(places.len().saturating_sub(call.outputs().len()));
    // An input that is the output too is in the same window.
    let in_place = |place: &Place<'_>| {
        outputs.iter().position(|output| {
            std::ptr::eq(output.memory, place.memory)
                && output.bytes.start < place.bytes.end
                && place.bytes.start < output.bytes.end
        })
    };
    // Loops and no iterators, whose collecting is a call for each list.
    let mut shared = SmallVec::<[Option<usize>; 4]>::new();
    let mut apart = SmallVec::<[&Place<'_>; 4]>::new();
    for place in places {
        let output = in_place(place);
        shared.push(output);
        if output.is_none() {
            apart.push(place);
        }
    }
    let with_windows = |reads: &[&[u8]], writes: &mut [&mut [u8]]| {
        let mut reads = reads.iter().copied();
        let mut shared = shared.iter();
        let mut inputs = SmallVec::<[Source<'_>; 4]>::new();
        for input in call.inputs() {
            inputs.push(match input.array().and_then(|_| shared.next()) {
                None => Source::Scalar,
                Some(Some(output)) => Source::Output(*output),
                Some(None) => reads.next().map_or(Source::Scalar, Source::Bytes),
            });
        }
        work(&inputs, writes)
    };
    match (&apart[..], outputs) {
        ([], [out]) => open([], [out], with_windows),
        ([a], [out]) => open([a], [out], with_windows),
        ([a, b], [out]) => open([a, b], [out], with_windows),
        ([a, b, c], [out]) => open([a, b, c], [out], with_windows),
        ([a, b, c, d], [out]) => open([a, b, c, d], [out], with_windows),
        ([a], [out, second]) => open([a], [out, second], with_windows),
        ([a, b], [out, second]) => open([a, b], [out, second], with_windows),
        ([a, b, c], [out, second]) => open([a, b, c], [out, second], with_windows),
        ([a, b, c, d], [out, second]) => open([a, b, c, d], [out, second], with_windows),
        ([a], [out, second, third]) => open([a], [out, second, third], with_windows),
        ([a, b], [out, second, third]) => open([a, b], [out, second, third], with_windows),
        ([a, b, c], [out, second, third]) => open([a, b, c], [out, second, third], with_windows),
        ([a, b, c, d], [out, second, third]) => open([a, b, c, d], [out, second, third], with_windows),
        (apart, outputs) => {
            let request = |place: &Place<'a>| (place.memory, place.bytes.clone());
            let reads = apart.iter().map(|place| request(place));
            let (reads, mut writes) = open_all_windows(reads, outputs.iter().map(request))?;
            let reads: Vec<&[u8]> = reads.iter().map(|window| &**window).collect();
            let mut writes: Vec<&mut [u8]> = writes.iter_mut().map(|window| &mut **window).collect();
            with_windows(&reads, &mut writes)
        }
    }
}

fn open<const R: usize, const W: usize>(
    reads: [&Place<'_>; R],
    writes: [&Place<'_>; W],
    work: impl FnOnce(&[&[u8]], &mut [&mut [u8]]) -> Result<(), BackendError>,
) -> Result<(), BackendError> {
    let request = |place: &Place<'_>| place.bytes.clone();
    let reads = reads.map(|place| (place.memory, request(place)));
    let writes = writes.map(|place| (place.memory, request(place)));
    let (reads, mut writes) = open_windows(reads, writes)?;
    work(&reads.each_ref().map(|window| &**window), &mut writes.each_mut().map(|window| &mut **window))
}
