//! Element-wise operators: one item for each element of the output.

use std::fmt::Write;

use device_kernels::{Argument, Call, Operator};
use smallvec::SmallVec;

use super::element::{Element, Value, element};
use super::expression::{self, Function};
use super::opencl_c::{self, Parameters};
use super::space::{self, Space};
use super::{Place, Plan, Step, Target};

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Recipe {
    function: Function,
    inputs: SmallVec<[Input; 3]>,
    output: Element,
    form: Form,
    wide: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Input {
    element: Element,
    /// An argument in place of an array.
    scalar: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Form {
    /// All arrays are lines of elements, so that no index is computed.
    Line,
    /// Any strides. The item's number is taken apart.
    Strided { rank: usize },
    /// Any strides, with the innermost dimension as its own axis.
    Rows { rank: usize, steps: SmallVec<[InnerStep; 4]> },
}

/// The innermost stride of an array.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum InnerStep {
    Zero,
    One,
    Any,
}

/// From so many elements on, the innermost dimension is an axis.
const ROW: i64 = 32;
/// Drivers may limit the groups of all axes but the first to so many.
const MOST_ROWS: i64 = 1 << 16;
/// The side of a square of items, in one group.
const SQUARE: usize = 16;

pub(crate) fn plan(call: &Call, target: Target) -> Option<Plan> {
    let &[(out, out_layout)] = call.outputs() else { return None };
    let out_element = element(out)?;
    let function = match call.operator() {
        Operator::Unary(unary) => Function::Unary(unary),
        Operator::Binary(binary) => Function::Binary(binary),
        Operator::Compare(compare) => Function::Compare(compare),
        Operator::Where => Function::Where,
        Operator::Clamp => Function::Clamp,
        Operator::Copy => Function::Copy,
        _ => return None,
    };
    // The common type of inputs that are alike: their first array's.
    let skipped = usize::from(function == Function::Where);
    let of_array = call.inputs().iter().skip(skipped).find_map(Argument::array);
    let alike = match of_array {
        Some((dtype, _)) => element(dtype)?,
        None => out_element,
    };
    let moves = function == Function::Where || (function == Function::Copy && alike == out_element);
    let output = if moves { out_element.moved() } else { out_element };

    let mut inputs = SmallVec::<[Input; 3]>::new();
    let mut values = SmallVec::<[Value; 3]>::new();
    let mut arrays = SmallVec::<[(&[isize], usize); 4]>::new();
    for (place, input) in call.inputs().iter().enumerate() {
        let condition = function == Function::Where && place == 0;
        let of = if condition { Element::Bool } else { alike };
        let element = if moves { of.moved() } else { of };
        match input {
            Argument::Scalar(scalar) => {
                values.push(if moves { of.moved_value(*scalar) } else { of.value(*scalar) });
                inputs.push(Input { element, scalar: true });
            }
            Argument::Array(_, layout) => {
                arrays.push((layout.strides(), layout.offset()));
                inputs.push(Input { element, scalar: false });
            }
        }
    }
    arrays.push((out_layout.strides(), out_layout.offset()));
    let count = arrays.len();
    let space = Space::new(out_layout.shape(), &arrays)?.sort(count - 1).merge();
    let rank = space.rank();
    let len = space.len();
    let every: SmallVec<[usize; 4]> = (0..count).collect();
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
        let step = |stride: &i64| match stride {
            0 => InnerStep::Zero,
            1 => InnerStep::One,
            _ => InnerStep::Any,
        };
        let steps = inner.strides[..count].iter().map(step).collect();
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
    let recipe = Recipe { function, inputs, output, form, wide: target.wide };
    recipe.expression()?;
    Some(Plan::from(Step {
        recipe: super::Recipe::Elementwise(recipe),
        arrays: every.iter().map(|&array| (Place::Array(array), space.offsets[array])).collect(),
        values,
        indices,
        items,
        group,
    }))
}

impl Recipe {
    fn expression(&self) -> Option<&'static str> {
        let of = self.inputs.last().map_or(self.output, |input| input.element);
        self.function.expression(of, self.output)
    }

    pub(crate) fn text(&self) -> String {
        let of = self.inputs.last().map_or(self.output, |input| input.element);
        let expression = self.expression().expect("the plan has looked");
        let mut parameters = Parameters {
            wide: self.wide,
            functions: expression::functions(of.number(), expression),
            ..Parameters::default()
        };
        let mut loads = String::new();
        for (name, input) in ["a", "b", "c"].iter().zip(&self.inputs) {
            let number = input.element.number();
            let value = if input.scalar {
                parameters.values.push(number);
                format!("v{}", parameters.values.len() - 1)
            } else {
                let place = parameters.arrays.len();
                parameters.arrays.push((input.element, false));
                opencl_c::load(input.element, &format!("p{place}"), &format!("x{place}"))
            };
            let _ = writeln!(loads, "    const {} {name} = {value};", opencl_c::number_type(number));
        }
        let out = parameters.arrays.len();
        parameters.arrays.push((self.output, true));
        let every: Vec<usize> = (0..=out).collect();

        let item = opencl_c::item(0);
        let mut body = format!("    const Index i = {item};\n    if (i >= count) return;\n");
        parameters.indices.push("count".to_owned());
        match &self.form {
            Form::Line => {
                for array in every {
                    let _ = writeln!(body, "    const Index x{array} = o{array} + i;");
                }
            }
            Form::Strided { rank } => {
                parameters.indices.extend(space::names("", *rank, &every));
                body += &space::decode("", *rank, "i");
                for array in every {
                    let place = space::place("", *rank, array);
                    let _ = writeln!(body, "    const Index x{array} = o{array} + {place};");
                }
            }
            Form::Rows { rank, steps } => {
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
        body += &loads;
        let value = format!("({})", expression::spell(of.number(), expression));
        let store = opencl_c::store(self.output, &format!("p{out}"), &format!("x{out}"), &value);
        let _ = writeln!(body, "    {store}");
        opencl_c::program(&parameters, &body)
    }
}
