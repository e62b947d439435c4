//! Operators of quantized models. Kernels have no `int8`: such elements are moved as bytes, and computed with
//! as wider numbers.

use device_kernels::{Binary, Compare, DType, Dims, Extremum, Operator, Reduction, Scalar, Unary};

use super::images::{CONV, Convolution, copy_images};
use super::{Plan, Row, declined};
use crate::context::{Array, Context, Input, Shape, dim};
use crate::failure::Failure;
use crate::node::Kind::Int;
use crate::node::Node;

pub(super) const ROWS: &[Row] = &[
    Row::new("ConvInteger", conv_integer).attributes(CONV),
    Row::new("DequantizeLinear", dequantize).attributes(&[("axis", Int), ("block_size", Int)]),
    Row::new("DynamicQuantizeLinear", dynamic_quantize),
    Row::new("MatMulInteger", matmul_integer),
    Row::new("QLinearConv", qlinear_conv).attributes(CONV),
    Row::new("QLinearMatMul", qlinear_matmul),
    Row::new("QuantizeLinear", quantize).attributes(&[
        ("axis", Int),
        ("block_size", Int),
        ("output_dtype", Int),
        ("saturate", Int),
    ]),
];

/// What is run in this type, and what makes numbers of `int8`.
const NEEDS: [(&str, DType); 6] = [
    ("copy", DType::U8),
    ("copy", DType::F32),
    ("copy", DType::I32),
    ("and", DType::I32),
    ("sub", DType::I32),
    ("xor", DType::I32),
];

/// An input as integers of 32 bits.
fn integers(context: &Context, node: Int8Inputs, at: usize) -> Result<Array, Failure> {
    let wide = context.converted(context.array(at)?, DType::I32)?;
    if !node.is_int8(at) {
        return Ok(wide);
    }
    // The highest bit of a byte counts -128, and not 128.
    context.binary(Binary::Sub, &context.binary(Binary::Xor, &wide, int(128))?, int(128))
}

fn int(value: i64) -> Input {
    Input::Scalar(Scalar::Int(value))
}

/// Which inputs are of `int8`, as bits.
#[derive(Clone, Copy)]
struct Int8Inputs(u32);

impl Int8Inputs {
    fn of(node: &Node) -> Self {
        Self((0..node.inputs.len()).filter(|&at| node.is_int8(at)).map(|at| 1 << at).sum())
    }

    fn is_int8(self, at: usize) -> bool {
        self.0 >> at & 1 == 1
    }
}

/// Declines inputs that are not of bytes.
fn expect_bytes(node: &Node, inputs: &[usize]) -> Result<(), Failure> {
    match inputs.iter().find(|&&at| node.has_input(at) && node.moved(at).is_ok_and(|it| it != DType::U8)) {
        Some(at) => declined(format_args!("input {at} is of no type of one byte")),
        None => inputs.iter().filter(|&&at| node.has_input(at)).try_for_each(|&at| node.moved(at).map(drop)),
    }
}

/// A parameter, of the whole array or of each place along an axis, as an array that is broadcast to it.
fn along(parameter: &Array, axis: i64, rank: usize) -> Result<Array, Failure> {
    if parameter.layout.len() == 1 {
        return parameter.reshaped(Shape::from_elem(1, rank));
    }
    if parameter.rank() != 1 {
        return declined(format_args!("a parameter of {} dimensions", parameter.rank()));
    }
    let mut shape = Shape::from_elem(1, rank);
    shape[dim(axis, rank)?] = parameter.layout.len();
    parameter.reshaped(shape)
}

/// Rounds quotients, moves them by the zero and writes them as bytes.
fn write_bytes(
    context: &Context,
    quotients: &Array,
    zero: Option<Array>,
    is_int8: bool,
    out: &Array,
) -> Result<(), Failure> {
    let mut value = context.unary(Unary::Round, quotients)?;
    if let Some(zero) = zero {
        value = context.binary(Binary::Add, &value, &context.converted(zero, DType::F32)?)?;
    }
    let (low, high) = if is_int8 { (-128.0, 127.0) } else { (0.0, 255.0) };
    context.run(Operator::Clamp, &[(&value).into(), low.into(), high.into()], &[&value])?;
    let mut value = context.converted(value, DType::I32)?;
    if is_int8 {
        value = context.binary(Binary::And, &value, int(255))?;
    }
    context.copy(&value, out)
}

/// What `write_bytes` needs.
fn of_bytes() -> impl Iterator<Item = (&'static str, DType)> {
    NEEDS.into_iter().chain(["add", "clamp", "div", "mul", "round"].map(|name| (name, DType::F32)))
}

fn expect_whole(node: &Node) -> Result<(), Failure> {
    match node.int_or("block_size", 0) {
        0 => Ok(()),
        size => declined(format_args!("blocks of {size}")),
    }
}

