//! Convolutions and pooling of images.

use device_kernels::{Binary, Conv2d, DType, Dims, Operator, Pool2d, Reduction, Scalar};

use super::{Plan, Row, declined};
use crate::context::{Array, Context, Input, Shape};
use crate::failure::Failure;
use crate::node::Kind::{Float, Int, Ints, Text};
use crate::node::Node;

pub(super) const ROWS: &[Row] = &[
    Row::new("Conv", conv).attributes(CONV),
    Row::new("MaxPool", |node| pool(node, Pool::Max)).attributes(POOL),
    Row::new("AveragePool", |node| pool(node, Pool::Mean)).since(7).attributes(POOL),
    Row::new("ConvTranspose", conv_transpose).attributes(&[
        ("auto_pad", Text),
        ("dilations", Ints),
        ("group", Int),
        ("kernel_shape", Ints),
        ("output_padding", Ints),
        ("output_shape", Ints),
        ("pads", Ints),
        ("strides", Ints),
    ]),
    Row::new("LRN", lrn).attributes(&[("alpha", Float), ("beta", Float), ("bias", Float), ("size", Int)]),
    Row::new("GlobalAveragePool", |node| global(node, Reduction::Mean)),
    Row::new("GlobalMaxPool", |node| global(node, Reduction::Max)),
];

pub(super) const CONV: &[(&str, crate::node::Kind)] = &[
    ("auto_pad", Text),
    ("dilations", Ints),
    ("group", Int),
    ("kernel_shape", Ints),
    ("pads", Ints),
    ("strides", Ints),
];

const POOL: &[(&str, crate::node::Kind)] = &[
    ("auto_pad", Text),
    ("ceil_mode", Int),
    ("count_include_pad", Int),
    ("dilations", Ints),
    ("kernel_shape", Ints),
    ("pads", Ints),
    ("storage_order", Int),
    ("strides", Ints),
];

/// How windows lie on an image of two dimensions; a signal of one dimension is an image of height 1.
#[derive(Clone, Debug)]
struct Windows {
    automatic: Option<String>,
    /// The lengths of the borders: at the beginnings, and at the ends.
    pads: Option<Vec<i64>>,
    strides: Option<Vec<i64>>,
    dilations: Option<Vec<i64>>,
}

/// Two sizes, of an image.
type Pair = [usize; 2];

impl Windows {
    fn of(node: &Node) -> Self {
        let ints = |name| node.ints(name).map(<[i64]>::to_vec);
        let automatic = node.text("auto_pad").filter(|mode| *mode != "NOTSET").map(str::to_owned);
        Self { automatic, pads: ints("pads"), strides: ints("strides"), dilations: ints("dilations") }
    }

    fn pair(of: Option<&[i64]>, otherwise: usize) -> Result<Pair, Failure> {
        let number = |number: i64| {
            usize::try_from(number).map_err(|_| Failure::new(format_args!("a negative number: {number}")))
        };
        match of {
            None => Ok([otherwise; 2]),
            Some([width]) => Ok([otherwise, number(*width)?]),
            Some([height, width]) => Ok([number(*height)?, number(*width)?]),
            Some(_) => declined("more than two dimensions"),
        }
    }

    fn strides(&self) -> Result<Pair, Failure> {
        Self::pair(self.strides.as_deref(), 1)
    }

    fn dilations(&self) -> Result<Pair, Failure> {
        Self::pair(self.dilations.as_deref(), 1)
    }

