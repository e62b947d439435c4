//! Operators on elements.

use device_kernels::Operator::{self, Clamp, Copy, Where};
use device_kernels::{Binary, Compare, DType, Scalar, Unary};

use crate::failure::Failure;
use crate::operators::Row;
use crate::operators::call::{Array, Call, Input, broadcast, wide};
use crate::operators::promotion::{fits, promoted};

pub(super) const TABLE: &[Row] = &[
    // One input.
    ("neg.out", |call| unary(call, Unary::Neg)),
    ("abs", |call| to_result(call, Unary::Abs)),
    ("abs.out", |call| unary(call, Unary::Abs)),
    ("sign.out", |call| unary(call, Unary::Sign)),
    ("sgn.out", |call| unary(call, Unary::Sign)),
    ("reciprocal.out", |call| float_unary(call, Unary::Recip)),
    ("sqrt.out", |call| float_unary(call, Unary::Sqrt)),
    ("exp.out", |call| float_unary(call, Unary::Exp)),
    ("log.out", |call| float_unary(call, Unary::Log)),
    ("log1p.out", |call| float_unary(call, Unary::Log1p)),
    ("sin.out", |call| float_unary(call, Unary::Sin)),
    ("cos.out", |call| float_unary(call, Unary::Cos)),
    ("tan.out", |call| float_unary(call, Unary::Tan)),
    ("asin.out", |call| float_unary(call, Unary::Asin)),
    ("acos.out", |call| float_unary(call, Unary::Acos)),
    ("atan.out", |call| float_unary(call, Unary::Atan)),
    ("sinh.out", |call| float_unary(call, Unary::Sinh)),
    ("cosh.out", |call| float_unary(call, Unary::Cosh)),
    ("tanh.out", |call| float_unary(call, Unary::Tanh)),
    ("asinh.out", |call| float_unary(call, Unary::Asinh)),
    ("acosh.out", |call| float_unary(call, Unary::Acosh)),
    ("atanh.out", |call| float_unary(call, Unary::Atanh)),
    ("erf.out", |call| float_unary(call, Unary::Erf)),
    ("floor.out", |call| unary(call, Unary::Floor)),
    ("ceil.out", |call| unary(call, Unary::Ceil)),
    ("round.out", |call| unary(call, Unary::Round)),
    ("trunc.out", |call| unary(call, Unary::Trunc)),
    ("sigmoid.out", |call| float_unary(call, Unary::Sigmoid)),
    ("bitwise_not.out", |call| unary(call, Unary::Not)),
    ("isneginf.out", |call| equals(call, f64::NEG_INFINITY)),
    ("isposinf.out", |call| equals(call, f64::INFINITY)),
    ("logical_not", |call| bools_to_result(call, Unary::Not)),
    ("logical_not.out", |call| of_bools(call, Unary::Not)),
    ("gelu.out", gelu),
    ("relu", |call| to_result(call, Unary::Relu)),
    ("relu_", in_place_relu),
    ("isnan", |call| predicate(call, Unary::IsNan)),
    ("isinf", |call| predicate(call, Unary::IsInf)),
    ("silu.out", silu),
    ("rsqrt.out", rsqrt),
    ("leaky_relu.out", leaky_relu),
    // Two inputs.
    ("add.out", |call| scaled(call, Binary::Add)),
    ("sub.out", |call| scaled(call, Binary::Sub)),
    ("mul.out", |call| binary(call, Binary::Mul)),
    ("div.out", divide),
    ("remainder.Tensor_out", |call| floats_of(call, Binary::Rem)),
    ("pow.Tensor_Tensor_out", |call| floats_of(call, Binary::Pow)),
    ("pow.Tensor_Scalar_out", |call| floats_of(call, Binary::Pow)),
    ("pow.Scalar_out", |call| floats_of(call, Binary::Pow)),
    ("maximum.out", |call| binary(call, Binary::Max)),
    ("minimum.out", |call| binary(call, Binary::Min)),
    ("atan2.out", |call| floats_of(call, Binary::Atan2)),
    ("bitwise_and.Tensor_out", |call| binary(call, Binary::And)),
    ("bitwise_or.Tensor_out", |call| binary(call, Binary::Or)),
    ("bitwise_xor.Tensor_out", |call| binary(call, Binary::Xor)),
    ("logical_and", |call| bools_to_result(call, Binary::And)),
    ("logical_or", |call| bools_to_result(call, Binary::Or)),
    ("logical_xor", |call| bools_to_result(call, Binary::Xor)),
    ("logical_and.out", |call| of_bools(call, Binary::And)),
    ("logical_or.out", |call| of_bools(call, Binary::Or)),
    ("logical_xor.out", |call| of_bools(call, Binary::Xor)),
    ("eq.Tensor_out", |call| compare(call, Compare::Eq)),
    ("eq.Scalar_out", |call| compare(call, Compare::Eq)),
    ("ne.Tensor_out", |call| compare(call, Compare::Ne)),
    ("ne.Scalar_out", |call| compare(call, Compare::Ne)),
    ("lt.Tensor_out", |call| compare(call, Compare::Lt)),
    ("lt.Scalar_out", |call| compare(call, Compare::Lt)),
    ("le.Tensor_out", |call| compare(call, Compare::Le)),
    ("le.Scalar_out", |call| compare(call, Compare::Le)),
    ("gt.Tensor_out", |call| compare(call, Compare::Gt)),
    ("gt.Scalar_out", |call| compare(call, Compare::Gt)),
    ("ge.Tensor_out", |call| compare(call, Compare::Ge)),
    ("ge.Scalar_out", |call| compare(call, Compare::Ge)),
    // Three inputs.
    ("where.self", where_result),
    ("where.self_out", where_out),
    ("clamp.out", clamp),
    ("clamp_min.out", |call| binary(call, Binary::Max)),
    ("clamp_max.out", |call| binary(call, Binary::Min)),
    ("addcmul.out", |call| add_product(call, Binary::Mul)),
    ("addcdiv.out", |call| add_product(call, Binary::Div)),
    ("lerp.Scalar_out", lerp),
    ("lerp.Tensor_out", lerp),
    ("masked_fill_.Scalar", masked_fill),
    ("masked_fill_.Tensor", masked_fill),
    // Gradients.
    ("threshold_backward.grad_input", relu_grad),
    ("sigmoid_backward.grad_input", |call| of_output(call, Binary::SigmoidGrad)),
    ("tanh_backward.grad_input", tanh_grad),
    // Copies and fills.
    ("fill_.Scalar", fill),
    ("fill_.Tensor", fill),
    ("zero_", zero),
    ("_copy_from", copy),
];

