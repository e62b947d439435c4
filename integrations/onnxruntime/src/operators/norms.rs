//! Operators that norm: softmax, and norms of batches, layers and instances.

use device_kernels::{Binary, DType, Dims, Operator, Reduction, Unary};

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
    Row::new("LayerNormalization", layer_norm).since(17).attributes(&[
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
    let reduced: Shape =
        (0..x.rank()).map(|axis| if dims.contains(axis) { 1 } else { x.shape()[axis] }).collect();
    let mean_of = |array: &Array| {
        let out = context.scratch(array.dtype, &reduced)?;
        let reduction = Reduction::Mean;
        context.run(Operator::Reduce { reduction, dims }, &[array.into()], &[&out])?;
        Ok::<_, Failure>(out)
    };
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
