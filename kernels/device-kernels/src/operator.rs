//! The vocabulary: what a kernel computes.

mod expression;

use std::fmt;

pub(crate) use self::expression::Definition;
pub use self::expression::{Expression, ExpressionError, ExpressionNode, NodeKind};
use crate::custom::CustomOperator;
use crate::dtype::DType;

/// What a kernel computes.
///
/// Inputs and outputs are listed in their order. An element-wise operator computes each element of its output
/// from the elements of its inputs at the same place; inputs are broadcast by the rules of NumPy, and each
/// may be a [`Scalar`](crate::Scalar). Unless an operator says otherwise, arrays of one call have one dtype.
///
/// Floating-point results may differ between devices in the last bits. Integers wrap. A NaN in an input gives
/// NaN, also for maximum and minimum, as in PyTorch, unless an operator says otherwise; its sign is not
/// specified. Sums of `f16` and `bf16` are `f32` until the end, also for [`Update::Add`].
///
/// An index, or a place of [`MaxPool2dGrad`](Self::MaxPool2dGrad), that is out of range reads 0 and writes
/// nothing, or is an error of the stream. A kernel never accesses memory outside its arrays.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Operator {
    /// `out = f(a)`, element-wise.
    Unary(Unary),
    /// `out = f(a, b)`, element-wise.
    Binary(Binary),
    /// `out = a < b`, for example, element-wise. The output is `bool`.
    Compare(Compare),
    /// `out = condition ? a : b`, element-wise. The condition is `bool`, and the first input.
    Where,
    /// `out = min(max(a, low), high)`, element-wise.
    Clamp,
    /// `out = a`, element-wise, for any two dtypes: a copy between layouts, a conversion, and from a scalar a
    /// fill.
    ///
    /// Numbers are converted like Rust's `as`: to integers toward zero and to the nearest of the
    /// range, NaN to 0. To `bool`, zero is false and everything else is true.
    Copy,
    /// A reduction of the dimensions `dims`, which are 1 in the output.
    Reduce {
        /// What is computed from the elements.
        reduction: Reduction,
        /// The dimensions.
        dims: Dims,
    },
    /// The index of the largest or smallest element in a dimension, which is 1 in the output. The output is
    /// `i32`, `i64` or `u32`. Of several equal elements it is the first; a NaN is larger and smaller than any
    /// number.
    ArgReduce {
        /// Which element.
        extremum: Extremum,
        /// The dimension.
        dim: usize,
    },
    /// The elements of each row along a dimension in order, for numbers: the smallest first, or the largest
    /// if `descending`. Equal elements keep their order, in either direction.
    ///
    /// The order of floats is IEEE 754's total order, by their bits: NaN with a minus sign, negative
    /// infinity, negative numbers, -0, 0, positive numbers, infinity, NaN. Each element keeps its bits.
    ///
    /// The outputs are what `sorted` says: the elements, of the type of the input; their indices in the
    /// dimension, which are `i32`, `i64` or `u32`; or both, in this order. In the dimension they may have
    /// fewer elements than the input, and then they have the first ones, such as the ten largest.
    Sort {
        /// The dimension.
        dim: usize,
        /// Whether the largest is first.
        descending: bool,
        /// What the outputs are.
        sorted: Sorted,
    },
    /// `exp(a) / sum(exp(a))` in a dimension, for floating-point numbers.
    Softmax {
        /// The dimension of the sum.
        dim: usize,
    },
    /// The logarithm of [`Softmax`](Self::Softmax).
    LogSoftmax {
        /// The dimension of the sum.
        dim: usize,
    },
    /// The product of matrices, `[.., m, k]` with `[.., k, n]`, and a bias that is broadcast to the output as
    /// an optional third input. Dimensions before the last two are a batch, and are broadcast. Sums of `f16`
    /// and `bf16` are `f32`.
    MatMul,
    /// `out[i][j] = a[index[i][j]][j]` for `dim` 0. The second input has the indices, and the shape of the
    /// output.
    Gather {
        /// The dimension that the indices are for.
        dim: usize,
    },
    /// `out[index[i][j]][j] = values[i][j]` for `dim` 0, where `=` is `+=` for [`Update::Add`]. The inputs
    /// are the indices and the values. The output has its other elements before the call, and keeps them.
    Scatter {
        /// The dimension that the indices are for.
        dim: usize,
        /// What happens to the elements that were there.
        update: Update,
    },
    /// `out[i][j] = a[index[i]][j]` for `dim` 0. The second input has the indices, in one dimension.
    IndexSelect {
        /// The dimension that the indices are for.
        dim: usize,
    },
    /// `out[index[i]][j] = values[i][j]` for `dim` 0, where `=` is `+=` for [`Update::Add`]. The inputs are
    /// the indices, in one dimension, and the values. The output has its other elements before the call, and
    /// keeps them.
    IndexAssign {
        /// The dimension that the indices are for.
        dim: usize,
        /// What happens to the elements that were there.
        update: Update,
    },
    /// A convolution of images `[n, in, h, w]` with weights `[out, in / groups, kh, kw]`, and a bias `[out]`
    /// as an optional third input. The padding is zeros, which are multiplied as elements are: with an
    /// infinite weight they give NaN, as in PyTorch.
    Conv2d(Conv2d),
    /// The gradient of a convolution by its images, from the gradient of the output and the weights. The
    /// effect of weights that are not finite on elements at the border, or between strides, is not specified.
    Conv2dInputGrad(Conv2d),
    /// The gradient of a convolution by its weights, from the images and the gradient of the output. The
    /// padding is zeros, as in [`Conv2d`](Self::Conv2d).
    Conv2dWeightGrad(Conv2d),
    /// The largest element of each pooling window of images `[n, c, h, w]`. A second output, of an index
    /// dtype, has the places of the elements in their image: `y * w + x`. Of equal elements it is any one,
    /// and of several NaN the last, as in PyTorch. A window without any element of the images has the
    /// smallest number of the type, which is negative infinity for floats, and the place 0.
    MaxPool2d(Pool2d),
    /// The gradient of [`MaxPool2d`](Self::MaxPool2d) by its images, from the gradient of the output and the
    /// places. Each place is in its window, as `MaxPool2d` writes it; for another place, the gradient may be
    /// missing.
    MaxPool2dGrad(Pool2d),
    /// The mean of each pooling window of images `[n, c, h, w]`. The padding is counted as zeros if
    /// `count_padding`, and else left out. The mean of a window without any element of the images is 0, as in
    /// PyTorch.
    AvgPool2d {
        /// The pooling windows.
        pool: Pool2d,
        /// Whether the mean counts the padding.
        count_padding: bool,
    },
    /// The gradient of [`AvgPool2d`](Self::AvgPool2d) by its images, from the gradient of the output.
    AvgPool2dGrad {
        /// The pooling windows.
        pool: Pool2d,
        /// Whether the mean counts the padding.
        count_padding: bool,
    },
    /// The mean of pooling windows of images `[n, c, h, w]` whose places and sizes follow from the size of
    /// the output: in each direction, window `i` is from `floor(i * in / out)` to `ceil((i + 1) * in / out)`.
    AdaptiveAvgPool2d,
    /// The gradient of [`AdaptiveAvgPool2d`](Self::AdaptiveAvgPool2d) by its images, from the gradient of the
    /// output.
    AdaptiveAvgPool2dGrad,
    /// Random numbers from a counter-based generator, Philox 4x32 with ten rounds: element `i`, in the order
    /// of the indices of the output, depends only on the seed and on `offset + i`. So a seed gives the same
    /// numbers on every device, up to the last bits of floating-point numbers. Salmon et al., "Parallel
    /// random numbers: as easy as 1, 2, 3", SC 2011.
    ///
    /// This is the rule, where `n` is `offset + i`, which wraps at 64 bits:
    ///
    /// - The key is the seed: its low word, then its high word. A counter of 64 bits is the words 0 and 1 of
    ///   the generator's counter, the low word first; the words 2 and 3 are zero.
    /// - An element has 32 bits: word `n % 4` of what the generator gives for the counter `n / 4`. For `f64`
    ///   and `i64`, they are word 0 for the counter `n`.
    /// - It also has 64 bits: word 0 for the counter `n` as the low half, and word 1 as the high half.
    /// - [`Uniform`](Distribution::Uniform) is `low + u * (high - low)`, where `u` is
    ///   `(32 bits >> 8) * 2^-24`, and for `f64` `(64 bits >> 11) * 2^-53`. It is rounded to the type, which
    ///   may give `high`.
    /// - [`Normal`](Distribution::Normal) is `mean + deviation * sqrt(-2 * ln(u1)) * cos(2 * pi * u2)`, where
    ///   `u1` is `((word 0 >> 8) + 1) * 2^-24` and `u2` is `(word 1 >> 8) * 2^-24`, both for the counter `n`,
    ///   for all types.
    /// - [`Bernoulli`](Distribution::Bernoulli) is true if `32 bits * 2^-32` is less than the probability.
    /// - [`Integers`](Distribution::Integers) with a range `high - low` below `2^32` is
    ///   `low + ((32 bits * range) >> 32)`, and with a larger range `low + 64 bits % range`.
    Random {
        /// What is drawn.
        distribution: Distribution,
        /// The seed.
        seed: u64,
        /// The number of the first element, to continue after an earlier call.
        offset: u64,
    },
    /// An operator that is made of element-wise ones and reductions.
    Expression(Expression),
    /// An operator that another crate declares, in the group [`operators`](crate::operators()).
    Custom(CustomOperator),
}