/// Declines unless PyTorch computes in the type of the output, which has all numbers. With `to_float`,
/// integers and booleans become the default float.
fn arithmetic(inputs: &[Input], out: &Array, to_float: bool) -> Result<(), Failure> {
    let computed = promoted(inputs);
    let becomes_float =
        to_float && out.dtype == DType::F32 && computed.is_some_and(|dtype| !dtype.is_float());
    if computed != Some(out.dtype) && !becomes_float {
        return Err(Failure::declined("the type of its output is not that of its arithmetic"));
    }
    let mut numbers = inputs.iter().filter_map(|input| match input {
        Input::Scalar(number) => Some(*number),
        Input::Array(_) => None,
    });
    if numbers.any(|number| !fits(number, wide(out.dtype))) {
        return Err(Failure::declined("a number is not one of its type"));
    }
    Ok(())
}

/// Inputs as the type of the output.
fn common<const N: usize>(
    call: &Call<'_>,
    inputs: [Input; N],
    out: &Array,
    to_float: bool,
) -> Result<[Input; N], Failure> {
    arithmetic(&inputs, out, to_float)?;
    let mut failure = None;
    let converted = inputs.map(|input| {
        call.converted(input, out.dtype).unwrap_or_else(|error| {
            failure.get_or_insert(error);
            Input::from(0.0)
        })
    });
    failure.map_or(Ok(converted), Err)
}