fn quantize(node: &Node) -> Result<Plan, Failure> {
    expect_whole(node)?;
    let makes_int8 = node.makes_int8(0);
    if !makes_int8 && node.output(0)? != DType::U8 {
        return declined("its output is of no type of one byte");
    }
    if node.input(0)? == DType::F64 {
        return declined("numbers of 64 bits");
    }
    let axis = node.int_or("axis", 1);
    let is = Int8Inputs::of(node);
    let scale = node.input(1)?;
    let needs = of_bytes().chain([("copy", node.input(0)?), ("copy", scale)]);
    Plan::new(needs, move |context| {
        let input = context.array(0)?;
        let rank = input.rank();
        let out = context.output(0, input.shape())?;
        let x = context.converted(input, DType::F32)?;
        let scale = along(&context.converted(context.array(1)?, DType::F32)?, axis, rank)?;
        let zero = match context.value(2)? {
            Some(_) => Some(along(&integers(context, is, 2)?, axis, rank)?),
            None => None,
        };
        write_bytes(context, &context.binary(Binary::Div, &x, &scale)?, zero, makes_int8, &out)
    })
}

fn dequantize(node: &Node) -> Result<Plan, Failure> {
    expect_whole(node)?;
    let dtype = node.output(0)?;
    match node.moved(0)? {
        DType::U8 | DType::I32 => {}
        other => return declined(format_args!("numbers of {other}")),
    }
    let axis = node.int_or("axis", 1);
    let is = Int8Inputs::of(node);
    let needs = NEEDS.into_iter().chain([("mul", DType::F32), ("copy", dtype), ("copy", node.input(1)?)]);
    Plan::new(needs, move |context| {
        let shape = context.shape_of_input(0)?;
        let out = context.output(0, &shape)?;
        let mut x = integers(context, is, 0)?;
        if context.value(2)?.is_some() {
            x = context.binary(Binary::Sub, &x, &along(&integers(context, is, 2)?, axis, shape.len())?)?;
        }
        let scale = context.converted(context.array(1)?, DType::F32)?;
        let x = context.converted(x, DType::F32)?;
        let scaled = context.binary(Binary::Mul, &x, &along(&scale, axis, shape.len())?)?;
        context.copy(&scaled, &out)
    })
}

fn dynamic_quantize(node: &Node) -> Result<Plan, Failure> {
    if node.input(0)? != DType::F32 {
        return declined("numbers of another type");
    }
    let names = ["eq", "max", "min", "neg", "reduce_max", "reduce_min", "sub", "where"];
    let needs = of_bytes().chain(names.map(|name| (name, DType::F32)));
    Plan::new(needs, |context| {
        let x = context.array(0)?;
        let out = context.output(0, x.shape())?;
        let scale_out = context.output(1, &[])?;
        let zero_out = context.output(2, &[])?;
        let flat = context.scratch(DType::F32, &[x.layout.len()])?;
        context.copy(&x, &flat.reshaped(x.shape())?)?;
        // The range has a zero in it.
        let bound = |extremum: Extremum| {
            let (reduction, join) = match extremum {
                Extremum::Max => (Reduction::Max, Binary::Max),
                _ => (Reduction::Min, Binary::Min),
            };
            let found = context.scratch(DType::F32, &[1])?;
            if flat.layout.len() == 0 {
                context.run(Operator::Copy, &[0.0.into()], &[&found])?;
            } else {
                let reduce = Operator::Reduce { reduction, dims: Dims::from([0]) };
                context.run(reduce, &[(&flat).into()], &[&found])?;
            }
            context.binary(join, &found, 0.0)
        };
        let [low, high] = [bound(Extremum::Min)?, bound(Extremum::Max)?];
        let step = context.binary(Binary::Div, &context.binary(Binary::Sub, &high, &low)?, 255.0)?;
        // Of zeros alone.
        let is_zero = context.scratch(DType::Bool, &[1])?;
        context.run(Compare::Eq, &[(&step).into(), 0.0.into()], &[&is_zero])?;
        let scale = context.scratch(DType::F32, &[1])?;
        context.run(Operator::Where, &[is_zero.into(), 1.0.into(), step.into()], &[&scale])?;
        let place = context.binary(Binary::Div, &context.unary(Unary::Neg, &low)?, &scale)?;
        context.run(Operator::Clamp, &[(&place).into(), 0.0.into(), 255.0.into()], &[&place])?;
        let zero = context.unary(Unary::Round, &place)?;
        context.copy(&scale.reshaped([])?, &scale_out)?;
        context.copy(&zero.reshaped([])?, &zero_out)?;
        let quotients = context.binary(Binary::Div, &flat, &scale)?.reshaped(x.shape())?;
        let zero = zero.reshaped(Shape::from_elem(1, x.rank()))?;
        write_bytes(context, &quotients, Some(zero), false, &out)
    })
}

/// An input of bytes less its zero, which is of the whole array or of each place of a dimension from the end.
fn centred(
    context: &Context,
    is: Int8Inputs,
    at: usize,
    zero: usize,
    of_rows: bool,
) -> Result<Array, Failure> {
    let x = integers(context, is, at)?;
    if context.value(zero)?.is_none() {
        return Ok(x);
    }
    let zero = integers(context, is, zero)?;
    let zero = if of_rows && zero.rank() == 1 && zero.layout.len() > 1 {
        zero.reshaped([zero.layout.len(), 1])?
    } else if zero.layout.len() == 1 {
        zero.reshaped([])?
    } else {
        zero
    };
    context.binary(Binary::Sub, &x, &zero)
}

