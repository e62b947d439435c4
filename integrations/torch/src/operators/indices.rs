//! Operators by indices.

use device_kernels::{Binary, Compare, DType, Operator, Scalar, Update};

use crate::failure::Failure;
use crate::operators::Row;
use crate::operators::call::{Array, Call, Value};

pub(super) const TABLE: &[Row] = &[
    ("gather.out", gather),
    ("index_select", index_select),
    ("embedding", embedding),
    ("embedding_dense_backward", embedding_grad),
    ("scatter.src_out", |call| scatter(call, Update::Replace)),
    ("scatter_add.out", |call| scatter(call, Update::Add)),
    ("index_add.out", index_add),
    ("index.Tensor_out", index),
    ("cat.out", concatenate),
];

fn gather(call: &Call<'_>) -> Result<(), Failure> {
    let array = call.array(0)?;
    let index = call.array(2)?;
    let out = call.out(0)?;
    let dim = array.dim(call.int(1)?)?;
    call.run(Operator::Gather { dim }, &[array.into(), index.into()], &[&out])
}

fn index_select(call: &Call<'_>) -> Result<(), Failure> {
    let array = call.array(0)?;
    let index = call.array(2)?;
    let dim = array.dim(call.int(1)?)?;
    if index.rank() > 1 {
        return Err(Failure::declined("the CPU says what is wrong"));
    }
    let mut shape = array.shape().to_vec();
    shape[dim] = index.layout.len();
    let index = index.reshaped([index.layout.len()])?;
    let out = call.result(&array, array.dtype, &shape)?;
    call.run(Operator::IndexSelect { dim }, &[array.into(), index.into()], &[&out])
}

fn embedding(call: &Call<'_>) -> Result<(), Failure> {
    let weights = call.array(0)?;
    let indices = call.array(1)?;
    let [_, width] = *weights.shape() else { return Err(Failure::declined("the CPU says what is wrong")) };
    let mut shape = indices.shape().to_vec();
    shape.push(width);
    let len = indices.layout.len();
    let index = call.contiguous(indices)?.reshaped([len])?;
    let out = call.result(&weights, weights.dtype, &shape)?.reshaped([len, width])?;
    call.run(Operator::IndexSelect { dim: 0 }, &[weights.into(), index.into()], &[&out])
}

fn embedding_grad(call: &Call<'_>) -> Result<(), Failure> {
    let grad = call.array(0)?;
    let indices = call.array(1)?;
    let rows = call.int(2)?;
    if call.int(3)? >= 0 || call.bool(4)? {
        return Err(Failure::declined("no kernel leaves an index out, or scales by how often one is there"));
    }
    let Some(&width) = grad.shape().last() else { return Err(Failure::declined("it has no dimension")) };
    let len = indices.layout.len();
    let index = call.contiguous(indices)?.reshaped([len])?;
    let grad = call.contiguous(grad)?.reshaped([len, width])?;
    let out = call.result(&grad, grad.dtype, &[rows as usize, width])?;
    call.run(Operator::Copy, &[Scalar::Int(0).into()], &[&out])?;
    let operator = Operator::IndexAssign { dim: 0, update: Update::Add };
    call.run(operator, &[index.into(), grad.into()], &[&out])
}

/// Copies the elements that an update keeps, where the output is not the same tensor. What is written is not
/// read as well.
fn keep(call: &Call<'_>, array: Array, out: &Array, read: [&Array; 2]) -> Result<(), Failure> {
    if read.iter().any(|other| other.shares_memory(out)) {
        return Err(Failure::declined("its output is one of its inputs"));
    }
    let same = matches!((call.value(0), call.value(call.values.len() - 1)),
        (Value::Tensor(a), Value::Tensor(b)) if a.data == b.data && a.strides == b.strides);
    if same { Ok(()) } else { call.run(Operator::Copy, &[array.into()], &[out]) }
}

