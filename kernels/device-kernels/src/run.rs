//! Calls with memory: the one line that a framework writes.

use device_registry::{Buffer, Stream};
use smallvec::SmallVec;

use crate::argument::Argument;
use crate::dtype::DType;
use crate::error::RunError;
use crate::layout::{Layout, LayoutError};
use crate::operator::Operator;
use crate::planned::{ArgumentRef, Description};
use crate::scalar::Scalar;

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
    #[inline]
    pub fn new(buffer: &'a Buffer, dtype: DType, shape: impl AsRef<[usize]>) -> Result<Self, LayoutError> {
        Ok(Self::with_layout(buffer, dtype, Layout::contiguous(shape)?))
    }

    /// An array with any layout in `buffer`.
    #[must_use]
    #[inline]
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
/// let a = device.allocate(24)?;
/// let b = device.allocate(24)?;
/// let out = device.allocate(16)?;
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
    let inputs = inputs.iter().map(OperandRef::from);
    let outputs = outputs.iter().map(OperandRef::from);
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
    planned.enqueue(stream, &buffers)
}
