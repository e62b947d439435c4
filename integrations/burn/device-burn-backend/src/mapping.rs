//! One operation of burn's with its tensors, as calls of kernels see it.

use burn_backend::DType;
use burn_flex::Layout;
use burn_ir::{ScalarIr, TensorIr, TensorStatus};
use burn_std::IndexingUpdateOp;
use device_kernels::{
    Argument, ArgumentRef, Dims, Expression, Operator, Planned, Reduction, RunError, Scalar, Update,
};
use device_registry::Device;
use smallvec::SmallVec;

use crate::dtype::dtype_of;
use crate::operation::Operands;
use crate::step::{self, Memory, Step, Steps};
use crate::table::RegistryTensor;

/// An argument of a kernel, and where it is.
#[derive(Clone, Copy)]
pub(crate) struct Operand {
    pub(crate) argument: Argument,
    pub(crate) memory: Option<Memory>,
}

impl Operand {
    pub(crate) fn array(
        dtype: device_kernels::DType,
        layout: device_kernels::Layout,
        memory: Memory,
    ) -> Self {
        Self { argument: Argument::Array(dtype, layout), memory: Some(memory) }
    }

    pub(crate) fn described(&self) -> Described<'_> {
        Described { argument: (&self.argument).into(), memory: self.memory }
    }

    /// The same array with another layout.
    pub(crate) fn view(
        self,
        view: impl FnOnce(device_kernels::Layout) -> Result<device_kernels::Layout, device_kernels::LayoutError>,
    ) -> Option<Self> {
        let (dtype, layout) = self.argument.array()?;
        Some(Self { argument: Argument::Array(dtype, view(*layout).ok()?), ..self })
    }

    /// The same array as one of `shape`.
    pub(crate) fn reshape(self, shape: &[usize]) -> Option<Self> {
        self.view(|layout| layout.reshape(shape))
    }

    pub(crate) fn shape(&self) -> SmallVec<[usize; 8]> {
        self.argument.array().map(|(_, layout)| layout.shape().into()).unwrap_or_default()
    }

    /// An array of one dimension less as an image of one row.
    pub(crate) fn as_image(self) -> Option<Self> {
        let shape = self.shape();
        let [images, channels, len] = shape[..] else { return None };
        self.reshape(&[images, channels, 1, len])
    }
}

/// An [`Operand`] by reference, from which a plan that is there already is found.
#[derive(Clone, Copy)]
pub(crate) struct Described<'a> {
    argument: ArgumentRef<'a>,
    memory: Option<Memory>,
}

impl Described<'_> {
    pub(crate) fn scalar(scalar: Scalar) -> Self {
        Self { argument: ArgumentRef::Scalar(scalar), memory: None }
    }
}

/// The tensors of one operation.
pub(crate) struct Mapping<'a> {
    pub(crate) operands: &'a Operands,
    pub(crate) inputs: &'a [RegistryTensor],
    pub(crate) device: Device,
}

