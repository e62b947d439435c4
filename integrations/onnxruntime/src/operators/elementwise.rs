//! Operators on elements.

use device_kernels::{Binary, Compare, DType, Operator, Unary};

use super::OutputMemory::{AnyInput, FirstInput};
use super::{Plan, Row, declined, expect_int};
use crate::context::{Array, Context, Input, broadcast};
use crate::failure::Failure;
use crate::node::Kind::{Float, Int, Text};
use crate::node::Node;

pub(super) const ROWS: &[Row] = &[
    Row::new("Abs", |node| unary(node, Unary::Abs)).output_in(AnyInput(1)),
    Row::new("Acos", |node| unary(node, Unary::Acos)).output_in(AnyInput(1)),
    Row::new("Acosh", |node| unary(node, Unary::Acosh)).output_in(AnyInput(1)),
    Row::new("Asin", |node| unary(node, Unary::Asin)).output_in(AnyInput(1)),
    Row::new("Asinh", |node| unary(node, Unary::Asinh)).output_in(AnyInput(1)),
    Row::new("Atan", |node| unary(node, Unary::Atan)).output_in(AnyInput(1)),
    Row::new("Atanh", |node| unary(node, Unary::Atanh)).output_in(AnyInput(1)),
    Row::new("BitwiseNot", |node| unary(node, Unary::Not)).output_in(AnyInput(1)),
    Row::new("Ceil", |node| unary(node, Unary::Ceil)).output_in(AnyInput(1)),
    Row::new("Cos", |node| unary(node, Unary::Cos)).output_in(AnyInput(1)),
    Row::new("Cosh", |node| unary(node, Unary::Cosh)).output_in(AnyInput(1)),
    Row::new("Erf", |node| unary(node, Unary::Erf)).output_in(AnyInput(1)),
    Row::new("Exp", |node| unary(node, Unary::Exp)).output_in(AnyInput(1)),
    Row::new("Floor", |node| unary(node, Unary::Floor)).output_in(AnyInput(1)),
    Row::new("IsNaN", |node| unary(node, Unary::IsNan)),
    Row::new("Log", |node| unary(node, Unary::Log)).output_in(AnyInput(1)),
    Row::new("Neg", |node| unary(node, Unary::Neg)).output_in(AnyInput(1)),
    Row::new("Not", |node| unary(node, Unary::Not)).output_in(AnyInput(1)),
    Row::new("Reciprocal", |node| unary(node, Unary::Recip)).output_in(AnyInput(1)),
    Row::new("Relu", |node| unary(node, Unary::Relu)).output_in(AnyInput(1)),
    Row::new("Round", |node| unary(node, Unary::Round)).output_in(AnyInput(1)),
    Row::new("Sigmoid", |node| unary(node, Unary::Sigmoid)).output_in(AnyInput(1)),
    Row::new("Sign", |node| unary(node, Unary::Sign)).output_in(AnyInput(1)),
    Row::new("Sin", |node| unary(node, Unary::Sin)).output_in(AnyInput(1)),
    Row::new("Sinh", |node| unary(node, Unary::Sinh)).output_in(AnyInput(1)),
    Row::new("Sqrt", |node| unary(node, Unary::Sqrt)).output_in(AnyInput(1)),
    Row::new("Tan", |node| unary(node, Unary::Tan)).output_in(AnyInput(1)),
    Row::new("Tanh", |node| unary(node, Unary::Tanh)).output_in(AnyInput(1)),
    Row::new("Gelu", gelu).attributes(&[("approximate", Text)]),
    Row::new("IsInf", is_inf).attributes(&[("detect_negative", Int), ("detect_positive", Int)]),
    Row::new("Identity", identity).output_in(FirstInput),
    Row::new("Cast", cast).since(6).attributes(&[("to", Int), ("saturate", Int), ("round_mode", Text)]),
    Row::new("CastLike", cast),
    Row::new("Dropout", dropout).since(7).output_in(FirstInput),
    Row::new("Add", |node| binary(node, Binary::Add)).since(7).output_in(AnyInput(2)),
    Row::new("Sub", |node| binary(node, Binary::Sub)).since(7).output_in(AnyInput(2)),
    Row::new("Mul", |node| binary(node, Binary::Mul)).since(7).output_in(AnyInput(2)),
    Row::new("Div", |node| binary(node, Binary::Div)).since(7).output_in(AnyInput(2)),
    Row::new("Pow", pow).since(7),
    Row::new("Mod", modulo).attributes(&[("fmod", Int)]),
    Row::new("And", |node| binary(node, Binary::And)).since(7).output_in(AnyInput(2)),
    Row::new("Or", |node| binary(node, Binary::Or)).since(7).output_in(AnyInput(2)),
    Row::new("Xor", |node| binary(node, Binary::Xor)).since(7).output_in(AnyInput(2)),
    Row::new("BitwiseAnd", |node| binary(node, Binary::And)).output_in(AnyInput(2)),
    Row::new("BitwiseOr", |node| binary(node, Binary::Or)).output_in(AnyInput(2)),
    Row::new("BitwiseXor", |node| binary(node, Binary::Xor)).output_in(AnyInput(2)),
    Row::new("BitShift", shift).attributes(&[("direction", Text)]),
    Row::new("Equal", |node| compare(node, Compare::Eq)).since(7),
    Row::new("Greater", |node| compare(node, Compare::Gt)).since(7),
    Row::new("GreaterOrEqual", |node| compare(node, Compare::Ge)),
    Row::new("Less", |node| compare(node, Compare::Lt)).since(7),
    Row::new("LessOrEqual", |node| compare(node, Compare::Le)),
    Row::new("Max", |node| fold(node, Binary::Max, false)).since(8),
    Row::new("Min", |node| fold(node, Binary::Min, false)).since(8),
    Row::new("Sum", |node| fold(node, Binary::Add, false)).since(8),
    Row::new("Mean", |node| fold(node, Binary::Add, true)).since(8),
    Row::new("Where", where_),
    Row::new("Clip", clip_by_attributes).until(6).attributes(&[("min", Float), ("max", Float)]),
    Row::new("Clip", clip).since(11),
    Row::new("LeakyRelu", leaky_relu).since(6).attributes(&[("alpha", Float)]),
    Row::new("PRelu", p_relu).since(7),
    Row::new("Elu", elu).since(6).attributes(&[("alpha", Float)]),
    Row::new("Celu", celu).attributes(&[("alpha", Float)]),
    Row::new("Selu", selu).since(6).attributes(&[("alpha", Float), ("gamma", Float)]),
    Row::new("ThresholdedRelu", thresholded_relu).attributes(&[("alpha", Float)]),
    Row::new("HardSigmoid", hard_sigmoid).since(6).attributes(&[("alpha", Float), ("beta", Float)]),
    Row::new("HardSwish", hard_swish),
    Row::new("Shrink", shrink).attributes(&[("bias", Float), ("lambd", Float)]),
    Row::new("Softplus", softplus),
    Row::new("Softsign", softsign),
    Row::new("Mish", mish),
    Row::new("Swish", swish).attributes(&[("alpha", Float)]),
];

