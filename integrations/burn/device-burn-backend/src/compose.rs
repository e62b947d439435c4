//! Operations that several kernels do, one after the other, with memory for intermediate results.

use burn_backend::{DType, Slice};
use burn_ir::{
    AttentionOpIr, BatchNormOpIr, LayerNormOpIr, PadModeIr, PadOpIr, ScalarIr, TensorIr, TensorStatus,
    Unfold4dOpIr, Unfold4dOptionsIr,
};
use burn_std::{BoolStore, IndexingUpdateOp};
use device_kernels::{
    Binary, Compare, Conv2d, DType as KernelDType, Dims, Expression, Layout, LayoutError, Operator,
    Reduction, Unary, Update,
};
use smallvec::SmallVec;

use crate::dtype::dtype_of;
use crate::mapping::{Mapping, Operand, scalar, update};
use crate::operation::Operands;
use crate::step::{Memory, Step, Steps};

const BOOL: DType = DType::Bool(BoolStore::Native);

/// Steps that are being composed. Each function returns `None` if no kernel set of the device has a call:
/// then burn's engine does the operation.
struct Composed<'a, 'b> {
    mapping: &'a Mapping<'b>,
    steps: Vec<Step>,
    scratch: Vec<TensorIr>,
}

impl<'a, 'b> Composed<'a, 'b> {
    fn new(mapping: &'a Mapping<'b>) -> Self {
        Self { mapping, steps: Vec::new(), scratch: Vec::new() }
    }

    /// New memory for what a step writes and others read.
    fn scratch(&mut self, dtype: DType, shape: &[usize]) -> Option<Operand> {
        let place = self.mapping.operands.outputs.len() + self.scratch.len();
        let operand =
            Operand::array(dtype_of(dtype)?, Layout::contiguous(shape).ok()?, Memory::Output(place));
        let id = Operands::output_id(place);
        let status = TensorStatus::NotInit;
        self.scratch.push(TensorIr { id, shape: shape.to_vec().into(), status, dtype });
        Some(operand)
    }

    /// A call, with its output at the end.
    fn call(&mut self, operator: impl Into<Operator>, inputs: &[Operand], out: Operand) -> Option<Operand> {
        self.steps.push(self.mapping.step(operator, inputs, &[out])?);
        Some(out)
    }

    /// The array in this shape: another view of it, or a copy.
    fn reshaped(&mut self, array: Operand, dtype: DType, shape: &[usize]) -> Option<Operand> {
        if let Some(view) = array.reshape(shape) {
            return Some(view);
        }
        let copy = self.scratch(dtype, &array.shape())?;
        self.call(Operator::Copy, &[array], copy)?.reshape(shape)
    }

    fn finish(self) -> Option<Steps> {
        Some(Steps { steps: self.steps.into(), scratch: self.scratch })
    }
}

fn number(value: f64) -> Operand {
    scalar(ScalarIr::Float(value))
}

fn part(array: Operand, dim: usize, start: usize, len: usize) -> Option<Operand> {
    array.view(|layout| layout.slice(dim, start, len, 1))
}

/// The elements of a slice, whose steps may be negative.
pub(crate) fn sliced(array: Operand, slices: &[Slice]) -> Option<Operand> {
    let shape = array.shape();
    let slice = |mut layout: Layout| -> Result<Layout, LayoutError> {
        for (dim, slice) in slices.iter().enumerate() {
            let range = slice.to_range(shape[dim]);
            let len = slice.output_size(shape[dim]);
            let step = slice.step.unsigned_abs();
            if len == 0 {
                layout = layout.slice(dim, 0, 0, 1)?;
            } else if slice.step > 0 {
                layout = layout.slice(dim, range.start, len, step)?;
            } else {
                let first = range.end - 1 - (len - 1) * step;
                layout = layout.slice(dim, first, len, step)?.flip(dim)?;
            }
        }
        Ok(layout)
    };
    if slices.len() > shape.len() || slices.iter().any(|slice| slice.step == 0) {
        return None;
    }
    array.view(slice)
}

