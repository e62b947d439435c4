//! Operators that read elements by places which the host computes: resizing, and borders made of elements.

use device_kernels::{Binary, DType, Operator};

use super::{Plan, Row, declined};
use crate::context::{Array, Context, Shape, dim};
use crate::failure::Failure;
use crate::node::Kind::{Float, Int, Ints, Text};
use crate::node::Node;

pub(super) const ROWS: &[Row] = &[
    Row::new("Range", range).host(&[0, 1, 2]),
    Row::new("Resize", |node| resize(node, [Some(1), None]))
        .until(10)
        .attributes(&[("mode", Text)])
        .host(&[1]),
    Row::new("Resize", |node| resize(node, [Some(2), Some(3)]))
        .since(11)
        .attributes(&[
            ("antialias", Int),
            ("axes", Ints),
            ("coordinate_transformation_mode", Text),
            ("cubic_coeff_a", Float),
            ("exclude_outside", Int),
            ("keep_aspect_ratio_policy", Text),
            ("mode", Text),
            ("nearest_mode", Text),
        ])
        .host(&[1, 2, 3]),
    Row::new("Upsample", |node| resize(node, [Some(1), None]))
        .since(9)
        .attributes(&[("mode", Text)])
        .host(&[1]),
];

/// The elements of an array along a dimension, by their places.
pub(super) fn picked(
    context: &Context,
    array: &Array,
    axis: usize,
    places: &[i64],
) -> Result<Array, Failure> {
    let mut shape = Shape::from_slice(array.shape());
    shape[axis] = places.len();
    let out = context.scratch(array.dtype, &shape)?;
    let places = context.uploaded_integers(places)?;
    context.run(Operator::IndexSelect { dim: axis }, &[array.into(), places.into()], &[&out])?;
    Ok(out)
}

fn range(node: &Node) -> Result<Plan, Failure> {
    let dtype = node.output(0)?;
    Plan::new([("copy", dtype)], move |context| {
        let number = |at| {
            let numbers = context.numbers(at)?.unwrap_or_default();
            numbers.first().copied().ok_or_else(|| Failure::new("a bound is missing"))
        };
        let (start, limit, step) = (number(0)?, number(1)?, number(2)?);
        let count = ((limit - start) / step).ceil().max(0.0) as usize;
        let values = (0..count).map(|at| start + at as f64 * step);
        let made = if dtype.is_float() {
            context.uploaded_floats(&values.collect::<Vec<_>>(), dtype)?
        } else {
            context.uploaded_integers(&values.map(|value| value as i64).collect::<Vec<_>>())?
        };
        context.copy(&made, &context.output(0, &[count])?)
    })
}

#[derive(Clone, Copy, PartialEq)]
enum Mode {
    Nearest,
    Linear,
    Cubic,
}

/// How places of the output lie in the input.
#[derive(Clone, Copy)]
enum Coordinates {
    HalfPixel,
    PytorchHalfPixel,
    AlignCorners,
    Asymmetric,
    HalfPixelSymmetric,
}

impl Coordinates {
    fn of(name: &str) -> Result<Self, Failure> {
        Ok(match name {
            "half_pixel" => Self::HalfPixel,
            "pytorch_half_pixel" => Self::PytorchHalfPixel,
            "align_corners" => Self::AlignCorners,
            "asymmetric" => Self::Asymmetric,
            "half_pixel_symmetric" => Self::HalfPixelSymmetric,
            other => return declined(format_args!("coordinates of the kind `{other}`")),
        })
    }

    /// Where place `at` of `out` places is, in `size` places.
    fn place(self, at: usize, size: usize, out: usize, scale: f64) -> f64 {
        let at = at as f64;
        match self {
            Self::Asymmetric => at / scale,
            Self::AlignCorners if out > 1 => at * (size as f64 - 1.0) / (out as f64 - 1.0),
            Self::AlignCorners => 0.0,
            Self::PytorchHalfPixel if out <= 1 => 0.0,
            Self::HalfPixel | Self::PytorchHalfPixel => (at + 0.5) / scale - 0.5,
            Self::HalfPixelSymmetric => {
                let adjustment = out as f64 / (scale * size as f64);
                let offset = size as f64 / 2.0 * (1.0 - adjustment);
                offset + (at + 0.5) / scale - 0.5
            }
        }
    }
}

