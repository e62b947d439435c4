//! Maps burn's operations to a view, calls of kernels, or work for the CPU.
//!
//! Operations that have kernels are named here, in `elementwise.rs` and in `compose.rs`, and operations that
//! `direct.rs` calls are named there. A burn release with new ones needs no change: an operation that no file
//! names runs on burn's CPU engine.

use burn_backend::{DType, Distribution, Shape};
use burn_flex::Layout;
use burn_ir::{
    ActivationOperationIr, BaseOperationIr, CatOpIr, Conv1dOptionsIr, Conv2dOptionsIr, Conv3dOptionsIr,
    ConvTranspose1dOptionsIr, ConvTranspose2dOptionsIr, ConvTranspose3dOptionsIr, CustomOpIr,
    FloatOperationIr, IntOperationIr, ModuleOperationIr, NumericOperationIr, OperationIr, PadModeIr,
    TensorIr,
};
use device_kernels::{
    Binary, Conv2d, Dims, Distribution as Draw, Extremum, Operator, Pool2d, Reduction, Sorted, Update,
};
use device_registry::Device;
use smallvec::{SmallVec, smallvec};

use crate::compose::{self, Planes};
use crate::dtype::dtype_of;
use crate::elementwise::{Elementwise, Term, all_dims, elementwise};
use crate::mapping::{Described, Mapping, Operand, layout_of, one, scalar, update, value};
use crate::operation::{Operands, copy};
use crate::random::Numbers;
use crate::step::{Memory, Steps};
use crate::table::RegistryTensor;

