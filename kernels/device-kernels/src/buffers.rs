//! The buffers of a call: whether each has the elements of its array, and which may overlap.

use std::ops::Range;

use device_registry::{Buffer, Device};

use crate::call::Call;

/// What is wrong with a buffer of a call.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BufferProblem {
    /// There is not one buffer for each array.
    #[error("expected {expected} buffers, found {found}")]
    Count {
        /// The number of arrays.
        expected: usize,
        /// The number of buffers.
        found: usize,
    },
    /// A buffer is of another device than the stream.
    #[error("expected each buffer on `{expected}`, found one on `{found}`")]
    Device {
        /// The device of the stream.
        expected: Device,
        /// The device of the buffer.
        found: Device,
    },
    /// The array needs more bytes.
    #[error("{array} needs {needed} bytes, and its buffer has {found}")]
    Short {
        /// Which argument it is, such as `the first input`.
        array: String,
        /// Where the array ends in its buffer.
        needed: usize,
        /// The length of the buffer.
        found: usize,
    },
    /// The buffer begins between two elements of its memory.
    #[error("array {place} begins at byte {offset} of its memory, expected a multiple of {size}")]
    Alignment {
        /// The number of the array, in the order of [`Call::arrays`].
        place: usize,
        /// Where the buffer begins in its memory.
        offset: usize,
        /// The bytes of an element.
        size: usize,
    },
    /// An output overlaps another array of the call: the bytes from their first elements to their last do,
    /// whether or not elements do.
    #[error(
        "an output may overlap another array, which this operator cannot have: bytes {output:?} and {other:?} of one memory"
    )]
    Overlap {
        /// The bytes of the output, in their memory.
        output: Range<usize>,
        /// The bytes of the other array, in the same memory.
        other: Range<usize>,
    },
}

fn check_alignment(call: &Call, buffers: &[&Buffer]) -> Result<(), BufferProblem> {
    for (place, ((dtype, _), buffer)) in call.arrays().zip(buffers).enumerate() {
        let offset = buffer.offset();
        let size = dtype.size();
        if !offset.is_multiple_of(size) {
            return Err(BufferProblem::Alignment { place, offset, size });
        }
    }
    Ok(())
}

/// Checks buffers that are in the order of [`Call::arrays`]. `device` has an index.
pub(crate) fn check_buffers(device: Device, call: &Call, buffers: &[&Buffer]) -> Result<(), BufferProblem> {
    let ranges = call.byte_ranges();
    if buffers.len() != ranges.len() {
        return Err(BufferProblem::Count { expected: ranges.len(), found: buffers.len() });
    }
    let mut offsets = 0;
    for (place, (bytes, buffer)) in ranges.iter().zip(buffers).enumerate() {
        if buffer.device() != device {
            return Err(BufferProblem::Device { expected: device, found: buffer.device() });
        }
        if bytes.end > buffer.len() {
            return Err(BufferProblem::Short {
                array: name_of(call, place),
                needed: bytes.end,
                found: buffer.len(),
            });
        }
        offsets |= buffer.offset();
    }
    // No element is larger than that.
    if !offsets.is_multiple_of(8) {
        check_alignment(call, buffers)?;
    }
    for place in ranges.len() - call.outputs().len()..ranges.len() {
        for other in (0..ranges.len()).filter(|&other| other != place) {
            if buffers[place].shares_memory(buffers[other]) {
                check_overlap(call, buffers, place, other)?;
            }
        }
    }
    Ok(())
}

/// What the caller calls an array of a call, by its number in the order of [`Call::arrays`].
fn name_of(call: &Call, place: usize) -> String {
    let inputs = call.inputs().iter().zip(call.sources()).filter(|(input, _)| input.array().is_some());
    let inputs = inputs.map(|(_, &source)| ("input", source));
    let outputs = (0..call.outputs().len()).map(|output| ("output", output));
    let (kind, number) = inputs.chain(outputs).nth(place).unwrap_or(("array", place));
    match ["first", "second", "third"].get(number) {
        Some(_) if kind == "output" && call.outputs().len() == 1 => "the output".to_owned(),
        Some(word) => format!("the {word} {kind}"),
        None => format!("{kind} {}", number + 1),
    }
}

/// Checks an output and another array in the same memory.
fn check_overlap(call: &Call, buffers: &[&Buffer], place: usize, other: usize) -> Result<(), BufferProblem> {
    let used = |place: usize| {
        let bytes = &call.byte_ranges()[place];
        let start = buffers[place].offset();
        start + bytes.start..start + bytes.end
    };
    let output = used(place);
    let used = used(other);
    // An array without elements overlaps nothing.
    let apart = output.is_empty() || used.is_empty() || output.end <= used.start || used.end <= output.start;
    let same_elements = || {
        let array = |place| call.arrays().nth(place).map(|(dtype, layout)| (dtype.size(), layout));
        buffers[place].offset() == buffers[other].offset() && array(place) == array(other)
    };
    let is_input = other < call.byte_ranges().len() - call.outputs().len();
    if apart || (is_input && call.operator().is_in_place() && same_elements()) {
        return Ok(());
    }
    Err(BufferProblem::Overlap { output, other: used })
}