fn scatter(call: &Call<'_>, update: Update) -> Result<(), Failure> {
    let array = call.array(0)?;
    let index = call.array(2)?;
    let values = call.array(3)?;
    let out = call.out(0)?;
    let dim = array.dim(call.int(1)?)?;
    if index.shape() != values.shape() {
        return Err(Failure::declined("it uses a part of the values"));
    }
    keep(call, array, &out, [&index, &values])?;
    call.run(Operator::Scatter { dim, update }, &[index.into(), values.into()], &[&out])
}

fn index_add(call: &Call<'_>) -> Result<(), Failure> {
    let array = call.array(0)?;
    let index = call.array(2)?;
    let values = call.array(3)?;
    let out = call.out(0)?;
    let dim = array.dim(call.int(1)?)?;
    if !call.is(4, 1.0) {
        return Err(Failure::declined("no kernel scales the values"));
    }
    keep(call, array, &out, [&index, &values])?;
    let operator = Operator::IndexAssign { dim, update: Update::Add };
    call.run(operator, &[index.into(), values.into()], &[&out])
}

/// Implements the general form only for one tensor of indices, which may count from the end.
fn index(call: &Call<'_>) -> Result<(), Failure> {
    let array = call.array(0)?;
    let out = call.out(0)?;
    let Value::Tensors(list) = call.value(1) else { return Err(Failure::declined("it has no indices")) };
    let mut given = list.iter().enumerate().filter_map(|(dim, index)| Some((dim, (*index)?)));
    let (Some((dim, index)), None) = (given.next(), given.next()) else {
        return Err(Failure::declined("it has several tensors of indices"));
    };
    let index = Array::of(index)?;
    if !index.dtype.is_integer() || dim >= array.rank() {
        return Err(Failure::declined("its indices are a mask"));
    }
    let len = index.layout.len();
    let size = array.shape()[dim];
    let mut shape = array.shape().to_vec();
    shape.splice(dim..=dim, index.shape().iter().copied());
    if out.shape() != shape {
        return Err(Failure::declined("its output has another shape"));
    }
    shape.splice(dim..dim + index.rank(), [len]);
    let out = out.reshaped(shape)?;
    let index = call.contiguous(index)?.reshaped([len])?;
    let negative = call.scratch(&index, DType::Bool, &[len])?;
    let from_start = call.scratch(&index, index.dtype, &[len])?;
    let size = Scalar::Int(size as i64);
    call.run(Compare::Lt, &[(&index).into(), Scalar::Int(0).into()], &[&negative])?;
    call.run(Binary::Add, &[(&index).into(), size.into()], &[&from_start])?;
    call.run(Operator::Where, &[negative.into(), (&from_start).into(), index.into()], &[&from_start])?;
    call.run(Operator::IndexSelect { dim }, &[array.into(), from_start.into()], &[&out])
}

/// Arrays behind one another.
fn concatenate(call: &Call<'_>) -> Result<(), Failure> {
    let out = call.out(0)?;
    let Value::Tensors(list) = call.value(0) else { return Err(Failure::declined("it has no list")) };
    let dim = out.dim(call.int(1)?)?;
    let mut from = 0;
    let mut parts = Vec::with_capacity(list.len());
    for tensor in list {
        let array = Array::of(tensor.ok_or_else(|| Failure::declined("one is absent"))?)?;
        // PyTorch passes over an array of no elements in one dimension, whatever the others are.
        if array.shape() == [0] {
            continue;
        }
        let len = *array.shape().get(dim).ok_or_else(|| Failure::declined("one has fewer dimensions"))?;
        if array.shares_memory(&out) {
            return Err(Failure::declined("its output is one of its inputs"));
        }
        let part = out.layout.slice(dim, from, len, 1).map_err(Failure::declined)?;
        if part.shape() != array.shape() || array.dtype != out.dtype {
            return Err(Failure::declined("their shapes or types differ"));
        }
        from += len;
        parts.push((array, out.with_layout(part)));
    }
    if from != out.shape()[dim] {
        return Err(Failure::declined("its output has another shape"));
    }
    parts.into_iter().try_for_each(|(array, part)| call.run(Operator::Copy, &[array.into()], &[&part]))
}
