//! Operators with indices. An index that is outside reads 0, and writes nothing.
//!
//! Additions that may meet in one element are one item's, in the order of the indices: results do not change
//! from run to run, and no type needs atomic operations. Halves are added as `f32`, in a copy of the output.

use std::fmt::Write;

use device_kernels::{Argument, Binary, Call, DType, Layout, Operator, Update};
use smallvec::{SmallVec, smallvec};

use super::element::{Element, element};
use super::expression::{self, Function};
use super::opencl_c::{self, Parameters};
use super::space::{self, Space};
use super::{Place, Plan, Step, Target, elementwise};

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Recipe {
    form: Form,
    index: Element,
    element: Element,
    /// What is added up has its own type.
    out: Element,
    rank: usize,
    wide: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Form {
    /// An item reads one element.
    Read,
    /// An item writes one element.
    Write,
    /// An item adds all elements along the dimension of the indices.
    Add,
}

/// The place of the indices' array, among the inputs of reads and of writes.
const READ_INDEX: usize = 1;
const WRITE_INDEX: usize = 0;

pub(crate) fn plan(call: &Call, target: Target) -> Option<Plan> {
    let [(dtype, out)] = call.outputs() else { return None };
    let (form, dim, alone) = match call.operator() {
        Operator::Gather { dim } => (Form::Read, dim, false),
        Operator::IndexSelect { dim } => (Form::Read, dim, true),
        Operator::Scatter { dim, update } => (written(update)?, dim, false),
        Operator::IndexAssign { dim, update } => (written(update)?, dim, true),
        _ => return None,
    };
    let of = element(*dtype)?;
    let of = if form == Form::Add { of } else { of.moved() };
    let out = Output { element: of, layout: out, place: Place::Array(2) };
    if form != Form::Add || !matches!(dtype, DType::F16 | DType::BF16) {
        return step(call, (form, dim, alone), of, &out, target).map(Plan::from);
    }
    let wide = Layout::contiguous(out.layout.shape()).ok()?;
    let scratch = Output { element: Element::F32, layout: &wide, place: Place::Scratch(0) };
    let narrow = Argument::Array(*dtype, *out.layout);
    let copy = |from: &Argument, to: &Argument, places: [Place; 2]| {
        let call = Call::new(Operator::Copy, std::slice::from_ref(from), std::slice::from_ref(to)).ok()?;
        let mut step = elementwise::plan(&call, target)?.steps.pop()?;
        step.arrays.iter_mut().zip(places).for_each(|(array, place)| array.0 = place);
        Some(step)
    };
    let sums = Argument::Array(DType::F32, wide);
    let bytes = super::product([super::index(wide.len())?])?.checked_mul(Element::F32.number().size())?;
    Some(Plan {
        scratch: smallvec![bytes],
        steps: smallvec![
            copy(&narrow, &sums, [out.place, scratch.place])?,
            step(call, (form, dim, alone), of, &scratch, target)?,
            copy(&sums, &narrow, [scratch.place, out.place])?,
        ],
        ..Plan::default()
    })
}

/// What a kernel writes to.
struct Output<'a> {
    element: Element,
    layout: &'a Layout,
    place: Place,
}