fn unary(node: &Node, operator: Unary) -> Result<Plan, Failure> {
    Plan::new([(operator.name(), node.input(0)?)], move |context| {
        let input = context.array(0)?;
        let out = context.output(0, input.shape())?;
        context.run(operator, &[input.into()], &[&out])
    })
}

fn gelu(node: &Node) -> Result<Plan, Failure> {
    match node.text("approximate") {
        None | Some("none") => unary(node, Unary::Gelu),
        // x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3)))
        _ => composed(node, &["mul", "add", "tanh"], |context, x| {
            let root = (2.0 / std::f64::consts::PI).sqrt();
            let cube = context.binary(Binary::Mul, x.clone(), &context.binary(Binary::Mul, x.clone(), x)?)?;
            let inner = context.binary(Binary::Mul, &cube, 0.044_715)?;
            let inner =
                context.binary(Binary::Mul, &context.binary(Binary::Add, x.clone(), &inner)?, root)?;
            let tanh = context.unary(Unary::Tanh, &inner)?;
            let half = context.binary(Binary::Mul, x.clone(), 0.5)?;
            context.binary(Binary::Mul, &half, &context.binary(Binary::Add, &tanh, 1.0)?)
        }),
    }
}

fn is_inf(node: &Node) -> Result<Plan, Failure> {
    let negative = node.int_or("detect_negative", 1) != 0;
    let positive = node.int_or("detect_positive", 1) != 0;
    let dtype = node.input(0)?;
    if negative && positive {
        return unary(node, Unary::IsInf);
    }
    let bound = match (negative, positive) {
        (true, false) => f64::NEG_INFINITY,
        (false, true) => f64::INFINITY,
        // A number that no element is equal to.
        _ => f64::NAN,
    };
    Plan::new([(Compare::Eq.name(), dtype)], move |context| {
        let input = context.array(0)?;
        let out = context.output(0, input.shape())?;
        context.run(Compare::Eq, &[input.into(), bound.into()], &[&out])
    })
}

