//! The rules of operators: how many arguments they have, with which types and shapes.

pub(crate) mod arguments;
mod expression;
mod images;

use std::fmt;

use smallvec::smallvec;

use self::arguments::{Array, Class, arrays, one, one_array, two_arrays, two_arrays_and_bias};
use self::images::{adaptive, convolution, pooling, some};
use crate::argument::{Argument, Inputs, Outputs};
use crate::call::{Call, CallError, signature};
use crate::dtype::DType;
use crate::layout::{Layout, LayoutError};
use crate::operator::{Binary, Compare, Dims, Distribution, Operator, Reduction, Sorted, Unary, Update};
use crate::problem::Problem;
use crate::scalar::Scalar;

impl Call {
    /// Checks the arguments of an operator.
    ///
    /// # Errors
    ///
    /// If their number, types or shapes do not fit the operator, or if an output has an element twice.
    pub fn new(
        operator: impl Into<Operator>,
        inputs: &[Argument],
        outputs: &[Argument],
    ) -> Result<Self, CallError> {
        let operator = operator.into();
        call(operator, inputs, outputs)
            .map_err(|problem| CallError::new(signature(operator, inputs, outputs), problem))
    }
}

/// Checks a call, and brings it into the form that [`Call`] promises.
fn call(operator: Operator, inputs: &[Argument], outputs: &[Argument]) -> Result<Call, Problem> {
    let outputs = arrays(outputs)?;
    for (_, layout) in &outputs {
        if layout.may_repeat() {
            let shape = layout.shape().to_vec();
            let strides = layout.strides().to_vec();
            return Err(Problem::Repeated { shape, strides });
        }
    }
    match operator {
        Operator::Unary(_)
        | Operator::Binary(_)
        | Operator::Compare(_)
        | Operator::Where
        | Operator::Clamp
        | Operator::Copy => return elementwise(operator, inputs, one(&outputs)?),
        Operator::Reduce { reduction, dims } => {
            return reduce(reduction, dims, one_array(inputs)?, one(&outputs)?);
        }
        Operator::MatMul => return matmul(inputs, one(&outputs)?),
        Operator::ArgReduce { dim, .. } => {
            let input = one_array(inputs)?;
            let out = one(&outputs)?;
            dimension(dim, input.layout)?;
            Class::Number.check("the input", input.dtype)?;
            Class::Index.check("the output", out.dtype)?;
            out.expect("the output", &reduced(input.layout, Dims::from([dim])))?;
            if input.layout.shape()[dim] == 0 {
                return Err(Problem::Empty { argument: "the dimension" });
            }
        }
        Operator::Sort { dim, sorted, .. } => sort(dim, sorted, one_array(inputs)?, &outputs)?,
        Operator::Softmax { dim } | Operator::LogSoftmax { dim } => {
            let input = one_array(inputs)?;
            let out = one(&outputs)?;
            dimension(dim, input.layout)?;
            Class::Float.check("the input", input.dtype)?;
            out.same("the output", input.dtype, input.layout.shape())?;
        }
        Operator::Gather { dim } => {
            let ([input, index], out) = (two_arrays(inputs)?, one(&outputs)?);
            indices(index, input.layout, dim)?;
            inside(index, input.layout, dim)?;
            out.same("the output", input.dtype, index.layout.shape())?;
        }
        Operator::Scatter { dim, update } => {
            let ([index, values], out) = (two_arrays(inputs)?, one(&outputs)?);
            indices(index, out.layout, dim)?;
            inside(index, out.layout, dim)?;
            values.same("the values", out.dtype, index.layout.shape())?;
            updated(update, out)?;
        }
        Operator::IndexSelect { dim } => {
            let ([input, index], out) = (two_arrays(inputs)?, one(&outputs)?);
            indices(index, input.layout, dim)?;
            out.same("the output", input.dtype, &with(input.layout, dim, index.vector("the indices")?))?;
        }
        Operator::IndexAssign { dim, update } => {
            let ([index, values], out) = (two_arrays(inputs)?, one(&outputs)?);
            indices(index, out.layout, dim)?;
            values.same("the values", out.dtype, &with(out.layout, dim, index.vector("the indices")?))?;
            updated(update, out)?;
        }
        Operator::Conv2d(conv) => {
            let (images, weights, bias) = two_arrays_and_bias(inputs)?;
            let out = one(&outputs)?;
            convolution(conv, [("the images", images), ("the weights", weights), ("the output", out)])?;
            if let Some(bias) = bias {
                bias.same("the bias", out.dtype, &[out.layout.shape()[1]])?;
            }
            some(("the images", images), out)?;
        }
        Operator::Conv2dInputGrad(conv) => {
            let ([grad, weights], out) = (two_arrays(inputs)?, one(&outputs)?);
            convolution(conv, [("the output", out), ("the weights", weights), ("the gradient", grad)])?;
        }
        Operator::Conv2dWeightGrad(conv) => {
            let ([images, grad], out) = (two_arrays(inputs)?, one(&outputs)?);
            convolution(conv, [("the images", images), ("the output", out), ("the gradient", grad)])?;
        }
        Operator::MaxPool2d(pool) => {
            let images = one_array(inputs)?;
            let (out, places) = match &outputs[..] {
                [_] => (one(&outputs)?, None),
                [_, _] => (one(&outputs[..1])?, Some(one(&outputs[1..])?)),
                _ => return Err(Problem::Count { of: "outputs", expected: "1 or 2", found: outputs.len() }),
            };
            Class::Number.check("the images", images.dtype)?;
            pooling(pool, ("the images", images), ("the output", out))?;
            if let Some(places) = places {
                Class::Index.check("the places", places.dtype)?;
                places.expect("the places", out.layout.shape())?;
            }
        }
        Operator::MaxPool2dGrad(pool) => {
            let ([grad, places], out) = (two_arrays(inputs)?, one(&outputs)?);
            Class::Float.check("the gradient", grad.dtype)?;
            Class::Index.check("the places", places.dtype)?;
            places.expect("the places", grad.layout.shape())?;
            pooling(pool, ("the output", out), ("the gradient", grad))?;
        }
        Operator::AvgPool2d { pool, .. } => {
            let images = one_array(inputs)?;
            let out = one(&outputs)?;
            Class::Float.check("the images", images.dtype)?;
            pooling(pool, ("the images", images), ("the output", out))?;
        }
        Operator::AvgPool2dGrad { pool, .. } => {
            let grad = one_array(inputs)?;
            let out = one(&outputs)?;
            Class::Float.check("the gradient", grad.dtype)?;
            pooling(pool, ("the output", out), ("the gradient", grad))?;
        }
        Operator::AdaptiveAvgPool2d => {
            let images = one_array(inputs)?;
            let out = one(&outputs)?;
            adaptive(("the images", images), ("the output", out))?;
            some(("the images", images), out)?;
        }
        Operator::AdaptiveAvgPool2dGrad => {
            adaptive(("the output", one(&outputs)?), ("the gradient", one_array(inputs)?))?;
        }
        Operator::Random { distribution, .. } => {
            if !inputs.is_empty() {
                return Err(Problem::Count { of: "inputs", expected: "0", found: inputs.len() });
            }
            random(distribution, one(&outputs)?.dtype)?;
        }
        Operator::Expression(of) => return expression::expression(of, inputs, outputs),
        Operator::Custom(custom) => custom.check(inputs, &outputs)?,
    }
    let call = Call::checked(operator, inputs.into(), outputs);
    Ok(match operator {
        // The gradient of an empty output is zero.
        Operator::Conv2dInputGrad(_) | Operator::Conv2dWeightGrad(_) | Operator::AdaptiveAvgPool2dGrad => {
            or_fill(call, Scalar::Int(0))
        }
        _ => call,
    })
}

