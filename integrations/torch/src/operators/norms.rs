//! Normalizations, by the operators of elements and dimensions.

use device_kernels::{Binary, DType, Dims, Operator, Reduction, Unary};

use crate::failure::Failure;
use crate::operators::Row;
use crate::operators::call::{Array, Call, Input};

pub(super) const TABLE: &[Row] = &[
    ("native_layer_norm", layer_norm),
    ("native_layer_norm_backward", layer_norm_grad),
    ("native_batch_norm", batch_norm),
    ("native_batch_norm_backward", batch_norm_grad),
];

/// How many rows an array has, and how many elements a row has over which it is normalized.
fn rows(array: &Array, normalized: &[i64]) -> Result<[usize; 2], Failure> {
    let Some(split) = array.rank().checked_sub(normalized.len()) else {
        return Err(Failure::declined("the CPU says what is wrong"));
    };
    let (outer, inner) = array.shape().split_at(split);
    let fits = inner.iter().map(|&size| size as i64).eq(normalized.iter().copied());
    // For halves, the CPU computes mean and deviation in another type.
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
    let input = call.array(0)?;
    let weight = call.optional(2)?;
    let bias = call.optional(3)?;
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
/// normalized elements `x`, the input's gradient is `scale * (g - mean(g) - x * mean(g * x))`.
fn layer_norm_grad(call: &Call<'_>) -> Result<(), Failure> {
    let grad = call.array(0)?;
    let input = call.array(1)?;
    let [count, len] = rows(&input, call.ints(2)?)?;
    let means = call.array(3)?;
    let scales = call.array(4)?;
    let weight = call.optional(5)?;
    let &[of_input, of_weight, of_bias] = call.ints(7)? else {
        return Err(Failure::declined("its mask has not three parts"));
    };
    let shape = [count, len];
    let whole = input.shape().to_vec();
    let grad = call.contiguous(grad)?.reshaped(shape)?;
    let input = call.contiguous(input)?.reshaped(shape)?;
    let means = means.reshaped([count, 1])?;
    let scales = scales.reshaped([count, 1])?;
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
                let row = call.contiguous(weight.clone())?.reshaped([1, len])?;
                let inner = scratch()?;
                call.run(Binary::Mul, &[(&grad).into(), row.into()], &[&inner])?;
                inner.into()
            }
            None => (&grad).into(),
        };
        call.run(Binary::Mul, &[inner.clone(), (&normalized).into()], &[&product])?;
        let mean_of_product = of_rows()?;
        let mean_of_inner = of_rows()?;
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

/// An array whose second dimension has channels, each of which is normalized.
struct Channels {
    input: Array,
    /// The other dimensions.
    dims: Dims,
    /// The shape of one number for each channel.
    shape: Vec<usize>,
    /// How many elements a channel has.
    len: usize,
}

impl Channels {
    fn of(input: Array) -> Result<Self, Failure> {
        let rank = input.rank();
        if rank < 2 || input.layout.len() == 0 || !matches!(input.dtype, DType::F32 | DType::F64) {
            return Err(Failure::declined("no kernel normalizes its shape or type"));
        }
        let mut shape = vec![1; rank];
        shape[1] = input.shape()[1];
        let len = input.layout.len() / shape[1];
        let dims = (0..rank).filter(|&dim| dim != 1).collect();
        Ok(Self { input, dims, shape, len })
    }

    /// One number for each channel, in one dimension as PyTorch has it.
    fn number(&self, array: Array) -> Result<Array, Failure> {
        if array.dtype != self.input.dtype {
            return Err(Failure::declined("it has several types"));
        }
        array.reshaped(&self.shape)
    }

    fn scratch(&self, call: &Call<'_>) -> Result<Array, Failure> {
        call.scratch(&self.input, self.input.dtype, &self.shape)
    }

    fn result(&self, call: &Call<'_>) -> Result<Array, Failure> {
        call.result(&self.input, self.input.dtype, &self.shape[1..2])?.reshaped(&self.shape)
    }

    fn like_input(&self, call: &Call<'_>) -> Result<Array, Failure> {
        call.scratch(&self.input, self.input.dtype, self.input.shape())
    }

    fn reduce(
        &self,
        call: &Call<'_>,
        reduction: Reduction,
        array: &Array,
        out: &Array,
    ) -> Result<(), Failure> {
        call.run(Operator::Reduce { reduction, dims: self.dims }, &[array.into()], &[out])
    }

    /// `1 / sqrt(variance + epsilon)`
    fn scale(&self, call: &Call<'_>, variance: &Array, epsilon: f64, out: &Array) -> Result<(), Failure> {
        call.run(Binary::Add, &[variance.into(), epsilon.into()], &[out])?;
        call.run(Unary::Sqrt, &[out.into()], &[out])?;
        call.run(Unary::Recip, &[out.into()], &[out])
    }

    /// `running + momentum * (now - running)`, in place.
    fn follow(&self, call: &Call<'_>, running: &Array, now: &Array, momentum: f64) -> Result<(), Failure> {
        let step = self.scratch(call)?;
        call.run(Binary::Sub, &[now.into(), running.into()], &[&step])?;
        call.run(Binary::Mul, &[(&step).into(), momentum.into()], &[&step])?;
        call.run(Binary::Add, &[running.into(), step.into()], &[running])
    }
}