    /// The borders at the beginnings and at the ends, for windows of this size.
    fn borders(&self, image: Pair, kernel: Pair) -> Result<[Pair; 2], Failure> {
        let strides = self.strides()?;
        let dilations = self.dilations()?;
        let same_begins_long = match self.automatic.as_deref() {
            None => {
                let pads = self.pads.as_deref().unwrap_or(&[0; 4]);
                let (before, behind) = pads.split_at(pads.len() / 2);
                return Ok([Self::pair(Some(before), 0)?, Self::pair(Some(behind), 0)?]);
            }
            Some("VALID") => return Ok([[0; 2]; 2]),
            Some("SAME_UPPER") => false,
            Some("SAME_LOWER") => true,
            Some(other) => return declined(format_args!("auto_pad `{other}`")),
        };
        let mut borders = [[0; 2]; 2];
        for at in 0..2 {
            let out = image[at].div_ceil(strides[at]);
            let reach = (kernel[at] - 1) * dilations[at] + 1;
            let whole = ((out.max(1) - 1) * strides[at] + reach).saturating_sub(image[at]);
            let short = whole / 2;
            let long = whole - short;
            let (before, behind) = if same_begins_long { (long, short) } else { (short, long) };
            borders[0][at] = before;
            borders[1][at] = behind;
        }
        Ok(borders)
    }
}

/// Declines unless an input is of images or signals. Where its own dimensions are not known, the kernel's say
/// how many there are.
fn expect_images(node: &Node) -> Result<(), Failure> {
    if node.ints("pads").is_some_and(|pads| pads.iter().any(|&pad| pad < 0)) {
        return declined("borders that are cut off");
    }
    let of_kernel = || node.ints("kernel_shape").map(|sizes| sizes.len() + 2);
    let rank = match (node.rank(0), of_kernel()) {
        (Ok(rank), _) | (Err(_), Some(rank)) => rank,
        (Err(unknown), None) => match node.operator.as_str() {
            "Conv" | "ConvTranspose" => node.rank(1)?,
            _ => return Err(unknown),
        },
    };
    match rank {
        3 | 4 => Ok(()),
        rank => declined(format_args!("{rank} dimensions")),
    }
}

/// An array of images or signals, as images.
fn as_images(array: &Array) -> Result<Array, Failure> {
    match *array.shape() {
        [n, c, w] => array.reshaped([n, c, 1, w]),
        [_, _, _, _] => Ok(array.clone()),
        _ => declined(format_args!("{} dimensions", array.rank())),
    }
}

/// The output, as images of these sizes. Signals have no height.
fn output(context: &Context, rank: usize, sizes: [usize; 4]) -> Result<Array, Failure> {
    let [n, c, _, w] = sizes;
    let out = if rank == 3 { context.output(0, &[n, c, w])? } else { context.output(0, &sizes)? };
    out.reshaped(sizes)
}

/// The sizes of images.
fn size_of(images: &Array) -> Pair {
    [images.shape()[2], images.shape()[3]]
}

/// Images with borders of a value, if the borders at both ends differ; and how long the equal borders are
/// that are left to the operator.
fn bordered(
    context: &Context,
    images: Array,
    [before, behind]: [Pair; 2],
    value: f64,
) -> Result<(Array, Pair), Failure> {
    if before == behind {
        return Ok((images, before));
    }
    let [n, c, h, w] = *images.shape() else { return declined("no images") };
    let wide =
        context.scratch(images.dtype, &[n, c, before[0] + h + behind[0], before[1] + w + behind[1]])?;
    let value = if images.dtype.is_float() { Scalar::Float(value) } else { Scalar::Int(value as i64) };
    context.run(Operator::Copy, &[Input::Scalar(value)], &[&wide])?;
    let inner = wide.layout.slice(2, before[0], h, 1)?.slice(3, before[1], w, 1)?;
    context.copy(&images, &wide.with_layout(inner))?;
    Ok((wide, [0; 2]))
}

/// How many windows there are in each direction.
fn windows(
    image: Pair,
    kernel: Pair,
    borders: [Pair; 2],
    strides: Pair,
    dilations: Pair,
    ceil: bool,
) -> Pair {
    std::array::from_fn(|at| {
        let reach = (kernel[at] - 1) * dilations[at] + 1;
        let room = (image[at] + borders[0][at] + borders[1][at]).saturating_sub(reach);
        let count = room / strides[at] + 1;
        // A last window that is cut off has to begin in the image or in the border before it.
        let is_cut =
            ceil && !room.is_multiple_of(strides[at]) && count * strides[at] < image[at] + borders[0][at];
        count + usize::from(is_cut)
    })
}