/// Computes with the inputs as the type of the output. Numbers beside halves are of 32 bits, as in PyTorch.
fn compute<const N: usize>(
    call: &Call<'_>,
    operator: impl Into<Operator>,
    inputs: [Input; N],
    out: &Array,
    to_float: bool,
) -> Result<(), Failure> {
    let mut inputs = common(call, inputs, out, to_float)?;
    let dtype = wide(out.dtype);
    if dtype != out.dtype && inputs.iter().any(|input| input.array().is_none()) {
        for input in &mut inputs {
            *input = call.converted(input.clone(), dtype)?;
        }
    }
    call.run_narrowing(operator, &inputs, out)
}

fn unary(call: &Call<'_>, unary: Unary) -> Result<(), Failure> {
    if call.run_alike(unary.into(), 1)? {
        return Ok(());
    }
    compute(call, unary, [call.input(0)?], &call.out(0)?, false)
}

/// For integers too, which become floats.
fn float_unary(call: &Call<'_>, unary: Unary) -> Result<(), Failure> {
    if call.run_alike(unary.into(), 1)? {
        return Ok(());
    }
    compute(call, unary, [call.input(0)?], &call.out(0)?, true)
}

fn to_result(call: &Call<'_>, unary: Unary) -> Result<(), Failure> {
    let input = call.array(0)?;
    let out = call.result_in_order(&input, input.dtype, input.shape())?;
    call.run(unary, &[input.into()], &[&out])
}

fn in_place_relu(call: &Call<'_>) -> Result<(), Failure> {
    let input = call.array(0)?;
    call.run(Unary::Relu, &[(&input).into()], &[&input])
}

fn predicate(call: &Call<'_>, unary: Unary) -> Result<(), Failure> {
    let input = call.array(0)?;
    let out = call.result_in_order(&input, DType::Bool, input.shape())?;
    call.run(unary, &[input.into()], &[&out])
}

fn equals(call: &Call<'_>, number: f64) -> Result<(), Failure> {
    let input = call.array(0)?;
    let out = call.out(0)?;
    if !input.dtype.is_float() {
        return Err(Failure::declined("its elements are never infinite"));
    }
    call.run(Compare::Eq, &[input.into(), number.into()], &[&out])
}

/// The arrays in front of the output; of another type than booleans, they would be converted first.
fn bools(call: &Call<'_>, operator: Operator) -> Result<Vec<Array>, Failure> {
    let count = if matches!(operator, Operator::Unary(_)) { 1 } else { 2 };
    let arrays = (0..count).map(|place| call.array(place)).collect::<Result<Vec<_>, _>>()?;
    if arrays.iter().any(|array| array.dtype != DType::Bool) {
        return Err(Failure::declined("no kernel converts to a boolean first"));
    }
    Ok(arrays)
}

fn of_bools(call: &Call<'_>, operator: impl Into<Operator>) -> Result<(), Failure> {
    let operator = operator.into();
    let out = call.out(0)?;
    let inputs: Vec<Input> = bools(call, operator)?.into_iter().map(Input::from).collect();
    call.run(operator, &inputs, &[&out])
}

/// A result of the shape of all arrays together. Its dimensions are in the order of the first array that has
/// that shape.
fn result_of<'a>(
    call: &Call<'_>,
    arrays: impl Iterator<Item = &'a Array> + Clone,
    dtype: DType,
) -> Result<Array, Failure> {
    let shape = broadcast(arrays.clone().map(Array::shape))?;
    let Some(first) = arrays.clone().find(|array| array.shape() == &*shape).or(arrays.clone().next()) else {
        return Err(Failure::declined("it has no array"));
    };
    call.result_in_order(first, dtype, &shape)
}

fn bools_to_result(call: &Call<'_>, operator: impl Into<Operator>) -> Result<(), Failure> {
    let operator = operator.into();
    let arrays = bools(call, operator)?;
    let out = result_of(call, arrays.iter(), DType::Bool)?;
    let inputs: Vec<Input> = arrays.into_iter().map(Input::from).collect();
    call.run(operator, &inputs, &[&out])
}

