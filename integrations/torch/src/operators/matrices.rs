//! Products of matrices.

use device_kernels::{Binary, Operator};

use crate::failure::Failure;
use crate::operators::Row;
use crate::operators::call::{Array, Call};

pub(super) const TABLE: &[Row] = &[
    ("mm.out", product),
    ("bmm.out", product),
    ("addmm.out", |call| sum_and_product(call, false)),
    ("baddbmm.out", |call| sum_and_product(call, false)),
    ("addmv.out", |call| sum_and_product(call, true)),
    ("dot", dot),
];

fn product(call: &Call<'_>) -> Result<(), Failure> {
    call.run(Operator::MatMul, &[call.array(0)?.into(), call.array(1)?.into()], &[&call.out(0)?])
}

/// `beta * a + alpha * b @ c`, where `c` may be a vector.
fn sum_and_product(call: &Call<'_>, vector: bool) -> Result<(), Failure> {
    let mut a = call.array(0)?;
    let b = call.array(1)?;
    let mut c = call.array(2)?;
    let beta = call.scalar(3)?;
    let alpha = call.scalar(4)?;
    let mut out = call.out(0)?;
    if vector {
        for array in [&mut a, &mut c, &mut out] {
            let mut shape = array.shape().to_vec();
            shape.push(1);
            *array = array.reshaped(shape)?;
        }
    }
    let product = |out: &Array, bias: Option<&Array>| {
        let mut inputs = vec![(&b).into(), (&c).into()];
        inputs.extend(bias.map(Into::into));
        call.run(Operator::MatMul, &inputs, &[out])
    };
    if beta.as_f64() == 0.0 {
        // Then PyTorch does not read it, also where it has no number.
        product(&out, None)?;
        return scale(call, &out, alpha.as_f64());
    }
    if beta.as_f64() == 1.0 && alpha.as_f64() == 1.0 && !a.shares_memory(&out) {
        return product(&out, Some(&a));
    }
    let scaled = call.scratch(&out, out.dtype, out.shape())?;
    product(&scaled, None)?;
    scale(call, &scaled, alpha.as_f64())?;
    let bias = call.scratch(&out, a.dtype, a.shape())?;
    call.run(Binary::Mul, &[a.into(), beta.into()], &[&bias])?;
    call.run(Binary::Add, &[bias.into(), scaled.into()], &[&out])
}

fn scale(call: &Call<'_>, array: &Array, by: f64) -> Result<(), Failure> {
    if by == 1.0 { Ok(()) } else { call.run(Binary::Mul, &[array.into(), by.into()], &[array]) }
}

fn dot(call: &Call<'_>) -> Result<(), Failure> {
    let a = call.array(0)?;
    let b = call.array(1)?;
    let len = a.layout.len();
    if a.shape() != b.shape() || a.rank() != 1 || a.dtype != b.dtype {
        return Err(Failure::declined("the CPU says what is wrong"));
    }
    let out = call.result(&a, a.dtype, &[])?.reshaped([1, 1])?;
    let row = a.reshaped([1, len])?;
    let column = b.reshaped([len, 1])?;
    call.run(Operator::MatMul, &[row.into(), column.into()], &[&out])
}