/// Checks the types of the operands and of the result of an element-wise operator or a reduction.
pub(crate) fn types(operator: Operator, operands: &[DType], out: DType) -> Result<(), Problem> {
    let layout = Layout::contiguous([1])?;
    let inputs: Inputs = operands.iter().map(|&dtype| Argument::Array(dtype, layout)).collect();
    let out = Array { dtype: out, layout: &layout };
    match operator {
        Operator::Reduce { reduction, .. } => reduce(reduction, Dims::from([0]), one_array(&inputs)?, out)?,
        _ => elementwise(operator, &inputs, out)?,
    };
    Ok(())
}

fn elementwise(operator: Operator, inputs: &[Argument], out: Array<'_>) -> Result<Call, Problem> {
    let (count, expected) = match operator {
        Operator::Unary(_) | Operator::Copy => (1, "1"),
        Operator::Binary(_) | Operator::Compare(_) => (2, "2"),
        _ => (3, "3"),
    };
    if inputs.len() != count {
        return Err(Problem::Count { of: "inputs", expected, found: inputs.len() });
    }
    // The condition of a choice, and the input of a conversion, have their own type.
    let (alone, alike) = inputs.split_at(usize::from(matches!(operator, Operator::Where | Operator::Copy)));
    if let (Operator::Where, [Argument::Array(dtype, _)]) = (operator, alone) {
        Class::Bool.check("the condition", *dtype)?;
    }
    let of_inputs = alike.iter().find_map(|input| input.array()).map(|(dtype, _)| dtype);
    let makes_bools = matches!(operator, Operator::Compare(_) | Operator::Unary(Unary::IsNan | Unary::IsInf));
    let dtype = match (of_inputs, makes_bools) {
        (Some(dtype), _) => dtype,
        (None, false) => out.dtype,
        (None, true) => return Err(Problem::NoArray),
    };
    class(operator).check("the inputs", dtype)?;
    for input in alike {
        if let Argument::Array(found, layout) = input {
            Array { dtype: *found, layout }.same_dtype("each input", dtype)?;
        }
    }
    match operator {
        Operator::Copy => {}
        _ if makes_bools => Class::Bool.check("the output", out.dtype)?,
        _ => out.same_dtype("the output", dtype)?,
    }
    let mut broadcast = Inputs::from(inputs);
    for input in &mut broadcast {
        if let Argument::Array(_, layout) = input {
            *layout = layout.broadcast_to(out.layout.shape())?;
        }
    }
    Ok(Call::checked(operator, broadcast, smallvec![(out.dtype, *out.layout)]))
}