impl Mapping<'_> {
    pub(crate) fn input(&self, tensor: &TensorIr) -> Option<Operand> {
        self.place(Operands::place(tensor))
    }

    /// The input at a place.
    pub(crate) fn place(&self, place: usize) -> Option<Operand> {
        let input = self.inputs.get(place)?;
        let argument = Argument::Array(dtype_of(input.dtype)?, layout_of(&input.layout)?);
        Some(Operand { argument, memory: Some(Memory::Input(place)) })
    }

    /// A copy of a tensor, whose elements an operation then changes. Where all are one value that waits to be
    /// written, it is a fill of the copy.
    pub(crate) fn copy(&self, tensor: &TensorIr, to: Operand) -> Option<Step> {
        let value = self.inputs.get(Operands::place(tensor))?.storage.value();
        let filled = value.and_then(|value| {
            let value = Operand { argument: Argument::Scalar(value), memory: None };
            self.step(Operator::Copy, &[value], &[to])
        });
        filled.or_else(|| self.step(Operator::Copy, &[self.input(tensor)?], &[to]))
    }

    pub(crate) fn out(&self, place: usize) -> Option<Operand> {
        let out = self.operands.outputs.get(place)?;
        let layout = device_kernels::Layout::contiguous(&out.shape[..]).ok()?;
        let argument = Argument::Array(dtype_of(out.dtype)?, layout);
        Some(Operand { argument, memory: Some(Memory::Output(place)) })
    }

    /// The input as it is, which takes no layout.
    pub(crate) fn described_input(&self, tensor: &TensorIr) -> Option<Described<'_>> {
        self.described_place(Operands::place(tensor))
    }

    /// The input at a place, as it is.
    pub(crate) fn described_place(&self, place: usize) -> Option<Described<'_>> {
        let input = self.inputs.get(place)?;
        let argument = ArgumentRef::Array {
            dtype: dtype_of(input.dtype)?,
            shape: &input.layout.shape()[..],
            strides: Some(input.layout.strides()),
            offset: input.layout.start_offset(),
        };
        Some(Described { argument, memory: Some(Memory::Input(place)) })
    }

    /// The output as it is, which takes no layout.
    pub(crate) fn described_out(&self, place: usize) -> Option<Described<'_>> {
        let out = self.operands.outputs.get(place)?;
        let dtype = dtype_of(out.dtype)?;
        let shape = &out.shape[..];
        let argument = ArgumentRef::Array { dtype, shape, strides: None, offset: 0 };
        Some(Described { argument, memory: Some(Memory::Output(place)) })
    }

    /// A call, if the kernels' rules allow it and a set has it. Otherwise burn's engine judges it.
    pub(crate) fn step(
        &self,
        operator: impl Into<Operator>,
        inputs: &[Operand],
        outputs: &[Operand],
    ) -> Option<Step> {
        fn described(operands: &[Operand]) -> SmallVec<[Described<'_>; 4]> {
            operands.iter().map(Operand::described).collect()
        }
        self.described_step(operator, &described(inputs), &described(outputs))
    }

    pub(crate) fn described_step(
        &self,
        operator: impl Into<Operator>,
        inputs: &[Described<'_>],
        outputs: &[Described<'_>],
    ) -> Option<Step> {
        // A call that writes nothing has a plan even without a kernel. burn's engine then decides what to do.
        self.planned(operator, inputs, outputs).ok()?
    }

    /// A call with the kernel that a set has for it. `None` if it writes nothing.
    pub(crate) fn planned(
        &self,
        operator: impl Into<Operator>,
        inputs: &[Described<'_>],
        outputs: &[Described<'_>],
    ) -> Result<Option<Step>, RunError> {
        fn arguments<'a>(operands: &[Described<'a>]) -> SmallVec<[ArgumentRef<'a>; 4]> {
            operands.iter().map(|one| one.argument).collect()
        }
        let planned = Planned::of(self.device, operator, &arguments(inputs), &arguments(outputs))?;
        if planned.set().is_none() {
            return Ok(None);
        }
        let call = planned.call();
        let used = call.inputs().iter().zip(call.sources()).filter(|(input, _)| input.array().is_some());
        let used = used.map(|(_, &source)| &inputs[source]).chain(outputs);
        let memory = used.map(|operand| operand.memory).collect::<Option<_>>();
        Ok(memory.map(|memory| Step { planned, memory }))
    }

    /// Calls of an expression with one output: one, or one for each of its parts where no set has it as a
    /// whole.
    pub(crate) fn expression(
        &self,
        expression: Expression,
        inputs: &[Operand],
        out: Operand,
    ) -> Option<Steps> {
        let arguments: SmallVec<[ArgumentRef<'_>; 8]> =
            inputs.iter().map(|input| input.described().argument).collect();
        let planned = Planned::of(self.device, expression, &arguments, &[out.described().argument]).ok()?;
        if planned.set().is_none() && !planned.is_in_parts() {
            return None;
        }
        let arrays = inputs.iter().filter(|input| input.argument.array().is_some()).chain([&out]);
        let arrays = arrays.map(|array| array.memory).collect::<Option<SmallVec<[Memory; 8]>>>()?;
        let outputs = self.operands.outputs.len();
        let (steps, temporaries) = step::launches(&planned, &arrays, outputs);
        // Of the type that has the largest alignment.
        let scratch = |(number, bytes): (usize, usize)| TensorIr {
            id: Operands::output_id(outputs + number),
            shape: [bytes.div_ceil(size_of::<u64>())].into(),
            status: TensorStatus::NotInit,
            dtype: DType::U64,
        };
        Some(Steps { steps, scratch: temporaries.into_iter().enumerate().map(scratch).collect() })
    }

    pub(crate) fn reduce(&self, reduction: Reduction, input: &TensorIr, dims: Dims) -> Option<Steps> {
        let input = self.input(input)?;
        let out = self.out(0)?;
        one(self.reduction(Operator::Reduce { reduction, dims }, dims, input, out))
    }

    /// A reduction into an output whose shape may lack the dimensions that are reduced.
    pub(crate) fn reduction(
        &self,
        operator: Operator,
        dims: Dims,
        input: Operand,
        out: Operand,
    ) -> Option<Step> {
        let mut shape = input.shape();
        shape.iter_mut().enumerate().filter(|(dim, _)| dims.contains(*dim)).for_each(|(_, size)| *size = 1);
        self.step(operator, &[input], &[out.reshape(&shape)?])
    }
}

pub(crate) fn scalar(scalar: ScalarIr) -> Operand {
    Operand { argument: Argument::Scalar(value(scalar)), memory: None }
}

pub(crate) fn value(scalar: ScalarIr) -> Scalar {
    match scalar {
        ScalarIr::Float(value) => Scalar::Float(value),
        ScalarIr::Int(value) => Scalar::Int(value),
        // The same bits: larger numbers do not fit into any dtype of kernels.
        ScalarIr::UInt(value) => Scalar::Int(value as i64),
        ScalarIr::Bool(value) => Scalar::Bool(value),
    }
}

pub(crate) fn update(update: &IndexingUpdateOp) -> Option<Update> {
    match update {
        IndexingUpdateOp::Assign => Some(Update::Replace),
        IndexingUpdateOp::Add => Some(Update::Add),
        _ => None,
    }
}

pub(crate) fn layout_of(layout: &Layout) -> Option<device_kernels::Layout> {
    device_kernels::Layout::strided(&layout.shape()[..], layout.strides(), layout.start_offset()).ok()
}

pub(crate) fn one(step: Option<Step>) -> Option<Steps> {
    step.map(|step| Steps::from_iter([step]))
}
