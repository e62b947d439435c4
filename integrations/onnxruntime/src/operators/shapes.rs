//! Operators that move elements, and those on shapes.

use device_kernels::{Compare, DType, Operator, Scalar, Sorted, Update};

use super::OutputMemory::FirstInput;
use super::resampling::picked;
use super::{Plan, Row, declined};
use crate::context::{Array, Context, Input, Shape, broadcast, dim};
use crate::failure::Failure;
use crate::node::Kind::{Float, Int, Ints, Tensor, Text};
use crate::node::Node;

pub(super) const ROWS: &[Row] = &[
    Row::new("Concat", concat).since(4).attributes(&[("axis", Int)]),
    Row::new("ConstantOfShape", constant_of_shape).attributes(&[("value", Tensor)]).host(&[0]),
    Row::new("DepthToSpace", depth_to_space).attributes(&[("blocksize", Int), ("mode", Text)]),
    Row::new("Expand", expand).host(&[1]),
    Row::new("Flatten", flatten).attributes(&[("axis", Int)]).output_in(FirstInput),
    Row::new("Gather", gather).attributes(&[("axis", Int)]),
    Row::new("GatherElements", gather_elements).attributes(&[("axis", Int)]),
    Row::new("Pad", pad_by_attributes).since(2).until(10).attributes(&[
        ("pads", Ints),
        ("mode", Text),
        ("value", Float),
    ]),
    Row::new("Pad", pad).since(11).attributes(&[("mode", Text)]).host(&[1, 2, 3]),
    Row::new("Reshape", reshape).since(5).attributes(&[("allowzero", Int)]).host(&[1]).output_in(FirstInput),
    Row::new("ScatterElements", scatter_elements).attributes(&[("axis", Int), ("reduction", Text)]),
    Row::new("Shape", shape).attributes(&[("end", Int), ("start", Int)]).with_host_output(),
    Row::new("Size", size).with_host_output(),
    Row::new("Slice", slice_by_attributes).until(9).attributes(&[
        ("starts", Ints),
        ("ends", Ints),
        ("axes", Ints),
    ]),
    Row::new("Slice", slice).since(10).host(&[1, 2, 3, 4]),
    Row::new("SpaceToDepth", space_to_depth).attributes(&[("blocksize", Int)]),
    Row::new("Split", split_by_attributes).since(2).until(12).attributes(&[("axis", Int), ("split", Ints)]),
    Row::new("Split", split).since(13).attributes(&[("axis", Int), ("num_outputs", Int)]).host(&[1]),
    Row::new("Squeeze", squeeze_by_attributes).until(12).attributes(&[("axes", Ints)]).output_in(FirstInput),
    Row::new("Squeeze", squeeze).since(13).host(&[1]).output_in(FirstInput),
    Row::new("Tile", tile).since(6).host(&[1]),
    Row::new("TopK", top_k)
        .since(10)
        .attributes(&[("axis", Int), ("largest", Int), ("sorted", Int)])
        .host(&[1]),
    Row::new("Transpose", transpose).attributes(&[("perm", Ints)]),
    Row::new("Unsqueeze", unsqueeze_by_attributes)
        .until(12)
        .attributes(&[("axes", Ints)])
        .output_in(FirstInput),
    Row::new("Unsqueeze", unsqueeze).since(13).host(&[1]).output_in(FirstInput),
];

fn concat(node: &Node) -> Result<Plan, Failure> {
    let Some(axis) = node.int("axis") else { return declined("no axis") };
    Plan::new([("copy", node.moved(0)?)], move |context| {
        let inputs: Vec<Array> =
            (0..context.input_count).map(|at| context.array(at)).collect::<Result<_, _>>()?;
        let axis = dim(axis, inputs[0].rank())?;
        let mut shape = Shape::from_slice(inputs[0].shape());
        shape[axis] = inputs.iter().map(|input| input.shape()[axis]).sum();
        let out = context.output(0, &shape)?;
        let mut start = 0;
        for input in &inputs {
            let len = input.shape()[axis];
            let part = out.with_layout(out.layout.slice(axis, start, len, 1)?);
            context.copy(input, &part)?;
            start += len;
        }
        Ok(())
    })
}