fn class(operator: Operator) -> Class {
    match operator {
        Operator::Unary(Unary::Neg | Unary::Abs | Unary::Sign) | Operator::Clamp => Class::Number,
        Operator::Unary(Unary::Not) | Operator::Binary(Binary::And | Binary::Or | Binary::Xor) => Class::Bits,
        Operator::Binary(Binary::Shl | Binary::Shr) => Class::Integer,
        Operator::Unary(_) | Operator::Binary(Binary::Atan2 | Binary::ReluGrad | Binary::SigmoidGrad) => {
            Class::Float
        }
        Operator::Compare(Compare::Eq | Compare::Ne) | Operator::Where | Operator::Copy => Class::Any,
        Operator::Binary(_) | Operator::Compare(_) => Class::Number,
        _ => unreachable!("it is not element-wise"),
    }
}

fn reduce(reduction: Reduction, dims: Dims, input: Array<'_>, out: Array<'_>) -> Result<Call, Problem> {
    if let Some(dim) = dims.iter().find(|&dim| dim >= input.layout.rank()) {
        dimension(dim, input.layout)?;
    }
    let (class, of_none) = match reduction {
        Reduction::Sum => (Class::Number, Some(Scalar::Int(0))),
        Reduction::Prod => (Class::Number, Some(Scalar::Int(1))),
        Reduction::Mean => (Class::Float, Some(Scalar::Float(f64::NAN))),
        Reduction::Max | Reduction::Min => (Class::Number, None),
        Reduction::Any => (Class::Bool, Some(Scalar::Bool(false))),
        Reduction::All => (Class::Bool, Some(Scalar::Bool(true))),
    };
    class.check("the input", input.dtype)?;
    out.same_dtype("the output", input.dtype)?;
    out.expect("the output", &reduced(input.layout, dims))?;
    let layout = input.layout;
    let input = Argument::Array(input.dtype, *layout);
    let call = Call::checked(
        Operator::Reduce { reduction, dims },
        smallvec![input],
        smallvec![(out.dtype, *out.layout)],
    );
    match of_none {
        // Also where there is no output, as in PyTorch: the mistake does not depend on the other dimensions.
        None if dims.iter().any(|dim| layout.shape()[dim] == 0) => {
            Err(Problem::Empty { argument: "the dimensions" })
        }
        None => Ok(call),
        Some(value) => Ok(or_fill(call, value)),
    }
}