macro_rules! names {
    ($(#[$meta:meta])* $name:ident { $($(#[$doc:meta])* $variant:ident = $text:literal,)* }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum $name {
            $($(#[$doc])* $variant,)*
        }

        impl $name {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$variant),*];

            /// The name, as `Display` prints it.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $text,)*
                }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(self.name())
            }
        }
    };
}

names! {
    /// An element-wise operator of one input.
    Unary {
        /// `-a`, for numbers. Unsigned integers wrap.
        Neg = "neg",
        /// `|a|`, for numbers.
        Abs = "abs",
        /// -1, 0 or 1, for numbers. For zeros and NaN it is 0 without a sign, as in PyTorch.
        Sign = "sign",
        /// `1 / a`, for floats, as are all that follow up to `IsInf`.
        Recip = "recip",
        /// The square root.
        Sqrt = "sqrt",
        /// `e^a`
        Exp = "exp",
        /// The natural logarithm.
        Log = "log",
        /// `log(1 + a)`, also where `a` is small.
        Log1p = "log1p",
        /// The sine of radians.
        Sin = "sin",
        /// The cosine of radians.
        Cos = "cos",
        /// The tangent of radians.
        Tan = "tan",
        /// The inverse of the sine.
        Asin = "asin",
        /// The inverse of the cosine.
        Acos = "acos",
        /// The inverse of the tangent.
        Atan = "atan",
        /// The hyperbolic sine.
        Sinh = "sinh",
        /// The hyperbolic cosine.
        Cosh = "cosh",
        /// The hyperbolic tangent.
        Tanh = "tanh",
        /// The inverse of the hyperbolic sine.
        Asinh = "asinh",
        /// The inverse of the hyperbolic cosine.
        Acosh = "acosh",
        /// The inverse of the hyperbolic tangent.
        Atanh = "atanh",
        /// The error function.
        Erf = "erf",
        /// The largest integer that is not larger.
        Floor = "floor",
        /// The smallest integer that is not smaller.
        Ceil = "ceil",
        /// The nearest integer; ties go to the even one.
        Round = "round",
        /// The integer toward zero.
        Trunc = "trunc",
        /// `max(a, 0)`
        Relu = "relu",
        /// `1 / (1 + e^-a)`
        Sigmoid = "sigmoid",
        /// The logarithm of the sigmoid, also where that is near zero.
        LogSigmoid = "log_sigmoid",
        /// `a / 2 * (1 + erf(a / sqrt(2)))`
        Gelu = "gelu",
        /// Whether it is not a number. The output is `bool`.
        IsNan = "is_nan",
        /// Whether it is infinite. The output is `bool`.
        IsInf = "is_inf",
        /// All bits inverted, for integers; the opposite, for `bool`.
        Not = "not",
    }
}

