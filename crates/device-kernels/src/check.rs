//! The rules of operators: how many arguments, of which types and shapes.

use std::fmt;

use crate::Operator::{self, *};
use crate::{
    Argument, Binary, Call, Compare as Comparison, Conv2d as Convolution, DType, Dims, Distribution, Layout,
    LayoutError, Pool2d, Reduction, Scalar, Unary, Update,
};

/// Why an operator cannot have its arguments.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Problem {
    /// There are too few or too many.
    #[error("expected {expected} {of}, found {found}")]
    Count {
        /// `inputs` or `outputs`.
        of: &'static str,
        /// How many the operator has.
        expected: &'static str,
        /// How many there are.
        found: usize,
    },
    /// A value is where an array has to be.
    #[error("expected an array as {argument}, found a scalar")]
    Scalar {
        /// Which argument.
        argument: &'static str,
    },
    /// An argument has a type that it cannot have.
    #[error("expected {expected} as the type of {argument}, found {found}")]
    DType {
        /// Which argument.
        argument: &'static str,
        /// The types that it can have.
        expected: String,
        /// The type that it has.
        found: DType,
    },
    /// All inputs are scalars, of which no type follows.
    #[error("expected an array among the inputs, found scalars only")]
    NoArray,
    /// An argument has a shape that it cannot have.
    #[error("expected the shape {expected} of {argument}, found {found:?}")]
    Shape {
        /// Which argument.
        argument: &'static str,
        /// The shape that follows from the other arguments.
        expected: String,
        /// The shape that it has.
        found: Vec<usize>,
    },
    /// A shape that cannot be broadcast, or a dimension that an array does not have.
    #[error(transparent)]
    Layout(#[from] LayoutError),
    /// An option has a value that makes no sense.
    #[error("expected {expected} as the {option}, found {found}")]
    Option {
        /// Which option.
        option: &'static str,
        /// Its values.
        expected: &'static str,
        /// The value that it has.
        found: String,
    },
    /// There are no elements to take one of.
    #[error("there are no elements in {argument}, and the operator has no result for none")]
    Empty {
        /// Which argument.
        argument: &'static str,
    },
    /// Two indices of an output are of one element, or may be.
    #[error(
        "expected an output with each element once, found the strides {strides:?} for the shape {shape:?}"
    )]
    Repeated {
        /// The shape.
        shape: Vec<usize>,
        /// The strides.
        strides: Vec<isize>,
    },
}