fn conv(node: &Node) -> Result<Plan, Failure> {
    expect_images(node)?;
    let shape = Windows::of(node);
    let groups = node.int_or("group", 1) as usize;
    let dtype = node.input(0)?;
    Plan::new([("conv2d", dtype), ("copy", dtype)], move |context| {
        let input = context.array(0)?;
        let rank = input.rank();
        let bias = context.optional(2)?;
        let make = |sizes| output(context, rank, sizes);
        convolve(context, &shape, groups, [input, context.array(1)?], bias, make).map(drop)
    })
}

/// Convolves images or signals with weights, into images that are made with these sizes.
fn convolve(
    context: &Context,
    shape: &Windows,
    groups: usize,
    [input, weights]: [Array; 2],
    bias: Option<Array>,
    make: impl FnOnce([usize; 4]) -> Result<Array, Failure>,
) -> Result<Array, Failure> {
    let weights = as_images(&weights)?;
    let images = as_images(&input)?;
    let kernel = size_of(&weights);
    let borders = shape.borders(size_of(&images), kernel)?;
    let (stride, dilation) = (shape.strides()?, shape.dilations()?);
    let [h, w] = windows(size_of(&images), kernel, borders, stride, dilation, false);
    let out = make([images.shape()[0], weights.shape()[0], h, w])?;
    let (images, padding) = bordered(context, images, borders, 0.0)?;
    let conv = Operator::Conv2d(Conv2d { stride, padding, dilation, groups });
    let mut inputs = vec![Input::from(images), weights.into()];
    inputs.extend(bias.map(Input::from));
    context.run(conv, &inputs, &[&out])?;
    Ok(out)
}

/// Quantized images convolved with quantized weights, whose zeros are subtracted.
pub(super) struct Convolution {
    shape: Windows,
    groups: usize,
}

impl Convolution {
    pub(super) fn of(node: &Node) -> Result<Self, Failure> {
        expect_images(node)?;
        Ok(Self { shape: Windows::of(node), groups: node.int_or("group", 1) as usize })
    }

    /// As images of `f64`, in which the sums are exact.
    pub(super) fn run(&self, context: &Context, arrays: [Array; 2]) -> Result<Array, Failure> {
        let make = |sizes: [usize; 4]| context.scratch(DType::F64, &sizes);
        convolve(context, &self.shape, self.groups, arrays, None, make)
    }
}

/// Copies images to an output of so many dimensions.
pub(super) fn copy_images(context: &Context, images: &Array, rank: usize) -> Result<(), Failure> {
    let &[n, c, h, w] = images.shape() else { return declined("no images") };
    context.copy(images, &output(context, rank, [n, c, h, w])?)
}

