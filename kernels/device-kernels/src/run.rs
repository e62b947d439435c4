//! Calls with memory: the one line that a framework writes.

use std::fmt;
use std::ops::Range;

use device_registry::backend::{BackendError, Launch};
use device_registry::{Buffer, Device, DeviceError, LaunchOptions, Stream};
use entry_points::LoadError;
use smallvec::SmallVec;

use crate::planned::Description;
use crate::set::LinkedSet;
use crate::{
    Argument, ArgumentRef, Call, CallError, Coverage, DType, Layout, LayoutError, Operator, Planned, Scalar,
};

/// What an operator works on: an array in a buffer, or a value.
#[derive(Clone, Copy, Debug)]
pub struct Operand<'a> {
    buffer: Option<&'a Buffer>,
    argument: Argument,
}

impl<'a> Operand<'a> {
    /// An array at the start of `buffer`, whose elements lie one after the other.
    ///
    /// # Errors
    ///
    /// If there are too many dimensions, or their product overflows. Whether the buffer has the elements is
    /// checked by [`run`].
    pub fn new(buffer: &'a Buffer, dtype: DType, shape: impl AsRef<[usize]>) -> Result<Self, LayoutError> {
        Ok(Self::with_layout(buffer, dtype, Layout::contiguous(shape)?))
    }

    /// An array with any layout in `buffer`.
    #[must_use]
    pub fn with_layout(buffer: &'a Buffer, dtype: DType, layout: Layout) -> Self {
        Self { buffer: Some(buffer), argument: Argument::Array(dtype, layout) }
    }

    /// A view of the array: `operand.view(|layout| layout.transpose(0, 1))`. A scalar stays as it is.
    ///
    /// # Errors
    ///
    /// Any that `view` returns.
    pub fn view(
        mut self,
        view: impl FnOnce(Layout) -> Result<Layout, LayoutError>,
    ) -> Result<Self, LayoutError> {
        if let Argument::Array(_, layout) = &mut self.argument {
            *layout = view(*layout)?;
        }
        Ok(self)
    }

    /// The type and layout, or the value.
    #[must_use]
    pub fn argument(&self) -> Argument {
        self.argument
    }
}

impl<S: Into<Scalar>> From<S> for Operand<'_> {
    fn from(scalar: S) -> Self {
        Self { buffer: None, argument: Argument::Scalar(scalar.into()) }
    }
}

/// What an operator works on, by reference: for frameworks whose tensors have shapes and strides already, as
/// an [`Operand`] copies them.
#[derive(Clone, Copy, Debug)]
pub struct OperandRef<'a> {
    /// The type and layout of an array, or a value.
    pub argument: ArgumentRef<'a>,
    /// The buffer of an array. A value has none.
    pub buffer: Option<&'a Buffer>,
}

impl<'a> From<&'a Operand<'_>> for OperandRef<'a> {
    #[inline]
    fn from(operand: &'a Operand<'_>) -> Self {
        Self { argument: ArgumentRef::from(&operand.argument), buffer: operand.buffer }
    }
}