/// A view, by what changes in the layout.
pub(crate) enum View<'a> {
    Reshape,
    Expand,
    SwapDims(usize, usize),
    Permute(&'a [usize]),
    Slice(&'a [burn_backend::Slice]),
}

/// The operation as a view of its input, if it is one.
pub(crate) fn view(operation: &OperationIr) -> Option<(&TensorIr, &TensorIr, View<'_>)> {
    let (OperationIr::BaseFloat(base) | OperationIr::BaseInt(base) | OperationIr::BaseBool(base)) = operation
    else {
        return None;
    };
    match base {
        BaseOperationIr::Reshape(shape) => Some((&shape.input, &shape.out, View::Reshape)),
        BaseOperationIr::Expand(shape) => Some((&shape.input, &shape.out, View::Expand)),
        BaseOperationIr::SwapDims(swap) => {
            Some((&swap.input, &swap.out, View::SwapDims(swap.dim1, swap.dim2)))
        }
        BaseOperationIr::Permute(permute) => {
            Some((&permute.input, &permute.out, View::Permute(&permute.axes)))
        }
        BaseOperationIr::Slice(slice) => Some((&slice.tensor, &slice.out, View::Slice(&slice.ranges))),
        _ => None,
    }
}

/// The dtype of the output, if the operation is a cast of integers, which burn's interpreter does not do.
pub(crate) fn int_cast(operation: &OperationIr) -> Option<DType> {
    match operation {
        OperationIr::BaseInt(BaseOperationIr::Cast(cast)) => Some(cast.out.dtype),
        _ => None,
    }
}

/// The output and the distribution, if the operation draws random numbers.
pub(crate) fn random(operation: &OperationIr) -> Option<(&TensorIr, Distribution)> {
    match operation {
        OperationIr::Float(_, FloatOperationIr::Random(random))
        | OperationIr::NumericInt(_, NumericOperationIr::IntRandom(random)) => {
            Some((&random.out, random.distribution))
        }
        _ => None,
    }
}

/// Whether kernels of `device` join these tensors, by a copy of each.
pub(crate) fn joins(cat: &CatOpIr, device: Device) -> bool {
    let step = || {
        let first = cat.tensors.first()?;
        let array = |tensor: &TensorIr, memory| {
            let layout = device_kernels::Layout::contiguous(&tensor.shape[..]).ok()?;
            Some(Operand::array(dtype_of(tensor.dtype)?, layout, memory))
        };
        let len = *first.shape.get(cat.dim)?;
        let part = array(&cat.out, Memory::Output(0))?.view(|layout| layout.slice(cat.dim, 0, len, 1))?;
        let mapping = Mapping { operands: &Operands::default(), inputs: &[], device };
        mapping.step(Operator::Copy, &[array(first, Memory::Input(0))?], &[part])
    };
    step().is_some()
}

/// The tensors that `operation` joins, if it does.
pub(crate) fn cat(operation: &OperationIr) -> Option<&CatOpIr> {
    match operation {
        OperationIr::BaseFloat(BaseOperationIr::Cat(cat))
        | OperationIr::BaseInt(BaseOperationIr::Cat(cat))
        | OperationIr::BaseBool(BaseOperationIr::Cat(cat)) => Some(cat),
        _ => None,
    }
}

/// The calls of kernels that do `operation` on `device`. `None` if there are none, if a dtype or a shape is
/// not for kernels, or if no kernel set of the device has one of them.
pub(crate) fn steps(
    operation: &OperationIr,
    operands: &Operands,
    inputs: &[RegistryTensor],
    device: Device,
) -> Option<Steps> {
    Mapping { operands, inputs, device }.operation(operation)
}

/// The call of an operator that a crate declares, by its name. There are no steps if it writes nothing.
///
/// # Errors
///
/// Why no kernel does it: burn's CPU engine does not have it.
pub(crate) fn custom(
    custom: &CustomOpIr,
    operands: &Operands,
    inputs: &[RegistryTensor],
    device: Device,
) -> Result<Steps, String> {
    let mapping = Mapping { operands, inputs, device };
    let operator = device_kernels::operator(&custom.id).map_err(|error| error.to_string())?;
    let operator = operator.with_options(custom.scalars.iter().map(|scalar| value(*scalar)));
    let mut tensors = operands.inputs.iter().chain(&operands.outputs);
    let described = || -> Option<_> {
        let inputs = (0..operands.inputs.len()).map(|place| mapping.described_place(place));
        let outputs = (0..operands.outputs.len()).map(|place| mapping.described_out(place));
        Some((inputs.collect::<Option<_>>()?, outputs.collect::<Option<_>>()?))
    };
    let (inputs, outputs): (SmallVec<[_; 4]>, SmallVec<[_; 4]>) = described().ok_or_else(|| {
        let unknown = tensors.find(|tensor| dtype_of(tensor.dtype).is_none());
        let dtype = unknown.map_or("a tensor of this layout", |tensor| tensor.dtype.name());
        format!("kernels do not have {dtype}")
    })?;
    let step = mapping.planned(operator, &inputs, &outputs).map_err(|error| error.to_string())?;
    Ok(step.into_iter().collect())
}

/// A call that draws random numbers for the only output on `device`, if a kernel set of it does.
pub(crate) fn random_step(
    draw: Draw,
    numbers: Numbers,
    operands: &Operands,
    device: Device,
) -> Option<Steps> {
    let mapping = Mapping { operands, inputs: &[], device };
    let out = mapping.out(0)?;
    let (dtype, _) = out.argument.array()?;
    one(mapping.step(numbers.operator(draw, dtype), &[], &[out]))
}

impl Mapping<'_> {
    /// A call with only tensors, and one output.
    fn call(&self, operator: impl Into<Operator>, inputs: &[&TensorIr]) -> Option<Steps> {
        let inputs: SmallVec<[Described<'_>; 4]> =
            inputs.iter().map(|input| self.described_input(input)).collect::<Option<_>>()?;
        one(self.described_step(operator, &inputs, &[self.described_out(0)?]))
    }

    /// An operation that is one operator. A reduction may write a shape without the reduced dimensions.
    fn elementwise(&self, Elementwise { operator, terms }: &Elementwise) -> Option<Steps> {
        if let (Operator::Reduce { dims, .. }, [Term::Input(input)]) = (operator, &terms[..]) {
            return one(self.reduction(*operator, *dims, self.place(*input)?, self.out(0)?));
        }
        let described = |term: &Term| match *term {
            Term::Input(input) => self.described_place(input),
            Term::Scalar(scalar) | Term::Literal(scalar) => Some(Described::scalar(scalar)),
        };
        let inputs: SmallVec<[Described<'_>; 4]> = terms.iter().map(described).collect::<Option<_>>()?;
        one(self.described_step(*operator, &inputs, &[self.described_out(0)?]))
    }

    fn operation(&self, operation: &OperationIr) -> Option<Steps> {
        if let Some(elementwise) = elementwise(operation) {
            return self.elementwise(&elementwise);
        }
        match operation {
            OperationIr::BaseFloat(base) | OperationIr::BaseInt(base) | OperationIr::BaseBool(base) => {
                self.base(base)
            }
            OperationIr::NumericFloat(_, numeric) | OperationIr::NumericInt(_, numeric) => {
                self.numeric(numeric)
            }
            OperationIr::Float(_, float) => self.float(float),
            OperationIr::Int(int) => self.int(int),
            OperationIr::Activation(activation) => self.activation(activation),
            OperationIr::Module(module) => self.module(module),
            _ => None,
        }
    }

    fn base(&self, base: &BaseOperationIr) -> Option<Steps> {
        use BaseOperationIr::*;
        match base {
            Reshape(reshape) => {
                let input = self.input(&reshape.input)?;
                one(self.step(Operator::Copy, &[input], &[self.out(0)?.reshape(&input.shape())?]))
            }
            Flip(flip) => {
                let mut input = self.input(&flip.input)?;
                for &dim in &flip.axes {
                    input = input.view(|layout| layout.flip(dim))?;
                }
                one(self.step(Operator::Copy, &[input], &[self.out(0)?]))
            }
            RepeatDim(repeat) => {
                // The copies are their own dimension, whose elements are all the same.
                let input = self.input(&repeat.tensor)?;
                let mut shape = input.shape();
                shape.insert(repeat.dim, 1);
                let input = input.reshape(&shape)?;
                shape[repeat.dim] = repeat.times;
                one(self.step(Operator::Copy, &[input], &[self.out(0)?.reshape(&shape)?]))
            }
            Cat(cat) => {
                let out = self.out(0)?;
                let mut start = 0;
                let step = |tensor: &TensorIr| {
                    let len = tensor.shape[cat.dim];
                    let part = out.view(|layout| layout.slice(cat.dim, start, len, 1))?;
                    start += len;
                    self.step(Operator::Copy, &[self.input(tensor)?], &[part])
                };
                cat.tensors.iter().map(step).collect()
            }
            Slice(slice) => {
                let view = compose::sliced(self.input(&slice.tensor)?, &slice.ranges)?;
                one(self.step(Operator::Copy, &[view], &[self.out(0)?]))
            }
            SliceAssign(assign) if assign.ranges.iter().any(|slice| slice.step < 0) => {
                self.assign_slice(&assign.tensor, &assign.ranges, &assign.value)
            }
            SliceAssign(assign) => {
                let out = self.out(0)?;
                let copy = self.copy(&assign.tensor, out)?;
                let whole = Layout::contiguous(assign.tensor.shape.clone());
                let part = View::Slice(&assign.ranges).layout(&whole, &assign.value.shape)?;
                let part =
                    out.view(|_| Ok(layout_of(&part).unwrap_or_else(|| unreachable!("a part fits"))))?;
                Some(Steps::from_iter([
                    copy,
                    self.step(Operator::Copy, &[self.input(&assign.value)?], &[part])?,
                ]))
            }
            Select(select) => {
                self.call(Operator::IndexSelect { dim: select.dim }, &[&select.tensor, &select.indices])
            }
            SelectAssign(assign) => {
                let operator = Operator::IndexAssign { dim: assign.dim, update: update(&assign.update)? };
                self.copy_and_update(operator, [&assign.tensor, &assign.indices, &assign.value])
            }
            GatherNd(gather) => self.gather_nd(&gather.data, &gather.indices),
            ScatterNd(scatter) => {
                self.scatter_nd([&scatter.data, &scatter.indices, &scatter.values], &scatter.reduction)
            }
            Unfold(unfold) => self.unfold(&unfold.input, unfold.dim, unfold.step),
            Gather(gather) => {
                self.call(Operator::Gather { dim: gather.dim }, &[&gather.tensor, &gather.indices])
            }
            Scatter(scatter) => {
                let operator = Operator::Scatter { dim: scatter.dim, update: update(&scatter.update)? };
                self.copy_and_update(operator, [&scatter.tensor, &scatter.indices, &scatter.value])
            }
            All(reduce) => self.any_or_all(Reduction::All, &reduce.input, all_dims(&reduce.input)),
            Any(reduce) => self.any_or_all(Reduction::Any, &reduce.input, all_dims(&reduce.input)),
            AllDim(reduce) => self.any_or_all(Reduction::All, &reduce.input, Dims::from([reduce.axis])),
            AnyDim(reduce) => self.any_or_all(Reduction::Any, &reduce.input, Dims::from([reduce.axis])),
            _ => None,
        }
    }

    /// An operator that changes elements of its output, which begins as a copy of the first tensor.
    fn copy_and_update(
        &self,
        operator: Operator,
        [tensor, indices, values]: [&TensorIr; 3],
    ) -> Option<Steps> {
        let adds = matches!(
            operator,
            Operator::IndexAssign { update: Update::Add, .. } | Operator::Scatter { update: Update::Add, .. }
        );
        if adds && matches!(tensor.dtype, DType::Bool(_)) {
            return self.or_update(operator, [tensor, indices, values]);
        }
        let out = self.out(0)?;
        let copy = self.copy(tensor, out)?;
        let update = self.step(operator, &[self.input(indices)?, self.input(values)?], &[out])?;
        Some(Steps::from_iter([copy, update]))
    }

    fn numeric(&self, numeric: &NumericOperationIr) -> Option<Steps> {
        use NumericOperationIr::*;
        match numeric {
            Pad(pad) => {
                let PadModeIr::Constant(value) = pad.mode else { return self.pad(pad) };
                let out = self.out(0)?;
                let fill = self.step(Operator::Copy, &[scalar(value)], &[out])?;
                let inner = out.view(|mut layout| {
                    for (dim, &(before, _)) in pad.padding.iter().enumerate() {
                        layout = layout.slice(dim, before, pad.input.shape[dim], 1)?;
                    }
                    Ok(layout)
                })?;
                Some(Steps::from_iter([
                    fill,
                    self.step(Operator::Copy, &[self.input(&pad.input)?], &[inner])?,
                ]))
            }
            // burn's engine refuses it, and a sum that wraps is not an error.
            Mean(reduce) if reduce.input.dtype.is_uint() => None,
            Mean(reduce) => self.integer_mean(&reduce.input, all_dims(&reduce.input)),
            MeanDim(reduce) => self.integer_mean(&reduce.input, Dims::from([reduce.axis])),
            MaxAbs(reduce) => self.max_abs(&reduce.input, all_dims(&reduce.input)),
            MaxAbsDim(reduce) => self.max_abs(&reduce.input, Dims::from([reduce.axis])),
            CumSum(op) => self.cumulative(Binary::Add, &op.input, op.axis),
            CumProd(op) => self.cumulative(Binary::Mul, &op.input, op.axis),
            CumMax(op) => self.cumulative(Binary::Max, &op.input, op.axis),
            CumMin(op) => self.cumulative(Binary::Min, &op.input, op.axis),
            ArgMax(reduce) => self.arg_reduce(Extremum::Max, &reduce.input, reduce.axis),
            ArgMin(reduce) => self.arg_reduce(Extremum::Min, &reduce.input, reduce.axis),
            MaxDimWithIndices(reduce) => {
                self.with_indices(Reduction::Max, Extremum::Max, &reduce.tensor, reduce.dim)
            }
            MinDimWithIndices(reduce) => {
                self.with_indices(Reduction::Min, Extremum::Min, &reduce.tensor, reduce.dim)
            }
            Sort(sort) => self.sort(Sorted::Values, &sort.input, sort.dim, sort.descending),
            ArgSort(sort) => self.sort(Sorted::Indices, &sort.input, sort.dim, sort.descending),
            SortWithIndices(sort) => self.sort(Sorted::Both, &sort.input, sort.dim, sort.descending),
            // The largest elements, as many as the output has.
            TopK(reduce) => self.sort(Sorted::Values, &reduce.input, reduce.axis, true),
            ArgTopK(reduce) => self.sort(Sorted::Indices, &reduce.input, reduce.axis, true),
            TopKWithIndices(top) => self.sort(Sorted::Both, &top.tensor, top.dim, true),
            _ => None,
        }
    }

    fn arg_reduce(&self, extremum: Extremum, input: &TensorIr, dim: usize) -> Option<Steps> {
        let operator = Operator::ArgReduce { extremum, dim };
        one(self.reduction(operator, Dims::from([dim]), self.input(input)?, self.out(0)?))
    }

    fn sort(&self, sorted: Sorted, input: &TensorIr, dim: usize, descending: bool) -> Option<Steps> {
        let outputs: SmallVec<[Operand; 2]> =
            (0..self.operands.outputs.len()).map(|place| self.out(place)).collect::<Option<_>>()?;
        one(self.step(Operator::Sort { dim, descending, sorted }, &[self.input(input)?], &outputs))
    }

    fn with_indices(
        &self,
        reduction: Reduction,
        extremum: Extremum,
        input: &TensorIr,
        dim: usize,
    ) -> Option<Steps> {
        let input = self.input(input)?;
        let dims = Dims::from([dim]);
        let values = self.reduction(Operator::Reduce { reduction, dims }, dims, input, self.out(0)?)?;
        let indices = self.reduction(Operator::ArgReduce { extremum, dim }, dims, input, self.out(1)?)?;
        Some(Steps::from_iter([values, indices]))
    }

    fn float(&self, float: &FloatOperationIr) -> Option<Steps> {
        use FloatOperationIr::*;
        match float {
            Matmul(product) => self.call(Operator::MatMul, &[&product.lhs, &product.rhs]),
            Hypot(operands) => self.hypot(&operands.lhs, &operands.rhs),
            Cross(cross) => self.cross(&cross.lhs, &cross.rhs, cross.dim),
            _ => None,
        }
    }

    fn int(&self, int: &IntOperationIr) -> Option<Steps> {
        match int {
            IntOperationIr::Matmul(product) => self.call(Operator::MatMul, &[&product.lhs, &product.rhs]),
            _ => None,
        }
    }

    fn activation(&self, activation: &ActivationOperationIr) -> Option<Steps> {
        use ActivationOperationIr::*;
        match activation {
            Softmax(softmax) => self.call(Operator::Softmax { dim: softmax.axis }, &[&softmax.input]),
            LogSoftmax(softmax) => self.call(Operator::LogSoftmax { dim: softmax.axis }, &[&softmax.input]),
            Softmin(softmin) => self.softmin(&softmin.input, softmin.axis),
            LeakyRelu(leaky) => self.leaky(&leaky.lhs, scalar(leaky.rhs)),
            PRelu(prelu) => self.leaky(&prelu.lhs, self.input(&prelu.rhs)?),
            HardSigmoid(hard) => self.hard_sigmoid(&hard.tensor, hard.alpha, hard.beta),
            LogSigmoidBackward(operands) => self.log_sigmoid_gradient(&operands.lhs, &operands.rhs),
            GeluBackward(operands) => self.gelu_gradient(&operands.lhs, &operands.rhs),
            _ => None,
        }
    }

    fn module(&self, module: &ModuleOperationIr) -> Option<Steps> {
        use ModuleOperationIr::*;
        match module {
            Conv2d(op) => {
                let operator = Operator::Conv2d(conv(&op.options)?);
                self.call(
                    operator,
                    &[Some(&op.x), Some(&op.weight), op.bias.as_ref()]
                        .into_iter()
                        .flatten()
                        .collect::<SmallVec<[_; 3]>>(),
                )
            }
            Conv2dXBackward(op) => {
                self.call(Operator::Conv2dInputGrad(conv(&op.options)?), &[&op.output_grad, &op.weight])
            }
            Conv2dWeightBackward(op) => {
                self.call(Operator::Conv2dWeightGrad(conv(&op.options)?), &[&op.x, &op.output_grad])
            }
            Conv1dBiasBackward(op) => self.bias_gradient(&op.output_grad),
            Conv2dBiasBackward(op) => self.bias_gradient(&op.output_grad),
            Conv3dBiasBackward(op) => self.bias_gradient(&op.output_grad),
            ConvTranspose1dBiasBackward(op) => self.bias_gradient(&op.output_grad),
            ConvTranspose2dBiasBackward(op) => self.bias_gradient(&op.output_grad),
            ConvTranspose3dBiasBackward(op) => self.bias_gradient(&op.output_grad),
            Conv1d(op) => {
                let operator = Operator::Conv2d(conv_of_rows(&op.options)?);
                let mut inputs =
                    smallvec![self.input(&op.x)?.as_image()?, self.input(&op.weight)?.as_image()?];
                if let Some(bias) = &op.bias {
                    inputs.push(self.input(bias)?);
                }
                let inputs: SmallVec<[Operand; 4]> = inputs;
                one(self.step(operator, &inputs, &[self.out(0)?.as_image()?]))
            }
            Conv1dXBackward(op) => {
                let operator = Operator::Conv2dInputGrad(conv_of_rows(&op.options)?);
                self.images(operator, &[&op.output_grad, &op.weight])
            }
            Conv1dWeightBackward(op) => {
                let operator = Operator::Conv2dWeightGrad(conv_of_rows(&op.options)?);
                self.images(operator, &[&op.x, &op.output_grad])
            }
            ConvTranspose1d(op) => {
                let ConvTranspose1dOptionsIr { stride, padding, dilation, groups, .. } = op.options;
                let conv = steps_of([1, stride[0]], [0, padding[0]], [1, dilation[0]], groups);
                let x = self.input(&op.x)?.as_image()?;
                let weight = self.input(&op.weight)?.as_image()?;
                self.transposed_convolution(
                    conv,
                    op.x.dtype,
                    [x, weight, self.out(0)?.as_image()?],
                    op.bias.as_ref(),
                )
            }
            ConvTranspose2d(op) => {
                let ConvTranspose2dOptionsIr { stride, padding, dilation, groups, .. } = op.options;
                let arrays = [self.input(&op.x)?, self.input(&op.weight)?, self.out(0)?];
                let conv = steps_of(stride, padding, dilation, groups);
                self.transposed_convolution(conv, op.x.dtype, arrays, op.bias.as_ref())
            }
            ConvTranspose1dWeightBackward(op) => {
                let ConvTranspose1dOptionsIr { stride, padding, dilation, groups, .. } = op.options;
                let conv = steps_of([1, stride[0]], [0, padding[0]], [1, dilation[0]], groups);
                self.images(Operator::Conv2dWeightGrad(conv), &[&op.output_grad, &op.x])
            }
            ConvTranspose2dWeightBackward(op) => {
                let ConvTranspose2dOptionsIr { stride, padding, dilation, groups, .. } = op.options;
                let conv = steps_of(stride, padding, dilation, groups);
                self.call(Operator::Conv2dWeightGrad(conv), &[&op.output_grad, &op.x])
            }
            Conv3d(op) => {
                let (conv, planes) = volumes(&op.options, false);
                let operator = Operator::Conv2d(conv);
                self.convolution_of_volumes(operator, [&op.x, &op.weight], op.bias.as_ref(), planes)
            }
            Conv3dXBackward(op) => {
                let (conv, planes) = volumes(&op.options, true);
                let operator = Operator::Conv2dInputGrad(conv);
                self.convolution_of_volumes(operator, [&op.output_grad, &op.weight], None, planes)
            }
            ConvTranspose3d(op) => {
                let ConvTranspose3dOptionsIr { stride, padding, dilation, groups, .. } = op.options;
                let [(depth, stride), (padded, padding), (apart, dilation)] = [stride, padding, dilation]
                    .map(|[depth, vertical, horizontal]| (depth, [vertical, horizontal]));
                let planes = Planes { stride: depth, padding: padded, dilation: apart, is_gradient: true };
                let operator = Operator::Conv2dInputGrad(steps_of(stride, padding, dilation, groups));
                self.convolution_of_volumes(operator, [&op.x, &op.weight], op.bias.as_ref(), planes)
            }
            Attention(op) => self.attention(op),
            Unfold4d(op) => self.patches(op),
            BatchNorm(op) => self.batch_norm(op),
            LayerNorm(op) => self.layer_norm(op),
            EmbeddingBackward(op) => self.embedding_gradient(&op.indices, &op.out_grad),
            AdaptiveAvgPool3d(op) => self.adaptive_volumes(&op.x, false),
            AdaptiveAvgPool3dBackward(op) => self.adaptive_volumes(&op.grad, true),
            AdaptiveAvgPool1dBackward(op) => self.images(Operator::AdaptiveAvgPool2dGrad, &[&op.grad]),
            AdaptiveAvgPool2d(op) => self.call(Operator::AdaptiveAvgPool2d, &[&op.x]),
            AdaptiveAvgPool2dBackward(op) => self.call(Operator::AdaptiveAvgPool2dGrad, &[&op.grad]),
            AvgPool2d(op) => {
                let pool = pool(op.kernel_size, op.stride, op.padding, [1, 1]);
                self.call(Operator::AvgPool2d { pool, count_padding: op.count_include_pad }, &[&op.x])
            }
            AvgPool2dBackward(op) => {
                let pool = pool(op.kernel_size, op.stride, op.padding, [1, 1]);
                self.call(Operator::AvgPool2dGrad { pool, count_padding: op.count_include_pad }, &[&op.grad])
            }
            MaxPool2d(op) => {
                let pool = pool(op.kernel_size, op.stride, op.padding, op.dilation);
                self.call(Operator::MaxPool2d(pool), &[&op.x])
            }
            MaxPool2dWithIndices(op) => {
                let pool = pool(op.kernel_size, op.stride, op.padding, op.dilation);
                let outputs = [self.out(0)?, self.out(1)?];
                one(self.step(Operator::MaxPool2d(pool), &[self.input(&op.x)?], &outputs))
            }
            MaxPool2dWithIndicesBackward(op) => {
                let pool = pool(op.kernel_size, op.stride, op.padding, op.dilation);
                self.call(Operator::MaxPool2dGrad(pool), &[&op.grad, &op.indices])
            }
            MaxPool1d(op) => {
                let pool = pool([1, op.kernel_size], [1, op.stride], [0, op.padding], [1, op.dilation]);
                self.images(Operator::MaxPool2d(pool), &[&op.x])
            }
            AvgPool1d(op) => {
                let pool = pool([1, op.kernel_size], [1, op.stride], [0, op.padding], [1, 1]);
                self.images(Operator::AvgPool2d { pool, count_padding: op.count_include_pad }, &[&op.x])
            }
            AdaptiveAvgPool1d(op) => self.images(Operator::AdaptiveAvgPool2d, &[&op.x]),
            Embedding(op) => {
                let indices = self.input(&op.indices)?;
                let count: usize = indices.shape().iter().product();
                let [_, width] = op.weights.shape[..] else { return None };
                let inputs = [self.input(&op.weights)?, indices.reshape(&[count])?];
                let out = self.out(0)?.reshape(&[count, width])?;
                one(self.step(Operator::IndexSelect { dim: 0 }, &inputs, &[out]))
            }
            _ => None,
        }
    }

    /// The sum over all but the channels.
    fn bias_gradient(&self, gradient: &TensorIr) -> Option<Steps> {
        let dims = (0..gradient.shape.num_dims()).filter(|&dim| dim != 1).collect();
        self.reduce(Reduction::Sum, gradient, dims)
    }

    /// A call with arrays of three dimensions as images of one row.
    fn images(&self, operator: Operator, inputs: &[&TensorIr]) -> Option<Steps> {
        let inputs: SmallVec<[Operand; 4]> =
            inputs.iter().map(|input| self.input(input)?.as_image()).collect::<Option<_>>()?;
        one(self.step(operator, &inputs, &[self.out(0)?.as_image()?]))
    }
}

/// The options of a convolution, if both edges have the same padding.
fn conv(options: &Conv2dOptionsIr) -> Option<Conv2d> {
    let Conv2dOptionsIr { stride, padding: [vertical, horizontal], dilation, groups } = *options;
    let same = vertical.0 == vertical.1 && horizontal.0 == horizontal.1;
    same.then_some(Conv2d { stride, padding: [vertical.0, horizontal.0], dilation, groups })
}

fn steps_of(stride: [usize; 2], padding: [usize; 2], dilation: [usize; 2], groups: usize) -> Conv2d {
    Conv2d { stride, padding, dilation, groups }
}

/// The options of a convolution of volumes: for its planes, and in depth.
fn volumes(options: &Conv3dOptionsIr, is_gradient: bool) -> (Conv2d, Planes) {
    let Conv3dOptionsIr { stride, padding, dilation, groups } = *options;
    let planes = Planes { stride: stride[0], padding: padding[0], dilation: dilation[0], is_gradient };
    let [stride, padding, dilation] =
        [stride, padding, dilation].map(|[_, vertical, horizontal]| [vertical, horizontal]);
    (steps_of(stride, padding, dilation, groups), planes)
}

/// The options of a convolution of images of one row.
fn conv_of_rows(options: &Conv1dOptionsIr) -> Option<Conv2d> {
    let Conv1dOptionsIr { stride: [stride], padding: [(before, after)], dilation: [dilation], groups } =
        *options;
    let conv = Conv2d { stride: [1, stride], padding: [0, before], dilation: [1, dilation], groups };
    (before == after).then_some(conv)
}

fn pool(kernel: [usize; 2], stride: [usize; 2], padding: [usize; 2], dilation: [usize; 2]) -> Pool2d {
    Pool2d { stride, padding, dilation, ..Pool2d::new(kernel) }
}
impl View<'_> {
    /// The layout of the view with the shape `shape`, or nothing where the bytes have to be rearranged. The
    /// engine reports arguments that make no sense.
    pub(crate) fn layout(&self, layout: &Layout, shape: &Shape) -> Option<Layout> {
        let dims = layout.num_dims();
        match *self {
            Self::Reshape => {
                (layout.num_elements() == shape.num_elements()).then(|| layout.reshape(copy(shape))).flatten()
            }
            Self::Expand => expand(layout, shape),
            Self::SwapDims(a, b) => (a < dims && b < dims).then(|| layout.transpose(a, b)),
            Self::Permute(axes) => {
                let mut seen = vec![false; dims];
                let each_once = axes.len() == dims
                    && axes.iter().all(|&axis| axis < dims && !std::mem::replace(&mut seen[axis], true));
                each_once.then(|| layout.permute(axes))
            }
            Self::Slice(slices) => {
                if slices.len() > dims || slices.iter().any(|slice| slice.step <= 0) {
                    return None;
                }
                let (view, copies) = layout.slice(slices);
                // burn has computed the shape too: where the two differ, the arguments are the engine's to
                // judge.
                (!copies && view.shape() == shape).then_some(view)
            }
        }
    }
}

/// Dimensions of one element are repeated by a stride of zero, and missing ones are put in front.
fn expand(layout: &Layout, shape: &Shape) -> Option<Layout> {
    let new = shape.num_dims().checked_sub(layout.num_dims())?;
    let mut strides = vec![0; new];
    for (place, (&from, &stride)) in layout.shape().iter().zip(layout.strides()).enumerate() {
        match shape[new + place] {
            to if to == from => strides.push(stride),
            _ if from == 1 => strides.push(0),
            _ => return None,
        }
    }
    Some(Layout::new(copy(shape), strides, layout.start_offset()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(shape: &[usize]) -> Layout {
        Layout::contiguous(shape.to_vec().into())
    }

    #[test]
    fn a_view_has_the_strides_of_its_bytes() {
        let matrix = layout(&[2, 3]);
        let transposed = View::SwapDims(0, 1).layout(&matrix, &[3, 2].into()).unwrap();
        assert_eq!(transposed.strides(), [1, 3]);
        assert!(View::Reshape.layout(&transposed, &[6].into()).is_none(), "the bytes are in another order");
        let expanded = View::Expand.layout(&layout(&[3, 1]), &[4, 3, 2].into()).unwrap();
        assert_eq!(expanded.strides(), [0, 1, 0]);
    }

    #[test]
    fn what_makes_no_sense_is_left_to_the_engine() {
        let matrix = layout(&[2, 3]);
        assert!(View::SwapDims(0, 2).layout(&matrix, &[2, 3].into()).is_none());
        assert!(View::Permute(&[0, 0]).layout(&matrix, &[2, 2].into()).is_none());
        assert!(View::Expand.layout(&matrix, &[4, 3].into()).is_none());
        assert!(View::Expand.layout(&matrix, &[3].into()).is_none());
        assert!(View::Reshape.layout(&matrix, &[7].into()).is_none());
    }
}
