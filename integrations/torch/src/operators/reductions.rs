//! Operators over dimensions.

use device_kernels::{Binary, DType, Dims, Extremum, Operator, Reduction, Sorted, Unary};

use crate::failure::Failure;
use crate::operators::Row;
use crate::operators::call::{Array, Call, Input, wide};

pub(super) const TABLE: &[Row] = &[
    ("sum.IntList_out", |call| reduce(call, Reduction::Sum, call.ints(1)?, call.bool(2)?)),
    ("mean.out", |call| reduce(call, Reduction::Mean, call.ints(1)?, call.bool(2)?)),
    ("prod.int_out", |call| reduce(call, Reduction::Prod, &[call.int(1)?], call.bool(2)?)),
    ("amax.out", |call| reduce(call, Reduction::Max, call.ints(1)?, call.bool(2)?)),
    ("amin.out", |call| reduce(call, Reduction::Min, call.ints(1)?, call.bool(2)?)),
    ("any.out", |call| reduce(call, Reduction::Any, &[call.int(1)?], call.bool(2)?)),
    ("all.out", |call| reduce(call, Reduction::All, &[call.int(1)?], call.bool(2)?)),
    ("any.all_out", |call| reduce(call, Reduction::Any, &[], false)),
    ("all.all_out", |call| reduce(call, Reduction::All, &[], false)),
    ("max", |call| of_all(call, Reduction::Max)),
    ("min", |call| of_all(call, Reduction::Min)),
    ("argmax.out", |call| arg_reduce(call, Extremum::Max)),
    ("argmin.out", |call| arg_reduce(call, Extremum::Min)),
    ("max.dim_max", |call| extremum(call, Reduction::Max, Extremum::Max)),
    ("min.dim_min", |call| extremum(call, Reduction::Min, Extremum::Min)),
    ("sort.values_stable", sort),
    ("topk.values", top),
    ("_softmax.out", |call| softmax(call, |dim| Operator::Softmax { dim })),
    ("_log_softmax.out", |call| softmax(call, |dim| Operator::LogSoftmax { dim })),
    ("_softmax_backward_data.out", softmax_grad),
    ("_log_softmax_backward_data.out", log_softmax_grad),
];

/// The dimensions of a list, where an empty one is of all.
fn dims(array: &Array, list: &[i64]) -> Result<Dims, Failure> {
    if list.is_empty() {
        return Ok(Dims::all(array.rank()));
    }
    list.iter().map(|&dim| array.dim(dim)).collect()
}

/// An output whose reduced dimensions are there, with the size 1. Declines if it has another shape than the
/// operator gives it.
fn kept(out: Array, input: &Array, dims: Dims, keeps: bool) -> Result<Array, Failure> {
    let size = |(dim, &size): (usize, &usize)| if dims.contains(dim) { 1 } else { size };
    let with_ones: Vec<usize> = input.shape().iter().enumerate().map(size).collect();
    let left = input.shape().iter().enumerate().filter(|(dim, _)| !dims.contains(*dim));
    let without: Vec<usize> = left.map(|(_, &size)| size).collect();
    if out.shape() != if keeps { &*with_ones } else { &*without } {
        return Err(Failure::declined("its output has another shape"));
    }
    out.reshaped(with_ones)
}

fn reduce(call: &Call<'_>, reduction: Reduction, list: &[i64], keeps: bool) -> Result<(), Failure> {
    let input = call.array(0)?;
    let out = call.out(0)?;
    if input.rank() == 0 {
        return Err(Failure::declined("it has no dimension"));
    }
    let narrows = input.dtype.is_float() && (!out.dtype.is_float() || out.dtype.size() < input.dtype.size());
    if narrows || (input.dtype != DType::Bool && out.dtype == DType::Bool) {
        return Err(Failure::declined("its result is of a narrower type"));
    }
    let dims = dims(&input, list)?;
    let out = kept(out, &input, dims, keeps)?;
    let input = call.converted(input.into(), out.dtype)?;
    call.run(Operator::Reduce { reduction, dims }, &[input], &[&out])
}

fn of_all(call: &Call<'_>, reduction: Reduction) -> Result<(), Failure> {
    let input = call.array(0)?;
    let dims = Dims::all(input.rank());
    let out = call.result(&input, input.dtype, &[])?;
    let kept = kept(out, &input, dims, false)?;
    call.run(Operator::Reduce { reduction, dims }, &[input.into()], &[&kept])
}

fn arg_reduce(call: &Call<'_>, extremum: Extremum) -> Result<(), Failure> {
    let input = call.array(0)?;
    let out = call.out(0)?;
    if call.is_none(1) {
        // The index is that in all elements.
        let len = input.layout.len();
        let dims = Dims::all(input.rank());
        let out = kept(out, &input, dims, call.bool(2)?)?.reshaped([1])?;
        let flat = call.contiguous(input)?.reshaped([len])?;
        return call.run(Operator::ArgReduce { extremum, dim: 0 }, &[flat.into()], &[&out]);
    }
    let dim = input.dim(call.int(1)?)?;
    let out = kept(out, &input, Dims::from([dim]), call.bool(2)?)?;
    call.run(Operator::ArgReduce { extremum, dim }, &[input.into()], &[&out])
}

