//! Operators with several indices for each place, those that compare places, and running sums.

use device_kernels::{Binary, Compare, DType, Operator, Scalar, Update};

use super::shapes::{from_start, given, of_indices};
use super::{Plan, Row, declined};
use crate::context::{Array, Context, Input, Shape, dim};
use crate::failure::Failure;
use crate::node::Kind::{Int, Text};
use crate::node::Node;

pub(super) const ROWS: &[Row] = &[
    Row::new("CumProd", |node| running(node, Binary::Mul))
        .attributes(&[("exclusive", Int), ("reverse", Int)])
        .host(&[1]),
    Row::new("CumSum", |node| running(node, Binary::Add))
        .attributes(&[("exclusive", Int), ("reverse", Int)])
        .host(&[1]),
    Row::new("EyeLike", eye_like).attributes(&[("dtype", Int), ("k", Int)]),
    Row::new("GatherND", gather_nd).since(12).attributes(&[("batch_dims", Int)]),
    Row::new("OneHot", one_hot).attributes(&[("axis", Int)]).host(&[1]),
    Row::new("ReverseSequence", reverse_sequence)
        .attributes(&[("batch_axis", Int), ("time_axis", Int)])
        .host(&[1]),
    Row::new("ScatterND", scatter_nd).attributes(&[("reduction", Text)]),
    Row::new("Trilu", trilu).attributes(&[("upper", Int)]).host(&[1]),
];

/// Running sums or products: each step joins elements twice as far apart as the one before.
fn running(node: &Node, join: Binary) -> Result<Plan, Failure> {
    let is_exclusive = node.int_or("exclusive", 0) != 0;
    let is_reverse = node.int_or("reverse", 0) != 0;
    let dtype = node.input(0)?;
    // Halves are added up as floats.
    let wide = if dtype.size() == 2 { DType::F32 } else { dtype };
    Plan::new([(join.name(), wide), ("copy", wide), ("copy", dtype)], move |context| {
        let mut input = context.array(0)?;
        let axis = given(context, 1)?;
        let axis = dim(axis.first().copied().unwrap_or(0), input.rank())?;
        let mut out = context.output(0, input.shape())?;
        if is_reverse {
            input = input.with_layout(input.layout.flip(axis)?);
            out = out.with_layout(out.layout.flip(axis)?);
        }
        let len = input.shape()[axis];
        let mut sums = context.scratch(wide, input.shape())?;
        let part = |array: &Array, start: usize, len: usize| {
            Ok::<_, Failure>(array.with_layout(array.layout.slice(axis, start, len, 1)?))
        };
        if is_exclusive {
            let nothing = if join == Binary::Mul { 1 } else { 0 };
            let first = len.min(1);
            context.run(
                Operator::Copy,
                &[Input::Scalar(Scalar::Int(nothing))],
                &[&part(&sums, 0, first)?],
            )?;
            context.copy(&part(&input, 0, len - first)?, &part(&sums, first, len - first)?)?;
        } else {
            context.copy(&input, &sums)?;
        }
        let mut distance = 1;
        while distance < len {
            let next = context.scratch(wide, sums.shape())?;
            let rest = len - distance;
            context.copy(&part(&sums, 0, distance)?, &part(&next, 0, distance)?)?;
            context.run(
                join,
                &[part(&sums, distance, rest)?.into(), part(&sums, 0, rest)?.into()],
                &[&part(&next, distance, rest)?],
            )?;
            sums = next;
            distance *= 2;
        }
        context.copy(&sums, &out)
    })
}

/// Where the column of a matrix compares to its row, which is moved.
fn compared(
    context: &Context,
    compare: Compare,
    [rows, columns]: [usize; 2],
    moved: i64,
) -> Result<Array, Failure> {
    let row: Vec<i64> = (0..rows as i64).map(|row| row.saturating_add(moved)).collect();
    let column: Vec<i64> = (0..columns as i64).collect();
    let row = context.uploaded_integers(&row)?.reshaped([rows, 1])?.broadcast_to([rows, columns])?;
    let column = context.uploaded_integers(&column)?.broadcast_to([rows, columns])?;
    let out = context.scratch(DType::Bool, &[rows, columns])?;
    context.run(compare, &[column.into(), row.into()], &[&out])?;
    Ok(out)
}