fn sort(dim: usize, sorted: Sorted, input: Array<'_>, outputs: &Outputs) -> Result<(), Problem> {
    let (values, indices) = match (sorted, &outputs[..]) {
        (Sorted::Values, _) => (Some(one(outputs)?), None),
        (Sorted::Indices, _) => (None, Some(one(outputs)?)),
        (Sorted::Both, [_, _]) => (Some(one(&outputs[..1])?), Some(one(&outputs[1..])?)),
        (Sorted::Both, _) => {
            return Err(Problem::Count { of: "outputs", expected: "2", found: outputs.len() });
        }
    };
    dimension(dim, input.layout)?;
    Class::Number.check("the input", input.dtype)?;
    // The number of first elements is the first output's.
    let len = input.layout.shape()[dim];
    let first = values.or(indices).and_then(|array| array.layout.shape().get(dim).copied());
    let shape = with(input.layout, dim, first.unwrap_or(len).min(len));
    if let Some(values) = values {
        values.same("the output", input.dtype, &shape)?;
    }
    if let Some(indices) = indices {
        Class::Index.check("the indices", indices.dtype)?;
        indices.expect("the indices", &shape)?;
    }
    Ok(())
}

fn matmul(inputs: &[Argument], out: Array<'_>) -> Result<Call, Problem> {
    let (a, b, bias) = two_arrays_and_bias(inputs)?;
    Class::Number.check("the first input", a.dtype)?;
    b.same_dtype("the second input", a.dtype)?;
    out.same_dtype("the output", a.dtype)?;
    let matrices = [("the first input", a, "[.., m, k]"), ("the second input", b, "[.., k, n]")];
    for (argument, array, expected) in matrices {
        array.expect_if(array.layout.rank() >= 2, argument, expected)?;
    }
    let ([batch @ .., m, n], a_shape, b_shape) = (out.layout.shape(), a.layout.shape(), b.layout.shape())
    else {
        return out.expect_if(false, "the output", "[.., m, n]").map(|()| unreachable!("it fails"));
    };
    let k = a_shape[a_shape.len() - 1];
    let rows = a_shape[a_shape.len() - 2];
    let columns = b_shape[b_shape.len() - 1];
    b.expect_if(b_shape[b_shape.len() - 2] == k, "the second input", format_args!("[.., {k}, n]"))?;
    out.expect_if([*m, *n] == [rows, columns], "the output", format_args!("[.., {rows}, {columns}]"))?;
    let whole = |rows, columns| [batch, &[rows, columns]].concat();
    let mut arguments: Inputs = smallvec![
        Argument::Array(a.dtype, a.layout.broadcast_to(whole(rows, k))?),
        Argument::Array(b.dtype, b.layout.broadcast_to(whole(k, columns))?),
    ];
    if let Some(bias) = bias {
        bias.same_dtype("the bias", a.dtype)?;
        arguments.push(Argument::Array(bias.dtype, bias.layout.broadcast_to(out.layout.shape())?));
    }
    let outputs: Outputs = smallvec![(out.dtype, *out.layout)];
    if k == 0 {
        // The sum of nothing.
        let bias = arguments.get(2).copied().unwrap_or(Argument::Scalar(Scalar::Int(0)));
        return Ok(Call::fill(bias, 2, &outputs));
    }
    Ok(Call::checked(Operator::MatMul, arguments, outputs))
}