fn extremum(call: &Call<'_>, reduction: Reduction, extremum: Extremum) -> Result<(), Failure> {
    let input = call.array(0)?;
    let dim = input.dim(call.int(1)?)?;
    let dims = Dims::from([dim]);
    let keeps = call.bool(2)?;
    let values = kept(call.out(1)?, &input, dims, keeps)?;
    let indices = kept(call.out(0)?, &input, dims, keeps)?;
    call.run(Operator::Reduce { reduction, dims }, &[(&input).into()], &[&values])?;
    call.run(Operator::ArgReduce { extremum, dim }, &[input.into()], &[&indices])
}

fn sort(call: &Call<'_>) -> Result<(), Failure> {
    let input = call.array(0)?;
    let dim = input.dim(call.int(2)?)?;
    let len = input.shape()[dim];
    ordered(call, &input, dim, call.bool(3)?, len)
}

fn top(call: &Call<'_>) -> Result<(), Failure> {
    let input = call.array(0)?;
    let dim = input.dim(call.int(2)?)?;
    let len = usize::try_from(call.int(1)?).map_err(Failure::declined)?;
    ordered(call, &input, dim, call.bool(3)?, len)
}

/// The first `len` elements in order, and their indices. For PyTorch, NaN is the largest, and zeros are
/// equal, whatever their signs; kernels order floats by their bits.
fn ordered(call: &Call<'_>, input: &Array, dim: usize, descending: bool, len: usize) -> Result<(), Failure> {
    let values = call.out(1)?;
    let indices = call.out(0)?;
    let mut shape = input.shape().to_vec();
    shape[dim] = len;
    if values.shape() != shape || indices.shape() != shape {
        return Err(Failure::declined("its output has another shape"));
    }
    if !input.dtype.is_float() {
        let operator = Operator::Sort { dim, descending, sorted: Sorted::Both };
        return call.run(operator, &[input.into()], &[&values, &indices]);
    }
    let keys = call.scratch(input, input.dtype, input.shape())?;
    let is_nan = call.scratch(input, DType::Bool, input.shape())?;
    call.run(Unary::IsNan, &[input.into()], &[&is_nan])?;
    call.run(Binary::Add, &[input.into(), 0.0.into()], &[&keys])?;
    call.run(Operator::Where, &[is_nan.into(), f64::NAN.into(), (&keys).into()], &[&keys])?;
    call.run(Operator::Sort { dim, descending, sorted: Sorted::Indices }, &[keys.into()], &[&indices])?;
    call.run(Operator::Gather { dim }, &[input.into(), (&indices).into()], &[&values])
}

fn softmax(call: &Call<'_>, operator: fn(usize) -> Operator) -> Result<(), Failure> {
    let input = call.array(0)?;
    let out = call.out(0)?;
    let dim = input.dim(call.int(1)?)?;
    let input = call.converted(input.into(), out.dtype)?;
    call.run(operator(dim), &[input], &[&out])
}

/// A gradient has the shape of its output in each program. What else a call has, the CPU refuses.
fn check_alike(grad: &Array, output: &Array) -> Result<(), Failure> {
    if grad.shape() == output.shape() { Ok(()) } else { Err(Failure::declined("its shapes differ")) }
}

/// `(grad - sum(grad * output)) * output`
fn softmax_grad(call: &Call<'_>) -> Result<(), Failure> {
    let grad = call.array(0)?;
    let output = call.array(1)?;
    let out = call.out(0)?;
    check_alike(&grad, &output)?;
    let dim = output.dim(call.int(2)?)?;
    let dtype = wide(output.dtype);
    let product = call.scratch(&out, dtype, output.shape())?;
    let grad = call.converted(grad.into(), dtype)?;
    let output = call.converted(output.into(), dtype)?;
    call.run(Binary::Mul, &[grad.clone(), output.clone()], &[&product])?;
    let sum = sum(call, &product, dim)?;
    call.run(Binary::Sub, &[grad, sum], &[&product])?;
    call.run_narrowing(Binary::Mul, &[product.into(), output], &out)
}

/// `grad - exp(output) * sum(grad)`
fn log_softmax_grad(call: &Call<'_>) -> Result<(), Failure> {
    let grad = call.array(0)?;
    let output = call.array(1)?;
    let out = call.out(0)?;
    check_alike(&grad, &output)?;
    let dim = output.dim(call.int(2)?)?;
    let dtype = wide(output.dtype);
    let scaled = call.scratch(&out, dtype, output.shape())?;
    let grad = call.converted(grad.into(), dtype)?;
    let output = call.converted(output.into(), dtype)?;
    let Some(array) = grad.array() else { return Err(Failure::declined("its gradient is a number")) };
    let sum = sum(call, array, dim)?;
    call.run(Unary::Exp, &[output], &[&scaled])?;
    call.run(Binary::Mul, &[(&scaled).into(), sum], &[&scaled])?;
    call.run_narrowing(Binary::Sub, &[grad, scaled.into()], &out)
}

/// The sum over a dimension, which stays with the size 1.
fn sum(call: &Call<'_>, array: &Array, dim: usize) -> Result<Input, Failure> {
    let mut shape = array.shape().to_vec();
    shape[dim] = 1;
    let sum = call.scratch(array, array.dtype, &shape)?;
    let operator = Operator::Reduce { reduction: Reduction::Sum, dims: Dims::from([dim]) };
    call.run(operator, &[array.into()], &[&sum])?;
    Ok(sum.into())
}