/// Checks a call, and brings it into the form that [`Call`] promises.
pub(crate) fn call(operator: Operator, inputs: &[Argument], outputs: &[Argument]) -> Result<Call, Problem> {
    let outputs = arrays(outputs)?;
    for (_, layout) in &outputs {
        if layout.may_repeat() {
            let (shape, strides) = (layout.shape().to_vec(), layout.strides().to_vec());
            return Err(Problem::Repeated { shape, strides });
        }
    }
    let found = (inputs.len(), outputs.len());
    let checked = |inputs: &[Argument]| Ok(Call::checked(operator, inputs, &outputs));
    if operator.is_elementwise() {
        return elementwise(operator, inputs, one(&outputs)?);
    }
    match operator {
        Reduce { reduction, dims } => reduce(reduction, dims, one_array(inputs)?, one(&outputs)?),
        ArgReduce { dim, .. } => {
            let (input, out) = (one_array(inputs)?, one(&outputs)?);
            dimension(dim, input.layout)?;
            Class::Number.check("the input", input.dtype)?;
            Class::Index.check("the output", out.dtype)?;
            out.expect("the output", &reduced(input.layout, Dims::from([dim])))?;
            if input.layout.shape()[dim] == 0 {
                return Err(Problem::Empty { argument: "the dimension" });
            }
            checked(inputs)
        }
        Softmax { dim } | LogSoftmax { dim } => {
            let (input, out) = (one_array(inputs)?, one(&outputs)?);
            dimension(dim, input.layout)?;
            Class::Float.check("the input", input.dtype)?;
            out.same_dtype("the output", input.dtype)?;
            out.expect("the output", input.layout.shape())?;
            checked(inputs)
        }
        MatMul => matmul(inputs, one(&outputs)?),
        Gather { dim } => {
            let [input, index] = two_arrays(inputs)?;
            let out = one(&outputs)?;
            dimension(dim, input.layout)?;
            Class::Index.check("the indices", index.dtype)?;
            out.same_dtype("the output", input.dtype)?;
            out.expect("the output", index.layout.shape())?;
            inside(index, input.layout, dim)?;
            not_from_nothing(index, input.layout, dim)?;
            checked(inputs)
        }
        Scatter { dim, update } => {
            let [index, values] = two_arrays(inputs)?;
            let out = one(&outputs)?;
            dimension(dim, out.layout)?;
            Class::Index.check("the indices", index.dtype)?;
            values.same_dtype("the values", out.dtype)?;
            updated(update, out)?;
            values.expect("the values", index.layout.shape())?;
            inside(index, out.layout, dim)?;
            not_from_nothing(index, out.layout, dim)?;
            checked(inputs)
        }
        IndexSelect { dim } => {
            let [input, index] = two_arrays(inputs)?;
            let out = one(&outputs)?;
            dimension(dim, input.layout)?;
            Class::Index.check("the indices", index.dtype)?;
            out.same_dtype("the output", input.dtype)?;
            let len = index.vector("the indices")?;
            out.expect("the output", &with(input.layout, dim, len))?;
            not_from_nothing(index, input.layout, dim)?;
            checked(inputs)
        }
        IndexAssign { dim, update } => {
            let [index, values] = two_arrays(inputs)?;
            let out = one(&outputs)?;
            dimension(dim, out.layout)?;
            Class::Index.check("the indices", index.dtype)?;
            values.same_dtype("the values", out.dtype)?;
            updated(update, out)?;
            let len = index.vector("the indices")?;
            values.expect("the values", &with(out.layout, dim, len))?;
            not_from_nothing(index, out.layout, dim)?;
            checked(inputs)
        }
        Conv2d(conv) => {
            let [input, weights] = [array(inputs, 0, found)?, array(inputs, 1, found)?];
            let out = one(&outputs)?;
            convolution(conv, [("the images", input), ("the weights", weights), ("the output", out)])?;
            match inputs {
                [_, _] => checked(inputs),
                [_, _, Argument::Array(dtype, layout)] => {
                    let bias = Array { dtype: *dtype, layout };
                    bias.same_dtype("the bias", out.dtype)?;
                    bias.expect("the bias", &[out.layout.shape()[1]])?;
                    checked(inputs)
                }
                [_, _, Argument::Scalar(_)] => Err(Problem::Scalar { argument: "the bias" }),
                _ => Err(Problem::Count { of: "inputs", expected: "2 or 3", found: inputs.len() }),
            }
        }
        Conv2dInputGrad(conv) => {
            let [grad, weights] = two_arrays(inputs)?;
            let out = one(&outputs)?;
            convolution(conv, [("the output", out), ("the weights", weights), ("the gradient", grad)])?;
            Ok(or_fill(checked(inputs)?, Scalar::Int(0)))
        }
        Conv2dWeightGrad(conv) => {
            let [input, grad] = two_arrays(inputs)?;
            let out = one(&outputs)?;
            convolution(conv, [("the images", input), ("the output", out), ("the gradient", grad)])?;
            Ok(or_fill(checked(inputs)?, Scalar::Int(0)))
        }
        MaxPool2d(pool) => {
            let input = one_array(inputs)?;
            let (out, places) = match &outputs[..] {
                [out] => (*out, None),
                [out, places] => (*out, Some(*places)),
                _ => return Err(Problem::Count { of: "outputs", expected: "1 or 2", found: outputs.len() }),
            };
            let out = Array { dtype: out.0, layout: &out.1 };
            Class::Number.check("the images", input.dtype)?;
            windows(pool, ("the images", input), ("the output", out))?;
            if let Some((dtype, layout)) = places {
                Class::Index.check("the places", dtype)?;
                Array { dtype, layout: &layout }.expect("the places", out.layout.shape())?;
            }
            checked(inputs)
        }
        MaxPool2dGrad(pool) => {
            let [grad, places] = two_arrays(inputs)?;
            let out = one(&outputs)?;
            Class::Index.check("the places", places.dtype)?;
            Class::Float.check("the gradient", grad.dtype)?;
            places.expect("the places", grad.layout.shape())?;
            windows(pool, ("the output", out), ("the gradient", grad))?;
            checked(inputs)
        }
        AvgPool2d { pool, .. } => {
            let (input, out) = (one_array(inputs)?, one(&outputs)?);
            Class::Float.check("the images", input.dtype)?;
            windows(pool, ("the images", input), ("the output", out))?;
            checked(inputs)
        }
        AvgPool2dGrad { pool, .. } => {
            let (grad, out) = (one_array(inputs)?, one(&outputs)?);
            Class::Float.check("the gradient", grad.dtype)?;
            windows(pool, ("the output", out), ("the gradient", grad))?;
            checked(inputs)
        }
        AdaptiveAvgPool2d | AdaptiveAvgPool2dGrad => {
            let (input, out) = (one_array(inputs)?, one(&outputs)?);
            Class::Float.check("the input", input.dtype)?;
            out.same_dtype("the output", input.dtype)?;
            let &[images, channels, ..] = input.image("the input")? else { unreachable!("it has four") };
            let &[_, _, height, width] = out.image("the output")? else { unreachable!("it has four") };
            out.expect("the output", &[images, channels, height, width])?;
            let call = checked(inputs)?;
            match operator {
                AdaptiveAvgPool2dGrad => Ok(or_fill(call, Scalar::Int(0))),
                _ if out.layout.len() > 0 && input.layout.len() == 0 => {
                    Err(Problem::Empty { argument: "the images" })
                }
                _ => Ok(call),
            }
        }
        Random { distribution, .. } => {
            if !inputs.is_empty() {
                return Err(Problem::Count { of: "inputs", expected: "0", found: inputs.len() });
            }
            random(distribution, one(&outputs)?.dtype)?;
            checked(inputs)
        }
        Unary(_) | Binary(_) | Compare(_) | Where | Clamp | Copy => unreachable!("handled before the others"),
    }
}