names! {
    /// An element-wise operator of two inputs.
    Binary {
        /// `a + b`, for numbers.
        Add = "add",
        /// `a - b`, for numbers.
        Sub = "sub",
        /// `a * b`, for numbers.
        Mul = "mul",
        /// `a / b`, for numbers, toward zero for integers. Which integer a division by zero gives is not
        /// said.
        Div = "div",
        /// What is left of `a / b` rounded down, for numbers: it has the sign of `b`, as in Python. Which
        /// integer a division by zero gives is not said.
        Rem = "rem",
        /// `a` to the power of `b`, for numbers. A negative power of an integer is 0, except of 1 and -1.
        Pow = "pow",
        /// The larger one, for numbers. NaN if one is.
        Max = "max",
        /// The smaller one, for numbers. NaN if one is.
        Min = "min",
        /// The angle of the point `(b, a)`, for floats.
        Atan2 = "atan2",
        /// The bits that both have, for integers; whether both are true, for `bool`.
        And = "and",
        /// The bits that one has, for integers; whether one is true, for `bool`.
        Or = "or",
        /// The bits that differ, for integers; whether only one is true, for `bool`.
        Xor = "xor",
        /// `a << b`, for integers. The lowest bits of `b` count, as many as can be less than the width.
        Shl = "shl",
        /// `a >> b`, for integers, which keeps the sign. The lowest bits of `b` count, as many as can be less
        /// than the width.
        Shr = "shr",
        /// The gradient of [`Unary::Relu`]: 0 where its output `a` is at most zero, and else `b`, also where
        /// `a` is NaN. For floats.
        ReluGrad = "relu_grad",
        /// The gradient of [`Unary::Sigmoid`]: `b * a * (1 - a)` for its output `a`. For floats.
        SigmoidGrad = "sigmoid_grad",
    }
}