/// `of` is the type of the elements that are read or written, and `alone` says that there is one index for
/// all elements of a slice.
fn step(
    call: &Call,
    (form, dim, alone): (Form, usize, bool),
    of: Element,
    output: &Output<'_>,
    target: Target,
) -> Option<Step> {
    let out = output.layout;
    let first = call.inputs().first()?.array()?;
    let second = call.inputs().get(1)?.array()?;
    let layouts = [first.1, second.1, out];
    // The array whose elements have the indices, and the one with their shape: it is read or written once.
    let (index, indexed, shaped) = match form {
        Form::Read => (READ_INDEX, 0, 2),
        _ => (WRITE_INDEX, 2, 1),
    };
    let mut shape: SmallVec<[usize; 8]> = layouts[shaped].shape().into();
    let mut strides = layouts.map(|layout| SmallVec::<[isize; 8]>::from(layout.strides()));
    if alone {
        let step = strides[index][0];
        strides[index] = smallvec![0; shape.len()];
        strides[index][dim] = step;
    }
    let step = super::index(std::mem::replace(&mut strides[indexed][dim], 0))?;
    let size = super::index(layouts[indexed].shape()[dim])?;
    let mut along = 1;
    let mut steps = [0, 0];
    if form == Form::Add {
        along = super::index(std::mem::replace(&mut shape[dim], 1))?;
        steps = super::indices([strides[0][dim], strides[1][dim]])?;
    }
    let views: SmallVec<[(&[isize], usize); 3]> =
        strides.iter().zip(layouts).map(|(strides, layout)| (&strides[..], layout.offset())).collect();
    let space = Space::new(&shape, &views)?.sort(shaped).merge();
    let recipe = Recipe {
        form,
        index: element(if index == 0 { first.0 } else { second.0 })?,
        element: of,
        out: output.element,
        rank: space.rank(),
        wide: target.wide,
    };
    let mut indices: SmallVec<[i64; 24]> = smallvec![space.len(), size, step, along, steps[0], steps[1]];
    indices.extend(space.indices(&[0, 1, 2]));
    let (items, group) = super::line(super::product([space.len()])?, target.traits);
    let places = [Place::Array(0), Place::Array(1), output.place];
    Some(Step {
        recipe: super::Kind::Indexing(recipe).into(),
        arrays: places.into_iter().zip(space.offsets).collect(),
        values: SmallVec::new(),
        indices,
        items,
        group,
    })
}

fn written(update: Update) -> Option<Form> {
    match update {
        Update::Replace => Some(Form::Write),
        Update::Add => Some(Form::Add),
        _ => None,
    }
}

impl Recipe {
    pub(crate) fn text(&self) -> String {
        let names = ["count", "size", "step", "along", "step0", "step1"].map(str::to_owned);
        let number = self.element.number();
        let sum = Function::Binary(Binary::Add).expression(self.element, self.element).expect("of numbers");
        let t = opencl_c::number_type(number);
        let index = (self.index, false);
        let arrays = match self.form {
            Form::Read => vec![(self.element, false), index, (self.out, true)],
            _ => vec![index, (self.element, false), (self.out, true)],
        };
        let parameters = Parameters {
            arrays,
            indices: names.into_iter().chain(space::names("", self.rank, &[0, 1, 2])).collect(),
            wide: self.wide,
            ..Parameters::default()
        };
        let mut body =
            format!("    const Index item = {};\n    if (item >= count) return;\n", opencl_c::item(0));
        body += &space::decode("", self.rank, "item");
        for array in 0..3 {
            let place = space::place("", self.rank, array);
            let _ = writeln!(body, "    Index x{array} = o{array} + {place};");
        }
        let of_index = if self.form == Form::Read { READ_INDEX } else { WRITE_INDEX };
        let load_index = opencl_c::load(self.index, &format!("p{of_index}"), &format!("x{of_index}"));
        // One comparison, which takes an index below 0 for a large one. With two, and `&&` between them,
        // Rusticl of Mesa 22 reads and writes beyond the array.
        let inside = format!("    const long at = (long){load_index};\n    if ((ulong)at < (ulong)size)");
        let place = "(Index)at * step";
        let _ = match self.form {
            Form::Read => writeln!(
                body,
                "    {t} value = 0;\n{inside} value = {};\n    {}",
                opencl_c::load(self.element, "p0", &format!("x0 + {place}")),
                opencl_c::store(self.element, "p2", "x2", "value"),
            ),
            Form::Write => writeln!(
                body,
                "{inside} {{ {} }}",
                opencl_c::store(
                    self.element,
                    "p2",
                    &format!("x2 + {place}"),
                    &opencl_c::load(self.element, "p1", "x1")
                ),
            ),
            Form::Add => writeln!(
                body,
                "    for (Index i = 0; i < along; i++, x0 += step0, x1 += step1) {{
{inside} {{
        const Index y = x2 + {place};
        const {t} a = {}, b = {};
        {}
    }}
    }}",
                opencl_c::load(self.out, "p2", "y"),
                opencl_c::load(self.element, "p1", "x1"),
                opencl_c::store(self.out, "p2", "y", &format!("({})", expression::spell(number, sum))),
            ),
        };
        opencl_c::program(&parameters, &body)
    }
}