/// An array among the arguments.
#[derive(Clone, Copy)]
struct Array<'a> {
    dtype: DType,
    layout: &'a Layout,
}

impl<'a> Array<'a> {
    fn expect(self, argument: &'static str, shape: &[usize]) -> Result<(), Problem> {
        self.expect_if(self.layout.shape() == shape, argument, format_args!("{shape:?}"))
    }

    fn expect_if(
        self,
        fits: bool,
        argument: &'static str,
        expected: impl fmt::Display,
    ) -> Result<(), Problem> {
        let found = || self.layout.shape().to_vec();
        if fits {
            Ok(())
        } else {
            Err(Problem::Shape { argument, expected: expected.to_string(), found: found() })
        }
    }

    fn same_dtype(self, argument: &'static str, expected: DType) -> Result<(), Problem> {
        let found = self.dtype;
        if found == expected {
            Ok(())
        } else {
            Err(Problem::DType { argument, expected: expected.to_string(), found })
        }
    }

    /// The length of an array of one dimension.
    fn vector(self, argument: &'static str) -> Result<usize, Problem> {
        self.expect_if(self.layout.rank() == 1, argument, "[n]")?;
        Ok(self.layout.len())
    }

    /// The shape of images.
    fn image(self, argument: &'static str) -> Result<&'a [usize], Problem> {
        self.expect_if(self.layout.rank() == 4, argument, "[n, c, h, w]")?;
        Ok(self.layout.shape())
    }
}

/// Types that an argument can have.
#[derive(Clone, Copy)]
enum Class {
    Any,
    Float,
    Integer,
    Number,
    Index,
    Bits,
    Bool,
}

impl Class {
    fn check(self, argument: &'static str, found: DType) -> Result<(), Problem> {
        let (fits, expected) = match self {
            Self::Any => (true, "any type"),
            Self::Float => (found.is_float(), "a float"),
            Self::Integer => (found.is_integer(), "an integer"),
            Self::Number => (found.is_float() || found.is_integer(), "a number"),
            Self::Index => (found.is_index(), "i32, i64 or u32"),
            Self::Bits => (found.is_integer() || found == DType::Bool, "an integer or bool"),
            Self::Bool => (found == DType::Bool, "bool"),
        };
        let expected = || expected.to_owned();
        if fits { Ok(()) } else { Err(Problem::DType { argument, expected: expected(), found }) }
    }
}

fn arrays(outputs: &[Argument]) -> Result<Vec<(DType, Layout)>, Problem> {
    let array = |output: &Argument| output.array().ok_or(Problem::Scalar { argument: "an output" });
    outputs.iter().map(array).collect()
}

fn one(outputs: &[(DType, Layout)]) -> Result<Array<'_>, Problem> {
    match outputs {
        [(dtype, layout)] => Ok(Array { dtype: *dtype, layout }),
        _ => Err(Problem::Count { of: "outputs", expected: "1", found: outputs.len() }),
    }
}