names! {
    /// A comparison of two inputs. All comparisons with NaN are false except `Ne`.
    Compare {
        /// `a == b`, also for `bool`.
        Eq = "eq",
        /// `a != b`, also for `bool`.
        Ne = "ne",
        /// `a < b`
        Lt = "lt",
        /// `a <= b`
        Le = "le",
        /// `a > b`
        Gt = "gt",
        /// `a >= b`
        Ge = "ge",
    }
}

names! {
    /// What a reduction computes. The sums of `f16` and `bf16` are `f32` until the end.
    Reduction {
        /// The sum, for numbers. Of no elements it is 0.
        Sum = "sum",
        /// The product, for numbers. Of no elements it is 1.
        Prod = "prod",
        /// The mean, for floats. Of no elements it is NaN.
        Mean = "mean",
        /// The largest, for numbers. NaN if one is. No elements are an error.
        Max = "max",
        /// The smallest, for numbers. NaN if one is. No elements are an error.
        Min = "min",
        /// Whether one is true, for `bool`. Of no elements it is false.
        Any = "any",
        /// Whether all are true, for `bool`. Of no elements it is true.
        All = "all",
    }
}

names! {
    /// Which element [`Operator::ArgReduce`] finds.
    Extremum {
        /// The largest.
        Max = "max",
        /// The smallest.
        Min = "min",
    }
}

names! {
    /// What the outputs of [`Operator::Sort`] are.
    Sorted {
        /// The elements.
        Values = "values",
        /// The index of each element.
        Indices = "indices",
        /// Both, the elements first.
        Both = "both",
    }
}

names! {
    /// What happens to the elements that an operator writes to.
    Update {
        /// They are replaced. Of several values for one element, one is written; which is not said.
        Replace = "replace",
        /// The values are added to them, in any order. For numbers.
        Add = "add",
    }
}

/// A set of dimensions.
///
/// ```
/// use device_kernels::Dims;
///
/// let dims = Dims::from([0, 2]);
/// assert!(dims.contains(2) && !dims.contains(1));
/// assert_eq!(dims.to_string(), "[0, 2]");
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Dims(u64);

impl Dims {
    /// The dimensions from 0 on, as many as `rank` says.
    #[must_use]
    pub fn all(rank: usize) -> Self {
        (0..rank).collect()
    }

    /// Whether `dim` is one of them.
    #[must_use]
    pub fn contains(self, dim: usize) -> bool {
        u32::try_from(dim).ok().and_then(|dim| 1_u64.checked_shl(dim)).is_some_and(|bit| self.0 & bit != 0)
    }

    /// The dimensions, in order.
    pub fn iter(self) -> impl Iterator<Item = usize> {
        (0..64).filter(move |&dim| self.contains(dim))
    }
}

impl<const N: usize> From<[usize; N]> for Dims {
    fn from(dims: [usize; N]) -> Self {
        dims.into_iter().collect()
    }
}

/// Dimensions that no array has are stored as one such dimension, so that a call with them is an error.
impl FromIterator<usize> for Dims {
    fn from_iter<I: IntoIterator<Item = usize>>(dims: I) -> Self {
        Self(dims.into_iter().fold(0, |set, dim| set | 1 << dim.min(63)))
    }
}

