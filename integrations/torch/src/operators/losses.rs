//! Losses, by the operators of elements and dimensions.

use device_kernels::{Binary, Dims, Operator, Reduction};

use crate::failure::Failure;
use crate::operators::Row;
use crate::operators::call::{Array, Call, wide};

pub(super) const TABLE: &[Row] = &[("mse_loss", mse), ("mse_loss_backward", mse_grad)];

/// PyTorch's numbers for what a loss does over its elements.
const NONE: i64 = 0;
const MEAN: i64 = 1;

/// `a - b`, in a type that is wide enough for what follows.
fn difference(call: &Call<'_>, a: &Array, b: &Array) -> Result<Array, Failure> {
    if a.shape() != b.shape() || a.dtype != b.dtype || a.layout.len() == 0 {
        return Err(Failure::declined("its shapes or types differ"));
    }
    let dtype = wide(a.dtype);
    let difference = call.scratch(a, dtype, a.shape())?;
    let inputs = [call.converted(a.into(), dtype)?, call.converted(b.into(), dtype)?];
    call.run(Binary::Sub, &inputs, &[&difference])?;
    Ok(difference)
}

fn mse(call: &Call<'_>) -> Result<(), Failure> {
    let (a, b, kind) = (call.array(0)?, call.array(1)?, call.int(2)?);
    let difference = difference(call, &a, &b)?;
    let square = [(&difference).into(), (&difference).into()];
    if kind == NONE {
        let out = call.result(&a, a.dtype, a.shape())?;
        return call.run_narrowing(Binary::Mul, &square, &out);
    }
    call.run(Binary::Mul, &square, &[&difference])?;
    let reduction = if kind == MEAN { Reduction::Mean } else { Reduction::Sum };
    let out = call.result(&a, a.dtype, &[])?.reshaped(vec![1; a.rank()])?;
    let dims = Dims::all(a.rank());
    call.run_narrowing(Operator::Reduce { reduction, dims }, &[difference.into()], &out)
}

/// `2 * grad * (a - b)`, divided by the number of elements for a mean.
fn mse_grad(call: &Call<'_>) -> Result<(), Failure> {
    let (grad, a, b, kind) = (call.array(0)?, call.array(1)?, call.array(2)?, call.int(3)?);
    let difference = difference(call, &a, &b)?;
    let factor = if kind == MEAN { 2.0 / a.layout.len() as f64 } else { 2.0 };
    call.run(Binary::Mul, &[(&difference).into(), factor.into()], &[&difference])?;
    let out = call.result(&a, a.dtype, a.shape())?;
    let grad = call.converted(grad.into(), difference.dtype)?;
    call.run_narrowing(Binary::Mul, &[difference.into(), grad], &out)
}
