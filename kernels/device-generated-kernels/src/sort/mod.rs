//! Sorting along a dimension.
//!
//! A short row is sorted by counting: an item finds how many elements go before its own. A longer one is
//! sorted in runs, each by one item, or by a group where groups run side by side; then each launch merges
//! runs two by two, until a row is one. There an item finds the place of its element by a binary search in
//! the other run. So a row of any length is sorted, in few launches.
//!
//! Elements are sorted by their bits, as unsigned integers: their *keys*. Of equal ones the first stays
//! first.

mod text;

use device_kernels::{Call, DType, Sorted};
use smallvec::{SmallVec, smallvec};

use super::element::{Element, Number, Value, element};
use super::space::Space;
use super::{Place, Plan, Step, Target};

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Recipe {
    form: Form,
    /// The elements as bits, and what they stand for.
    element: Element,
    kind: Kind,
    /// Whether elements are an output, and indices, as bits.
    values: bool,
    indices: Option<Element>,
    /// Whether it writes the outputs, and not an intermediate result.
    last: bool,
    kept: usize,
    wide: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Form {
    /// An item counts what goes before its element.
    Count,
    /// An item sorts a run, by one digit after the other.
    Digits,
    /// A group sorts a run of at most so many elements in the memory that it shares.
    Group(i64),
    /// Two runs become one.
    Merge,
}

/// What bits stand for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Kind {
    Unsigned,
    Signed,
    Float,
}

/// The longest row that is sorted by counting, as the work grows with the square of the length.
const COUNTED: i64 = 32;
/// How many items a group has.
const GROUP: i64 = 256;
/// The bytes of local memory that a group takes at most. Each device has 32 KiB.
const SHARED: i64 = 24 << 10;
/// The shortest run for which another item is worth a launch that merges.
const RUN: i64 = 4096;