impl fmt::Display for Dims {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

/// The largest number among the strides, paddings, dilations and windows of [`Conv2d`] and [`Pool2d`].
///
/// No array has a dimension that is larger. So the places that a kernel computes from sizes and options, even
/// in the padding and behind it, are below `isize::MAX`, and kernels need not check for overflows.
pub const MAX_STEP: usize = isize::MAX as usize / 8;

/// The steps of a convolution. Arrays have the vertical value first. No number is above [`MAX_STEP`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Conv2d {
    /// How far the weights move for each element of the output.
    pub stride: [usize; 2],
    /// How many zeros are added at each edge of the images.
    pub padding: [usize; 2],
    /// The distance of neighbouring weights in the images.
    pub dilation: [usize; 2],
    /// How many groups the channels are in. Each group is its own convolution.
    pub groups: usize,
}

impl Default for Conv2d {
    fn default() -> Self {
        Self { stride: [1, 1], padding: [0, 0], dilation: [1, 1], groups: 1 }
    }
}

/// The windows of a pooling. Arrays have the vertical value first. No number is above [`MAX_STEP`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Pool2d {
    /// The size of a window.
    pub kernel: [usize; 2],
    /// How far a window moves for each element of the output.
    pub stride: [usize; 2],
    /// How many elements are added at each edge of the images: less than the window reaches.
    pub padding: [usize; 2],
    /// The distance of a window's neighbouring elements in the images.
    pub dilation: [usize; 2],
}

impl Pool2d {
    /// Windows of the size `kernel` that touch one another, without padding.
    #[must_use]
    pub fn new(kernel: [usize; 2]) -> Self {
        Self { kernel, stride: kernel, padding: [0, 0], dilation: [1, 1] }
    }
}

/// What random numbers are drawn from.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Distribution {
    /// From `low` to `high`, which is left out, all equally likely. For floats.
    Uniform {
        /// The smallest number.
        low: f64,
        /// The end, which is not drawn.
        high: f64,
    },
    /// The normal distribution. For floats.
    Normal {
        /// The mean.
        mean: f64,
        /// The standard deviation.
        deviation: f64,
    },
    /// True with the probability `probability`. For `bool`, and for numbers, which are 1 or 0.
    Bernoulli {
        /// The probability, from 0 to 1.
        probability: f64,
    },
    /// From `low` to `high`, which is left out, all equally likely. For integers.
    Integers {
        /// The smallest number.
        low: i64,
        /// The end, which is not drawn.
        high: i64,
    },
}

impl Distribution {
    /// How many elements of `dtype` have one counter of the generator between them: 4 where each has 32 bits,
    /// and else 1.
    ///
    /// A call with the offset `n` begins at the counter `n / per_counter`. Calls of one seed whose counters
    /// are apart have numbers that are independent of one another, whatever they draw.
    #[must_use]
    pub fn per_counter(&self, dtype: DType) -> u64 {
        let wide = match *self {
            Self::Uniform { .. } | Self::Bernoulli { .. } => false,
            Self::Normal { .. } => true,
            Self::Integers { low, high } => high.wrapping_sub(low) as u64 > u64::from(u32::MAX),
        };
        if wide || dtype.size() == 8 { 1 } else { 4 }
    }
}

impl From<Unary> for Operator {
    fn from(unary: Unary) -> Self {
        Self::Unary(unary)
    }
}

impl From<Binary> for Operator {
    fn from(binary: Binary) -> Self {
        Self::Binary(binary)
    }
}

impl From<Compare> for Operator {
    fn from(compare: Compare) -> Self {
        Self::Compare(compare)
    }
}

impl From<CustomOperator> for Operator {
    fn from(custom: CustomOperator) -> Self {
        Self::Custom(custom)
    }
}
impl Operator {
    /// Whether each element of the output depends only on the elements at the same place, so that an output
    /// may have the same elements as an input.
    #[must_use]
    pub fn is_elementwise(&self) -> bool {
        use Operator::{Binary, Clamp, Compare, Copy, Unary, Where};
        matches!(self, Unary(_) | Binary(_) | Compare(_) | Where | Clamp | Copy)
    }

    /// Whether an output may have the elements of an input that has the same layout: of
    /// [element-wise](Self::is_elementwise) operators and of expressions.
    #[must_use]
    pub fn is_in_place(&self) -> bool {
        self.is_elementwise() || matches!(self, Self::Expression(_))
    }

