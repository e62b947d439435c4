//! Operators that norm: softmax, and norms of batches, layers and instances.

use device_kernels::{Binary, Compare, DType, Dims, Extremum, Operator, Reduction, Unary};

use super::{Plan, Row, declined};
use crate::context::{Array, Context, Shape, dim};
use crate::failure::Failure;
use crate::node::Kind::{Float, Int};
use crate::node::Node;

pub(super) const ROWS: &[Row] = &[
    Row::new("Softmax", |node| softmax(node, false)).attributes(&[("axis", Int)]),
    Row::new("LogSoftmax", |node| softmax(node, true)).attributes(&[("axis", Int)]),
    Row::new("BatchNormalization", batch_norm).since(7).attributes(&[
        ("epsilon", Float),
        ("training_mode", Int),
        ("spatial", Int),
    ]),
    Row::new("InstanceNormalization", instance_norm).since(6).attributes(&[("epsilon", Float)]),
    Row::new("GroupNormalization", group_norm).since(21).attributes(&[
        ("epsilon", Float),
        ("num_groups", Int),
        ("stash_type", Int),
    ]),
    Row::new("Hardmax", hardmax).since(13).attributes(&[("axis", Int)]),
    Row::new("LayerNormalization", layer_norm).since(17).attributes(&[
        ("axis", Int),
        ("epsilon", Float),
        ("stash_type", Int),
    ]),
    Row::new("LpNormalization", lp_norm).attributes(&[("axis", Int), ("p", Int)]),
    Row::new("RMSNormalization", rms_norm).since(23).attributes(&[
        ("axis", Int),
        ("epsilon", Float),
        ("stash_type", Int),
    ]),
];

/// What `moments_normed` and `scaled` need of a type.
const NORM: [&str; 6] = ["sub", "mul", "add", "sqrt", "div", "reduce_mean"];

fn softmax(node: &Node, log: bool) -> Result<Plan, Failure> {
    let axis = node.int("axis");
    // Before version 13, all dimensions from the axis on are one.
    let is_flat = node.since < 13;
    let name = if log { "log_softmax" } else { "softmax" };
    Plan::new([(name, node.input(0)?)], move |context| {
        let input = context.array(0)?;
        let out = context.output(0, input.shape())?;
        let rank = input.rank();
        let operator = |dim| if log { Operator::LogSoftmax { dim } } else { Operator::Softmax { dim } };
        if !is_flat {
            let dim = dim(axis.unwrap_or(-1), rank)?;
            return context.run(operator(dim), &[input.into()], &[&out]);
        }
        let axis = if rank == 0 { 0 } else { dim(axis.unwrap_or(1).min(rank as i64 - 1), rank)? };
        let (before, behind) = input.shape().split_at(axis);
        let flat = [before.iter().product::<usize>(), behind.iter().product()];
        context.run(operator(1), &[input.reshaped(flat)?.into()], &[&out.reshaped(flat)?])
    })
}

/// A parameter of each channel, as an array that is broadcast to images.
fn of_channels(context: &Context, at: usize, rank: usize, dtype: DType) -> Result<Array, Failure> {
    let parameter = context.converted(context.array(at)?, dtype)?;
    let mut shape = Shape::from_elem(1, rank);
    shape[1] = parameter.layout.len();
    parameter.reshaped(shape)
}

fn wide(dtype: DType) -> DType {
    if dtype.size() == 2 { DType::F32 } else { dtype }
}

fn needs(dtype: DType) -> impl Iterator<Item = (&'static str, DType)> {
    NORM.into_iter().map(move |name| (name, wide(dtype))).chain([("copy", dtype)])
}

fn batch_norm(node: &Node) -> Result<Plan, Failure> {
    if node.int_or("training_mode", 0) != 0 || (1..node.outputs.len()).any(|at| node.has_output(at)) {
        return declined("it is in training");
    }
    if node.int_or("spatial", 1) == 0 {
        return declined("it norms each place by itself");
    }
    if node.rank(0)? < 2 {
        return declined("no channels");
    }
    let epsilon = f64::from(node.float_or("epsilon", 1e-5));
    let dtype = node.input(0)?;
    Plan::new(needs(dtype), move |context| {
        let input = context.array(0)?;
        let out = context.output(0, input.shape())?;
        let rank = input.rank();
        let x = context.converted(input, wide(dtype))?;
        let parameter = |at| of_channels(context, at, rank, wide(dtype));
        // One factor and one summand for each channel.
        let deviation = context.unary(Unary::Sqrt, &context.binary(Binary::Add, &parameter(4)?, epsilon)?)?;
        let factor = context.binary(Binary::Div, &parameter(1)?, &deviation)?;
        let centred = context.binary(Binary::Sub, &x, &parameter(3)?)?;
        let scaled = context.binary(Binary::Mul, &centred, &factor)?;
        let normed = context.binary(Binary::Add, &scaled, &parameter(2)?)?;
        context.copy(&normed, &out)
    })
}