fn matmul_integer(node: &Node) -> Result<Plan, Failure> {
    expect_bytes(node, &[0, 1, 2, 3])?;
    let is = Int8Inputs::of(node);
    Plan::new(NEEDS.into_iter().chain([("matmul", DType::I32)]), move |context| {
        let a = centred(context, is, 0, 2, true)?;
        let b = centred(context, is, 1, 3, false)?;
        super::matrices::multiply(context, a, b, |shape| context.output(0, shape)).map(drop)
    })
}

fn qlinear_matmul(node: &Node) -> Result<Plan, Failure> {
    expect_bytes(node, &[0, 2, 3, 5, 7])?;
    let is = Int8Inputs::of(node);
    let makes_int8 = node.makes_int8(0);
    let scales = node.input(1)?;
    let needs = of_bytes().chain([("matmul", DType::I32), ("copy", scales)]);
    Plan::new(needs, move |context| {
        let a = centred(context, is, 0, 2, true)?;
        let b = centred(context, is, 3, 5, false)?;
        let product = super::matrices::multiply(context, a, b, |shape| context.scratch(DType::I32, shape))?;
        let out = context.output(0, product.shape())?;
        let scale = |at| context.converted(context.array(at)?, DType::F32);
        let of_a = scale(1)?;
        let rows = of_a.layout.len();
        let of_a = if rows > 1 { of_a.reshaped([rows, 1])? } else { of_a.reshaped([])? };
        let of_b = scale(4)?;
        let of_b = if of_b.layout.len() == 1 { of_b.reshaped([])? } else { of_b };
        let factor = context.binary(Binary::Div, &context.binary(Binary::Mul, &of_a, &of_b)?, &scale(6)?)?;
        let scaled = context.binary(Binary::Mul, &context.converted(product, DType::F32)?, &factor)?;
        let zero = integers(context, is, 7)?;
        let zero = if zero.layout.len() == 1 { zero.reshaped([])? } else { zero };
        write_bytes(context, &scaled, Some(zero), makes_int8, &out)
    })
}

/// Images and weights less their zeros, as `f64`.
fn images_and_weights(
    context: &Context,
    is: Int8Inputs,
    [image, zero]: [usize; 2],
    [weight, weight_zero]: [usize; 2],
) -> Result<[Array; 2], Failure> {
    let images = centred(context, is, image, zero, false)?;
    let weights = integers(context, is, weight)?;
    let weights = match context.value(weight_zero)? {
        Some(_) => {
            let zero = along(&integers(context, is, weight_zero)?, 0, weights.rank())?;
            context.binary(Binary::Sub, &weights, &zero)?
        }
        None => weights,
    };
    Ok([context.converted(images, DType::F64)?, context.converted(weights, DType::F64)?])
}

fn conv_integer(node: &Node) -> Result<Plan, Failure> {
    expect_bytes(node, &[0, 1, 2, 3])?;
    let is = Int8Inputs::of(node);
    let convolution = Convolution::of(node)?;
    Plan::new(NEEDS.into_iter().chain([("conv2d", DType::F64), ("copy", DType::F64)]), move |context| {
        let rank = context.shape_of_input(0)?.len();
        let found = convolution.run(context, images_and_weights(context, is, [0, 2], [1, 3])?)?;
        copy_images(context, &found, rank)
    })
}

fn qlinear_conv(node: &Node) -> Result<Plan, Failure> {
    expect_bytes(node, &[0, 2, 3, 5, 7])?;
    let is = Int8Inputs::of(node);
    let makes_int8 = node.makes_int8(0);
    let convolution = Convolution::of(node)?;
    let needs = of_bytes().chain(["conv2d", "copy", "add"].map(|name| (name, DType::F64)));
    Plan::new(needs, move |context| {
        let rank = context.shape_of_input(0)?.len();
        let mut found = convolution.run(context, images_and_weights(context, is, [0, 2], [3, 5])?)?;
        if let Some(bias) = context.optional(8)? {
            let bias = context.converted(bias, DType::F64)?;
            found = context.binary(Binary::Add, &found, &along(&bias, 1, 4)?)?;
        }
        let scale = |at| context.converted(context.array(at)?, DType::F32);
        let of_weights = along(&scale(4)?, 1, 4)?;
        let factor = context.binary(Binary::Mul, &of_weights, &scale(1)?.reshaped([])?)?;
        let factor = context.binary(Binary::Div, &factor, &scale(6)?.reshaped([])?)?;
        let scaled = context.binary(Binary::Mul, &context.converted(found, DType::F32)?, &factor)?;
        let mut shape = Shape::from_slice(scaled.shape());
        if rank == 3 {
            shape.remove(2);
        }
        let out = context.output(0, &shape)?;
        let zero = integers(context, is, 7)?.reshaped(Shape::from_elem(1, 4))?;
        write_bytes(context, &scaled, Some(zero), makes_int8, &out.reshaped(scaled.shape())?)
    })
}
