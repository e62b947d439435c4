//! Expressions: many operators in one launch, which reads each input and writes each output once.
//!
//! Without reductions, one item computes one element of every output. With reductions, see [`passes`].

mod passes;
mod values;

use device_kernels::{Argument, Call, Expression, NodeKind};
use smallvec::SmallVec;

use self::passes::Rows;
use self::values::{Source, Values};
use super::element::{Value, element};
use super::form::{self, Extent, Form};
use super::opencl_c::{self, Parameters};
use super::space::SpaceOf;
use super::{Place, Plan, Step, Target};

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Recipe {
    expression: Expression,
    /// Which inputs are arguments in place of arrays.
    scalars: SmallVec<[bool; 16]>,
    work: Work,
    /// Whether `f16` is converted by operators of integers.
    halves: bool,
    wide: bool,
}

/// Who computes what.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Work {
    /// An item computes an element.
    Elements(Form),
    /// An item or a group computes a row.
    Rows(Rows),
}

/// The most arrays of a call.
const ARRAYS: usize = Expression::MOST_INPUTS + Expression::MOST_OUTPUTS;

/// The strides of an array, and the place of its first element.
type View<'a> = (&'a [isize], usize);

/// OpenCL guarantees so many bytes for the parameters of a kernel.
const PARAMETERS: usize = 1024;

pub(crate) fn plan(call: &Call, expression: Expression, target: Target) -> Option<Plan> {
    // Devices whose groups run side by side have instructions for it.
    let halves = !target.traits.groups;
    let of_nodes = Values::of(expression, halves)?;
    if of_nodes.have_doubles() && !target.traits.doubles {
        return None;
    }
    let mut scalars = SmallVec::new();
    let mut values = SmallVec::<[Value; 3]>::new();
    let mut views = SmallVec::<[View<'_>; ARRAYS]>::new();
    for (input, &dtype) in call.inputs().iter().zip(expression.inputs()) {
        match input {
            Argument::Scalar(scalar) => values.push(element(dtype)?.value(*scalar)),
            Argument::Array(_, layout) => views.push((layout.strides(), layout.offset())),
        }
        scalars.push(input.array().is_none());
    }
    views.extend(call.outputs().iter().map(|(_, layout)| (layout.strides(), layout.offset())));
    let count = views.len();
    let (work, indices, items, group, offsets) = match expression.dims() {
        None => {
            let space = SpaceOf::<ARRAYS>::new(call.shape(), &views)?.sort(count - 1).merge();
            let Extent { form, indices, items, group } = form::extent(&space, count, target)?;
            (Work::Elements(form), indices, items, group, space.offsets)
        }
        Some(dims) => {
            let extent = passes::extent(call, &of_nodes, dims, &views, target)?;
            (Work::Rows(extent.rows), extent.indices, extent.items, extent.group, extent.offsets)
        }
    };
    // As for indices of 64 bits: whether there is a kernel does not depend on their size.
    if 16 * count + 8 * (values.len() + indices.len()) > PARAMETERS {
        return None;
    }
    let recipe = Recipe { expression, scalars, work, halves, wide: target.wide };
    Some(Plan::from(Step {
        recipe: super::Kind::Fused(recipe).into(),
        arrays: (0..count).map(|array| (Place::Array(array), offsets[array])).collect(),
        values,
        indices,
        items,
        group,
    }))
}

impl Recipe {
    pub(crate) fn text(&self) -> String {
        let values = Values::of(self.expression, self.halves).expect("the plan has looked");
        let mut parameters = Parameters { wide: self.wide, ..Parameters::default() };
        let mut sources = SmallVec::<[Source; 16]>::new();
        // Inputs are nodes, in their order.
        let nodes = self.expression.nodes().iter().enumerate();
        let inputs = nodes.filter(|(_, node)| matches!(node.kind, NodeKind::Input(_)));
        for ((node, _), &scalar) in inputs.zip(&self.scalars) {
            if scalar {
                sources.push(Source::Value(parameters.values.len()));
                parameters.values.push(values.number(node));
            } else {
                sources.push(Source::Array(parameters.arrays.len()));
                parameters.arrays.push((values.stored(node), false));
            }
        }
        let first_output = parameters.arrays.len();
        let outputs = self.expression.outputs();
        parameters.arrays.extend(outputs.iter().map(|&node| (values.stored(node), true)));
        if !self.expression.keeps_precision() {
            parameters.functions += "#pragma OPENCL FP_CONTRACT OFF\n";
        }
        parameters.functions += &values.functions();
        let body = match &self.work {
            Work::Rows(rows) => rows.text(&values, &sources, &mut parameters),
            Work::Elements(form) => {
                let mut body = form.places(&mut parameters);
                for node in 0..self.expression.nodes().len() {
                    body += &values.declare(node, &sources, |array| format!("x{array}"));
                }
                for (output, &node) in outputs.iter().enumerate() {
                    let array = first_output + output;
                    body += &values.store(node, array, &format!("x{array}"), &values::name(node));
                }
                body
            }
        };
        opencl_c::program(&parameters, &body)
    }
}