fn array(inputs: &[Argument], place: usize, (found, _): (usize, usize)) -> Result<Array<'_>, Problem> {
    match inputs.get(place) {
        Some(Argument::Array(dtype, layout)) => Ok(Array { dtype: *dtype, layout }),
        Some(Argument::Scalar(_)) => Err(Problem::Scalar { argument: "an input" }),
        None => Err(Problem::Count { of: "inputs", expected: "more", found }),
    }
}

fn one_array(inputs: &[Argument]) -> Result<Array<'_>, Problem> {
    match inputs {
        [_] => array(inputs, 0, (1, 1)),
        _ => Err(Problem::Count { of: "inputs", expected: "1", found: inputs.len() }),
    }
}

fn two_arrays(inputs: &[Argument]) -> Result<[Array<'_>; 2], Problem> {
    match inputs {
        [_, _] => Ok([array(inputs, 0, (2, 1))?, array(inputs, 1, (2, 1))?]),
        _ => Err(Problem::Count { of: "inputs", expected: "2", found: inputs.len() }),
    }
}

fn elementwise(operator: Operator, inputs: &[Argument], out: Array<'_>) -> Result<Call, Problem> {
    let (count, expected) = match operator {
        Unary(_) | Copy => (1, "1"),
        Binary(_) | Compare(_) => (2, "2"),
        _ => (3, "3"),
    };
    if inputs.len() != count {
        return Err(Problem::Count { of: "inputs", expected, found: inputs.len() });
    }
    // The condition of a choice, and the input of a conversion, have a type of their own.
    let (alone, alike) = inputs.split_at(usize::from(matches!(operator, Where | Copy)));
    if let (Where, [Argument::Array(dtype, _)]) = (operator, alone) {
        Class::Bool.check("the condition", *dtype)?;
    }
    let of_inputs = alike.iter().find_map(|input| input.array()).map(|(dtype, _)| dtype);
    let makes_bools = matches!(operator, Compare(_) | Unary(Unary::IsNan | Unary::IsInf));
    let dtype = match (of_inputs, makes_bools) {
        (Some(dtype), _) => dtype,
        (None, false) => out.dtype,
        (None, true) => return Err(Problem::NoArray),
    };
    class(operator).check("the inputs", dtype)?;
    for input in alike {
        if let Argument::Array(found, layout) = input {
            Array { dtype: *found, layout }.same_dtype("each input", dtype)?;
        }
    }
    match operator {
        Copy => {}
        _ if makes_bools => Class::Bool.check("the output", out.dtype)?,
        _ => out.same_dtype("the output", dtype)?,
    }
    let mut broadcast = inputs.to_vec();
    for input in &mut broadcast {
        if let Argument::Array(_, layout) = input {
            *layout = layout.broadcast_to(out.layout.shape())?;
        }
    }
    Ok(Call::checked(operator, &broadcast, &[(out.dtype, *out.layout)]))
}