fn identity(node: &Node) -> Result<Plan, Failure> {
    Plan::view(node, |_, input| Ok(input.clone()))
}

fn cast(node: &Node) -> Result<Plan, Failure> {
    if node.text("round_mode").is_some_and(|mode| mode != "up") {
        return declined("a mode of rounding");
    }
    let to = node.output(0)?;
    Plan::new([("copy", node.input(0)?), ("copy", to)], |context| {
        let input = context.array(0)?;
        let out = context.output(0, input.shape())?;
        context.copy(&input, &out)
    })
}

/// In inference it changes nothing.
fn dropout(node: &Node) -> Result<Plan, Failure> {
    if node.has_input(2) {
        return declined("it may be in training");
    }
    if node.has_output(1) {
        return declined("it has a mask");
    }
    identity(node)
}

fn binary(node: &Node, operator: Binary) -> Result<Plan, Failure> {
    Plan::new([(operator.name(), node.input(0)?)], move |context| {
        let a = context.array(0)?;
        let b = context.array(1)?;
        let out = context.output(0, &broadcast([a.shape(), b.shape()])?)?;
        context.run(operator, &[a.into(), b.into()], &[&out])
    })
}

fn pow(node: &Node) -> Result<Plan, Failure> {
    let dtype = node.input(0)?;
    let exponent = node.input(1)?;
    // An integer to the power of a float is computed as floats.
    let wide = if dtype.is_integer() && exponent.is_float() { DType::F64 } else { dtype };
    Plan::new([("pow", wide), ("copy", dtype), ("copy", exponent)], move |context| {
        let a = context.converted(context.array(0)?, wide)?;
        let b = context.converted(context.array(1)?, wide)?;
        let shape = broadcast([a.shape(), b.shape()])?;
        let out = context.output(0, &shape)?;
        if wide == dtype {
            return context.run(Binary::Pow, &[a.into(), b.into()], &[&out]);
        }
        let computed = context.scratch(wide, &shape)?;
        context.run(Binary::Pow, &[a.into(), b.into()], &[&computed])?;
        context.copy(&computed, &out)
    })
}

fn modulo(node: &Node) -> Result<Plan, Failure> {
    if node.int_or("fmod", 0) == 0 {
        return binary(node, Binary::Rem);
    }
    // What is left of a division that is rounded toward zero: a - b * trunc(a / b).
    let dtype = node.input(0)?;
    if !dtype.is_float() {
        let needs = [("div", dtype), ("mul", dtype), ("sub", dtype)];
        return Plan::new(needs, |context| {
            let a = context.array(0)?;
            let b = context.array(1)?;
            let out = context.output(0, &broadcast([a.shape(), b.shape()])?)?;
            let quotient = context.binary(Binary::Div, &a, &b)?;
            let whole = context.binary(Binary::Mul, &quotient, &b)?;
            context.run(Binary::Sub, &[a.into(), whole.into()], &[&out])
        });
    }
    declined("fmod of floats")
}

