//! Losses, by the operators of elements and dimensions.

use device_kernels::{Binary, Compare, DType, Dims, Operator, Reduction, Scalar, Unary, Update};

use crate::failure::Failure;
use crate::operators::Row;
use crate::operators::call::{Array, Call, wide};

pub(super) const TABLE: &[Row] = &[
    ("mse_loss", mse),
    ("mse_loss_backward", mse_grad),
    ("nll_loss_forward", nll),
    ("nll_loss_backward", nll_grad),
];

/// What a loss does over its elements.
#[derive(Clone, Copy, PartialEq)]
enum Over {
    Each,
    Mean,
    Sum,
}

impl Over {
    /// By PyTorch's number, an argument.
    fn of(call: &Call<'_>, place: usize) -> Result<Self, Failure> {
        match call.int(place)? {
            0 => Ok(Self::Each),
            1 => Ok(Self::Mean),
            2 => Ok(Self::Sum),
            _ => Err(Failure::declined("it is none of the reductions of a loss")),
        }
    }
}

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
    let a = call.array(0)?;
    let b = call.array(1)?;
    let kind = Over::of(call, 2)?;
    let difference = difference(call, &a, &b)?;
    let square = [(&difference).into(), (&difference).into()];
    if kind == Over::Each {
        let out = call.result_in_order(&a, a.dtype, a.shape())?;
        return call.run_narrowing(Binary::Mul, &square, &out);
    }
    call.run(Binary::Mul, &square, &[&difference])?;
    let reduction = if kind == Over::Mean { Reduction::Mean } else { Reduction::Sum };
    let out = call.result(&a, a.dtype, &[])?.reshaped(vec![1; a.rank()])?;
    let dims = Dims::all(a.rank());
    call.run_narrowing(Operator::Reduce { reduction, dims }, &[difference.into()], &out)
}

/// `2 * grad * (a - b)`, divided by the number of elements for a mean.
fn mse_grad(call: &Call<'_>) -> Result<(), Failure> {
    let grad = call.array(0)?;
    let a = call.array(1)?;
    let b = call.array(2)?;
    let kind = Over::of(call, 3)?;
    let difference = difference(call, &a, &b)?;
    let factor = if kind == Over::Mean { 2.0 / a.layout.len() as f64 } else { 2.0 };
    call.run(Binary::Mul, &[(&difference).into(), factor.into()], &[&difference])?;
    let out = call.result(&a, a.dtype, a.shape())?;
    let grad = call.converted(grad.into(), difference.dtype)?;
    call.run_narrowing(Binary::Mul, &[difference.into(), grad], &out)
}

/// What the negative log likelihood is of: a row of numbers for each target.
struct Likelihood {
    rows: Array,
    /// The class of each row; 0 where it is ignored.
    classes: Array,
    /// Whether the class counts.
    counted: Array,
    /// 1 where it does, and 0 elsewhere.
    counts: Array,
}

impl Likelihood {
    /// Reads the arguments from `place` on: rows, targets, weights, reduction and the class that is ignored.
    fn of(call: &Call<'_>, place: usize) -> Result<Self, Failure> {
        let rows = call.array(place)?;
        let targets = call.array(place + 1)?;
        let [count, _] = *rows.shape() else { return Err(Failure::declined("it is not of rows")) };
        if !call.is_none(place + 2)
            || !matches!(rows.dtype, DType::F32 | DType::F64)
            || targets.shape() != [count]
        {
            return Err(Failure::declined("no kernel has weights of classes, or its type"));
        }
        let ignored = call.scalar(place + 4)?;
        let targets = targets.reshaped([count, 1])?;
        let counted = call.scratch(&rows, DType::Bool, &[count, 1])?;
        call.run(Compare::Ne, &[(&targets).into(), ignored.into()], &[&counted])?;
        let classes = call.scratch(&rows, targets.dtype, &[count, 1])?;
        call.run(Operator::Where, &[(&counted).into(), targets.into(), Scalar::Int(0).into()], &[&classes])?;
        let counts = call.scratch(&rows, rows.dtype, &[count, 1])?;
        call.run(Operator::Copy, &[(&counted).into()], &[&counts])?;
        Ok(Self { rows, classes, counted, counts })
    }
}

/// The results are the loss, and by what a mean is divided.
fn nll(call: &Call<'_>) -> Result<(), Failure> {
    let Likelihood { rows, classes, counted, counts } = Likelihood::of(call, 0)?;
    let kind = Over::of(call, 3)?;
    let count = rows.shape()[0];
    let losses = match kind {
        Over::Each => call.result(&rows, rows.dtype, &[count])?.reshaped([count, 1])?,
        _ => call.scratch(&rows, rows.dtype, &[count, 1])?,
    };
    call.run(Operator::Gather { dim: 1 }, &[(&rows).into(), classes.into()], &[&losses])?;
    call.run(Unary::Neg, &[(&losses).into()], &[&losses])?;
    // Not a product: what is ignored may be infinite.
    call.run(Operator::Where, &[counted.into(), (&losses).into(), 0.0.into()], &[&losses])?;
    let sum = Operator::Reduce { reduction: Reduction::Sum, dims: Dims::all(2) };
    if kind == Over::Each {
        let total = call.result(&rows, rows.dtype, &[])?;
        return call.run(Operator::Copy, &[Scalar::Int(0).into()], &[&total]);
    }
    let loss = call.result(&rows, rows.dtype, &[])?.reshaped([1, 1])?;
    let total = call.result(&rows, rows.dtype, &[])?.reshaped([1, 1])?;
    call.run(sum, &[losses.into()], &[&loss])?;
    call.run(sum, &[counts.into()], &[&total])?;
    if kind == Over::Mean {
        call.run(Binary::Div, &[(&loss).into(), total.into()], &[&loss])?;
    }
    Ok(())
}

fn nll_grad(call: &Call<'_>) -> Result<(), Failure> {
    let Likelihood { rows, classes, counted, counts } = Likelihood::of(call, 1)?;
    let grad = call.array(0)?;
    let kind = Over::of(call, 4)?;
    let total = call.array(6)?;
    let count = rows.shape()[0];
    let grad = if kind == Over::Each { grad.reshaped([count, 1])? } else { grad.reshaped([1, 1])? };
    call.run(Unary::Neg, &[(&counts).into()], &[&counts])?;
    call.run(Binary::Mul, &[(&counts).into(), grad.into()], &[&counts])?;
    if kind == Over::Mean {
        call.run(Binary::Div, &[(&counts).into(), total.reshaped([1, 1])?.into()], &[&counts])?;
    }
    call.run(Operator::Where, &[counted.into(), (&counts).into(), 0.0.into()], &[&counts])?;
    let out = call.result(&rows, rows.dtype, rows.shape())?;
    call.run(Operator::Copy, &[Scalar::Int(0).into()], &[&out])?;
    let operator = Operator::Scatter { dim: 1, update: Update::Replace };
    call.run(operator, &[classes.into(), counts.into()], &[&out])
}