/// A shape, whose sizes are not negative.
fn sizes(numbers: &[i64]) -> Result<Shape, Failure> {
    let size =
        |&number: &i64| usize::try_from(number).map_err(|_| Failure::new(format_args!("a size of {number}")));
    numbers.iter().map(size).collect()
}

/// A list of integers that an input has to be.
pub(super) fn given(context: &Context, at: usize) -> Result<Vec<i64>, Failure> {
    context.integers(at)?.ok_or_else(|| Failure::new(format_args!("input {at} is left out")))
}

fn constant_of_shape(node: &Node) -> Result<Plan, Failure> {
    let value = match node.tensor("value") {
        Some((_, [value])) => *value,
        Some(_) => return declined("its value is no single number"),
        None => 0.0,
    };
    let dtype = node.output(0)?;
    if !dtype.is_float() && value.abs() >= (1_u64 << 53) as f64 {
        return declined("its integer is too long");
    }
    let scalar = if dtype.is_float() { Scalar::Float(value) } else { Scalar::Int(value as i64) };
    Plan::new([("copy", dtype)], move |context| {
        let shape = sizes(&given(context, 0)?)?;
        let out = context.output(0, &shape)?;
        context.run(Operator::Copy, &[Input::Scalar(scalar)], &[&out])
    })
}

fn expand(node: &Node) -> Result<Plan, Failure> {
    Plan::view(node, |context, input| {
        let wanted = sizes(&given(context, 1)?)?;
        input.broadcast_to(broadcast([input.shape(), &wanted])?)
    })
}

fn depth_to_space(node: &Node) -> Result<Plan, Failure> {
    let block = block_of(node)?;
    let is_column_first = node.text("mode") == Some("CRD");
    moved(node, move |[n, c, h, w]| {
        let inner = c / (block * block);
        let out = [n, inner, h * block, w * block];
        if is_column_first {
            ([n, inner, block, block, h, w], [0, 1, 4, 2, 5, 3], out)
        } else {
            ([n, block, block, inner, h, w], [0, 3, 4, 1, 5, 2], out)
        }
    })
}

fn space_to_depth(node: &Node) -> Result<Plan, Failure> {
    let block = block_of(node)?;
    moved(node, move |[n, c, h, w]| {
        let out = [n, c * block * block, h / block, w / block];
        ([n, c, h / block, block, w / block, block], [0, 3, 5, 1, 2, 4], out)
    })
}

fn block_of(node: &Node) -> Result<usize, Failure> {
    match node.int("blocksize") {
        Some(block) if block > 0 => Ok(block as usize),
        _ => declined("no size of its blocks"),
    }
}

/// Images whose elements are moved: seen with six dimensions, in another order of them.
fn moved(
    node: &Node,
    how: impl Fn([usize; 4]) -> ([usize; 6], [usize; 6], [usize; 4]) + Send + Sync + 'static,
) -> Result<Plan, Failure> {
    Plan::new([("copy", node.moved(0)?)], move |context| {
        let input = context.array(0)?;
        let &[n, c, h, w] = input.shape() else { return declined("it is no batch of images") };
        let (seen, order, shape) = how([n, c, h, w]);
        let out = context.output(0, &shape)?;
        let seen = input.reshaped(seen)?;
        let from = seen.with_layout(seen.layout.permute(order)?);
        context.copy(&from, &out.reshaped(order.map(|at| seen.shape()[at]))?)
    })
}

fn flatten(node: &Node) -> Result<Plan, Failure> {
    let axis = node.int_or("axis", 1);
    Plan::view(node, move |_, input| {
        let rank = input.rank() as i64;
        let axis = if axis < 0 { axis + rank } else { axis };
        if !(0..=rank).contains(&axis) {
            return declined(format_args!("an axis of {axis}, and {rank} dimensions"));
        }
        let (before, behind) = input.shape().split_at(axis as usize);
        input.reshaped([before.iter().product::<usize>(), behind.iter().product()])
    })
}

/// Indices from 0 on: those from the end, which are negative, have the size added.
pub(super) fn from_start(context: &Context, indices: Array, size: usize) -> Result<Array, Failure> {
    let negative = context.scratch(DType::Bool, indices.shape())?;
    context.run(Compare::Lt, &[(&indices).into(), Input::Scalar(Scalar::Int(0))], &[&negative])?;
    let size = Input::Scalar(Scalar::Int(size as i64));
    let added = context.binary(device_kernels::Binary::Add, &indices, size)?;
    let out = context.scratch(indices.dtype, indices.shape())?;
    context.run(Operator::Where, &[negative.into(), added.into(), indices.into()], &[&out])?;
    Ok(out)
}