/// The results are the normalized array, the mean of each channel, and one divided by its deviation; the
/// last two are empty where the running ones are used.
fn batch_norm(call: &Call<'_>) -> Result<(), Failure> {
    let channels = Channels::of(call.array(0)?)?;
    let number = |place| call.optional(place)?.map(|array| channels.number(array)).transpose();
    let weight = number(1)?;
    let bias = number(2)?;
    let running_mean = number(3)?;
    let running_variance = number(4)?;
    let training = call.bool(5)?;
    let momentum = call.scalar(6)?.as_f64();
    let epsilon = call.scalar(7)?.as_f64();
    let input = &channels.input;
    let out = call.result_in_order(input, input.dtype, input.shape())?;
    let (mean, scale);
    if training {
        (mean, scale) = (channels.result(call)?, channels.result(call)?);
        channels.reduce(call, Reduction::Mean, input, &mean)?;
        call.run(Binary::Sub, &[input.into(), (&mean).into()], &[&out])?;
        let square = channels.like_input(call)?;
        let variance = channels.scratch(call)?;
        call.run(Binary::Mul, &[(&out).into(), (&out).into()], &[&square])?;
        channels.reduce(call, Reduction::Mean, &square, &variance)?;
        channels.scale(call, &variance, epsilon, &scale)?;
        if let Some(running) = running_mean {
            channels.follow(call, &running, &mean, momentum)?;
        }
        if let Some(running) = running_variance {
            // PyTorch keeps the estimate for all elements that there could be.
            let unbiased = channels.len as f64 / (channels.len as f64 - 1.0);
            call.run(Binary::Mul, &[(&variance).into(), unbiased.into()], &[&variance])?;
            channels.follow(call, &running, &variance, momentum)?;
        }
    } else {
        let (Some(running_mean), Some(running_variance)) = (running_mean, running_variance) else {
            return Err(Failure::declined("the CPU says what is wrong"));
        };
        (mean, scale) = (running_mean, channels.scratch(call)?);
        channels.scale(call, &running_variance, epsilon, &scale)?;
        call.run(Binary::Sub, &[input.into(), (&mean).into()], &[&out])?;
        call.result(input, input.dtype, &[0])?;
        call.result(input, input.dtype, &[0])?;
    }
    call.run(Binary::Mul, &[(&out).into(), scale.into()], &[&out])?;
    for (operator, array) in [(Binary::Mul, weight), (Binary::Add, bias)] {
        if let Some(array) = array {
            call.run(operator, &[(&out).into(), array.into()], &[&out])?;
        }
    }
    Ok(())
}

/// The gradients of input, weight and bias, as many as the mask asks for. With the normalized elements `x`,
/// the input's gradient is `weight * scale * (grad - mean(grad) - x * mean(grad * x))`, and without the two
/// means where the running numbers were used.
fn batch_norm_grad(call: &Call<'_>) -> Result<(), Failure> {
    let channels = Channels::of(call.array(1)?)?;
    let number = |place| call.optional(place)?.map(|array| channels.number(array)).transpose();
    let grad = call.array(0)?;
    let input = &channels.input;
    let training = call.bool(7)?;
    let epsilon = call.scalar(8)?.as_f64();
    let &[of_input, of_weight, of_bias] = call.ints(9)? else {
        return Err(Failure::declined("its mask has not three parts"));
    };
    let wrong = || Failure::declined("the CPU says what is wrong");
    let (mean, scale) = if training {
        (number(5)?.ok_or_else(wrong)?, number(6)?.ok_or_else(wrong)?)
    } else {
        let scale = channels.scratch(call)?;
        channels.scale(call, &number(4)?.ok_or_else(wrong)?, epsilon, &scale)?;
        (number(3)?.ok_or_else(wrong)?, scale)
    };
    let weight = number(2)?;

    let normalized = channels.like_input(call)?;
    let product = channels.like_input(call)?;
    call.run(Binary::Sub, &[input.into(), mean.into()], &[&normalized])?;
    call.run(Binary::Mul, &[(&normalized).into(), (&scale).into()], &[&normalized])?;
    call.run(Binary::Mul, &[(&grad).into(), (&normalized).into()], &[&product])?;
    if of_input != 0 {
        let out = call.result_in_order(input, input.dtype, input.shape())?;
        if training {
            let of_grad = channels.scratch(call)?;
            let of_product = channels.scratch(call)?;
            channels.reduce(call, Reduction::Mean, &grad, &of_grad)?;
            channels.reduce(call, Reduction::Mean, &product, &of_product)?;
            call.run(Binary::Mul, &[(&normalized).into(), of_product.into()], &[&normalized])?;
            call.run(Binary::Sub, &[(&grad).into(), (&normalized).into()], &[&out])?;
            call.run(Binary::Sub, &[(&out).into(), of_grad.into()], &[&out])?;
        } else {
            call.run(Operator::Copy, &[(&grad).into()], &[&out])?;
        }
        for factor in [Some(scale), weight].into_iter().flatten() {
            call.run(Binary::Mul, &[(&out).into(), factor.into()], &[&out])?;
        }
    } else {
        call.no_result()?;
    }
    for (asked, array) in [(of_weight, &product), (of_bias, &grad)] {
        if asked == 0 {
            call.no_result()?;
        } else {
            let out = channels.result(call)?;
            channels.reduce(call, Reduction::Sum, array, &out)?;
        }
    }
    Ok(())
}
