//! Convolutions and pools.

use device_kernels::{Conv2d, DType, Dims, Operator, Pool2d, Reduction};

use crate::failure::Failure;
use crate::operators::Row;
use crate::operators::call::{Array, Call};

pub(super) const TABLE: &[Row] = &[
    ("convolution_overrideable", convolution),
    ("convolution_backward_overrideable", convolution_grad),
    ("max_pool2d_with_indices.out", max_pool),
    ("max_pool2d_with_indices_backward.grad_input", max_pool_grad),
    ("avg_pool2d.out", avg_pool),
    ("avg_pool2d_backward.grad_input", avg_pool_grad),
    ("_adaptive_avg_pool2d", adaptive_pool),
    ("_adaptive_avg_pool2d_backward", adaptive_pool_grad),
];

/// A number for both directions, or one for each.
fn pair(list: &[i64]) -> Result<[usize; 2], Failure> {
    let number = |number: i64| usize::try_from(number).map_err(Failure::declined);
    match *list {
        [both] => Ok([number(both)?; 2]),
        [y, x] => Ok([number(y)?, number(x)?]),
        _ => Err(Failure::declined("it has no two directions")),
    }
}

/// The steps of a convolution that is not transposed, whose arguments begin at `place`.
fn steps(call: &Call<'_>, place: usize) -> Result<Conv2d, Failure> {
    if call.bool(place + 3)? {
        return Err(Failure::declined("it is transposed"));
    }
    Ok(Conv2d {
        stride: pair(call.ints(place)?)?,
        padding: pair(call.ints(place + 1)?)?,
        dilation: pair(call.ints(place + 2)?)?,
        groups: usize::try_from(call.int(place + 5)?).map_err(Failure::declined)?,
    })
}

/// How many windows there are in a direction.
fn windows(
    size: usize,
    kernel: usize,
    stride: usize,
    padding: usize,
    dilation: usize,
) -> Result<usize, Failure> {
    let reach = dilation.checked_mul(kernel.saturating_sub(1)).and_then(|reach| reach.checked_add(1));
    let room = padding.checked_mul(2).and_then(|padding| padding.checked_add(size));
    match (reach, room) {
        (Some(reach), Some(room)) if reach <= room && stride > 0 => Ok((room - reach) / stride + 1),
        _ => Err(Failure::declined("the CPU says what is wrong")),
    }
}

fn convolution(call: &Call<'_>) -> Result<(), Failure> {
    let images = call.array(0)?;
    let weights = call.array(1)?;
    let bias = call.optional(2)?;
    let conv = steps(call, 3)?;
    let (&[count, _, height, width], &[channels, _, y, x]) = (images.shape(), weights.shape()) else {
        return Err(Failure::declined("it has no images of two dimensions"));
    };
    let size = |size, kernel, dim: usize| {
        windows(size, kernel, conv.stride[dim], conv.padding[dim], conv.dilation[dim])
    };
    // Contiguous whatever the images are, as PyTorch's fake tensors say of a device such as this.
    let shape = [count, channels, size(height, y, 0)?, size(width, x, 1)?];
    let out = call.result(&images, images.dtype, &shape)?;
    let mut inputs = vec![images.into(), weights.into()];
    inputs.extend(bias.map(Into::into));
    call.run(Operator::Conv2d(conv), &inputs, &[&out])
}

/// The results are the gradients of images, weights and bias, as many as the mask asks for.
fn convolution_grad(call: &Call<'_>) -> Result<(), Failure> {
    let grad = call.array(0)?;
    let images = call.array(1)?;
    let weights = call.array(2)?;
    let conv = steps(call, 3)?;
    let &[of_images, of_weights, of_bias] = call.ints(9)? else {
        return Err(Failure::declined("its mask has not three parts"));
    };
    if of_images != 0 {
        let out = call.result(&images, images.dtype, images.shape())?;
        call.run(Operator::Conv2dInputGrad(conv), &[(&grad).into(), (&weights).into()], &[&out])?;
    } else {
        call.no_result()?;
    }
    if of_weights != 0 {
        let out = call.result(&weights, weights.dtype, weights.shape())?;
        call.run(Operator::Conv2dWeightGrad(conv), &[images.into(), (&grad).into()], &[&out])?;
    } else {
        call.no_result()?;
    }
    if of_bias != 0 {
        let channels = weights.shape()[0];
        let out = call.result(&grad, grad.dtype, &[channels])?.reshaped([1, channels, 1, 1])?;
        let operator = Operator::Reduce { reduction: Reduction::Sum, dims: Dims::from([0, 2, 3]) };
        call.run(operator, &[grad.into()], &[&out])?;
    } else {
        call.no_result()?;
    }
    Ok(())
}

