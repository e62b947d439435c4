//! Normalizations, by the operators of elements and dimensions.

use device_kernels::{Binary, DType, Dims, Operator, Reduction, Unary};

use crate::failure::Failure;
use crate::operators::Row;
use crate::operators::call::{Array, Call, Input};

pub(super) const TABLE: &[Row] =
    &[("native_layer_norm", layer_norm), ("native_layer_norm_backward", layer_norm_grad)];

/// How many rows an array has, and how many elements a row has over which it is normalized.
fn rows(array: &Array, normalized: &[i64]) -> Result<[usize; 2], Failure> {
    let Some(split) = array.rank().checked_sub(normalized.len()) else {
        return Err(Failure::declined("the CPU says what is wrong"));
    };
    let (outer, inner) = array.shape().split_at(split);
    let fits = inner.iter().map(|&size| size as i64).eq(normalized.iter().copied());
    // Of halves, the CPU computes mean and deviation in another type.
    if !fits
        || normalized.is_empty()
        || array.layout.len() == 0
        || !matches!(array.dtype, DType::F32 | DType::F64)
    {
        return Err(Failure::declined("no kernel normalizes its shape or type"));
    }
    Ok([outer.iter().product(), inner.iter().product()])
}

/// The mean of each row.
fn mean(call: &Call<'_>, array: &Array, out: &Array) -> Result<(), Failure> {
    let operator = Operator::Reduce { reduction: Reduction::Mean, dims: Dims::from([1]) };
    call.run(operator, &[array.into()], &[out])
}

/// The results are the normalized array, the mean of each row, and one divided by its deviation.
fn layer_norm(call: &Call<'_>) -> Result<(), Failure> {
    let (input, weight, bias) = (call.array(0)?, call.optional(2)?, call.optional(3)?);
    let normalized = call.ints(1)?;
    let [count, len] = rows(&input, normalized)?;
    let epsilon = call.scalar(4)?;
    let shape = [count, len];
    let out = call.result(&input, input.dtype, input.shape())?.reshaped(shape)?;
    let mut of_rows = input.shape().to_vec();
    let split = of_rows.len() - normalized.len();
    of_rows[split..].fill(1);
    let means = call.result(&input, input.dtype, &of_rows)?.reshaped([count, 1])?;
    let scales = call.result(&input, input.dtype, &of_rows)?.reshaped([count, 1])?;
    let input = call.contiguous(input)?.reshaped(shape)?;

    mean(call, &input, &means)?;
    call.run(Binary::Sub, &[input.into(), (&means).into()], &[&out])?;
    let square = call.scratch(&out, out.dtype, &shape)?;
    call.run(Binary::Mul, &[(&out).into(), (&out).into()], &[&square])?;
    mean(call, &square, &scales)?;
    call.run(Binary::Add, &[(&scales).into(), epsilon.into()], &[&scales])?;
    call.run(Unary::Sqrt, &[(&scales).into()], &[&scales])?;
    call.run(Unary::Recip, &[(&scales).into()], &[&scales])?;
    call.run(Binary::Mul, &[(&out).into(), scales.into()], &[&out])?;
    for (operator, array) in [(Binary::Mul, weight), (Binary::Add, bias)] {
        if let Some(array) = array {
            let row = call.contiguous(array)?.reshaped([1, len])?;
            call.run(operator, &[(&out).into(), row.into()], &[&out])?;
        }
    }
    Ok(())
}

/// The gradients of input, weight and bias, as many as the mask asks for. With the gradient `g` of the
/// normalized elements `x`, that of the input is `scale * (g - mean(g) - x * mean(g * x))`.
fn layer_norm_grad(call: &Call<'_>) -> Result<(), Failure> {
    let (grad, input) = (call.array(0)?, call.array(1)?);
    let [count, len] = rows(&input, call.ints(2)?)?;
    let (means, scales, weight) = (call.array(3)?, call.array(4)?, call.optional(5)?);
    let &[of_input, of_weight, of_bias] = call.ints(7)? else {
        return Err(Failure::declined("its mask has not three parts"));
    };
    let (shape, whole) = ([count, len], input.shape().to_vec());
    let grad = call.contiguous(grad)?.reshaped(shape)?;
    let input = call.contiguous(input)?.reshaped(shape)?;
    let (means, scales) = (means.reshaped([count, 1])?, scales.reshaped([count, 1])?);
    let scratch = || call.scratch(&grad, grad.dtype, &shape);
    let of_rows = || call.scratch(&grad, grad.dtype, &[count, 1]);

    let normalized = scratch()?;
    call.run(Binary::Sub, &[input.into(), means.into()], &[&normalized])?;
    call.run(Binary::Mul, &[(&normalized).into(), (&scales).into()], &[&normalized])?;
    let product = scratch()?;
    if of_input != 0 {
        let out = call.result(&grad, grad.dtype, &whole)?.reshaped(shape)?;
        let inner: Input = match &weight {
            Some(weight) => {
                let (row, inner) = (call.contiguous(weight.clone())?.reshaped([1, len])?, scratch()?);
                call.run(Binary::Mul, &[(&grad).into(), row.into()], &[&inner])?;
                inner.into()
            }
            None => (&grad).into(),
        };
        call.run(Binary::Mul, &[inner.clone(), (&normalized).into()], &[&product])?;
        let (mean_of_product, mean_of_inner) = (of_rows()?, of_rows()?);
        mean(call, &product, &mean_of_product)?;
        if let Some(inner) = inner.array() {
            mean(call, inner, &mean_of_inner)?;
        }
        call.run(Binary::Mul, &[(&normalized).into(), mean_of_product.into()], &[&product])?;
        call.run(Binary::Sub, &[inner, (&product).into()], &[&product])?;
        call.run(Binary::Sub, &[(&product).into(), mean_of_inner.into()], &[&product])?;
        call.run(Binary::Mul, &[(&product).into(), scales.into()], &[&out])?;
    } else {
        call.no_result()?;
    }
    let sum = Operator::Reduce { reduction: Reduction::Sum, dims: Dims::from([0]) };
    for (asked, times) in [(of_weight, Some(&normalized)), (of_bias, None)] {
        if asked == 0 {
            call.no_result()?;
            continue;
        }
        let out = call
            .result(&grad, grad.dtype, &whole[whole.len() - call.ints(2)?.len()..])?
            .reshaped([1, len])?;
        match times {
            Some(normalized) => {
                call.run(Binary::Mul, &[(&grad).into(), normalized.into()], &[&product])?;
                call.run(sum, &[(&product).into()], &[&out])?;
            }
            None => call.run(sum, &[(&grad).into()], &[&out])?,
        }
    }
    Ok(())
}