fn trilu(node: &Node) -> Result<Plan, Failure> {
    let upper = node.int_or("upper", 1) != 0;
    let compare = if upper { Compare::Ge } else { Compare::Le };
    Plan::new([(compare.name(), DType::I64), ("where", node.input(0)?)], move |context| {
        let input = context.array(0)?;
        let moved = context.integers(1)?.and_then(|moved| moved.first().copied()).unwrap_or(0);
        let [.., rows, columns] = *input.shape() else { return declined("no matrix") };
        let out = context.output(0, input.shape())?;
        let kept = compared(context, compare, [rows, columns], moved)?.broadcast_to(input.shape())?;
        let zero = Input::Scalar(Scalar::Int(0));
        context.run(Operator::Where, &[kept.into(), input.into(), zero], &[&out])
    })
}

fn eye_like(node: &Node) -> Result<Plan, Failure> {
    let moved = node.int_or("k", 0);
    let dtype = node.output(0)?;
    // Its input gives the shape alone.
    node.input(0)?;
    Plan::new([("eq", DType::I64), ("copy", dtype)], move |context| {
        let [rows, columns] = *context.shape_of_input(0)? else { return declined("no matrix") };
        let out = context.output(0, &[rows, columns])?;
        context.copy(&compared(context, Compare::Eq, [rows, columns], moved)?, &out)
    })
}

fn one_hot(node: &Node) -> Result<Plan, Failure> {
    let axis = node.int_or("axis", -1);
    let dtype = node.output(0)?;
    let indices = node.input(0)?;
    if indices.is_float() {
        return declined("indices that are no integers");
    }
    let needs = [("copy", DType::I64), ("add", DType::I64), ("lt", DType::I64), ("where", DType::I64)];
    Plan::new(needs.into_iter().chain([("eq", DType::I64), ("where", dtype)]), move |context| {
        let depth = given(context, 1)?.first().copied().unwrap_or(0);
        let depth = usize::try_from(depth).ok().filter(|&depth| depth > 0);
        let Some(depth) = depth else { return declined("a depth of no place") };
        let indices = context.converted(context.array(0)?, DType::I64)?;
        let values = context.array(2)?;
        let axis = dim(axis, indices.rank() + 1)?;
        let mut shape = Shape::from_slice(indices.shape());
        shape.insert(axis, depth);
        let out = context.output(0, &shape)?;
        let mut one = Shape::from_slice(indices.shape());
        one.insert(axis, 1);
        let indices = from_start(context, indices, depth)?.reshaped(one)?.broadcast_to(&shape)?;
        let mut along = Shape::from_elem(1, shape.len());
        along[axis] = depth;
        let places = context.uploaded_integers(&(0..depth as i64).collect::<Vec<_>>())?;
        let places = places.reshaped(along)?.broadcast_to(&shape)?;
        let is_there = context.scratch(DType::Bool, &shape)?;
        context.run(Compare::Eq, &[indices.into(), places.into()], &[&is_there])?;
        let value = |at| {
            let one = values.with_layout(values.layout.slice(0, at, 1, 1)?);
            one.reshaped(Shape::from_elem(1, shape.len()))?.broadcast_to(&shape)
        };
        context.run(Operator::Where, &[is_there.into(), value(1)?.into(), value(0)?.into()], &[&out])
    })
}

/// One index of the first dimension for each list of them, and the array with that dimension.
fn flattened(
    context: &Context,
    array: &Array,
    indices: Array,
    batches: usize,
) -> Result<(Array, Array), Failure> {
    let Some(&many) = indices.shape().last() else { return declined("indices without a dimension") };
    if batches + many > array.rank() {
        return declined(format_args!("{many} indices, and {} dimensions", array.rank() - batches));
    }
    let count: usize = indices.shape()[..indices.rank() - 1].iter().product();
    let indices = indices.reshaped([count, many])?;
    let indexed = &array.shape()[batches..batches + many];
    let mut is_inside = context.scratch(DType::Bool, &[count])?;
    context.run(Operator::Copy, &[Input::Scalar(Scalar::Bool(true))], &[&is_inside])?;
    let mut flat = context.scratch(DType::I64, &[count])?;
    context.run(Operator::Copy, &[Input::Scalar(Scalar::Int(0))], &[&flat])?;
    for (at, &size) in indexed.iter().enumerate() {
        let list = indices.with_layout(indices.layout.slice(1, at, 1, 1)?).reshaped([count])?;
        let list = from_start(context, list, size)?;
        for (compare, bound) in [(Compare::Ge, 0), (Compare::Lt, size as i64)] {
            let is_within = context.scratch(DType::Bool, &[count])?;
            context.run(compare, &[(&list).into(), Input::Scalar(Scalar::Int(bound))], &[&is_within])?;
            is_inside = context.binary(Binary::And, &is_inside, &is_within)?;
        }
        let scaled = context.binary(Binary::Mul, &flat, Input::Scalar(Scalar::Int(size as i64)))?;
        flat = context.binary(Binary::Add, &scaled, &list)?;
    }
    let (before, behind) = array.shape().split_at(batches);
    let groups: usize = before.iter().product();
    let places: usize = indexed.iter().product();
    if batches > 0 {
        let starts = (0..count).map(|at| (at / (count / groups.max(1)).max(1) * places) as i64);
        let starts = context.uploaded_integers(&starts.collect::<Vec<_>>())?;
        flat = context.binary(Binary::Add, &flat, &starts)?;
    }
    // An index outside of its dimension could lead to another row. So it leads to none, which is an error.
    let outside = Input::Scalar(Scalar::Int((groups * places) as i64));
    let list = context.scratch(DType::I64, &[count])?;
    context.run(Operator::Where, &[is_inside.into(), flat.into(), outside], &[&list])?;
    let rest: usize = behind[many..].iter().product();
    Ok((list, array.reshaped([groups * places, rest])?))
}