/// Images with a batch, which PyTorch leaves out where it is of one.
fn batch(array: Array) -> Result<Array, Failure> {
    match *array.shape() {
        [c, h, w] => array.reshaped([1, c, h, w]),
        _ => Ok(array),
    }
}

/// The windows of a pool, whose arguments begin at `place`.
fn pool(kernel: &[i64], stride: &[i64], padding: &[i64], dilation: [usize; 2]) -> Result<Pool2d, Failure> {
    let kernel = pair(kernel)?;
    let stride = if stride.is_empty() { kernel } else { pair(stride)? };
    Ok(Pool2d { kernel, stride, padding: pair(padding)?, dilation })
}

fn max_pool(call: &Call<'_>) -> Result<(), Failure> {
    let pool = pool(call.ints(1)?, call.ints(2)?, call.ints(3)?, pair(call.ints(4)?)?)?;
    let images = batch(call.array(0)?)?;
    let out = batch(call.out(1)?)?;
    let places = batch(call.out(0)?)?;
    call.run(Operator::MaxPool2d(pool), &[images.into()], &[&out, &places])
}

fn max_pool_grad(call: &Call<'_>) -> Result<(), Failure> {
    let pool = pool(call.ints(2)?, call.ints(3)?, call.ints(4)?, pair(call.ints(5)?)?)?;
    let grad = batch(call.array(0)?)?;
    let places = batch(call.array(7)?)?;
    let out = batch(call.out(0)?)?;
    if places.dtype != DType::I64 {
        return Err(Failure::declined("its places are of another type"));
    }
    call.run(Operator::MaxPool2dGrad(pool), &[grad.into(), places.into()], &[&out])
}

fn avg_pool(call: &Call<'_>) -> Result<(), Failure> {
    let pool = pool(call.ints(1)?, call.ints(2)?, call.ints(3)?, [1, 1])?;
    if call.bool(4)? || !call.is_none(6) {
        return Err(Failure::declined("no kernel rounds up, or divides by another number"));
    }
    let images = batch(call.array(0)?)?;
    let out = batch(call.out(0)?)?;
    call.run(Operator::AvgPool2d { pool, count_padding: call.bool(5)? }, &[images.into()], &[&out])
}

fn avg_pool_grad(call: &Call<'_>) -> Result<(), Failure> {
    let pool = pool(call.ints(2)?, call.ints(3)?, call.ints(4)?, [1, 1])?;
    if call.bool(5)? || !call.is_none(7) {
        return Err(Failure::declined("no kernel rounds up, or divides by another number"));
    }
    let grad = batch(call.array(0)?)?;
    let out = batch(call.out(0)?)?;
    call.run(Operator::AvgPool2dGrad { pool, count_padding: call.bool(6)? }, &[grad.into()], &[&out])
}

fn adaptive_pool(call: &Call<'_>) -> Result<(), Failure> {
    let (images, [y, x]) = (call.array(0)?, pair(call.ints(1)?)?);
    let mut shape = images.shape().to_vec();
    if !(3..=4).contains(&shape.len()) {
        return Err(Failure::declined("the CPU says what is wrong"));
    }
    let last = shape.len() - 2;
    shape[last..].copy_from_slice(&[y, x]);
    let out = batch(call.result_in_order(&images, images.dtype, &shape)?)?;
    call.run(Operator::AdaptiveAvgPool2d, &[batch(images)?.into()], &[&out])
}

fn adaptive_pool_grad(call: &Call<'_>) -> Result<(), Failure> {
    let grad = batch(call.array(0)?)?;
    let images = call.array(1)?;
    let out = batch(call.result_in_order(&images, images.dtype, images.shape())?)?;
    call.run(Operator::AdaptiveAvgPool2dGrad, &[grad.into()], &[&out])
}