fn class(operator: Operator) -> Class {
    match operator {
        Unary(Unary::Neg | Unary::Abs | Unary::Sign) | Clamp => Class::Number,
        Unary(Unary::Not) | Binary(Binary::And | Binary::Or | Binary::Xor) => Class::Bits,
        Binary(Binary::Shl | Binary::Shr) => Class::Integer,
        Unary(_) | Binary(Binary::Atan2 | Binary::ReluGrad | Binary::SigmoidGrad) => Class::Float,
        Binary(_) => Class::Number,
        Compare(Comparison::Eq | Comparison::Ne) | Where | Copy => Class::Any,
        Compare(_) => Class::Number,
        _ => Class::Any,
    }
}

fn reduce(reduction: Reduction, dims: Dims, input: Array<'_>, out: Array<'_>) -> Result<Call, Problem> {
    if let Some(dim) = dims.iter().find(|&dim| dim >= input.layout.rank()) {
        dimension(dim, input.layout)?;
    }
    let (class, of_none) = match reduction {
        Reduction::Sum => (Class::Number, Some(Scalar::Int(0))),
        Reduction::Prod => (Class::Number, Some(Scalar::Int(1))),
        Reduction::Mean => (Class::Float, Some(Scalar::Float(f64::NAN))),
        Reduction::Max | Reduction::Min => (Class::Number, None),
        Reduction::Any => (Class::Bool, Some(Scalar::Bool(false))),
        Reduction::All => (Class::Bool, Some(Scalar::Bool(true))),
    };
    class.check("the input", input.dtype)?;
    out.same_dtype("the output", input.dtype)?;
    out.expect("the output", &reduced(input.layout, dims))?;
    let layout = input.layout;
    let input = Argument::Array(input.dtype, *layout);
    let call = Call::checked(Reduce { reduction, dims }, &[input], &[(out.dtype, *out.layout)]);
    match of_none {
        // Also where there is no output, as in PyTorch: the mistake does not depend on the other dimensions.
        None if dims.iter().any(|dim| layout.shape()[dim] == 0) => {
            Err(Problem::Empty { argument: "the dimensions" })
        }
        None => Ok(call),
        Some(value) => Ok(or_fill(call, value)),
    }
}

fn matmul(inputs: &[Argument], out: Array<'_>) -> Result<Call, Problem> {
    let (a, b) = match inputs {
        [_, _] | [_, _, _] => (array(inputs, 0, (2, 1))?, array(inputs, 1, (2, 1))?),
        _ => return Err(Problem::Count { of: "inputs", expected: "2 or 3", found: inputs.len() }),
    };
    Class::Number.check("the first input", a.dtype)?;
    b.same_dtype("the second input", a.dtype)?;
    out.same_dtype("the output", a.dtype)?;
    let matrices = [("the first input", a, "[.., m, k]"), ("the second input", b, "[.., k, n]")];
    for (argument, array, expected) in matrices {
        array.expect_if(array.layout.rank() >= 2, argument, expected)?;
    }
    let ([batch @ .., m, n], a_shape, b_shape) = (out.layout.shape(), a.layout.shape(), b.layout.shape())
    else {
        return out.expect_if(false, "the output", "[.., m, n]").map(|()| unreachable!("it fails"));
    };
    let k = a_shape[a_shape.len() - 1];
    let rows = a_shape[a_shape.len() - 2];
    let columns = b_shape[b_shape.len() - 1];
    b.expect_if(b_shape[b_shape.len() - 2] == k, "the second input", format_args!("[.., {k}, n]"))?;
    out.expect_if([*m, *n] == [rows, columns], "the output", format_args!("[.., {rows}, {columns}]"))?;
    let whole = |rows, columns| [batch, &[rows, columns]].concat();
    let mut arguments = vec![
        Argument::Array(a.dtype, a.layout.broadcast_to(whole(rows, k))?),
        Argument::Array(b.dtype, b.layout.broadcast_to(whole(k, columns))?),
    ];
    match inputs.get(2) {
        None => {}
        Some(Argument::Scalar(_)) => return Err(Problem::Scalar { argument: "the bias" }),
        Some(Argument::Array(dtype, layout)) => {
            Array { dtype: *dtype, layout }.same_dtype("the bias", a.dtype)?;
            arguments.push(Argument::Array(*dtype, layout.broadcast_to(out.layout.shape())?));
        }
    }
    let outputs = [(out.dtype, *out.layout)];
    if k == 0 {
        // The sum of nothing.
        let bias = arguments.get(2).copied().unwrap_or(Argument::Scalar(Scalar::Int(0)));
        return Ok(Call::fill(bias, 2, &outputs));
    }
    Ok(Call::checked(MatMul, &arguments, &outputs))
}