/// What `from_start` needs.
pub(super) fn of_indices(dtype: DType) -> [(&'static str, DType); 3] {
    [("lt", dtype), ("add", dtype), ("where", dtype)]
}

fn gather(node: &Node) -> Result<Plan, Failure> {
    let axis = node.int_or("axis", 0);
    let needs = of_indices(node.input(1)?).into_iter().chain([("index_select", node.moved(0)?)]);
    Plan::new(needs, move |context| {
        let input = context.array(0)?;
        let indices = context.array(1)?;
        let axis = dim(axis, input.rank())?;
        let (before, behind) = input.shape().split_at(axis);
        let shape: Shape = before.iter().chain(indices.shape()).chain(&behind[1..]).copied().collect();
        let out = context.output(0, &shape)?;
        let count = indices.layout.len();
        let list = from_start(context, indices.reshaped([count])?, input.shape()[axis])?;
        let mut one = Shape::from_slice(input.shape());
        one[axis] = count;
        let selected = out.reshaped(one)?;
        context.run(Operator::IndexSelect { dim: axis }, &[input.into(), list.into()], &[&selected])
    })
}

fn gather_elements(node: &Node) -> Result<Plan, Failure> {
    let axis = node.int_or("axis", 0);
    let needs = of_indices(node.input(1)?).into_iter().chain([("gather", node.moved(0)?)]);
    Plan::new(needs, move |context| {
        let input = context.array(0)?;
        let indices = context.array(1)?;
        let axis = dim(axis, input.rank())?;
        let out = context.output(0, indices.shape())?;
        let indices = from_start(context, indices, input.shape()[axis])?;
        context.run(Operator::Gather { dim: axis }, &[input.into(), indices.into()], &[&out])
    })
}

fn scatter_elements(node: &Node) -> Result<Plan, Failure> {
    let axis = node.int_or("axis", 0);
    let update = match node.text("reduction") {
        None | Some("none") => Update::Replace,
        Some("add") if node.input(0)? != DType::Bool => Update::Add,
        Some(other) => return declined(format_args!("the reduction `{other}`")),
    };
    let dtype = node.input(0)?;
    let needs = of_indices(node.input(1)?).into_iter().chain([("copy", dtype), ("scatter", dtype)]);
    Plan::new(needs, move |context| {
        let input = context.array(0)?;
        let indices = context.array(1)?;
        let values = context.array(2)?;
        let axis = dim(axis, input.rank())?;
        let out = context.output(0, input.shape())?;
        context.copy(&input, &out)?;
        let indices = from_start(context, indices, input.shape()[axis])?;
        let scatter = Operator::Scatter { dim: axis, update };
        context.run(scatter, &[indices.into(), values.into()], &[&out])
    })
}

/// What the border of an array is made of.
#[derive(Clone, Copy, PartialEq)]
enum Border {
    Constant,
    /// The elements at the border.
    Edge,
    /// The elements from the border back, without the one at it.
    Reflect,
    /// The elements from the other border on.
    Wrap,
}

impl Border {
    fn of(node: &Node) -> Result<Self, Failure> {
        Ok(match node.text("mode") {
            None | Some("constant") => Self::Constant,
            Some("edge") => Self::Edge,
            Some("reflect") => Self::Reflect,
            Some("wrap") => Self::Wrap,
            Some(other) => return declined(format_args!("the mode `{other}`")),
        })
    }

    /// The place within `size` elements of one that may be outside.
    fn place(self, at: i64, size: i64) -> i64 {
        match self {
            Self::Constant => at,
            Self::Edge => at.clamp(0, size - 1),
            Self::Wrap => at.rem_euclid(size),
            Self::Reflect if size == 1 => 0,
            Self::Reflect => {
                let there = at.rem_euclid(2 * size - 2);
                there.min(2 * size - 2 - there)
            }
        }
    }
}

fn pad_needs(dtype: DType) -> [(&'static str, DType); 2] {
    [("copy", dtype), ("index_select", dtype)]
}

fn pad_by_attributes(node: &Node) -> Result<Plan, Failure> {
    let border = Border::of(node)?;
    let Some(pads) = node.ints("pads").map(<[i64]>::to_vec) else { return declined("no pads") };
    let value = f64::from(node.float_or("value", 0.0));
    Plan::new(pad_needs(node.input(0)?), move |context| padded(context, &pads, None, value, border))
}

fn pad(node: &Node) -> Result<Plan, Failure> {
    let border = Border::of(node)?;
    Plan::new(pad_needs(node.input(0)?), move |context| {
        let pads = given(context, 1)?;
        let value = context.numbers(2)?.and_then(|numbers| numbers.first().copied()).unwrap_or(0.0);
        padded(context, &pads, context.integers(3)?.as_deref(), value, border)
    })
}

/// Copies the input within a border of `value`. A negative length cuts elements off.
fn padded(
    context: &Context,
    pads: &[i64],
    axes: Option<&[i64]>,
    value: f64,
    border: Border,
) -> Result<(), Failure> {
    let mut input = context.array(0)?;
    let rank = input.rank();
    let axes = match axes {
        Some(axes) => axes.iter().map(|&axis| dim(axis, rank)).collect::<Result<Vec<_>, _>>()?,
        None => (0..rank).collect(),
    };
    if pads.len() != 2 * axes.len() {
        return declined(format_args!("{} lengths for {} dimensions", pads.len(), axes.len()));
    }
    if border != Border::Constant {
        for (at, &axis) in axes.iter().enumerate() {
            let size = input.shape()[axis] as i64;
            if size == 0 {
                return declined("a border of elements around none");
            }
            let places = (-pads[at]..size + pads[at + axes.len()]).map(|place| border.place(place, size));
            input = picked(context, &input, axis, &places.collect::<Vec<_>>())?;
        }
        let out = context.output(0, input.shape())?;
        return context.copy(&input, &out);
    }
    let mut shape = Shape::from_slice(input.shape());
    let mut starts = Shape::from_elem(0, rank);
    for (at, &axis) in axes.iter().enumerate() {
        let (before, behind) = (pads[at], pads[at + axes.len()]);
        let size = input.shape()[axis] as i64;
        let cut = (-before).clamp(0, size);
        let kept = (size - cut - (-behind).max(0)).max(0);
        input = input.with_layout(input.layout.slice(axis, cut as usize, kept as usize, 1)?);
        starts[axis] = before.max(0) as usize;
        shape[axis] = starts[axis] + kept as usize + behind.max(0) as usize;
    }
    let out = context.output(0, &shape)?;
    let scalar = if out.dtype.is_float() { Scalar::Float(value) } else { Scalar::Int(value as i64) };
    context.run(Operator::Copy, &[Input::Scalar(scalar)], &[&out])?;
    let mut layout = out.layout;
    for (axis, &start) in starts.iter().enumerate() {
        layout = layout.slice(axis, start, input.shape()[axis], 1)?;
    }
    context.copy(&input, &out.with_layout(layout))
}

fn reshape(node: &Node) -> Result<Plan, Failure> {
    let allow_zero = node.int_or("allowzero", 0) != 0;
    Plan::view(node, move |context, input| {
        let wanted = given(context, 1)?;
        let mut shape = Shape::new();
        let mut open = None;
        for (at, &size) in wanted.iter().enumerate() {
            shape.push(match size {
                0 if !allow_zero => *input.shape().get(at).unwrap_or(&0),
                -1 => {
                    open = Some(at);
                    1
                }
                size => size as usize,
            });
        }
        if let Some(open) = open {
            let known: usize = shape.iter().product();
            shape[open] = input.layout.len().checked_div(known).unwrap_or(0);
        }
        input.reshaped(shape)
    })
}

fn shape(node: &Node) -> Result<Plan, Failure> {
    let start = node.int_or("start", 0);
    let end = node.int_or("end", i64::MAX);
    // The elements stay on the device.
    node.moved(0)?;
    Plan::new([], move |context| {
        let sizes = context.shape_of_input(0)?;
        let rank = sizes.len() as i64;
        let place = |bound: i64| if bound < 0 { bound.saturating_add(rank) } else { bound }.clamp(0, rank);
        let (start, end) = (place(start) as usize, place(end) as usize);
        let sizes = sizes.get(start..end.max(start)).unwrap_or_default();
        let numbers: Vec<i64> = sizes.iter().map(|&size| size as i64).collect();
        context.write_on_host(0, &[numbers.len()], &numbers)
    })
}

fn size(node: &Node) -> Result<Plan, Failure> {
    node.moved(0)?;
    Plan::new([], |context| {
        let count: usize = context.shape_of_input(0)?.iter().product();
        context.write_on_host(0, &[], &[count as i64])
    })
}

fn slice_by_attributes(node: &Node) -> Result<Plan, Failure> {
    let (Some(starts), Some(ends)) = (node.ints("starts"), node.ints("ends")) else {
        return declined("no starts or ends");
    };
    let axes = node.ints("axes").map(<[i64]>::to_vec);
    let bounds = (starts.to_vec(), ends.to_vec());
    Plan::view(node, move |_, input| sliced(input, &bounds.0, &bounds.1, axes.as_deref(), None))
}

fn slice(node: &Node) -> Result<Plan, Failure> {
    Plan::view(node, |context, input| {
        let starts = given(context, 1)?;
        let ends = given(context, 2)?;
        let axes = context.integers(3)?;
        let steps = context.integers(4)?;
        sliced(input, &starts, &ends, axes.as_deref(), steps.as_deref())
    })
}

fn sliced(
    input: &Array,
    starts: &[i64],
    ends: &[i64],
    axes: Option<&[i64]>,
    steps: Option<&[i64]>,
) -> Result<Array, Failure> {
    let mut layout = input.layout;
    for (at, (&start, &end)) in starts.iter().zip(ends).enumerate() {
        let axis = dim(axes.and_then(|axes| axes.get(at).copied()).unwrap_or(at as i64), input.rank())?;
        let step = steps.and_then(|steps| steps.get(at).copied()).unwrap_or(1);
        let size = input.shape()[axis] as i64;
        let place = |bound: i64| if bound < 0 { bound.saturating_add(size) } else { bound };
        if step > 0 {
            let start = place(start).clamp(0, size);
            let end = place(end).clamp(0, size);
            let len = (end - start).max(0).div_euclid(step) + i64::from((end - start).max(0) % step != 0);
            layout = layout.slice(axis, start as usize, len as usize, step as usize)?;
        } else if step < 0 {
            // From the last to the first, and then with the opposite step.
            let start = place(start).clamp(-1, size - 1);
            let end = place(end).clamp(-1, size - 1);
            let step = step.unsigned_abs() as i64;
            let len = (start - end).max(0).div_euclid(step) + i64::from((start - end).max(0) % step != 0);
            let from = if len > 0 { size - 1 - start } else { 0 };
            layout = layout.flip(axis)?.slice(axis, from as usize, len as usize, step as usize)?;
        } else {
            return declined("a step of 0");
        }
    }
    Ok(input.with_layout(layout))
}

fn split_by_attributes(node: &Node) -> Result<Plan, Failure> {
    let axis = node.int_or("axis", 0);
    let lengths = node.ints("split").map(<[i64]>::to_vec);
    Plan::new([("copy", node.moved(0)?)], move |context| split_into(context, axis, lengths.as_deref(), false))
}

fn split(node: &Node) -> Result<Plan, Failure> {
    let axis = node.int_or("axis", 0);
    let may_differ = node.since >= 18;
    Plan::new([("copy", node.moved(0)?)], move |context| {
        split_into(context, axis, context.integers(1)?.as_deref(), may_differ)
    })
}

/// Without lengths, all parts are of one length, but for the last if it `may_differ`.
fn split_into(
    context: &Context,
    axis: i64,
    lengths: Option<&[i64]>,
    may_differ: bool,
) -> Result<(), Failure> {
    let input = context.array(0)?;
    let axis = dim(axis, input.rank())?;
    let size = input.shape()[axis];
    let count = context.output_count()?;
    let equal = size.div_ceil(count.max(1));
    let fits = match lengths {
        Some(lengths) => {
            lengths.len() == count
                && lengths.iter().all(|&len| len >= 0)
                && lengths.iter().sum::<i64>() == size as i64
        }
        None => may_differ || equal * count == size,
    };
    if !fits {
        return declined(format_args!("{size} elements in {count} parts of the lengths {lengths:?}"));
    }
    let mut start = 0;
    for at in 0..count {
        let len = match lengths {
            Some(lengths) => *lengths.get(at).unwrap_or(&0) as usize,
            None => equal.min(size.saturating_sub(start)),
        };
        let part = input.with_layout(input.layout.slice(axis, start, len, 1)?);
        let out = context.output(at, part.shape())?;
        context.copy(&part, &out)?;
        start += len;
    }
    Ok(())
}

fn squeeze_by_attributes(node: &Node) -> Result<Plan, Failure> {
    let axes = node.ints("axes").map(<[i64]>::to_vec);
    Plan::view(node, move |_, input| squeezed(input, axes.as_deref()))
}

fn squeeze(node: &Node) -> Result<Plan, Failure> {
    Plan::view(node, |context, input| squeezed(input, context.integers(1)?.as_deref()))
}

fn squeezed(input: &Array, axes: Option<&[i64]>) -> Result<Array, Failure> {
    let rank = input.rank();
    let axes = match axes {
        Some(axes) => axes.iter().map(|&axis| dim(axis, rank)).collect::<Result<Vec<_>, _>>()?,
        None => (0..rank).filter(|&axis| input.shape()[axis] == 1).collect(),
    };
    let kept = (0..rank).filter(|axis| !axes.contains(axis)).map(|axis| input.shape()[axis]);
    input.reshaped(kept.collect::<Shape>())
}

fn unsqueeze_by_attributes(node: &Node) -> Result<Plan, Failure> {
    let Some(axes) = node.ints("axes").map(<[i64]>::to_vec) else { return declined("no axes") };
    Plan::view(node, move |_, input| unsqueezed(input, &axes))
}

fn unsqueeze(node: &Node) -> Result<Plan, Failure> {
    Plan::view(node, |context, input| unsqueezed(input, &given(context, 1)?))
}

fn unsqueezed(input: &Array, axes: &[i64]) -> Result<Array, Failure> {
    let rank = input.rank() + axes.len();
    let axes = axes.iter().map(|&axis| dim(axis, rank)).collect::<Result<Vec<_>, _>>()?;
    let mut rest = input.shape().iter().copied();
    let shape: Shape =
        (0..rank).map(|at| if axes.contains(&at) { 1 } else { rest.next().unwrap_or(1) }).collect();
    input.reshaped(shape)
}

fn tile(node: &Node) -> Result<Plan, Failure> {
    if node.rank(0)? > device_kernels::MAX_RANK / 2 {
        return declined("each dimension is two on the way");
    }
    Plan::new([("copy", node.moved(0)?)], |context| {
        let input = context.array(0)?;
        let repeats = sizes(&given(context, 1)?)?;
        let shape: Shape = input.shape().iter().zip(&repeats).map(|(size, count)| size * count).collect();
        let out = context.output(0, &shape)?;
        // Each dimension is two: how often, and the elements.
        let pairs: Shape =
            input.shape().iter().zip(&repeats).flat_map(|(&size, &count)| [count, size]).collect();
        let ones: Shape = input.shape().iter().flat_map(|&size| [1, size]).collect();
        let repeated = input.reshaped(ones)?.broadcast_to(&pairs)?;
        context.copy(&repeated, &out.reshaped(&pairs)?)
    })
}

fn top_k(node: &Node) -> Result<Plan, Failure> {
    let axis = node.int_or("axis", -1);
    let descending = node.int_or("largest", 1) != 0;
    let dtype = node.input(0)?;
    Plan::new([("sort", dtype)], move |context| {
        let input = context.array(0)?;
        let axis = dim(axis, input.rank())?;
        let count = given(context, 1)?;
        let mut shape = Shape::from_slice(input.shape());
        shape[axis] = sizes(&count)?.first().copied().unwrap_or(0);
        let values = context.output(0, &shape)?;
        let indices = context.output(1, &shape)?;
        let sort = Operator::Sort { dim: axis, descending, sorted: Sorted::Both };
        context.run(sort, &[input.into()], &[&values, &indices])
    })
}

fn transpose(node: &Node) -> Result<Plan, Failure> {
    let order = node.ints("perm").map(<[i64]>::to_vec);
    Plan::view(node, move |_, input| {
        let order: Vec<usize> = match &order {
            Some(order) => order.iter().map(|&axis| dim(axis, input.rank())).collect::<Result<_, _>>()?,
            None => (0..input.rank()).rev().collect(),
        };
        Ok(input.with_layout(input.layout.permute(order)?))
    })
}