pub(crate) fn plan(
    call: &Call,
    dim: usize,
    descending: bool,
    sorted: Sorted,
    target: Target,
) -> Option<Plan> {
    let (dtype, layout) = call.inputs().first()?.array()?;
    let (values, indices) = match sorted {
        Sorted::Values => (true, None),
        Sorted::Indices => (false, Some(call.outputs().first()?)),
        Sorted::Both => (true, Some(call.outputs().get(1)?)),
        _ => return None,
    };
    let of = element(dtype)?;
    let number = of.moved().number();
    let mut shape: SmallVec<[usize; 8]> = layout.shape().into();
    let len = super::index(std::mem::replace(&mut shape[dim], 1))?;
    let views = || [layout].into_iter().chain(call.outputs().iter().map(|(_, layout)| layout));
    let arrays: SmallVec<[(&[isize], usize); 3]> =
        views().map(|layout| (layout.strides(), layout.offset())).collect();
    let kept = Space::new(&shape, &arrays)?.sort(0).merge();
    let rows = kept.len();
    let mut steps = [0; 3];
    for (step, layout) in steps.iter_mut().zip(views()) {
        *step = super::index(layout.strides()[dim])?;
    }
    let first = super::index(call.outputs().first()?.1.shape()[dim])?;
    let recipe = |form, last| Recipe {
        form,
        element: of.moved(),
        kind: kind(dtype),
        values,
        indices: indices.and_then(|(dtype, _)| Some(element(*dtype)?.moved())),
        last,
        kept: kept.rank(),
        wide: target.wide,
    };
    let place = if target.wide { Number::Long } else { Number::Int };
    let (form, run) = match target.traits.groups {
        _ if len <= COUNTED => (Form::Count, len),
        false => (Form::Digits, part(rows, len, target.traits.units)),
        true => {
            let bytes = number.size() + indices.map_or(0, |_| place.size());
            let most = 1 << (SHARED / i64::try_from(bytes).ok()?).ilog2();
            let run = super::index(u64::try_from(len).ok()?.checked_next_power_of_two()?)?;
            let run = run.clamp(GROUP, most);
            (Form::Group(run), run)
        }
    };
    let runs = (len + run - 1) / run.max(1);
    let is_sorted = runs <= 1;

    // Two intermediate results, from one of which a merge writes to the other: of keys, and of indices.
    let mut plan = Plan::default();
    if form == Form::Digits || !is_sorted {
        let elements = super::product([rows, len])?;
        let sizes = [Some(number.size()), indices.map(|_| place.size())];
        for size in sizes.into_iter().flatten() {
            let bytes = elements.checked_mul(size)?;
            plan.scratch.extend([bytes, bytes]);
        }
    }
    let scratch = |turn: usize| {
        let both: SmallVec<[(Place, i64); 2]> = match indices {
            Some(_) => smallvec![(Place::Scratch(turn), 0), (Place::Scratch(2 + turn), 0)],
            None => smallvec![(Place::Scratch(turn), 0)],
        };
        both
    };
    let outputs =
        || (0..call.outputs().len()).map(|place| (Place::Array(1 + place), kept.offsets[1 + place]));
    let step = |form, last, arrays, run, items: Option<usize>| {
        let mut numbers: SmallVec<[i64; 24]> = smallvec![rows, len, first, run, steps[0], steps[1], steps[2]];
        numbers.extend(kept.indices(&[0, 1, 2]));
        let (items, group) = match form {
            Form::Group(_) => ([items?, 1, 1], [GROUP as usize, 1, 1]),
            Form::Digits => super::heavy_line(items?, target.traits),
            Form::Count | Form::Merge => super::line(items?, target.traits),
        };
        let values = smallvec![flip(of.moved(), descending)];
        let recipe = super::Kind::Sort(recipe(form, last)).into();
        Some(Step { recipe, arrays, values, indices: numbers, items, group })
    };

    let mut arrays: SmallVec<[(Place, i64); 4]> = smallvec![(Place::Array(0), kept.offsets[0])];
    let mut turn = 0;
    if form == Form::Digits {
        arrays.extend(scratch(0).into_iter().chain(scratch(1)));
        // Each digit moves all elements to the other result.
        turn = of.size() % 2;
    } else if !is_sorted {
        arrays.extend(scratch(0));
    }
    if is_sorted {
        arrays.extend(outputs());
    }
    let items = match form {
        Form::Group(_) => super::product([rows, runs, GROUP]),
        Form::Digits => super::product([rows, runs]),
        Form::Count | Form::Merge => super::product([rows, len]),
    };
    plan.steps.push(step(form, is_sorted, arrays, run, items)?);
    let mut run = run;
    while run < len {
        let last = 2 * run >= len;
        let mut arrays: SmallVec<[(Place, i64); 4]> = scratch(turn).into_iter().collect();
        turn = 1 - turn;
        match last {
            true => arrays.extend(outputs()),
            false => arrays.extend(scratch(turn)),
        }
        plan.steps.push(step(Form::Merge, last, arrays, run, super::product([rows, len]))?);
        run *= 2;
    }
    Some(plan)
}

/// How many elements one item sorts, so that each unit of the device has some to do.
fn part(rows: i64, len: i64, units: i64) -> i64 {
    let runs = if rows >= units { 1 } else { (units / rows.max(1)).max(1) };
    ((len + runs - 1) / runs).max(RUN.min(len))
}

fn kind(dtype: DType) -> Kind {
    match dtype {
        _ if dtype.is_float() => Kind::Float,
        DType::I32 | DType::I64 => Kind::Signed,
        _ => Kind::Unsigned,
    }
}

/// The bits of a key that a descending order inverts.
fn flip(element: Element, descending: bool) -> Value {
    let all = u64::MAX >> (64 - 8 * element.size());
    let bits = if descending { all } else { 0 };
    if element.number() == Number::Ulong { Value::Ulong(bits) } else { Value::Uint(bits as u32) }
}
