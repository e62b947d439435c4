//! Which elements the items of a kernel have, where each item has one.

use std::fmt::Write;

use smallvec::SmallVec;

use super::Target;
use super::opencl_c::{self, Parameters};
use super::space::{self, SpaceOf};

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Form {
    /// All arrays are lines of elements, so that no index is computed.
    Line,
    /// Any strides. The item's number is taken apart.
    Strided { rank: usize },
    /// Any strides, with the innermost dimension as its own axis.
    Rows { rank: usize, steps: SmallVec<[InnerStep; 4]> },
}

/// The innermost stride of an array.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum InnerStep {
    Zero,
    One,
    Any,
}

/// A form for a space, with its arguments and items.
pub(crate) struct Extent {
    pub(crate) form: Form,
    pub(crate) indices: SmallVec<[i64; 24]>,
    pub(crate) items: [usize; 3],
    pub(crate) group: [usize; 3],
}

/// From so many elements on, the innermost dimension is an axis.
const ROW: i64 = 32;
/// Drivers may limit the groups of all axes but the first to so many.
const MOST_ROWS: i64 = 1 << 16;
/// The side of a square of items, in one group.
const SQUARE: usize = 16;

impl From<i64> for InnerStep {
    fn from(stride: i64) -> Self {
        match stride {
            0 => Self::Zero,
            1 => Self::One,
            _ => Self::Any,
        }
    }
}

/// The form for the first arrays of a space, as many as `count` says.
pub(crate) fn extent<const N: usize>(space: &SpaceOf<N>, count: usize, target: Target) -> Option<Extent> {
    let rank = space.rank();
    let len = space.len();
    let every: SmallVec<[usize; 24]> = (0..count).collect();
    let inner = space.dims.last();
    let line =
        rank == 0 || (rank == 1 && inner.is_some_and(|dim| dim.strides[..count].iter().all(|&s| s == 1)));
    let mut indices = SmallVec::new();
    let whole = super::product([len])?;
    let ((items, group), form) = if line {
        indices.push(len);
        (super::line(whole, target.traits), Form::Line)
    } else if let Some(inner) = inner.filter(|inner| inner.size >= ROW && len / inner.size < MOST_ROWS) {
        let rows = len / inner.size;
        let items = [super::product([inner.size])?, super::product([rows])?];
        indices.extend([inner.size, rows]);
        indices.extend(space.indices(&every));
        let steps = inner.strides[..count].iter().copied().map(InnerStep::from).collect();
        // An array that is read across its rows: a square of items has its lines of the cache in common.
        let across = space.dims.iter().rev().nth(1).is_some_and(|outer| {
            (0..count).any(|array| outer.strides[array] == 1 && inner.strides[array] > 1)
        });
        let extent = match across {
            true => {
                let [columns, rows] = items.map(|items| items.next_multiple_of(SQUARE));
                ([columns, rows, 1], [SQUARE, SQUARE, 1])
            }
            false => {
                let ([columns, ..], group) = super::line(items[0], target.traits);
                ([columns, items[1], 1], group)
            }
        };
        (extent, Form::Rows { rank, steps })
    } else {
        indices.push(len);
        indices.extend(space.indices(&every));
        (super::line(whole, target.traits), Form::Strided { rank })
    };
    Some(Extent { form, indices, items, group })
}

impl Form {
    /// Statements that declare the place `x0` and on of the item's element in each array. Adds the
    /// parameters that they need to the arrays'.
    pub(crate) fn places(&self, parameters: &mut Parameters) -> String {
        let every: Vec<usize> = (0..parameters.arrays.len()).collect();
        let item = opencl_c::item(0);
        let mut body = format!("    const Index i = {item};\n    if (i >= count) return;\n");
        parameters.indices.push("count".to_owned());
        match self {
            Self::Line => {
                for array in every {
                    let _ = writeln!(body, "    const Index x{array} = o{array} + i;");
                }
            }
            Self::Strided { rank } => {
                parameters.indices.extend(space::names("", *rank, &every));
                body += &space::decode("", *rank, "i");
                for array in every {
                    let place = space::place("", *rank, array);
                    let _ = writeln!(body, "    const Index x{array} = o{array} + {place};");
                }
            }
            Self::Rows { rank, steps } => {
                parameters.indices.push("rows".to_owned());
                parameters.indices.extend(space::names("", *rank, &every));
                let outer = rank - 1;
                let _ = writeln!(
                    body,
                    "    const Index row = {};\n    if (row >= rows) return;",
                    opencl_c::item(1)
                );
                body += &space::decode("", outer, "row");
                for (array, step) in every.iter().zip(steps) {
                    let place = space::place("", outer, *array);
                    let inner = match step {
                        InnerStep::Zero => String::new(),
                        InnerStep::One => " + i".to_owned(),
                        InnerStep::Any => format!(" + i * s{array}_{outer}"),
                    };
                    let _ = writeln!(body, "    const Index x{array} = o{array} + {place}{inner};");
                }
            }
        }
        body
    }
}