/// What `flattened` needs.
fn of_lists() -> impl Iterator<Item = (&'static str, DType)> {
    let more = [("copy", DType::I64), ("mul", DType::I64), ("ge", DType::I64), ("and", DType::Bool)];
    of_indices(DType::I64).into_iter().chain(more).chain([("copy", DType::Bool)])
}

fn gather_nd(node: &Node) -> Result<Plan, Failure> {
    let batches = node.int_or("batch_dims", 0).max(0) as usize;
    let dtype = node.input(0)?;
    Plan::new(of_lists().chain([("index_select", dtype)]), move |context| {
        let input = context.array(0)?;
        let indices = context.array(1)?;
        let Some((&many, lists)) = indices.shape().split_last() else {
            return declined("indices without a dimension");
        };
        let Some(rest) = input.shape().get(batches + many..) else { return declined("too many indices") };
        let shape: Shape = lists.iter().chain(rest).copied().collect();
        let out = context.output(0, &shape)?;
        let (flat, rows) = flattened(context, &input, indices, batches)?;
        let selected = out.reshaped([flat.layout.len(), rows.shape()[1]])?;
        context.run(Operator::IndexSelect { dim: 0 }, &[rows.into(), flat.into()], &[&selected])
    })
}

fn scatter_nd(node: &Node) -> Result<Plan, Failure> {
    let update = match node.text("reduction") {
        None | Some("none") => Update::Replace,
        Some("add") if node.input(0)? != DType::Bool => Update::Add,
        Some(other) => return declined(format_args!("the reduction `{other}`")),
    };
    let dtype = node.input(0)?;
    Plan::new(of_lists().chain([("copy", dtype), ("index_assign", dtype)]), move |context| {
        let input = context.array(0)?;
        let indices = context.array(1)?;
        let values = context.array(2)?;
        let out = context.output(0, input.shape())?;
        context.copy(&input, &out)?;
        let (flat, rows) = flattened(context, &out, indices, 0)?;
        let values = values.reshaped([flat.layout.len(), rows.shape()[1]])?;
        context.run(Operator::IndexAssign { dim: 0, update }, &[flat.into(), values.into()], &[&rows])
    })
}

fn reverse_sequence(node: &Node) -> Result<Plan, Failure> {
    let batch = node.int_or("batch_axis", 1);
    let time = node.int_or("time_axis", 0);
    Plan::new([("copy", node.input(0)?)], move |context| {
        let input = context.array(0)?;
        let lengths = given(context, 1)?;
        let batch = dim(batch, input.rank())?;
        let time = dim(time, input.rank())?;
        if lengths.len() != input.shape()[batch] {
            return declined(format_args!(
                "{} lengths for {} sequences",
                lengths.len(),
                input.shape()[batch]
            ));
        }
        let out = context.output(0, input.shape())?;
        for (at, &len) in lengths.iter().enumerate() {
            let all = input.shape()[time];
            let len = usize::try_from(len).ok().filter(|&len| len <= all);
            let Some(len) = len else { return declined(format_args!("a length beyond {all} steps")) };
            let part = |array: &Array, start, len| {
                let layout = array.layout.slice(batch, at, 1, 1)?.slice(time, start, len, 1)?;
                Ok::<_, Failure>(array.with_layout(layout))
            };
            let turned = part(&input, 0, len)?;
            let turned = turned.with_layout(turned.layout.flip(time)?);
            context.copy(&turned, &part(&out, 0, len)?)?;
            context.copy(&part(&input, len, all - len)?, &part(&out, len, all - len)?)?;
        }
        Ok(())
    })
}