fn random(distribution: Distribution, dtype: DType) -> Result<(), Problem> {
    let invalid = |option, expected, found: &dyn fmt::Debug| {
        Err(Problem::Option { option, expected, found: format!("{found:?}") })
    };
    match distribution {
        Distribution::Uniform { low, high } => {
            Class::Float.check("the output", dtype)?;
            // The elements of smaller types are computed as `f32`.
            let range = if dtype == DType::F64 { high - low } else { f64::from((high - low) as f32) };
            let fits = low.is_finite() && high.is_finite() && low <= high && range.is_finite();
            if fits {
                Ok(())
            } else {
                invalid("range", "finite numbers in order with a finite difference", &(low..high))
            }
        }
        Distribution::Normal { mean, deviation } => {
            Class::Float.check("the output", dtype)?;
            if !mean.is_finite() {
                return invalid("mean", "a finite number", &mean);
            }
            let fits = deviation.is_finite() && deviation >= 0.0;
            if fits { Ok(()) } else { invalid("deviation", "a finite number from 0 on", &deviation) }
        }
        Distribution::Bernoulli { probability } => {
            let fits = (0.0..=1.0).contains(&probability);
            if fits { Ok(()) } else { invalid("probability", "a number from 0 to 1", &probability) }
        }
        Distribution::Integers { low, high } => {
            Class::Integer.check("the output", dtype)?;
            let (least, greatest) = dtype.integers().unwrap_or_default();
            let fits = low < high && least <= low.into() && i128::from(high) - 1 <= greatest;
            if fits { Ok(()) } else { invalid("range", "numbers of the type, in order", &(low..high)) }
        }
    }
}

fn updated(update: Update, out: Array<'_>) -> Result<(), Problem> {
    match update {
        Update::Replace => Ok(()),
        Update::Add => Class::Number.check("the output", out.dtype),
    }
}

fn dimension(dim: usize, layout: &Layout) -> Result<(), Problem> {
    let shape = || layout.shape().to_vec();
    if dim < layout.rank() { Ok(()) } else { Err(LayoutError::Dimension { dim, shape: shape() }.into()) }
}

/// Checks indices for the dimension `dim` of an array.
fn indices(index: Array<'_>, layout: &Layout, dim: usize) -> Result<(), Problem> {
    dimension(dim, layout)?;
    Class::Index.check("the indices", index.dtype)?;
    let nothing = layout.shape()[dim] == 0 && index.layout.len() > 0;
    if nothing { Err(Problem::Empty { argument: "the dimension" }) } else { Ok(()) }
}

/// Whether indices have as many dimensions as what they are for, and in all others but `dim` no more
/// elements.
fn inside(index: Array<'_>, layout: &Layout, dim: usize) -> Result<(), Problem> {
    let found = index.layout.shape();
    let limit = layout.shape();
    let fits = found.len() == limit.len()
        && (0..found.len()).all(|other| other == dim || found[other] <= limit[other]);
    index.expect_if(fits, "the indices", format_args!("at most {limit:?}, but for dimension {dim},"))
}

/// The shape with the dimensions `dims` of one element.
fn reduced(layout: &Layout, dims: Dims) -> Vec<usize> {
    layout.shape().iter().enumerate().map(|(dim, &size)| if dims.contains(dim) { 1 } else { size }).collect()
}

/// The shape with `size` as dimension `dim`.
fn with(layout: &Layout, dim: usize, size: usize) -> Vec<usize> {
    let mut shape = layout.shape().to_vec();
    shape[dim] = size;
    shape
}

/// The call, or a fill with `value` if its inputs are empty.
fn or_fill(call: Call, value: Scalar) -> Call {
    if call.inputs().iter().any(Argument::is_empty) {
        return Call::fill(Argument::Scalar(value), 0, call.outputs());
    }
    call
}