impl Mapping<'_> {
    /// The mean of integers: their sum, divided.
    pub(crate) fn integer_mean(&self, input: &TensorIr, dims: Dims) -> Option<Steps> {
        let mut composed = Composed::new(self);
        let array = self.input(input)?;
        let count: usize = dims.iter().map(|dim| array.shape()[dim]).product();
        let sum = Operator::Reduce { reduction: Reduction::Sum, dims };
        composed.steps.push(self.reduction(sum, dims, array, self.out(0)?)?);
        let count = scalar(ScalarIr::Int(count.try_into().ok()?));
        composed.call(Binary::Div, &[self.out(0)?, count], self.out(0)?)?;
        composed.finish()
    }

    /// Whether one number, or all of them, are not zero.
    pub(crate) fn any_or_all(&self, reduction: Reduction, input: &TensorIr, dims: Dims) -> Option<Steps> {
        if input.dtype == BOOL {
            return self.reduce(reduction, input, dims);
        }
        let mut composed = Composed::new(self);
        let array = self.input(input)?;
        let bools = composed.scratch(BOOL, &array.shape())?;
        composed.call(Compare::Ne, &[array, scalar(ScalarIr::Int(0))], bools)?;
        let operator = Operator::Reduce { reduction, dims };
        composed.steps.push(self.reduction(operator, dims, bools, self.out(0)?)?);
        composed.finish()
    }

    /// The largest magnitude.
    pub(crate) fn max_abs(&self, input: &TensorIr, dims: Dims) -> Option<Steps> {
        let mut composed = Composed::new(self);
        let array = self.input(input)?;
        let magnitudes = composed.scratch(input.dtype, &array.shape())?;
        composed.call(Unary::Abs, &[array], magnitudes)?;
        let operator = Operator::Reduce { reduction: Reduction::Max, dims };
        composed.steps.push(self.reduction(operator, dims, magnitudes, self.out(0)?)?);
        composed.finish()
    }

    /// The sums, for example, of all elements up to each, in one dimension. Each step adds the previous
    /// step's results from twice as far away.
    pub(crate) fn cumulative(&self, operator: Binary, input: &TensorIr, dim: usize) -> Option<Steps> {
        let mut composed = Composed::new(self);
        let mut from = self.input(input)?;
        let out = self.out(0)?;
        let shape = from.shape();
        let len = *shape.get(dim)?;
        if len <= 1 {
            composed.call(Operator::Copy, &[from], out)?;
            return composed.finish();
        }
        let between = if len > 2 {
            [composed.scratch(input.dtype, &shape)?, composed.scratch(input.dtype, &shape)?]
        } else {
            [out; 2]
        };
        let mut distance = 1;
        let mut turn = 0;
        while distance < len {
            let to = if 2 * distance >= len { out } else { between[turn % 2] };
            composed.call(Operator::Copy, &[part(from, dim, 0, distance)?], part(to, dim, 0, distance)?)?;
            let inputs = [part(from, dim, distance, len - distance)?, part(from, dim, 0, len - distance)?];
            composed.call(operator, &inputs, part(to, dim, distance, len - distance)?)?;
            (from, distance, turn) = (to, 2 * distance, turn + 1);
        }
        composed.finish()
    }

    /// Padding with the elements at the edges, or with those before them, mirrored.
    pub(crate) fn pad(&self, pad: &PadOpIr) -> Option<Steps> {
        let mut composed = Composed::new(self);
        let reflects = matches!(pad.mode, PadModeIr::Reflect);
        // Each dimension has three parts, and each part of the output is a view of the input.
        let mut parts = vec![(self.input(&pad.input)?, self.out(0)?)];
        for (dim, &(before, after)) in pad.padding.iter().enumerate() {
            let len = *pad.input.shape.get(dim)?;
            let mut next = Vec::new();
            for (from, to) in parts {
                next.push((from, part(to, dim, before, len)?));
                for (start, count, is_before) in [(0, before, true), (before + len, after, false)] {
                    if count == 0 {
                        continue;
                    }
                    let edge = from.view(|layout| match (reflects, is_before) {
                        (true, true) => layout.slice(dim, 1, count, 1)?.flip(dim),
                        (true, false) => {
                            // Fewer elements than that cannot be reflected.
                            layout.slice(dim, len.saturating_sub(1 + count), count, 1)?.flip(dim)
                        }
                        (false, _) => {
                            let at = if is_before { 0 } else { len.saturating_sub(1) };
                            let one = layout.slice(dim, at, 1, 1)?;
                            let mut shape = one.shape().to_vec();
                            shape[dim] = count;
                            one.broadcast_to(shape)
                        }
                    })?;
                    if reflects && count >= len {
                        return None;
                    }
                    next.push((edge, part(to, dim, start, count)?));
                }
            }
            parts = next;
        }
        for (from, to) in parts {
            composed.call(Operator::Copy, &[from], to)?;
        }
        composed.finish()
    }

    /// An update of truths where `+=` is *or*: the truths are counted.
    pub(crate) fn or_update(
        &self,
        operator: Operator,
        [tensor, indices, values]: [&TensorIr; 3],
    ) -> Option<Steps> {
        let mut composed = Composed::new(self);
        let array = self.input(tensor)?;
        let added = self.input(values)?;
        let counts = composed.scratch(DType::I32, &array.shape())?;
        let ones = composed.scratch(DType::I32, &added.shape())?;
        composed.call(Operator::Copy, &[array], counts)?;
        composed.call(Operator::Copy, &[added], ones)?;
        composed.call(operator, &[self.input(indices)?, ones], counts)?;
        composed.call(Compare::Ne, &[counts, scalar(ScalarIr::Int(0))], self.out(0)?)?;
        composed.finish()
    }

    /// The numbers of slices, from indices of the first dimensions of an array, which have these sizes. Where
    /// an index is out of range the number is too.
    fn slice_numbers(
        &self,
        composed: &mut Composed<'_, '_>,
        indices: &TensorIr,
        sizes: &[usize],
    ) -> Option<Operand> {
        let depth = sizes.len();
        let all = self.input(indices)?;
        let integer = |number: usize| Some(scalar(ScalarIr::Int(number.try_into().ok()?)));
        let count = indices.shape.num_elements().checked_div(depth)?;
        let all = composed.reshaped(all, indices.dtype, &[count, depth])?;
        let numbers = composed.scratch(indices.dtype, &[count, 1])?;
        let scaled = composed.scratch(indices.dtype, &[count, 1])?;
        let is_inside = composed.scratch(BOOL, &[count, 1])?;
        let is_below = composed.scratch(BOOL, &[count, 1])?;
        let mut stride: usize = 1;
        for dim in (0..depth).rev() {
            let index = part(all, 1, dim, 1)?;
            let is_first = dim + 1 == depth;
            let to = if is_first { numbers } else { scaled };
            composed.call(Binary::Mul, &[index, integer(stride)?], to)?;
            composed.call(Compare::Lt, &[index, integer(sizes[dim])?], is_below)?;
            if is_first {
                composed.call(Compare::Ge, &[index, integer(0)?], is_inside)?;
            } else {
                composed.call(Binary::Add, &[numbers, scaled], numbers)?;
                composed.call(Binary::And, &[is_inside, is_below], is_inside)?;
                composed.call(Compare::Ge, &[index, integer(0)?], is_below)?;
            }
            composed.call(Binary::And, &[is_inside, is_below], is_inside)?;
            stride = stride.checked_mul(sizes[dim])?;
        }
        // No array has so many slices, and -1 is not the number of one.
        let none = scalar(ScalarIr::Int(-1));
        composed.call(Operator::Where, &[is_inside, numbers, none], numbers)?;
        numbers.reshape(&[count])
    }

    /// Slices at indices of several dimensions.
    pub(crate) fn gather_nd(&self, data: &TensorIr, indices: &TensorIr) -> Option<Steps> {
        let mut composed = Composed::new(self);
        let (&depth, sizes) = (indices.shape.last()?, &data.shape[..]);
        let (sizes, rest) = sizes.split_at_checked(depth)?;
        let slices: usize = sizes.iter().product();
        let len: usize = rest.iter().product();
        let array = composed.reshaped(self.input(data)?, data.dtype, &[slices, len])?;
        let numbers = self.slice_numbers(&mut composed, indices, sizes)?;
        let out = self.out(0)?.reshape(&[numbers.shape()[0], len])?;
        composed.call(Operator::IndexSelect { dim: 0 }, &[array, numbers], out)?;
        composed.finish()
    }

    /// An update of slices at indices of several dimensions.
    pub(crate) fn scatter_nd(
        &self,
        [data, indices, values]: [&TensorIr; 3],
        by: &IndexingUpdateOp,
    ) -> Option<Steps> {
        let mut composed = Composed::new(self);
        let (&depth, sizes) = (indices.shape.last()?, &data.shape[..]);
        let (sizes, rest) = sizes.split_at_checked(depth)?;
        let slices: usize = sizes.iter().product();
        let len: usize = rest.iter().product();
        let out = composed.call(Operator::Copy, &[self.input(data)?], self.out(0)?)?;
        let numbers = self.slice_numbers(&mut composed, indices, sizes)?;
        let count = numbers.shape()[0];
        let added = composed.reshaped(self.input(values)?, values.dtype, &[count, len])?;
        let out = out.reshape(&[slices, len])?;
        let with = match by {
            IndexingUpdateOp::Mul => Binary::Mul,
            IndexingUpdateOp::Min => Binary::Min,
            IndexingUpdateOp::Max => Binary::Max,
            _ => {
                let operator = Operator::IndexAssign { dim: 0, update: update(by)? };
                composed.call(operator, &[numbers, added], out)?;
                return composed.finish();
            }
        };
        // One after the other, as two may update one slice.
        if count > MOST_STEPS / 3 {
            return None;
        }
        let slice = composed.scratch(data.dtype, &[1, len])?;
        for place in 0..count {
            let number = part(numbers, 0, place, 1)?;
            composed.call(Operator::IndexSelect { dim: 0 }, &[out, number], slice)?;
            composed.call(with, &[slice, part(added, 0, place, 1)?], slice)?;
            let operator = Operator::IndexAssign { dim: 0, update: Update::Replace };
            composed.call(operator, &[number, slice], out)?;
        }
        composed.finish()
    }

    /// The cross product of vectors of three elements in one dimension.
    pub(crate) fn cross(&self, lhs: &TensorIr, rhs: &TensorIr, dim: usize) -> Option<Steps> {
        let mut composed = Composed::new(self);
        let a = self.input(lhs)?;
        let b = self.input(rhs)?;
        let out = self.out(0)?;
        let mut shape = out.shape();
        *shape.get_mut(dim)? = 1;
        let product = composed.scratch(lhs.dtype, &shape)?;
        for place in 0..3 {
            let j = (place + 1) % 3;
            let k = (place + 2) % 3;
            let to = part(out, dim, place, 1)?;
            composed.call(Binary::Mul, &[part(a, dim, k, 1)?, part(b, dim, j, 1)?], product)?;
            composed.call(Binary::Mul, &[part(a, dim, j, 1)?, part(b, dim, k, 1)?], to)?;
            composed.call(Binary::Sub, &[to, product], to)?;
        }
        composed.finish()
    }

    /// A transposed convolution: the gradient of a convolution by its images.
    pub(crate) fn transposed_convolution(
        &self,
        conv: Conv2d,
        dtype: DType,
        [x, weight, out]: [Operand; 3],
        bias: Option<&TensorIr>,
    ) -> Option<Steps> {
        let mut composed = Composed::new(self);
        let shape = out.shape();
        let from = x.shape();
        let kernel = weight.shape();
        // What the weights reach in each direction.
        let reach = |dim: usize| {
            let moves = from.get(2 + dim)?.checked_sub(1)?.checked_mul(conv.stride[dim])?;
            moves
                .checked_add(kernel.get(2 + dim)?.checked_sub(1)?.checked_mul(conv.dilation[dim])?)?
                .checked_add(1)
        };
        let whole = [reach(0)?, reach(1)?];
        let is_within = |dim: usize| {
            let len = shape.get(2 + dim)? + 2 * conv.padding[dim];
            Some(len >= whole[dim] && len - whole[dim] < conv.stride[dim])
        };
        if is_within(0)? && is_within(1)? {
            composed.call(Operator::Conv2dInputGrad(conv), &[x, weight], out)?;
        } else {
            // If one edge has more padding than the other, the result is a part of the whole.
            let all = composed.scratch(dtype, &[shape[0], shape[1], whole[0], whole[1]])?;
            let unpadded = Conv2d { padding: [0, 0], ..conv };
            composed.call(Operator::Conv2dInputGrad(unpadded), &[x, weight], all)?;
            composed.call(Operator::Copy, &[scalar(ScalarIr::Int(0))], out)?;
            let mut inner = all;
            let mut to = out;
            for dim in [0, 1] {
                let len = whole[dim].checked_sub(conv.padding[dim])?.min(shape[2 + dim]);
                inner = part(inner, 2 + dim, conv.padding[dim], len)?;
                to = part(to, 2 + dim, 0, len)?;
            }
            composed.call(Operator::Copy, &[inner], to)?;
        }
        if let Some(bias) = bias {
            let bias = self.input(bias)?.reshape(&[out.shape()[1], 1, 1])?;
            composed.call(Binary::Add, &[out, bias], out)?;
        }
        composed.finish()
    }

    /// A convolution of volumes, or its gradient by the volumes: the sum over the planes.
    pub(crate) fn convolution_of_volumes(
        &self,
        operator: Operator,
        [x, weight]: [&TensorIr; 2],
        bias: Option<&TensorIr>,
        depth: Planes,
    ) -> Option<Steps> {
        let mut composed = Composed::new(self);
        let array = self.input(x)?;
        let weights = self.input(weight)?;
        let out = self.out(0)?;
        let ([_, _, from_depth, ..], [n, c, to_depth, h, w]) = (dims5(array)?, dims5(out)?);
        let [_, _, kernel, ..] = dims5(weights)?;
        if to_depth.saturating_mul(kernel) > MOST_STEPS / 2 {
            return None;
        }
        let product = composed.scratch(x.dtype, &[n, c, h, w])?;
        composed.call(Operator::Copy, &[scalar(ScalarIr::Int(0))], out)?;
        for to in 0..to_depth {
            for place in 0..kernel {
                let Some(from) = depth.plane(to, place).filter(|&from| from < from_depth) else { continue };
                let inputs = [plane(array, from)?, plane(weights, place)?];
                composed.call(operator, &inputs, product)?;
                let to = plane(out, to)?;
                composed.call(Binary::Add, &[to, product], to)?;
            }
        }
        if let Some(bias) = bias {
            let bias = self.input(bias)?.reshape(&[c, 1, 1, 1])?;
            composed.call(Binary::Add, &[out, bias], out)?;
        }
        composed.finish()
    }

    /// `sqrt(a^2 + b^2)`, also where a square is larger than any number.
    pub(crate) fn hypot(&self, lhs: &TensorIr, rhs: &TensorIr) -> Option<Steps> {
        let mut composed = Composed::new(self);
        let out = self.out(0)?;
        let dtype = lhs.dtype;
        let shape = out.shape();
        let a = composed.scratch(dtype, &shape)?;
        let b = composed.scratch(dtype, &shape)?;
        let ratio = composed.scratch(dtype, &shape)?;
        let same = composed.scratch(BOOL, &shape)?;
        composed.call(Unary::Abs, &[self.input(lhs)?], a)?;
        composed.call(Unary::Abs, &[self.input(rhs)?], b)?;
        composed.call(Binary::Max, &[a, b], out)?;
        composed.call(Binary::Min, &[a, b], ratio)?;
        // The ratio of two zeros or infinities is 1.
        composed.call(Compare::Eq, &[ratio, out], same)?;
        composed.call(Binary::Div, &[ratio, out], ratio)?;
        composed.call(Operator::Where, &[same, number(1.0), ratio], ratio)?;
        composed.call(Binary::Mul, &[ratio, ratio], ratio)?;
        composed.call(Binary::Add, &[ratio, number(1.0)], ratio)?;
        composed.call(Unary::Sqrt, &[ratio], ratio)?;
        composed.call(Binary::Mul, &[out, ratio], out)?;
        composed.finish()
    }

    /// The gradient of an embedding by its weights.
    pub(crate) fn embedding_gradient(&self, indices: &TensorIr, gradient: &TensorIr) -> Option<Steps> {
        let mut composed = Composed::new(self);
        let out = self.out(0)?;
        let [_, width] = out.shape()[..] else { return None };
        let count = indices.shape.num_elements();
        composed.call(Operator::Copy, &[scalar(ScalarIr::Int(0))], out)?;
        let numbers = composed.reshaped(self.input(indices)?, indices.dtype, &[count])?;
        let added = composed.reshaped(self.input(gradient)?, gradient.dtype, &[count, width])?;
        let operator = Operator::IndexAssign { dim: 0, update: Update::Add };
        composed.call(operator, &[numbers, added], out)?;
        composed.finish()
    }

    /// `gamma * (x - mean) / sqrt(variance + epsilon) + beta`, for each channel.
    pub(crate) fn batch_norm(&self, op: &BatchNormOpIr) -> Option<Steps> {
        let mut composed = Composed::new(self);
        let x = self.input(&op.x)?;
        let out = self.out(0)?;
        let mut shape = vec![1; x.shape().len()];
        *shape.get_mut(1)? = *x.shape().get(1)?;
        let channels = |tensor: &TensorIr| self.input(tensor)?.reshape(&shape);
        let factor = composed.scratch(op.x.dtype, &shape)?;
        composed.call(Binary::Add, &[channels(&op.variance)?, scalar(op.epsilon)], factor)?;
        composed.call(Unary::Sqrt, &[factor], factor)?;
        composed.call(Binary::Sub, &[x, channels(&op.mean)?], out)?;
        composed.call(Binary::Div, &[out, factor], out)?;
        composed.call(Binary::Mul, &[out, channels(&op.gamma)?], out)?;
        composed.call(Binary::Add, &[out, channels(&op.beta)?], out)?;
        composed.finish()
    }

    /// `(x - mean) / sqrt(variance + epsilon) * gamma + beta`, for each row of the last dimension. Numbers of
    /// 16 bits are computed as `f32`: their squares may be larger than any of them.
    pub(crate) fn layer_norm(&self, op: &LayerNormOpIr) -> Option<Steps> {
        let LayerNormOpIr { input, gamma, beta, epsilon, .. } = op;
        let (last, len) = input.shape.iter().copied().enumerate().next_back()?;
        // burn's engine says what is wrong with others.
        let fits = |one: &TensorIr| one.dtype == input.dtype && one.shape[..] == [len];
        if !fits(gamma) || !beta.iter().all(fits) {
            return None;
        }
        let dtype = dtype_of(input.dtype)?;
        let wide = if matches!(input.dtype, DType::F16 | DType::BF16) { KernelDType::F32 } else { dtype };
        let expression = Expression::build(|e| {
            let x = e.input(dtype).cast(wide);
            let gamma = e.input(dtype).cast(wide);
            let beta = beta.as_ref().map(|_| e.input(dtype).cast(wide));
            let epsilon = e.input(wide);
            let centred = x - x.mean([last]);
            let variance = (centred * centred).mean([last]);
            let scaled = centred / (variance + epsilon).sqrt() * gamma;
            e.output(beta.map_or(scaled, |beta| scaled + beta).cast(dtype));
        });
        let mut inputs: SmallVec<[Operand; 4]> = SmallVec::new();
        for tensor in [input, gamma].into_iter().chain(beta) {
            inputs.push(self.input(tensor)?);
        }
        inputs.push(scalar(*epsilon));
        self.expression(expression.ok()?, &inputs, self.out(0)?)
    }

    /// `x`, and where it is negative `x * slope`.
    pub(crate) fn leaky(&self, x: &TensorIr, slope: Operand) -> Option<Steps> {
        let mut composed = Composed::new(self);
        let array = self.input(x)?;
        let out = self.out(0)?;
        let is_negative = composed.scratch(BOOL, &array.shape())?;
        composed.call(Compare::Lt, &[array, number(0.0)], is_negative)?;
        composed.call(Binary::Mul, &[array, slope], out)?;
        composed.call(Operator::Where, &[is_negative, out, array], out)?;
        composed.finish()
    }

    /// `min(max(x * alpha + beta, 0), 1)`
    pub(crate) fn hard_sigmoid(&self, x: &TensorIr, alpha: ScalarIr, beta: ScalarIr) -> Option<Steps> {
        let mut composed = Composed::new(self);
        let out = self.out(0)?;
        composed.call(Binary::Mul, &[self.input(x)?, scalar(alpha)], out)?;
        composed.call(Binary::Add, &[out, scalar(beta)], out)?;
        composed.call(Operator::Clamp, &[out, number(0.0), number(1.0)], out)?;
        composed.finish()
    }

    /// The softmax of `-x`.
    pub(crate) fn softmin(&self, x: &TensorIr, dim: usize) -> Option<Steps> {
        let mut composed = Composed::new(self);
        let array = self.input(x)?;
        let opposite = composed.scratch(x.dtype, &array.shape())?;
        composed.call(Unary::Neg, &[array], opposite)?;
        composed.call(Operator::Softmax { dim }, &[opposite], self.out(0)?)?;
        composed.finish()
    }

    /// The gradient of the logarithm of the sigmoid: `gradient * sigmoid(-x)`.
    pub(crate) fn log_sigmoid_gradient(&self, x: &TensorIr, gradient: &TensorIr) -> Option<Steps> {
        let mut composed = Composed::new(self);
        let out = self.out(0)?;
        composed.call(Unary::Neg, &[self.input(x)?], out)?;
        composed.call(Unary::Sigmoid, &[out], out)?;
        composed.call(Binary::Mul, &[out, self.input(gradient)?], out)?;
        composed.finish()
    }

    /// The gradient of `x / 2 * (1 + erf(x / sqrt(2)))`: that function of `x` over `x`, and
    /// `x * exp(-x^2 / 2) / sqrt(2 * pi)`.
    pub(crate) fn gelu_gradient(&self, x: &TensorIr, gradient: &TensorIr) -> Option<Steps> {
        use std::f64::consts::{FRAC_1_SQRT_2, PI};
        let mut composed = Composed::new(self);
        let array = self.input(x)?;
        let out = self.out(0)?;
        let density = composed.scratch(x.dtype, &array.shape())?;
        composed.call(Binary::Mul, &[array, array], density)?;
        composed.call(Binary::Mul, &[density, number(-0.5)], density)?;
        composed.call(Unary::Exp, &[density], density)?;
        composed.call(Binary::Mul, &[density, array], density)?;
        composed.call(Binary::Mul, &[density, number(1.0 / (2.0 * PI).sqrt())], density)?;
        composed.call(Binary::Mul, &[array, number(FRAC_1_SQRT_2)], out)?;
        composed.call(Unary::Erf, &[out], out)?;
        composed.call(Binary::Add, &[out, number(1.0)], out)?;
        composed.call(Binary::Mul, &[out, number(0.5)], out)?;
        composed.call(Binary::Add, &[out, density], out)?;
        composed.call(Binary::Mul, &[out, self.input(gradient)?], out)?;
        composed.finish()
    }

    /// `softmax(query * key^T * scale + bias) * value`, where what is masked counts as negative infinity. A
    /// row that is all masked is zero.
    pub(crate) fn attention(&self, op: &AttentionOpIr) -> Option<Steps> {
        let mut composed = Composed::new(self);
        let query = self.input(&op.query)?;
        let key = self.input(&op.key)?;
        let [batch, heads, rows, width] = query.shape()[..] else { return None };
        let [.., columns, _] = key.shape()[..] else { return None };
        let scores = composed.scratch(op.query.dtype, &[batch, heads, rows, columns])?;
        let one = composed.scratch(op.query.dtype, &[batch, heads, rows, 1])?;
        let transposed = key.view(|layout| layout.transpose(2, 3))?;
        composed.call(Operator::MatMul, &[query, transposed], scores)?;
        let scale = op.options.scale.map_or(number(1.0 / (width as f64).sqrt()), scalar);
        composed.call(Binary::Mul, &[scores, scale], scores)?;
        if let Some(cap) = op.options.softcap {
            composed.call(Binary::Div, &[scores, scalar(cap)], scores)?;
            composed.call(Unary::Tanh, &[scores], scores)?;
            composed.call(Binary::Mul, &[scores, scalar(cap)], scores)?;
        }
        if let Some(mask) = &op.mask {
            let inputs = [self.input(mask)?, number(f64::NEG_INFINITY), scores];
            composed.call(Operator::Where, &inputs, scores)?;
        }
        if op.options.is_causal {
            // The last row sees all columns, and each other row one column less than the next. A kernel for
            // each row would be too many for many rows.
            const MOST: usize = 64;
            if rows > MOST {
                return None;
            }
            for row in 0..rows {
                let seen = (columns + row + 1).saturating_sub(rows);
                if seen < columns {
                    let later = part(part(scores, 2, row, 1)?, 3, seen, columns - seen)?;
                    composed.call(Operator::Copy, &[number(f64::NEG_INFINITY)], later)?;
                }
            }
        }
        if let Some(bias) = &op.attn_bias {
            composed.call(Binary::Add, &[scores, self.input(bias)?], scores)?;
        }
        // This does not use the operator, whose result for a row of negative infinities is NaN.
        let dims = Dims::from([3]);
        let (smallest, tiny) = match op.query.dtype {
            DType::F16 => (-65504.0, 6.103_515_625e-5),
            DType::BF16 | DType::F32 => (f64::from(-3.38e38_f32), f64::from(f32::MIN_POSITIVE)),
            _ => (f64::MIN, f64::MIN_POSITIVE),
        };
        composed.call(Operator::Reduce { reduction: Reduction::Max, dims }, &[scores], one)?;
        composed.call(Binary::Max, &[one, number(smallest)], one)?;
        composed.call(Binary::Sub, &[scores, one], scores)?;
        composed.call(Unary::Exp, &[scores], scores)?;
        composed.call(Operator::Reduce { reduction: Reduction::Sum, dims }, &[scores], one)?;
        composed.call(Binary::Max, &[one, number(tiny)], one)?;
        composed.call(Binary::Div, &[scores, one], scores)?;
        composed.call(Operator::MatMul, &[scores, self.input(&op.value)?], self.out(0)?)?;
        composed.finish()
    }

    /// The mean of windows of volumes, or its gradient: in two dimensions, and then in the third.
    pub(crate) fn adaptive_volumes(&self, x: &TensorIr, is_gradient: bool) -> Option<Steps> {
        let mut composed = Composed::new(self);
        let from = self.input(x)?;
        let to = self.out(0)?;
        let ([n, c, depth, h, w], [_, _, to_depth, to_h, to_w]) = (dims5(from)?, dims5(to)?);
        let operator =
            if is_gradient { Operator::AdaptiveAvgPool2dGrad } else { Operator::AdaptiveAvgPool2d };
        let from = composed.reshaped(from, x.dtype, &[n, c * depth, h, w])?;
        let between = composed.scratch(x.dtype, &[n, c * depth, to_h, to_w])?;
        composed.call(operator, &[from], between)?;
        let between = between.reshape(&[n, c, depth, to_h * to_w])?;
        composed.call(operator, &[between], to.reshape(&[n, c, to_depth, to_h * to_w])?)?;
        composed.finish()
    }

    /// Windows of a dimension, each as a dimension at the end: copies of the same elements.
    pub(crate) fn unfold(&self, input: &TensorIr, dim: usize, step: usize) -> Option<Steps> {
        let mut composed = Composed::new(self);
        let array = self.input(input)?;
        let out = self.out(0)?;
        let shape = out.shape();
        let windows = array.view(|layout| {
            let mut strides = layout.strides().to_vec();
            let stride = strides.get(dim).copied().unwrap_or(0);
            if let Some(of_windows) = strides.get_mut(dim) {
                *of_windows = stride.saturating_mul(step.try_into().unwrap_or(isize::MAX));
            }
            strides.push(stride);
            Layout::strided(&shape, &strides, layout.offset())
        })?;
        composed.call(Operator::Copy, &[windows], out)?;
        composed.finish()
    }

    /// The elements that each place of the weights of a convolution meets.
    pub(crate) fn patches(&self, op: &Unfold4dOpIr) -> Option<Steps> {
        let mut composed = Composed::new(self);
        let array = self.input(&op.x)?;
        let out = self.out(0)?;
        let [n, c, h, w] = array.shape()[..] else { return None };
        let Unfold4dOptionsIr { stride, padding, dilation } = op.options;
        let sizes = [h + 2 * padding[0], w + 2 * padding[1]];
        let padded = composed.scratch(op.x.dtype, &[n, c, sizes[0], sizes[1]])?;
        composed.call(Operator::Copy, &[scalar(ScalarIr::Int(0))], padded)?;
        let inner = part(part(padded, 2, padding[0], h)?, 3, padding[1], w)?;
        composed.call(Operator::Copy, &[array], inner)?;
        let places = |dim: usize| {
            let reach = op.kernel_size[dim].checked_sub(1)?.checked_mul(dilation[dim])?;
            Some(1 + sizes[dim].checked_sub(reach + 1)?.checked_div(stride[dim])?)
        };
        let rows = places(0)?;
        let columns = places(1)?;
        let shape = [n, c, op.kernel_size[0], op.kernel_size[1], rows, columns];
        let patches = padded.view(|layout| {
            let [of_n, of_c, of_h, of_w] = layout.strides()[..] else { return Ok(layout) };
            let step = |stride: isize, by: usize| stride.saturating_mul(by.try_into().unwrap_or(isize::MAX));
            let strides = [
                of_n,
                of_c,
                step(of_h, dilation[0]),
                step(of_w, dilation[1]),
                step(of_h, stride[0]),
                step(of_w, stride[1]),
            ];
            Layout::strided(shape, strides, layout.offset())
        })?;
        composed.call(Operator::Copy, &[patches], out.reshape(&shape)?)?;
        composed.finish()
    }

    /// Writes a slice, whose steps may be negative.
    pub(crate) fn assign_slice(
        &self,
        tensor: &TensorIr,
        slices: &[Slice],
        value: &TensorIr,
    ) -> Option<Steps> {
        let mut composed = Composed::new(self);
        let out = composed.call(Operator::Copy, &[self.input(tensor)?], self.out(0)?)?;
        composed.call(Operator::Copy, &[self.input(value)?], sliced(out, slices)?)?;
        composed.finish()
    }
}

/// Which plane of volumes a plane of weights belongs to, for a plane of the output.
#[derive(Clone, Copy)]
pub(crate) struct Planes {
    pub(crate) stride: usize,
    pub(crate) padding: usize,
    pub(crate) dilation: usize,
    /// Whether it is the gradient by the volumes.
    pub(crate) is_gradient: bool,
}

impl Planes {
    fn plane(self, to: usize, place: usize) -> Option<usize> {
        let Self { stride, padding, dilation, is_gradient } = self;
        if is_gradient {
            let ahead = (to + padding).checked_sub(place * dilation)?;
            (ahead.checked_rem(stride)? == 0).then(|| ahead / stride)
        } else {
            (to * stride + place * dilation).checked_sub(padding)
        }
    }
}

/// More steps than that are slower than burn's engine.
const MOST_STEPS: usize = 1024;

/// A plane of volumes: images.
fn plane(array: Operand, at: usize) -> Option<Operand> {
    let [n, c, _, h, w] = dims5(array)?;
    part(array, 2, at, 1)?.reshape(&[n, c, h, w])
}

fn dims5(array: Operand) -> Option<[usize; 5]> {
    array.shape()[..].try_into().ok()
}