    /// Whether each result is an element of an input, perhaps with another sign or without its fraction, or 0
    /// or 1: it needs no rounding, also where a set computes with wider numbers.
    ///
    /// ```
    /// use device_kernels::{Binary, Operator, Unary};
    ///
    /// assert!(Operator::from(Binary::Max).is_exact() && Operator::from(Unary::Floor).is_exact());
    /// assert!(!Operator::from(Binary::Add).is_exact());
    /// ```
    #[must_use]
    pub fn is_exact(&self) -> bool {
        use Unary::{Abs, Ceil, Floor, Neg, Relu, Round, Sign, Trunc};
        match self {
            Self::Unary(unary) => matches!(unary, Neg | Abs | Sign | Floor | Ceil | Round | Trunc | Relu),
            Self::Binary(binary) => matches!(binary, Binary::Max | Binary::Min | Binary::ReluGrad),
            Self::Reduce { reduction, .. } => matches!(reduction, Reduction::Max | Reduction::Min),
            Self::Where | Self::Clamp => true,
            _ => false,
        }
    }

    /// Whether the output keeps elements that it has before the call.
    #[must_use]
    pub fn updates(&self) -> bool {
        matches!(self, Self::Scatter { .. } | Self::IndexAssign { .. })
    }
}

/// The name of the operator, with its options.
impl fmt::Display for Operator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Unary(unary) => unary.fmt(f),
            Self::Binary(binary) => binary.fmt(f),
            Self::Compare(compare) => compare.fmt(f),
            Self::Where => f.write_str("where"),
            Self::Clamp => f.write_str("clamp"),
            Self::Copy => f.write_str("copy"),
            Self::Reduce { reduction, dims } => write!(f, "{reduction}<dims {dims}>"),
            Self::ArgReduce { extremum, dim } => write!(f, "arg_{extremum}<dim {dim}>"),
            Self::Sort { dim, descending, sorted } => {
                write!(f, "sort<dim {dim}{}, {sorted}>", if descending { ", descending" } else { "" })
            }
            Self::Softmax { dim } => write!(f, "softmax<dim {dim}>"),
            Self::LogSoftmax { dim } => write!(f, "log_softmax<dim {dim}>"),
            Self::MatMul => f.write_str("matmul"),
            Self::Gather { dim } => write!(f, "gather<dim {dim}>"),
            Self::Scatter { dim, update } => write!(f, "scatter<dim {dim}, {update}>"),
            Self::IndexSelect { dim } => write!(f, "index_select<dim {dim}>"),
            Self::IndexAssign { dim, update } => write!(f, "index_assign<dim {dim}, {update}>"),
            Self::Conv2d(conv) => write!(f, "conv2d<{conv}>"),
            Self::Conv2dInputGrad(conv) => write!(f, "conv2d_input_grad<{conv}>"),
            Self::Conv2dWeightGrad(conv) => write!(f, "conv2d_weight_grad<{conv}>"),
            Self::MaxPool2d(pool) => write!(f, "max_pool2d<{pool}>"),
            Self::MaxPool2dGrad(pool) => write!(f, "max_pool2d_grad<{pool}>"),
            Self::AvgPool2d { pool, count_padding } => {
                write!(f, "avg_pool2d<{pool}{}>", counted(count_padding))
            }
            Self::AvgPool2dGrad { pool, count_padding } => {
                write!(f, "avg_pool2d_grad<{pool}{}>", counted(count_padding))
            }
            Self::AdaptiveAvgPool2d => f.write_str("adaptive_avg_pool2d"),
            Self::AdaptiveAvgPool2dGrad => f.write_str("adaptive_avg_pool2d_grad"),
            Self::Random { distribution, seed, offset } => {
                write!(f, "random<{distribution:?}, seed {seed}, offset {offset}>")
            }
            Self::Expression(expression) => f.write_str(expression.name()),
            Self::Custom(custom) => custom.fmt(f),
        }
    }
}

fn counted(padding: bool) -> &'static str {
    if padding { ", counting padding" } else { "" }
}

impl fmt::Display for Conv2d {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { stride, padding, dilation, groups } = self;
        write!(f, "stride {stride:?}, padding {padding:?}, dilation {dilation:?}, groups {groups}")
    }
}

impl fmt::Display for Pool2d {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kernel, stride, padding, dilation } = self;
        write!(f, "kernel {kernel:?}, stride {stride:?}, padding {padding:?}, dilation {dilation:?}")
    }
}