/// Enqueues an operator in `stream`, by a kernel set of the stream's backend. Returns as soon as it is
/// enqueued.
///
/// ```
/// use device_kernels::{Binary, DType, Operand, Operator, run};
/// # fn example(device: device_registry::Device, bytes: &[u8]) -> Result<(), Box<dyn std::error::Error>> {
/// let stream = device.create_stream()?;
/// let (a, b, out) = (device.allocate(24)?, device.allocate(24)?, device.allocate(16)?);
/// let a = Operand::new(&a, DType::F32, [2, 3])?;
/// let b = Operand::new(&b, DType::F32, [2, 3])?;
/// let out = Operand::new(&out, DType::F32, [2, 2])?;
///
/// run(&stream, Binary::Add, &[a, 1.0.into()], &[a])?;
/// run(&stream, Operator::MatMul, &[a, b.view(|b| b.transpose(0, 1))?], &[out])?;
/// stream.synchronize()?;
/// # Ok(())
/// # }
/// ```
///
/// # Errors
///
/// - If the arguments do not fit the operator, or a buffer its array: see [`RunError`]. Nothing is enqueued
///   then.
/// - If no linked set has a kernel for them.
/// - The errors of [`Stream::launch`]. A kernel's own failure is an error of the stream.
pub fn run(
    stream: &Stream,
    operator: impl Into<Operator>,
    inputs: &[Operand<'_>],
    outputs: &[Operand<'_>],
) -> Result<(), RunError> {
    let (inputs, outputs) = (inputs.iter().map(OperandRef::from), outputs.iter().map(OperandRef::from));
    enqueue(stream, operator.into(), inputs, outputs)
}

/// Enqueues an operator as [`run`] does, with operands by reference.
///
/// # Errors
///
/// The same as [`run`].
pub fn run_ref(
    stream: &Stream,
    operator: impl Into<Operator>,
    inputs: &[OperandRef<'_>],
    outputs: &[OperandRef<'_>],
) -> Result<(), RunError> {
    enqueue(stream, operator.into(), inputs.iter().copied(), outputs.iter().copied())
}

fn enqueue<'a>(
    stream: &Stream,
    operator: Operator,
    inputs: impl Iterator<Item = OperandRef<'a>> + Clone,
    outputs: impl Iterator<Item = OperandRef<'a>> + Clone,
) -> Result<(), RunError> {
    let description = Description {
        device: stream.device(),
        operator,
        inputs: inputs.clone().map(|input| input.argument),
        outputs: outputs.clone().map(|output| output.argument),
    };
    let planned = description.planned()?;
    let call = planned.call();
    let mut buffers = SmallVec::<[&Buffer; 4]>::new();
    for (input, &source) in call.inputs().iter().zip(call.sources()) {
        if let Argument::Array(..) = input {
            let input = inputs.clone().nth(source);
            input.and_then(|input| input.buffer).into_iter().for_each(|buffer| buffers.push(buffer));
        }
    }
    outputs.filter_map(|output| output.buffer).for_each(|buffer| buffers.push(buffer));
    let Some(prepared) = planned.with_buffers(&buffers)? else { return Ok(()) };
    let options = prepared.launch_options();
    let enqueued = stream.launch_with(&options, &buffers, move |launch| prepared.launch(launch));
    enqueued.map_err(|error| RunError::Device { call: planned.call().clone(), error })
}

/// A call that a kernel set has a kernel for, with buffers that have its elements.
///
/// [`run`] makes and launches it. A framework that has to do more within the launch does it by itself:
///
/// ```
/// # use device_kernels::{Call, Prepared, RunError};
/// # use device_registry::{Buffer, Stream};
/// # fn example(stream: &Stream, call: Call, buffers: &[&Buffer]) -> Result<(), Box<dyn std::error::Error>> {
/// if let Some(prepared) = Prepared::new(stream.device(), call, buffers)? {
///     stream.launch_with(&prepared.launch_options(), buffers, move |launch| prepared.launch(launch))?;
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Prepared {
    pub(crate) call: Call,
    pub(crate) set: LinkedSet,
    pub(crate) short: bool,
}

impl Prepared {
    /// Checks `buffers`, which are in the order of [`Call::arrays`], and looks for a kernel. `None` if the
    /// call [writes nothing](Call::is_empty).
    ///
    /// # Errors
    ///
    /// If there are not as many buffers as arrays, a buffer is on another device, is too short or begins
    /// between two elements of its memory, an output overlaps another array, or no linked set has a kernel.
    pub fn new(device: Device, call: Call, buffers: &[&Buffer]) -> Result<Option<Self>, RunError> {
        if let Err(problem) = check_buffers(device.resolve(), &call, buffers) {
            return Err(RunError::Buffers { call, problem });
        }
        let planned = Planned::new(device, call)?;
        Ok(planned.prepared())
    }

    /// The call.
    #[must_use]
    pub fn call(&self) -> &Call {
        &self.call
    }

    /// The set whose kernel is used.
    #[must_use]
    pub fn set(&self) -> LinkedSet {
        self.set
    }

    /// The options for [`Stream::launch_with`]: the [name](crate::Operator::name) of the operator, and
    /// whether the kernel is [short](LaunchOptions::short), as its [set says](crate::KernelSet::is_short).
    #[must_use]
    pub fn launch_options(&self) -> LaunchOptions {
        let options = LaunchOptions::new().named(self.call.operator().name());
        if self.short { options.short() } else { options }
    }

    /// Runs or submits the kernel: the argument of [`Stream::launch_with`], with the buffers of
    /// [`new`](Self::new).
    ///
    /// # Errors
    ///
    /// The kernel's error, with the call and the set.
    pub fn launch(&self, launch: &Launch<'_>) -> Result<(), BackendError> {
        self.set.set().launch(&self.call, launch).map_err(|error| self.set.failed(&self.call, error))
    }
}

/// Why an operator was not enqueued.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// The arguments do not fit the operator.
    #[error(transparent)]
    Call(#[from] CallError),
    /// A buffer does not fit its array.
    #[error("{call}: {problem}")]
    #[non_exhaustive]
    Buffers {
        /// The call.
        call: Call,
        /// What is wrong with the buffer.
        #[source]
        problem: BufferProblem,
    },
    /// A kernel set is linked and does not load.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// No kernel set has a kernel for the call.
    #[error("{call}: no kernel for `{device}`: {sets}{}", Why { call, device: *device, sets: &sets.0 })]
    #[non_exhaustive]
    Unsupported {
        /// The call.
        call: Call,
        /// The device.
        device: Device,
        /// The sets that were asked.
        sets: Sets,
    },
    /// The stream refused it.
    #[error("{call}: not enqueued")]
    #[non_exhaustive]
    Device {
        /// The call.
        call: Call,
        /// The error of the stream.
        #[source]
        error: DeviceError,
    },
}

/// The kernel sets of a backend. `Display` says what to do if there are none.
#[derive(Clone, Debug)]
pub struct Sets(pub(crate) Vec<LinkedSet>);

impl fmt::Display for Sets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str(
                "no kernel set of its backend is linked, or it is switched off; add the crate of one to Cargo.toml",
            );
        }
        let names: Vec<_> = self.0.iter().map(ToString::to_string).collect();
        write!(f, "these kernel sets do not have it: {}", names.join(", "))
    }
}