fn gelu(call: &Call<'_>) -> Result<(), Failure> {
    match call.text(1) {
        Some("none") | None => unary(call, Unary::Gelu),
        _ => Err(Failure::declined("no kernel approximates it")),
    }
}

fn silu(call: &Call<'_>) -> Result<(), Failure> {
    let input = call.array(0)?;
    let out = call.out(0)?;
    let dtype = wide(input.dtype);
    let gate = call.scratch(&out, dtype, input.shape())?;
    let input = call.converted(input.into(), dtype)?;
    call.run(Unary::Sigmoid, std::slice::from_ref(&input), &[&gate])?;
    call.run_narrowing(Binary::Mul, &[input, gate.into()], &out)
}

fn rsqrt(call: &Call<'_>) -> Result<(), Failure> {
    let out = call.out(0)?;
    let dtype = wide(out.dtype);
    let [input] = common(call, [call.input(0)?], &out, true)?;
    let root = call.scratch(&out, dtype, out.shape())?;
    call.run(Unary::Sqrt, &[call.converted(input, dtype)?], &[&root])?;
    call.run_narrowing(Unary::Recip, &[root.into()], &out)
}

/// `max(a, 0) + slope * min(a, 0)`
fn leaky_relu(call: &Call<'_>) -> Result<(), Failure> {
    let input = call.array(0)?;
    let slope = call.scalar(1)?;
    let out = call.out(0)?;
    let dtype = wide(input.dtype);
    let shape = input.shape().to_vec();
    let below = call.scratch(&out, dtype, &shape)?;
    let above = call.scratch(&out, dtype, &shape)?;
    let input = call.converted(input.into(), dtype)?;
    call.run(Binary::Min, &[input.clone(), 0.0.into()], &[&below])?;
    call.run(Binary::Mul, &[(&below).into(), slope.into()], &[&below])?;
    call.run(Binary::Max, &[input, 0.0.into()], &[&above])?;
    call.run_narrowing(Binary::Add, &[above.into(), below.into()], &out)
}

fn binary(call: &Call<'_>, binary: Binary) -> Result<(), Failure> {
    if call.run_alike(binary.into(), 2)? {
        return Ok(());
    }
    compute(call, binary, [call.input(0)?, call.input(1)?], &call.out(0)?, false)
}

/// For floats only: of integers, PyTorch has rules of its own for zero and for negative numbers.
fn floats_of(call: &Call<'_>, binary_of: Binary) -> Result<(), Failure> {
    if !call.out(0)?.dtype.is_float() {
        return Err(Failure::declined("PyTorch has rules of its own for integers"));
    }
    binary(call, binary_of)
}

fn divide(call: &Call<'_>) -> Result<(), Failure> {
    let out = call.out(0)?;
    if !out.dtype.is_float() {
        return Err(Failure::declined("a quotient is a float"));
    }
    if call.run_alike(Binary::Div.into(), 2)? {
        return Ok(());
    }
    compute(call, Binary::Div, [call.input(0)?, call.input(1)?], &out, true)
}

/// `a + alpha * b`
fn scaled(call: &Call<'_>, binary_of: Binary) -> Result<(), Failure> {
    if call.is(2, 1.0) {
        return binary(call, binary_of);
    }
    let alpha = call.scalar(2)?;
    let out = call.out(0)?;
    let dtype = wide(out.dtype);
    let [a, b] = common(call, [call.input(0)?, call.input(1)?], &out, false)?;
    let [a, b] = [call.converted(a, dtype)?, call.converted(b, dtype)?];
    let scaled = match &b {
        Input::Array(array) => {
            let scaled = call.scratch(&out, dtype, array.shape())?;
            call.run(Binary::Mul, &[b.clone(), alpha.into()], &[&scaled])?;
            scaled.into()
        }
        Input::Scalar(Scalar::Int(number)) => Input::Scalar(Scalar::Int(number.wrapping_mul(alpha.as_i64()))),
        Input::Scalar(number) => (number.as_f64() * alpha.as_f64()).into(),
    };
    call.run_narrowing(binary_of, &[a, scaled], &out)
}