/// (x - mean) / sqrt(variance + epsilon) over dimensions, with the mean and 1 / sqrt(variance + epsilon).
fn normed(context: &Context, x: &Array, dims: Dims, epsilon: f64) -> Result<[Array; 3], Failure> {
    let mean_of = |array: &Array| reduced(context, Reduction::Mean, dims, array);
    let mean = mean_of(x)?;
    let centred = context.binary(Binary::Sub, x, &mean)?;
    let variance = mean_of(&context.binary(Binary::Mul, &centred, &centred)?)?;
    let deviation = context.unary(Unary::Sqrt, &context.binary(Binary::Add, &variance, epsilon)?)?;
    let inverse = context.binary(Binary::Div, 1.0, &deviation)?;
    Ok([context.binary(Binary::Mul, &centred, &inverse)?, mean, inverse])
}

fn instance_norm(node: &Node) -> Result<Plan, Failure> {
    if node.rank(0)? < 2 {
        return declined("no channels");
    }
    let epsilon = f64::from(node.float_or("epsilon", 1e-5));
    let dtype = node.input(0)?;
    Plan::new(needs(dtype), move |context| {
        let input = context.array(0)?;
        let out = context.output(0, input.shape())?;
        let rank = input.rank();
        let x = context.converted(input, wide(dtype))?;
        let [normed, ..] = normed(context, &x, (2..rank).collect(), epsilon)?;
        let scale = of_channels(context, 1, rank, wide(dtype))?;
        let bias = of_channels(context, 2, rank, wide(dtype))?;
        let scaled = context.binary(Binary::Mul, &normed, &scale)?;
        context.copy(&context.binary(Binary::Add, &scaled, &bias)?, &out)
    })
}

fn layer_norm(node: &Node) -> Result<Plan, Failure> {
    let epsilon = f64::from(node.float_or("epsilon", 1e-5));
    let axis = node.int_or("axis", -1);
    let dtype = node.input(0)?;
    let asked = [1, 2].map(|at| node.has_output(at));
    Plan::new(needs(dtype), move |context| {
        let input = context.array(0)?;
        let out = context.output(0, input.shape())?;
        let rank = input.rank();
        let axis = dim(axis, rank)?;
        let x = context.converted(input, wide(dtype))?;
        let [mut value, mean, inverse] = normed(context, &x, (axis..rank).collect(), epsilon)?;
        let scale = context.converted(context.array(1)?, wide(dtype))?;
        value = context.binary(Binary::Mul, &value, &scale)?;
        if let Some(bias) = context.optional(2)? {
            let bias = context.converted(bias, wide(dtype))?;
            value = context.binary(Binary::Add, &value, &bias)?;
        }
        context.copy(&value, &out)?;
        for (at, found) in [mean, inverse].into_iter().enumerate() {
            if asked[at] {
                context.copy(&found, &context.output(at + 1, found.shape())?)?;
            }
        }
        Ok(())
    })
}

/// The first of the largest elements is one, and the others are zeros.
fn hardmax(node: &Node) -> Result<Plan, Failure> {
    let axis = node.int_or("axis", -1);
    let dtype = node.input(0)?;
    Plan::new([("arg_max", dtype), ("eq", DType::I64), ("copy", dtype)], move |context| {
        let input = context.array(0)?;
        let out = context.output(0, input.shape())?;
        let axis = dim(axis, input.rank())?;
        if input.layout.len() == 0 {
            return Ok(());
        }
        let mut one = Shape::from_slice(input.shape());
        one[axis] = 1;
        let found = context.scratch(DType::I64, &one)?;
        let extremum = Operator::ArgReduce { extremum: Extremum::Max, dim: axis };
        context.run(extremum, &[(&input).into()], &[&found])?;
        let places: Vec<i64> = (0..input.shape()[axis] as i64).collect();
        let mut along = Shape::from_elem(1, input.rank());
        along[axis] = places.len();
        let places = context.uploaded_integers(&places)?.reshaped(along)?.broadcast_to(input.shape())?;
        let is_largest = context.scratch(DType::Bool, input.shape())?;
        let found = found.broadcast_to(input.shape())?;
        context.run(Compare::Eq, &[found.into(), places.into()], &[&is_largest])?;
        context.copy(&is_largest, &out)
    })
}