/// Why kernel sets have no kernel for a call; a message names the sets before it.
struct Why<'a> {
    call: &'a Call,
    device: Device,
    sets: &'a [LinkedSet],
}

impl fmt::Display for Why<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.sets.is_empty() {
            return Ok(());
        }
        let coverage: Vec<_> = self.sets.iter().flat_map(|set| set.set().coverage(self.device)).collect();
        let properties = self.device.properties();
        let doubles = properties.ok().and_then(|properties| properties.is_native_dtype("f64"));
        f.write_str(&missing(self.call, &coverage, doubles))
    }
}

/// What there is instead of a kernel for a call. `doubles` says whether the device computes with `f64`.
fn missing(call: &Call, coverage: &[Coverage], doubles: Option<bool>) -> String {
    let name = call.operator().name();
    let there: Vec<_> =
        coverage.iter().filter(|one| one.operator() == name).map(ToString::to_string).collect();
    let mut text = match there.is_empty() {
        true => format!("; they have no `{name}`"),
        false => format!("; they have {}", there.join("; ")),
    };
    if doubles == Some(false) && call.arrays().any(|(dtype, _)| dtype == DType::F64) {
        text += "; the device does not compute with f64";
    }
    text
}

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
    #[error("an array of {needed} bytes is in a buffer of {found}")]
    Short {
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

/// Checks buffers that are in the order of [`Call::arrays`]. `device` has an index.
fn check_alignment(call: &Call, buffers: &[&Buffer]) -> Result<(), BufferProblem> {
    for (place, ((dtype, _), buffer)) in call.arrays().zip(buffers).enumerate() {
        let (offset, size) = (buffer.offset(), dtype.size());
        if !offset.is_multiple_of(size) {
            return Err(BufferProblem::Alignment { place, offset, size });
        }
    }
    Ok(())
}

pub(crate) fn check_buffers(device: Device, call: &Call, buffers: &[&Buffer]) -> Result<(), BufferProblem> {
    let ranges = call.byte_ranges();
    if buffers.len() != ranges.len() {
        return Err(BufferProblem::Count { expected: ranges.len(), found: buffers.len() });
    }
    let mut offsets = 0;
    for (bytes, buffer) in ranges.iter().zip(buffers) {
        if buffer.device() != device {
            return Err(BufferProblem::Device { expected: device, found: buffer.device() });
        }
        if bytes.end > buffer.len() {
            return Err(BufferProblem::Short { needed: bytes.end, found: buffer.len() });
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

/// Checks an output and another array in the same memory.
fn check_overlap(call: &Call, buffers: &[&Buffer], place: usize, other: usize) -> Result<(), BufferProblem> {
    let used = |place: usize| {
        let (bytes, start) = (&call.byte_ranges()[place], buffers[place].offset());
        start + bytes.start..start + bytes.end
    };
    let (output, used) = (used(place), used(other));
    // An array without elements overlaps nothing.
    let apart = output.is_empty() || used.is_empty() || output.end <= used.start || used.end <= output.start;
    let same_elements = || {
        let array = |place| call.arrays().nth(place).map(|(dtype, layout)| (dtype.size(), layout));
        buffers[place].offset() == buffers[other].offset() && array(place) == array(other)
    };
    if apart || (call.operator().is_elementwise() && same_elements()) {
        return Ok(());
    }
    Err(BufferProblem::Overlap { output, other: used })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Binary;

    #[test]
    fn a_call_without_a_kernel_says_what_there_is() {
        let call = |operator: Binary| {
            let array = Argument::Array(DType::F64, Layout::contiguous([2]).unwrap());
            Call::new(operator, &[array, array], &[array]).unwrap()
        };
        let coverage = [Coverage::of("add").dtypes([DType::F32, DType::F16]).contiguous()];
        let without = "; they have add of f32, f16, contiguous; the device does not compute with f64";
        assert_eq!(missing(&call(Binary::Add), &coverage, Some(false)), without);
        assert_eq!(missing(&call(Binary::Add), &coverage, None), "; they have add of f32, f16, contiguous");
        assert_eq!(missing(&call(Binary::Sub), &coverage, Some(true)), "; they have no `sub`");
    }
}