fn shift(node: &Node) -> Result<Plan, Failure> {
    match node.text("direction") {
        Some("LEFT") => binary(node, Binary::Shl),
        Some("RIGHT") => binary(node, Binary::Shr),
        _ => declined("no direction"),
    }
}

fn compare(node: &Node, operator: Compare) -> Result<Plan, Failure> {
    Plan::new([(operator.name(), node.input(0)?)], move |context| {
        let a = context.array(0)?;
        let b = context.array(1)?;
        let out = context.output(0, &broadcast([a.shape(), b.shape()])?)?;
        context.run(operator, &[a.into(), b.into()], &[&out])
    })
}

/// One operator over all inputs, and with `mean` a division by their number.
fn fold(node: &Node, operator: Binary, mean: bool) -> Result<Plan, Failure> {
    let dtype = node.input(0)?;
    let wide = if dtype.size() == 2 { DType::F32 } else { dtype };
    Plan::new([(operator.name(), wide), ("mul", wide), ("copy", dtype)], move |context| {
        let inputs: Vec<Array> =
            (0..context.input_count).map(|at| context.array(at)).collect::<Result<_, _>>()?;
        let out = context.output(0, &broadcast(inputs.iter().map(Array::shape))?)?;
        let mut all = context.converted(inputs[0].clone(), wide)?;
        for input in &inputs[1..] {
            all = context.binary(operator, &all, &context.converted(input.clone(), wide)?)?;
        }
        if mean {
            all = context.binary(Binary::Mul, &all, 1.0 / inputs.len() as f64)?;
        }
        context.copy(&all, &out)
    })
}

fn where_(node: &Node) -> Result<Plan, Failure> {
    Plan::new([("where", node.input(1)?)], |context| {
        let inputs = [context.array(0)?, context.array(1)?, context.array(2)?];
        let out = context.output(0, &broadcast(inputs.iter().map(Array::shape))?)?;
        context.run(Operator::Where, &inputs.map(Input::from), &[&out])
    })
}

fn clip_by_attributes(node: &Node) -> Result<Plan, Failure> {
    let low = f64::from(node.float_or("min", f32::MIN));
    let high = f64::from(node.float_or("max", f32::MAX));
    Plan::new([("clamp", node.input(0)?)], move |context| {
        let input = context.array(0)?;
        let out = context.output(0, input.shape())?;
        context.run(Operator::Clamp, &[input.into(), low.into(), high.into()], &[&out])
    })
}

fn clip(node: &Node) -> Result<Plan, Failure> {
    let dtype = node.input(0)?;
    Plan::new([("max", dtype), ("min", dtype), ("copy", dtype)], move |context| {
        let input = context.array(0)?;
        let out = context.output(0, input.shape())?;
        let mut clipped = input;
        if let Some(low) = context.optional(1)? {
            clipped = context.binary(Binary::Max, &clipped, &low)?;
        }
        if let Some(high) = context.optional(2)? {
            clipped = context.binary(Binary::Min, &clipped, &high)?;
        }
        context.copy(&clipped, &out)
    })
}