fn compare(call: &Call<'_>, compare: Compare) -> Result<(), Failure> {
    let a = call.input(0)?;
    let b = call.input(1)?;
    let out = call.out(0)?;
    // A number of another kind than the array's would have to convert the array.
    let fits = match (&a, &b) {
        (Input::Array(a), Input::Array(b)) => a.dtype == b.dtype,
        // A number may be an element of the CPU, whose type counts beside an array without dimensions.
        (Input::Array(a), Input::Scalar(b)) | (Input::Scalar(b), Input::Array(a)) => {
            a.rank() > 0 && a.dtype != DType::F16 && a.dtype != DType::BF16 && fits(*b, a.dtype)
        }
        _ => false,
    };
    if !fits {
        return Err(Failure::declined("what is compared has several types"));
    }
    call.run(compare, &[a, b], &[&out])
}

fn where_result(call: &Call<'_>) -> Result<(), Failure> {
    let condition = call.array(0)?;
    let a = call.input(1)?;
    let b = call.input(2)?;
    let dtype = match (&a, &b) {
        (Input::Array(a), Input::Array(b)) if a.dtype == b.dtype => a.dtype,
        (Input::Array(a), Input::Scalar(scalar)) | (Input::Scalar(scalar), Input::Array(a))
            if a.rank() > 0 && fits(*scalar, a.dtype) =>
        {
            a.dtype
        }
        _ => return Err(Failure::declined("it has several types")),
    };
    let arrays = [Some(&condition), a.array(), b.array()];
    let out = result_of(call, arrays.into_iter().flatten(), dtype)?;
    call.run(Where, &[condition.into(), a, b], &[&out])
}

fn where_out(call: &Call<'_>) -> Result<(), Failure> {
    let condition = call.array(0)?;
    let out = call.out(0)?;
    let [a, b] = common(call, [call.input(1)?, call.input(2)?], &out, false)?;
    call.run(Where, &[condition.into(), a, b], &[&out])
}

fn clamp(call: &Call<'_>) -> Result<(), Failure> {
    let out = call.out(0)?;
    let input = call.input(0)?;
    match (call.is_none(1), call.is_none(2)) {
        (false, false) => compute(call, Clamp, [input, call.input(1)?, call.input(2)?], &out, false),
        (false, true) => compute(call, Binary::Max, [input, call.input(1)?], &out, false),
        (true, false) => compute(call, Binary::Min, [input, call.input(2)?], &out, false),
        (true, true) => Err(Failure::declined("it has no limit")),
    }
}

/// `a + value * (b * c)`, or `/` for the last.
fn add_product(call: &Call<'_>, product_of: Binary) -> Result<(), Failure> {
    let value = call.scalar(3)?;
    let out = call.out(0)?;
    let dtype = wide(out.dtype);
    let [a, b, c] = common(call, [call.input(0)?, call.input(1)?, call.input(2)?], &out, false)?;
    let [a, b, c] = [call.converted(a, dtype)?, call.converted(b, dtype)?, call.converted(c, dtype)?];
    let shape = broadcast([&b, &c].into_iter().filter_map(|input| input.array()).map(Array::shape))?;
    let product = call.scratch(&out, dtype, &shape)?;
    call.run(product_of, &[b, c], &[&product])?;
    if value.as_f64() != 1.0 {
        call.run(Binary::Mul, &[(&product).into(), value.into()], &[&product])?;
    }
    call.run_narrowing(Binary::Add, &[a, product.into()], &out)
}

