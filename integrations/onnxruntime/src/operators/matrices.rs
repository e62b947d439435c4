//! Products of matrices.

use device_kernels::{Binary, DType, Operator};

use super::{Plan, Row};
use crate::context::{Array, Context, Shape, broadcast};
use crate::failure::Failure;
use crate::node::Kind::{Float, Int};
use crate::node::Node;

pub(super) const ROWS: &[Row] = &[
    Row::new("Gemm", gemm).since(7).attributes(&[
        ("alpha", Float),
        ("beta", Float),
        ("transA", Int),
        ("transB", Int),
    ]),
    Row::new("MatMul", matmul),
];

fn matmul(node: &Node) -> Result<Plan, Failure> {
    Plan::new([("matmul", node.input(0)?)], |context| {
        let make = |shape: &[usize]| context.output(0, shape);
        multiply(context, context.array(0)?, context.array(1)?, make).map(drop)
    })
}

/// Multiplies matrices or batches of them, as NumPy does, into an array that is made with a shape.
pub(super) fn multiply(
    context: &Context,
    a: Array,
    b: Array,
    make: impl FnOnce(&[usize]) -> Result<Array, Failure>,
) -> Result<Array, Failure> {
    // A vector is a row on the left, and a column on the right, which the result does not have.
    let left = if a.rank() == 1 { a.reshaped([1, a.shape()[0]])? } else { a.clone() };
    let right = if b.rank() == 1 { b.reshaped([b.shape()[0], 1])? } else { b.clone() };
    let [.., m, _] = *left.shape() else { return Err(Failure::new("no matrix")) };
    let [.., n] = *right.shape() else { return Err(Failure::new("no matrix")) };
    let batch = |array: &Array| Shape::from_slice(&array.shape()[..array.rank() - 2]);
    let batch = broadcast([&*batch(&left), &*batch(&right)])?;
    let mut shape = batch.clone();
    shape.extend((a.rank() > 1).then_some(m));
    shape.extend((b.rank() > 1).then_some(n));
    let out = make(&shape)?;
    let mut whole = batch;
    whole.extend([m, n]);
    product(context, &left, &right, &out.reshaped(whole)?)?;
    Ok(out)
}

/// A product, whose sums of nothing are zeros.
fn product(context: &Context, left: &Array, right: &Array, out: &Array) -> Result<(), Failure> {
    context.run(Operator::MatMul, &[left.into(), right.into()], &[out])
}

fn gemm(node: &Node) -> Result<Plan, Failure> {
    let alpha = f64::from(node.float_or("alpha", 1.0));
    let beta = f64::from(node.float_or("beta", 1.0));
    let of_a = node.int_or("transA", 0) != 0;
    let of_b = node.int_or("transB", 0) != 0;
    let dtype = node.input(0)?;
    // Where the product is scaled, halves are computed as floats.
    let wide = if dtype.size() == 2 { DType::F32 } else { dtype };
    let needs = [("matmul", dtype), ("matmul", wide), ("mul", wide), ("add", wide), ("copy", dtype)];
    Plan::new(needs, move |context| {
        let transposed = |array: Array, is: bool| {
            Ok::<_, Failure>(if is { array.with_layout(array.layout.transpose(0, 1)?) } else { array })
        };
        let a = transposed(context.array(0)?, of_a)?;
        let b = transposed(context.array(1)?, of_b)?;
        let c = context.optional(2)?;
        let shape = [a.shape()[0], b.shape()[1]];
        let out = context.output(0, &shape)?;
        match c {
            // The bias of the product.
            Some(c) if alpha == 1.0 && beta == 1.0 => {
                let bias = c.broadcast_to(shape)?;
                context.run(Operator::MatMul, &[a.into(), b.into(), bias.into()], &[&out])
            }
            Some(c) => {
                let made = context.scratch(wide, &shape)?;
                product(context, &context.converted(a, wide)?, &context.converted(b, wide)?, &made)?;
                let scaled = context.binary(Binary::Mul, &made, alpha)?;
                let bias = context.binary(Binary::Mul, &context.converted(c, wide)?, beta)?;
                context.copy(&context.binary(Binary::Add, &scaled, &bias)?, &out)
            }
            None if alpha == 1.0 => product(context, &a, &b, &out),
            None => {
                let made = context.scratch(wide, &shape)?;
                product(context, &context.converted(a, wide)?, &context.converted(b, wide)?, &made)?;
                context.copy(&context.binary(Binary::Mul, &made, alpha)?, &out)
            }
        }
    })
}