/// Checks the images, the weights and the output of a convolution.
fn convolution(conv: Convolution, arrays: [(&'static str, Array<'_>); 3]) -> Result<(), Problem> {
    let [(_, input), (of_weights, weights), (of_out, out)] = arrays;
    let &[images, channels, height, width] = input.image(arrays[0].0)? else { unreachable!("it has four") };
    Class::Float.check(arrays[0].0, input.dtype)?;
    for (argument, array) in arrays {
        array.same_dtype(argument, input.dtype)?;
    }
    positive("stride", conv.stride)?;
    positive("dilation", conv.dilation)?;
    let &[maps, depth, ..] = weights.layout.shape() else {
        return weights.expect_if(false, of_weights, "[out, in / groups, kh, kw]");
    };
    let groups = conv.groups;
    if groups == 0 || channels % groups != 0 || maps % groups != 0 {
        let expected = "a number that divides the channels";
        return Err(Problem::Option { option: "number of groups", expected, found: groups.to_string() });
    }
    let fits = weights.layout.rank() == 4 && depth == channels / groups && weights.layout.len() > 0;
    weights.expect_if(fits, of_weights, format_args!("[out, {}, kh, kw]", channels / groups))?;
    let kernel = [weights.layout.shape()[2], weights.layout.shape()[3]];
    let size = |axis: usize, size: usize| {
        let reach = (kernel[axis] - 1).checked_mul(conv.dilation[axis])?.checked_add(1)?;
        let padded = conv.padding[axis].checked_mul(2)?.checked_add(size)?;
        Some(padded.checked_sub(reach)? / conv.stride[axis] + 1)
    };
    let (Some(out_height), Some(out_width)) = (size(0, height), size(1, width)) else {
        return input.expect_if(false, arrays[0].0, "[n, c, h, w] that the weights fit into");
    };
    out.expect(of_out, &[images, maps, out_height, out_width])
}

/// Checks images and the output of a pooling. A last window that begins inside, and ends behind the padding, may be
/// counted or not.
fn windows(
    pool: Pool2d,
    (of_input, input): (&'static str, Array<'_>),
    (of_out, out): (&'static str, Array<'_>),
) -> Result<(), Problem> {
    let &[images, channels, height, width] = input.image(of_input)? else { unreachable!("it has four") };
    let &[_, _, out_height, out_width] = out.image(of_out)? else { unreachable!("it has four") };
    out.same_dtype(of_out, input.dtype)?;
    positive("window", pool.kernel)?;
    positive("stride", pool.stride)?;
    positive("dilation", pool.dilation)?;
    for (axis, (size, found)) in [(height, out_height), (width, out_width)].into_iter().enumerate() {
        let reach = (pool.kernel[axis] - 1).saturating_mul(pool.dilation[axis]).saturating_add(1);
        let padding = pool.padding[axis];
        if padding >= reach {
            let expected = "less than the window reaches";
            return Err(Problem::Option { option: "padding", expected, found: padding.to_string() });
        }
        let sizes = padding.checked_mul(2).and_then(|padding| padding.checked_add(size));
        let steps = sizes.and_then(|padded| padded.checked_sub(reach));
        let fits = steps.is_some_and(|steps| {
            let stride = pool.stride[axis];
            let inside = |count: usize| (count - 1).saturating_mul(stride) < size + padding;
            found == steps / stride + 1 || (found == steps.div_ceil(stride) + 1 && inside(found))
        });
        let expected = steps.map_or("windows that fit into the images".to_owned(), |steps| {
            let count = steps / pool.stride[axis] + 1;
            let name = ["height", "width"][axis];
            format!("[{images}, {channels}, h, w] with {count} as its {name}")
        });
        out.expect_if(fits || input.layout.len() == 0, of_out, expected)?;
    }
    let expected = [images, channels, out_height, out_width];
    out.expect(of_out, &expected)
}