/// The gradient of a convolution by its images.
fn conv_transpose(node: &Node) -> Result<Plan, Failure> {
    expect_images(node)?;
    let shape = Windows::of(node);
    if shape.automatic.is_some() || node.ints("output_shape").is_some() {
        return declined("borders that follow from the output");
    }
    let groups = node.int_or("group", 1) as usize;
    let more = Windows::pair(node.ints("output_padding"), 0)?;
    let dtype = node.input(0)?;
    let needs = [("conv2d_input_grad", dtype), ("add", dtype), ("copy", dtype)];
    Plan::new(needs, move |context| {
        let input = context.array(0)?;
        let weights = as_images(&context.array(1)?)?;
        let images = as_images(&input)?;
        let kernel = size_of(&weights);
        let borders = shape.borders(size_of(&images), kernel)?;
        let (stride, dilation) = (shape.strides()?, shape.dilations()?);
        let size = size_of(&images);
        // Without borders, which are cut off behind.
        let whole: Pair = std::array::from_fn(|at| {
            (size[at] - 1) * stride[at] + (kernel[at] - 1) * dilation[at] + 1 + more[at]
        });
        let cut: Pair = std::array::from_fn(|at| whole[at].saturating_sub(borders[0][at] + borders[1][at]));
        let (n, channels) = (images.shape()[0], weights.shape()[1] * groups);
        let made = context.scratch(dtype, &[n, channels, whole[0], whole[1]])?;
        let conv = Conv2d { stride, padding: [0; 2], dilation, groups };
        context.run(Operator::Conv2dInputGrad(conv), &[images.into(), weights.into()], &[&made])?;
        let inner = made.layout.slice(2, borders[0][0], cut[0], 1)?.slice(3, borders[0][1], cut[1], 1)?;
        let mut value = made.with_layout(inner);
        if let Some(bias) = context.optional(2)? {
            value = context.binary(Binary::Add, &value, &bias.reshaped([1, channels, 1, 1])?)?;
        }
        let out = output(context, input.rank(), [n, channels, cut[0], cut[1]])?;
        context.copy(&value, &out)
    })
}

/// x / (bias + alpha / size * the sum of squares of neighbouring channels)^beta
fn lrn(node: &Node) -> Result<Plan, Failure> {
    let number = |name, otherwise| f64::from(node.float_or(name, otherwise));
    let (alpha, beta, bias) = (number("alpha", 1e-4), number("beta", 0.75), number("bias", 1.0));
    let Some(size) = node.int("size").filter(|&size| size > 0) else { return declined("no size") };
    let size = size as usize;
    let dtype = node.input(0)?;
    let wide_type = if dtype.size() == 2 { DType::F32 } else { dtype };
    let needs = ["mul", "add", "pow", "div", "copy"].map(|name| (name, wide_type));
    Plan::new(needs.into_iter().chain([("copy", dtype)]), move |context| {
        let input = context.array(0)?;
        let out = context.output(0, input.shape())?;
        let input = context.converted(input, wide_type)?;
        let squares = context.binary(Binary::Mul, &input, &input)?;
        let channels = input.shape()[1];
        let before = (size - 1) / 2;
        let mut padded = Shape::from_slice(input.shape());
        padded[1] = channels + size - 1;
        let wide = context.scratch(wide_type, &padded)?;
        context.run(Operator::Copy, &[0.0.into()], &[&wide])?;
        context.copy(&squares, &wide.with_layout(wide.layout.slice(1, before, channels, 1)?))?;
        let part = |at| Ok::<_, Failure>(wide.with_layout(wide.layout.slice(1, at, channels, 1)?));
        let mut sum = part(0)?;
        for at in 1..size {
            sum = context.binary(Binary::Add, &sum, &part(at)?)?;
        }
        let scaled = context.binary(Binary::Mul, &sum, alpha / size as f64)?;
        let raised = context.binary(Binary::Pow, &context.binary(Binary::Add, &scaled, bias)?, beta)?;
        context.copy(&context.binary(Binary::Div, &input, &raised)?, &out)
    })
}

#[derive(Clone, Copy, PartialEq)]
enum Pool {
    Max,
    Mean,
}