/// An operator of one input that is several of device-kernels, all of its type.
fn composed(
    node: &Node,
    needs: &[&'static str],
    compute: impl Fn(&Context, &Array) -> Result<Array, Failure> + Send + Sync + 'static,
) -> Result<Plan, Failure> {
    let dtype = node.input(0)?;
    // Halves are computed as floats, and rounded once.
    let wide = if dtype.size() == 2 { DType::F32 } else { dtype };
    let needs = needs.iter().map(|&name| (name, wide)).chain([("copy", dtype)]);
    Plan::new(needs, move |context| {
        let input = context.array(0)?;
        let out = context.output(0, input.shape())?;
        let computed = compute(context, &context.converted(input, wide)?)?;
        context.copy(&computed, &out)
    })
}

/// x where it is positive, and else what `below` computes.
fn piecewise(
    node: &Node,
    needs: &[&'static str],
    below: impl Fn(&Context, &Array) -> Result<Array, Failure> + Send + Sync + 'static,
) -> Result<Plan, Failure> {
    let needs: Vec<_> = needs.iter().copied().chain(["gt", "where"]).collect();
    composed(node, &needs, move |context, x| {
        let is_above = context.scratch(DType::Bool, x.shape())?;
        context.run(Compare::Gt, &[x.into(), 0.0.into()], &[&is_above])?;
        let below = below(context, x)?;
        let out = context.scratch(x.dtype, x.shape())?;
        context.run(Operator::Where, &[is_above.into(), x.into(), below.into()], &[&out])?;
        Ok(out)
    })
}

fn leaky_relu(node: &Node) -> Result<Plan, Failure> {
    let alpha = f64::from(node.float_or("alpha", 0.01));
    piecewise(node, &["mul"], move |context, x| context.binary(Binary::Mul, x, alpha))
}

fn p_relu(node: &Node) -> Result<Plan, Failure> {
    piecewise(node, &["mul"], |context, x| {
        let slope = context.converted(context.array(1)?, x.dtype)?;
        context.binary(Binary::Mul, x, &slope)
    })
}

/// e^x - 1, which is 0 where it is rounded so: kernels have no operator for small x.
fn exp_minus_one(context: &Context, x: &Array) -> Result<Array, Failure> {
    context.binary(Binary::Sub, &context.unary(Unary::Exp, x)?, 1.0)
}

fn elu(node: &Node) -> Result<Plan, Failure> {
    let alpha = f64::from(node.float_or("alpha", 1.0));
    piecewise(node, &["exp", "sub", "mul"], move |context, x| {
        context.binary(Binary::Mul, &exp_minus_one(context, x)?, alpha)
    })
}

fn celu(node: &Node) -> Result<Plan, Failure> {
    let alpha = f64::from(node.float_or("alpha", 1.0));
    piecewise(node, &["exp", "sub", "mul"], move |context, x| {
        let scaled = context.binary(Binary::Mul, x, 1.0 / alpha)?;
        context.binary(Binary::Mul, &exp_minus_one(context, &scaled)?, alpha)
    })
}

fn selu(node: &Node) -> Result<Plan, Failure> {
    let alpha = f64::from(node.float_or("alpha", 1.673_263_2));
    let gamma = f64::from(node.float_or("gamma", 1.050_701));
    composed(node, &["exp", "sub", "mul", "gt", "where"], move |context, x| {
        let is_above = context.scratch(DType::Bool, x.shape())?;
        context.run(Compare::Gt, &[x.into(), 0.0.into()], &[&is_above])?;
        let below = context.binary(Binary::Mul, &exp_minus_one(context, x)?, alpha * gamma)?;
        let above = context.binary(Binary::Mul, x, gamma)?;
        let out = context.scratch(x.dtype, x.shape())?;
        context.run(Operator::Where, &[is_above.into(), above.into(), below.into()], &[&out])?;
        Ok(out)
    })
}

fn thresholded_relu(node: &Node) -> Result<Plan, Failure> {
    let alpha = f64::from(node.float_or("alpha", 1.0));
    composed(node, &["gt", "where"], move |context, x| {
        let is_above = context.scratch(DType::Bool, x.shape())?;
        context.run(Compare::Gt, &[x.into(), alpha.into()], &[&is_above])?;
        let out = context.scratch(x.dtype, x.shape())?;
        context.run(Operator::Where, &[is_above.into(), x.into(), 0.0.into()], &[&out])?;
        Ok(out)
    })
}

/// max(0, min(1, alpha * x + beta))
fn hard_sigmoid_of(context: &Context, x: &Array, alpha: f64, beta: f64) -> Result<Array, Failure> {
    let line = context.binary(Binary::Add, &context.binary(Binary::Mul, x, alpha)?, beta)?;
    let out = context.scratch(x.dtype, x.shape())?;
    context.run(Operator::Clamp, &[line.into(), 0.0.into(), 1.0.into()], &[&out])?;
    Ok(out)
}

fn hard_sigmoid(node: &Node) -> Result<Plan, Failure> {
    let alpha = f64::from(node.float_or("alpha", 0.2));
    let beta = f64::from(node.float_or("beta", 0.5));
    composed(node, &["mul", "add", "clamp"], move |context, x| hard_sigmoid_of(context, x, alpha, beta))
}

fn hard_swish(node: &Node) -> Result<Plan, Failure> {
    composed(node, &["mul", "add", "clamp"], |context, x| {
        context.binary(Binary::Mul, x, &hard_sigmoid_of(context, x, 1.0 / 6.0, 0.5)?)
    })
}

/// Moves elements toward zero by the bias, and those that are near it are zeros.
fn shrink(node: &Node) -> Result<Plan, Failure> {
    if !node.input(0)?.is_float() {
        return declined("integers, which a bias that is none moves");
    }
    let bias = f64::from(node.float_or("bias", 0.0));
    let near = f64::from(node.float_or("lambd", 0.5));
    composed(node, &["add", "gt", "lt", "where"], move |context, x| {
        let mut out = context.scratch(x.dtype, x.shape())?;
        context.run(Operator::Copy, &[0.0.into()], &[&out])?;
        for (compare, bound, moved) in [(Compare::Lt, -near, bias), (Compare::Gt, near, -bias)] {
            let is_beyond = context.scratch(DType::Bool, x.shape())?;
            context.run(compare, &[x.into(), bound.into()], &[&is_beyond])?;
            let beyond = context.binary(Binary::Add, x, moved)?;
            let chosen = context.scratch(x.dtype, x.shape())?;
            context.run(Operator::Where, &[is_beyond.into(), beyond.into(), out.into()], &[&chosen])?;
            out = chosen;
        }
        Ok(out)
    })
}

/// log(1 + e^x), which is -log(sigmoid(-x)).
fn softplus_of(context: &Context, x: &Array) -> Result<Array, Failure> {
    let negative = context.unary(Unary::Neg, x)?;
    context.unary(Unary::Neg, &context.unary(Unary::LogSigmoid, &negative)?)
}

fn softplus(node: &Node) -> Result<Plan, Failure> {
    composed(node, &["neg", "log_sigmoid"], softplus_of)
}

fn softsign(node: &Node) -> Result<Plan, Failure> {
    composed(node, &["abs", "add", "div"], |context, x| {
        let below = context.binary(Binary::Add, &context.unary(Unary::Abs, x)?, 1.0)?;
        context.binary(Binary::Div, x, &below)
    })
}

fn mish(node: &Node) -> Result<Plan, Failure> {
    composed(node, &["neg", "log_sigmoid", "tanh", "mul"], |context, x| {
        let tanh = context.unary(Unary::Tanh, &softplus_of(context, x)?)?;
        context.binary(Binary::Mul, x, &tanh)
    })
}

fn swish(node: &Node) -> Result<Plan, Failure> {
    let alpha = f64::from(node.float_or("alpha", 1.0));
    expect_int(node, "beta", 1)?;
    composed(node, &["mul", "sigmoid"], move |context, x| {
        let sigmoid = context.unary(Unary::Sigmoid, &context.binary(Binary::Mul, x, alpha)?)?;
        context.binary(Binary::Mul, x, &sigmoid)
    })
}

impl Context {
    /// A new array of one operator on elements.
    pub(super) fn unary(&self, operator: Unary, x: &Array) -> Result<Array, Failure> {
        let out = self.scratch(x.dtype, x.shape())?;
        self.run(operator, &[x.into()], &[&out])?;
        Ok(out)
    }

    /// A new array of one operator on elements of two.
    pub(super) fn binary(
        &self,
        operator: Binary,
        a: impl Into<Input>,
        b: impl Into<Input>,
    ) -> Result<Array, Failure> {
        let inputs = [a.into(), b.into()];
        let arrays = inputs.iter().filter_map(|input| match input {
            Input::Array(array) => Some(array),
            Input::Scalar(_) => None,
        });
        let arrays: Vec<&Array> = arrays.collect();
        let Some(first) = arrays.first() else { return declined("no array") };
        let out = self.scratch(first.dtype, &broadcast(arrays.iter().map(|array| array.shape()))?)?;
        self.run(operator, &inputs, &[&out])?;
        Ok(out)
    }
}