fn random(distribution: Distribution, dtype: DType) -> Result<(), Problem> {
    let invalid = |option, expected, found: &dyn fmt::Debug| {
        Err(Problem::Option { option, expected, found: format!("{found:?}") })
    };
    match distribution {
        Distribution::Uniform { low, high } => {
            Class::Float.check("the output", dtype)?;
            let fits = low.is_finite() && high.is_finite() && low <= high;
            if fits { Ok(()) } else { invalid("range", "finite numbers in order", &(low..high)) }
        }
        Distribution::Normal { mean, deviation } => {
            Class::Float.check("the output", dtype)?;
            let fits = mean.is_finite() && deviation.is_finite() && deviation >= 0.0;
            if fits { Ok(()) } else { invalid("deviation", "a finite number from 0 on", &deviation) }
        }
        Distribution::Bernoulli { probability } => {
            let fits = (0.0..=1.0).contains(&probability);
            if fits { Ok(()) } else { invalid("probability", "a number from 0 to 1", &probability) }
        }
        Distribution::Integers { low, high } => {
            Class::Integer.check("the output", dtype)?;
            let range = match dtype {
                DType::U8 => 0..=i64::from(u8::MAX),
                DType::U32 => 0..=i64::from(u32::MAX),
                DType::I32 => i64::from(i32::MIN)..=i64::from(i32::MAX),
                _ => i64::MIN..=i64::MAX,
            };
            let fits = low < high && range.contains(&low) && range.contains(&(high - 1));
            if fits { Ok(()) } else { invalid("range", "numbers of the type, in order", &(low..high)) }
        }
    }
}

fn updated(update: Update, out: Array<'_>) -> Result<(), Problem> {
    match update {
        Update::Replace => Ok(()),
        Update::Add => Class::Number.check("the output", out.dtype),
    }
}

fn dimension(dim: usize, layout: &Layout) -> Result<(), Problem> {
    let shape = || layout.shape().to_vec();
    if dim < layout.rank() { Ok(()) } else { Err(LayoutError::Dimension { dim, shape: shape() }.into()) }
}

/// Whether indices have as many dimensions as what they are for, and in all others but `dim` no more elements.
fn inside(index: Array<'_>, layout: &Layout, dim: usize) -> Result<(), Problem> {
    let (found, limit) = (index.layout.shape(), layout.shape());
    let fits = found.len() == limit.len()
        && (0..found.len()).all(|other| other == dim || found[other] <= limit[other]);
    index.expect_if(fits, "the indices", format_args!("at most {limit:?}, but for dimension {dim}"))
}

fn not_from_nothing(index: Array<'_>, layout: &Layout, dim: usize) -> Result<(), Problem> {
    let nothing = layout.shape()[dim] == 0 && index.layout.len() > 0;
    if nothing { Err(Problem::Empty { argument: "the dimension" }) } else { Ok(()) }
}

fn positive(option: &'static str, values: [usize; 2]) -> Result<(), Problem> {
    let found = || format!("{values:?}");
    if values.contains(&0) {
        return Err(Problem::Option { option, expected: "numbers from 1 on", found: found() });
    }
    Ok(())
}

/// The shape with the dimensions `dims` of one element.
fn reduced(layout: &Layout, dims: Dims) -> Vec<usize> {
    layout.shape().iter().enumerate().map(|(dim, &size)| if dims.contains(dim) { 1 } else { size }).collect()
}

/// The shape with `size` as dimension `dim`.
fn with(layout: &Layout, dim: usize, size: usize) -> Vec<usize> {
    let mut shape = layout.shape().to_vec();
    shape[dim] = size;
    shape
}

/// The call, or a fill with `value` if it computes something of nothing.
fn or_fill(call: Call, value: Scalar) -> Call {
    if call.inputs().iter().any(Argument::is_empty) {
        return Call::fill(Argument::Scalar(value), 0, call.outputs());
    }
    call
}
