//! Element-wise operators: one item for each element of the output.

use std::fmt::Write;

use device_kernels::{Argument, Call};
use smallvec::SmallVec;

use super::element::{Element, Value, element};
use super::expression::{self, Function};
use super::form::{self, Extent, Form};
use super::opencl_c::{self, Parameters};
use super::space::Space;
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

pub(crate) fn plan(call: &Call, target: Target) -> Option<Plan> {
    let &[(out, out_layout)] = call.outputs() else { return None };
    let out_element = element(out)?;
    let function = Function::of(call.operator())?;
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
    let Extent { form, indices, items, group } = form::extent(&space, count, target)?;
    let recipe = Recipe { function, inputs, output, form, wide: target.wide };
    recipe.expression()?;
    Some(Plan::from(Step {
        recipe: super::Kind::Elementwise(recipe).into(),
        arrays: (0..count).map(|array| (Place::Array(array), space.offsets[array])).collect(),
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
            functions: expression::functions(of.number(), expression).collect(),
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
        let mut body = self.form.places(&mut parameters);
        body += &loads;
        let value = format!("({})", expression::spell(of.number(), expression));
        let store = opencl_c::store(self.output, &format!("p{out}"), &format!("x{out}"), &value);
        let _ = writeln!(body, "    {store}");
        opencl_c::program(&parameters, &body)
    }
}