/// `a + weight * (b - a)` for a weight below a half, and else `b - (1 - weight) * (b - a)`, which is exact
/// for 1.
fn lerp(call: &Call<'_>) -> Result<(), Failure> {
    let out = call.out(0)?;
    let weight = call.input(2)?;
    let Input::Scalar(weight) = weight else {
        return Err(Failure::declined("no kernel has a weight for each element"));
    };
    if !out.dtype.is_float() {
        return Err(Failure::declined("its elements are integers"));
    }
    let dtype = wide(out.dtype);
    let weight = weight.as_f64();
    let [a, b] = common(call, [call.input(0)?, call.input(1)?], &out, false)?;
    let [a, b] = [call.converted(a, dtype)?, call.converted(b, dtype)?];
    let way = call.scratch(&out, dtype, out.shape())?;
    call.run(Binary::Sub, &[b.clone(), a.clone()], &[&way])?;
    let (from, part, operator) =
        if weight.abs() < 0.5 { (a, weight, Binary::Add) } else { (b, 1.0 - weight, Binary::Sub) };
    call.run(Binary::Mul, &[(&way).into(), part.into()], &[&way])?;
    call.run_narrowing(operator, &[from, way.into()], &out)
}

/// The value for a fill: a number of the array's type, or an array without dimensions.
fn value_of(call: &Call<'_>, place: usize, array: &Array) -> Result<Input, Failure> {
    match call.input(place)? {
        Input::Scalar(number) if !fits(number, array.dtype) => {
            Err(Failure::declined("the number is not one of its type"))
        }
        Input::Array(value) if value.rank() > 0 || value.dtype != array.dtype => {
            Err(Failure::declined("the value has dimensions, or is of another type"))
        }
        value => Ok(value),
    }
}

fn masked_fill(call: &Call<'_>) -> Result<(), Failure> {
    let array = call.array(0)?;
    let mask = call.array(1)?;
    let value = value_of(call, 2, &array)?;
    call.run(Where, &[mask.into(), value, (&array).into()], &[&array])
}

fn relu_grad(call: &Call<'_>) -> Result<(), Failure> {
    let grad = call.array(0)?;
    let output = call.array(1)?;
    let out = call.out(0)?;
    if !call.is(2, 0.0) {
        return Err(Failure::declined("no kernel has another threshold than 0"));
    }
    call.run(Binary::ReluGrad, &[output.into(), grad.into()], &[&out])
}

/// A gradient of the output's and the output.
fn of_output(call: &Call<'_>, binary: Binary) -> Result<(), Failure> {
    let grad = call.array(0)?;
    let output = call.array(1)?;
    let out = call.out(0)?;
    call.run(binary, &[output.into(), grad.into()], &[&out])
}

/// `grad * (1 - output * output)`
fn tanh_grad(call: &Call<'_>) -> Result<(), Failure> {
    let grad = call.array(0)?;
    let output = call.array(1)?;
    let out = call.out(0)?;
    let dtype = wide(out.dtype);
    let slope = call.scratch(&out, dtype, output.shape())?;
    let output = call.converted(output.into(), dtype)?;
    call.run(Binary::Mul, &[output.clone(), output], &[&slope])?;
    call.run(Binary::Sub, &[1.0.into(), (&slope).into()], &[&slope])?;
    call.run_narrowing(Binary::Mul, &[call.converted(grad.into(), dtype)?, slope.into()], &out)
}

fn fill(call: &Call<'_>) -> Result<(), Failure> {
    let array = call.array(0)?;
    // All numbers but zero are true.
    let value = match (array.dtype, call.input(1)?) {
        (DType::Bool, Input::Scalar(number)) => Scalar::Bool(number.as_bool()).into(),
        (dtype, Input::Scalar(Scalar::Bool(number))) if dtype.is_float() => {
            f64::from(u8::from(number)).into()
        }
        _ => value_of(call, 1, &array)?,
    };
    call.run(Copy, &[value], &[&array])
}

fn zero(call: &Call<'_>) -> Result<(), Failure> {
    let array = call.array(0)?;
    call.run(Copy, &[Scalar::Int(0).into()], &[&array])
}

/// Between layouts and types, within a device. From floats to integers, PyTorch converts as C does, which
/// differs where a number is out of range.
fn copy(call: &Call<'_>) -> Result<(), Failure> {
    let source = call.array(0)?;
    let destination = call.array(1)?;
    if source.dtype.is_float() && destination.dtype.is_integer() {
        return Err(Failure::declined("a float is converted to an integer"));
    }
    call.run(Operator::Copy, &[source.into()], &[&destination])
}