/// The array with one element in the reduced dimensions.
fn reduced(context: &Context, reduction: Reduction, dims: Dims, of: &Array) -> Result<Array, Failure> {
    let shape: Shape =
        (0..of.rank()).map(|axis| if dims.contains(axis) { 1 } else { of.shape()[axis] }).collect();
    let out = context.scratch(of.dtype, &shape)?;
    context.run(Operator::Reduce { reduction, dims }, &[of.into()], &[&out])?;
    Ok(out)
}

fn lp_norm(node: &Node) -> Result<Plan, Failure> {
    let axis = node.int_or("axis", -1);
    let p = node.int_or("p", 2);
    if p != 1 && p != 2 {
        return declined(format_args!("`p` is {p}"));
    }
    let dtype = node.input(0)?;
    let names = ["abs", "add", "div", "eq", "mul", "reduce_sum", "sqrt"];
    let needs = names.into_iter().map(move |name| (name, wide(dtype))).chain([("copy", dtype)]);
    Plan::new(needs, move |context| {
        let input = context.array(0)?;
        let out = context.output(0, input.shape())?;
        let dims = Dims::from([dim(axis, input.rank())?]);
        let x = context.converted(input, wide(dtype))?;
        let norm = if p == 1 {
            reduced(context, Reduction::Sum, dims, &context.unary(Unary::Abs, &x)?)?
        } else {
            let squares = context.binary(Binary::Mul, &x, &x)?;
            context.unary(Unary::Sqrt, &reduced(context, Reduction::Sum, dims, &squares)?)?
        };
        // Zeros stay zeros: their norm becomes one.
        let is_zero = context.scratch(DType::Bool, norm.shape())?;
        context.run(Compare::Eq, &[(&norm).into(), 0.0.into()], &[&is_zero])?;
        let one = context.converted(is_zero, wide(dtype))?;
        let norm = context.binary(Binary::Add, &norm, &one)?;
        context.copy(&context.binary(Binary::Div, &x, &norm)?, &out)
    })
}

fn rms_norm(node: &Node) -> Result<Plan, Failure> {
    let epsilon = f64::from(node.float_or("epsilon", 1e-5));
    let axis = node.int_or("axis", -1);
    let dtype = node.input(0)?;
    Plan::new(needs(dtype), move |context| {
        let input = context.array(0)?;
        let out = context.output(0, input.shape())?;
        let rank = input.rank();
        let axis = dim(axis, rank)?;
        let x = context.converted(input, wide(dtype))?;
        let squares = context.binary(Binary::Mul, &x, &x)?;
        let mean = reduced(context, Reduction::Mean, (axis..rank).collect(), &squares)?;
        let root = context.unary(Unary::Sqrt, &context.binary(Binary::Add, &mean, epsilon)?)?;
        let normed = context.binary(Binary::Div, &x, &root)?;
        let scale = context.converted(context.array(1)?, wide(dtype))?;
        context.copy(&context.binary(Binary::Mul, &normed, &scale)?, &out)
    })
}

fn group_norm(node: &Node) -> Result<Plan, Failure> {
    let Some(groups) = node.int("num_groups").and_then(|groups| usize::try_from(groups).ok()) else {
        return declined("no number of groups");
    };
    if groups == 0 || node.rank(0)? < 3 {
        return declined("no channels in groups");
    }
    let epsilon = f64::from(node.float_or("epsilon", 1e-5));
    let dtype = node.input(0)?;
    Plan::new(needs(dtype), move |context| {
        let input = context.array(0)?;
        let out = context.output(0, input.shape())?;
        let rank = input.rank();
        let batch = input.shape()[0];
        let of_group = input.shape()[1..].iter().product::<usize>() / groups;
        let x = context.converted(input, wide(dtype))?;
        let grouped = x.reshaped([batch, groups, of_group])?;
        let [normed, ..] = normed(context, &grouped, Dims::from([2]), epsilon)?;
        let normed = normed.reshaped(x.shape())?;
        let scaled = context.binary(Binary::Mul, &normed, &of_channels(context, 1, rank, wide(dtype))?)?;
        let bias = of_channels(context, 2, rank, wide(dtype))?;
        context.copy(&context.binary(Binary::Add, &scaled, &bias)?, &out)
    })
}