/// `inputs` says which inputs are the scales and the sizes.
fn resize(node: &Node, [scales, sizes]: [Option<usize>; 2]) -> Result<Plan, Failure> {
    let mode = match node.text("mode").unwrap_or("nearest") {
        "nearest" => Mode::Nearest,
        "linear" | "bilinear" => Mode::Linear,
        "cubic" => Mode::Cubic,
        other => return declined(format_args!("the mode `{other}`")),
    };
    if node.int_or("antialias", 0) != 0 || node.int_or("exclude_outside", 0) != 0 {
        return declined("weights of another kind");
    }
    if node.text("keep_aspect_ratio_policy").is_some_and(|policy| policy != "stretch") {
        return declined("sizes that keep the aspect ratio");
    }
    let is_old = node.since < 11;
    let coordinates = node.text("coordinate_transformation_mode");
    let coordinates =
        Coordinates::of(coordinates.unwrap_or(if is_old { "asymmetric" } else { "half_pixel" }))?;
    let nearest =
        node.text("nearest_mode").unwrap_or(if is_old { "floor" } else { "round_prefer_floor" }).to_owned();
    let coefficient = f64::from(node.float_or("cubic_coeff_a", -0.75));
    let axes = node.ints("axes").map(<[i64]>::to_vec);
    let dtype = node.input(0)?;
    if mode != Mode::Nearest && !dtype.is_float() {
        return declined("means of integers");
    }
    let wide = if dtype.size() == 2 { DType::F32 } else { dtype };
    let needs = [("index_select", wide), ("mul", wide), ("add", wide), ("copy", dtype), ("copy", wide)];
    Plan::new(needs.into_iter().chain([("index_select", dtype)]), move |context| {
        let input = context.array(0)?;
        let rank = input.rank();
        let axes: Vec<usize> = match &axes {
            Some(axes) => axes.iter().map(|&axis| dim(axis, rank)).collect::<Result<_, _>>()?,
            None => (0..rank).collect(),
        };
        let numbers = |at: Option<usize>| match at {
            Some(at) => context.numbers(at).map(|numbers| numbers.filter(|numbers| !numbers.is_empty())),
            None => Ok(None),
        };
        let given = numbers(scales)?;
        let wanted = numbers(sizes)?;
        let mut shape = Shape::from_slice(input.shape());
        let mut factors = vec![1.0; rank];
        for (at, &axis) in axes.iter().enumerate() {
            let size = input.shape()[axis] as f64;
            let number = |of: &Option<Vec<f64>>| of.as_ref().and_then(|of| of.get(at).copied());
            match (number(&given), number(&wanted)) {
                (_, Some(wanted)) => {
                    shape[axis] = wanted as usize;
                    factors[axis] = wanted / size;
                }
                (Some(scale), None) => {
                    // As ONNX Runtime does, in `f32`: 10 times 0.7 is 7 there.
                    shape[axis] = (size as f32 * scale as f32).floor() as usize;
                    factors[axis] = scale;
                }
                (None, None) => return declined("neither scales nor sizes"),
            }
        }
        let out = context.output(0, &shape)?;
        let mut value = if mode == Mode::Nearest { input } else { context.converted(input, wide)? };
        for &axis in &axes {
            let size = value.shape()[axis];
            if shape[axis] == size && factors[axis] == 1.0 {
                continue;
            }
            let places: Vec<f64> =
                (0..shape[axis]).map(|at| coordinates.place(at, size, shape[axis], factors[axis])).collect();
            value = match mode {
                Mode::Nearest => {
                    // The first versions have no rule. ONNX Runtime's is another where there are fewer.
                    let rule = if is_old && factors[axis] < 1.0 { "ceil" } else { &nearest };
                    let places = places.iter().map(|&place| rounded(place, rule).clamp(0, size as i64 - 1));
                    picked(context, &value, axis, &places.collect::<Vec<_>>())?
                }
                Mode::Linear => weighted(context, &value, axis, &places, &[0, 1], |at, rest| match at {
                    0 => 1.0 - rest,
                    _ => rest,
                })?,
                Mode::Cubic => weighted(context, &value, axis, &places, &[-1, 0, 1, 2], |at, rest| {
                    cubic((rest - at as f64).abs(), coefficient)
                })?,
            };
        }
        context.copy(&value, &out)
    })
}

/// The nearest place, by one of ONNX's rules.
fn rounded(place: f64, rule: &str) -> i64 {
    match rule {
        "floor" => place.floor() as i64,
        "ceil" => place.ceil() as i64,
        "round_prefer_ceil" => (place + 0.5).floor() as i64,
        _ => (place - 0.5).ceil() as i64,
    }
}

/// Keys' cubic function: R. Keys, "Cubic convolution interpolation for digital image processing", 1981.
fn cubic(distance: f64, a: f64) -> f64 {
    if distance <= 1.0 {
        ((a + 2.0) * distance - (a + 3.0)) * distance * distance + 1.0
    } else if distance < 2.0 {
        (((distance - 5.0) * distance + 8.0) * distance - 4.0) * a
    } else {
        0.0
    }
}

/// The sum of the elements at some distances from each place, each with its weight. Those beyond the border
/// are those at the border.
fn weighted(
    context: &Context,
    array: &Array,
    axis: usize,
    places: &[f64],
    distances: &[i64],
    weight: impl Fn(i64, f64) -> f64,
) -> Result<Array, Failure> {
    let last = array.shape()[axis] as i64 - 1;
    let mut along = Shape::from_elem(1, array.rank());
    along[axis] = places.len();
    let mut sum: Option<Array> = None;
    for &distance in distances {
        let at: Vec<i64> =
            places.iter().map(|place| (place.floor() as i64 + distance).clamp(0, last)).collect();
        let weights: Vec<f64> = places.iter().map(|place| weight(distance, place - place.floor())).collect();
        let weights = context.uploaded_floats(&weights, array.dtype)?.reshaped(&along)?;
        let part = context.binary(Binary::Mul, &picked(context, array, axis, &at)?, &weights)?;
        sum = Some(match sum {
            Some(sum) => context.binary(Binary::Add, &sum, &part)?,
            None => part,
        });
    }
    sum.ok_or_else(|| Failure::new("no elements"))
}