fn pool(node: &Node, kind: Pool) -> Result<Plan, Failure> {
    expect_images(node)?;
    if node.outputs.len() > 1 {
        return declined("the places of the largest");
    }
    let shape = Windows::of(node);
    let kernel = Windows::pair(Some(node.ints("kernel_shape").unwrap_or_default()), 1)?;
    let ceil = node.int_or("ceil_mode", 0) != 0;
    let count_padding = node.int_or("count_include_pad", 0) != 0;
    let dtype = node.input(0)?;
    let name = if kind == Pool::Max { "max_pool2d" } else { "avg_pool2d" };
    Plan::new([(name, dtype), ("copy", dtype), ("div", dtype)], move |context| {
        let input = context.array(0)?;
        let images = as_images(&input)?;
        let size = size_of(&images);
        let borders = shape.borders(size, kernel)?;
        let (stride, dilation) = (shape.strides()?, shape.dilations()?);
        let count = windows(size, kernel, borders, stride, dilation, ceil);
        // Borders so long that all windows are whole, and no longer: windows in a longer one would be more.
        let mut whole = borders;
        for at in 0..2 {
            let reach = (count[at] - 1) * stride[at] + (kernel[at] - 1) * dilation[at] + 1;
            whole[1][at] = reach.saturating_sub(size[at] + borders[0][at]);
        }
        let (n, c) = (images.shape()[0], images.shape()[1]);
        let out = output(context, input.rank(), [n, c, count[0], count[1]])?;
        let pooled = |images: Array, value: f64, kind: Pool, count_padding: bool, out: &Array| {
            let (images, padding) = bordered(context, images, whole, value)?;
            let pool = Pool2d { kernel, stride, padding, dilation };
            let operator = match kind {
                Pool::Max => Operator::MaxPool2d(pool),
                Pool::Mean => Operator::AvgPool2d { pool, count_padding },
            };
            context.run(operator, &[images.into()], &[out])
        };
        if kind == Pool::Max {
            // The least number is the largest of no window that has an element of the image.
            let least = match dtype.integers() {
                Some((least, _)) => least as f64,
                None => f64::NEG_INFINITY,
            };
            return pooled(images, least, kind, false, &out);
        }
        if whole[0] == whole[1] && (whole == borders || !count_padding) {
            return pooled(images, 0.0, kind, count_padding, &out);
        }
        // The mean over whole windows, by the part of each window that counts.
        let [height, width] = size;
        let mut counted = [height, width];
        let mut from = borders[0];
        if count_padding {
            counted = std::array::from_fn(|at| borders[0][at] + size[at] + borders[1][at].min(whole[1][at]));
            from = [0; 2];
        }
        let all: Pair = std::array::from_fn(|at| whole[0][at] + size[at] + whole[1][at]);
        let weights = context.scratch(dtype, &[1, 1, all[0], all[1]])?;
        context.run(Operator::Copy, &[0.0.into()], &[&weights])?;
        let inner = weights.layout.slice(2, from[0], counted[0].min(all[0] - from[0]), 1)?;
        let inner = inner.slice(3, from[1], counted[1].min(all[1] - from[1]), 1)?;
        context.run(Operator::Copy, &[1.0.into()], &[&weights.with_layout(inner)])?;
        let share = context.scratch(dtype, &[1, 1, count[0], count[1]])?;
        let pool = Pool2d { kernel, stride, padding: [0; 2], dilation };
        let mean = Operator::AvgPool2d { pool, count_padding: true };
        context.run(mean, &[weights.into()], &[&share])?;
        let means = context.scratch(dtype, &[n, c, count[0], count[1]])?;
        let wide = context.scratch(dtype, &[n, c, all[0], all[1]])?;
        context.run(Operator::Copy, &[0.0.into()], &[&wide])?;
        let inner = wide.layout.slice(2, whole[0][0], height, 1)?.slice(3, whole[0][1], width, 1)?;
        context.copy(&images, &wide.with_layout(inner))?;
        context.run(mean, &[wide.into()], &[&means])?;
        context.run(Binary::Div, &[means.into(), share.into()], &[&out])
    })
}

fn global(node: &Node, reduction: Reduction) -> Result<Plan, Failure> {
    let name = Operator::Reduce { reduction, dims: Dims::default() }.name();
    Plan::new([(name, node.input(0)?)], move |context| {
        let input = context.array(0)?;
        let dims: Dims = (2..input.rank()).collect();
        let shape: Shape = (0..input.rank()).map(|at| if at < 2 { input.shape()[at] } else { 1 }).collect();
        let out = context.output(0, &shape)?;
        context.run(Operator::Reduce { reduction, dims }, &[input.into()], &[&out])
    })
}
