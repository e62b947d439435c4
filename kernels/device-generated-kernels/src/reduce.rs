//! Reductions: a long one is split into parts, whose results are reduced in turn.
//!
//! No running result takes in more than about a hundred others, so that the error of a sum grows as in a
//! tree.

use std::fmt::Write;

use device_kernels::{Call, Dims, Reduction};
use smallvec::{SmallVec, smallvec};

use super::element::{Element, element};
use super::expression;
use super::opencl_c::{self, Parameters};
use super::space::{self, Dim, Space};
use super::{Place, Plan, Step, Target};

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Recipe {
    reduction: Reduction,
    /// Whether the result is divided, as a mean is at last.
    divide: bool,
    input: Element,
    output: Element,
    kept: usize,
    reduced: usize,
    form: Form,
    wide: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Form {
    /// An item has a part, element by element.
    Plain,
    /// An item has a part, several elements at a time, which are neighbours.
    Row,
    /// An item has the same part of several neighbouring outputs at a time.
    Columns,
    /// A group has a part.
    Group,
}

/// How many elements an item handles at a time.
const LANES: i64 = 16;
/// How many neighbouring outputs an item has: the elements of several lines of the cache, as each is far from
/// the next.
const COLUMNS: i64 = 64;
/// How many items a group has.
const GROUP: i64 = 256;
/// How many numbers go into one running result.
const BLOCK: i64 = 64;

pub(crate) fn plan(call: &Call, reduction: Reduction, dims: Dims, target: Target) -> Option<Plan> {
    let &[(out, out_layout)] = call.outputs() else { return None };
    let (dtype, layout) = call.inputs().first()?.array()?;
    let mut input = element(dtype)?;
    let output = element(out)?;
    let scratch = input.number().element();
    let mut plan = Plan::default();

    // The kept dimensions, then the reduced ones, each with the smallest stride of the input last.
    let arrays: [(&[isize], usize); 2] =
        [(layout.strides(), layout.offset()), (out_layout.strides(), out_layout.offset())];
    let only = |reduced: bool| {
        let shape: SmallVec<[usize; 8]> = (layout.shape().iter().enumerate())
            .map(|(dim, &size)| if dims.contains(dim) == reduced { size } else { 1 })
            .collect();
        Some(Space::new(&shape, &arrays)?.sort(0))
    };
    let mut kept = only(false)?.merge();
    let mut reduced = only(true)?;
    for dim in &mut reduced.dims {
        dim.strides[1] = 0;
    }
    reduced = reduced.merge();
    // Reversed dimensions have moved the offsets; reduced dimensions' offsets do not count for the output.
    let layout_offset = super::index(layout.offset())?;
    let mut from = (Place::Array(0), kept.offsets[0] + reduced.offsets[0] - layout_offset);
    let to = (Place::Array(1), kept.offsets[1]);
    let total = reduced.len();
    loop {
        let outputs = kept.len();
        let len = reduced.len();
        let form = form(&kept, &reduced, target);
        let part = part(form, outputs, len, target);
        let parts = (len + part - 1) / part.max(1);
        let last = parts <= 1;
        // What comes out of this step: the output, or a part of each output beside the others.
        let mut result = kept.clone();
        if !last {
            let mut stride = parts;
            for dim in result.dims.iter_mut().rev() {
                dim.strides[1] = stride;
                stride *= dim.size;
            }
        }
        let place = if last {
            to
        } else {
            plan.scratch.push(super::product([outputs, parts])?.checked_mul(input.number().size())?);
            (Place::Scratch(plan.scratch.len() - 1), 0)
        };
        let recipe = Recipe {
            reduction,
            divide: last && reduction == Reduction::Mean,
            input,
            output: if last { output } else { scratch },
            kept: result.rank(),
            reduced: reduced.rank(),
            form,
            wide: target.wide,
        };
        expression::reduction(reduction, input)?.0.expression(input, input)?;
        let blocks = match (form, result.dims.last()) {
            (Form::Columns, Some(inner)) => outputs / inner.size * ((inner.size + COLUMNS - 1) / COLUMNS),
            _ => outputs,
        };
        let count = blocks * parts;
        let mut indices: SmallVec<[i64; 24]> = smallvec![count, parts, part, len];
        indices.extend(result.indices(&[0, 1]));
        indices.extend(reduced.indices(&[0]));
        let values =
            if recipe.divide { smallvec![input.number().value(total as f64)] } else { SmallVec::new() };
        let (items, group) = match form {
            Form::Group => ([super::product([count, GROUP])?, 1, 1], [GROUP as usize, 1, 1]),
            _ => super::heavy_line(super::product([count])?, target.traits),
        };
        let recipe = super::Kind::Reduce(recipe).into();
        plan.steps.push(Step { recipe, arrays: smallvec![from, place], values, indices, items, group });
        if last {
            return Some(plan);
        }
        // The next step reduces the parts.
        for (dim, next) in kept.dims.iter_mut().zip(&result.dims) {
            dim.strides[0] = next.strides[1];
        }
        reduced.dims = smallvec![Dim { size: parts, strides: [1, 0, 0, 0] }];
        (input, from) = (scratch, place);
    }
}

/// How many elements one item or group reduces.
fn part(form: Form, outputs: i64, len: i64, target: Target) -> i64 {
    let units = target.traits.units;
    let (wanted, smallest, largest) = match form {
        Form::Group => (units * 8, GROUP * 16, GROUP * BLOCK),
        Form::Row => (units * 4, 4096, LANES * BLOCK * BLOCK),
        Form::Plain | Form::Columns => (units * 4, BLOCK * BLOCK, BLOCK * BLOCK),
    };
    let parts = (wanted / outputs.max(1)).max(1);
    ((len + parts - 1) / parts).clamp(smallest, largest)
}

fn form(kept: &Space, reduced: &Space, target: Target) -> Form {
    let step = |dim: Option<&Dim>| dim.map_or(0, |dim| dim.strides[0]);
    let inner = reduced.dims.last();
    let outer = kept.dims.last();
    if target.traits.groups {
        // Neighbouring items read neighbouring elements if each has its own output.
        let neighbours = step(outer) != 0 && step(outer) < step(inner);
        let enough = kept.len() >= target.traits.units * 256;
        return if reduced.len() < 64 || (neighbours && enough) { Form::Plain } else { Form::Group };
    }
    match (inner, outer) {
        (Some(inner), _) if inner.size >= 4 * LANES && step(Some(inner)) == 1 => Form::Row,
        (_, Some(outer)) if outer.size >= LANES && step(Some(outer)) == 1 => Form::Columns,
        _ => Form::Plain,
    }
}

impl Recipe {
    pub(crate) fn text(&self) -> String {
        let number = self.input.number();
        let words = |text: &str| expression::spell(number, text);
        let (function, first) =
            expression::reduction(self.reduction, self.input).expect("the plan has looked");
        let expression = function.expression(self.input, self.input).expect("the plan has looked");
        let mut functions: String = expression::functions(number, expression).collect();
        functions += &words(&format!("$T with($T a, $T b) {{ return {expression}; }}\n"));
        let mut indices: Vec<String> = ["count", "parts", "part", "len"].map(str::to_owned).into();
        indices.extend(space::names("", self.kept, &[0, 1]));
        indices.extend(space::names("r", self.reduced, &[0]));
        let group = self.form == Form::Group;
        let parameters = Parameters {
            arrays: vec![(self.input, false), (self.output, true)],
            values: if self.divide { vec![number] } else { Vec::new() },
            indices,
            wide: self.wide,
            functions,
            group: group.then_some([GROUP as usize, 1, 1]),
        };
        let load = |place: &str| opencl_c::load(self.input, "p0", place);
        let store = |place: &str, value: &str| {
            let value = if self.divide { format!("({value} / v0)") } else { value.to_owned() };
            opencl_c::store(self.output, "p1", place, &value)
        };

        let item = if group { opencl_c::group(0) } else { opencl_c::item(0) };
        let mut body = format!("    const Index item = {item};\n");
        if !group {
            // There is exactly one group for each part. PoCL 3.1 crashes on some kernels that return before a
            // barrier.
            body += "    if (item >= count) return;\n";
        }
        body += "    const Index number = item % parts;\n";
        if self.form == Form::Columns {
            let inner = self.kept - 1;
            let _ = write!(
                body,
                "    const Index blocks = (n{inner} + {COLUMNS} - 1) / {COLUMNS};\n    \
                     const Index column = item / parts % blocks * {COLUMNS};\n"
            );
            body += &space::decode("", inner, "item / parts / blocks");
            let _ = writeln!(body, "    const Index j{inner} = column;");
            let _ = writeln!(body, "    const int lanes = min((Index){COLUMNS}, n{inner} - column);");
        } else {
            body += &space::decode("", self.kept, "item / parts");
        }
        let _ = write!(
            body,
            "    const Index x = o0 + {};\n    const Index y = o1 + {} + number;\n",
            space::place("", self.kept, 0),
            space::place("", self.kept, 1),
        );
        body += "    const Index begin = number * part, end = min(begin + part, len);\n";

        // Runs of elements that are evenly apart.
        let inner = self.reduced.saturating_sub(1);
        let runs = |body_of_run: &str| {
            let mut text = String::from("    for (Index r = begin; r < end;) {\n");
            text += &space::decode("r", self.reduced, "r");
            let place = space::place("r", self.reduced, 0);
            let _ = writeln!(text, "    Index z = x + {place};");
            let _ = match self.reduced {
                0 => writeln!(text, "    const Index run = 1;\n    const Index step = 0;"),
                _ => writeln!(
                    text,
                    "    const Index run = min(end - r, rn{inner} - rj{inner});\n    const Index step = rs0_{inner};"
                ),
            };
            text += body_of_run;
            text + "    r += run;\n    }\n"
        };
        match self.form {
            Form::Plain => {
                let _ = writeln!(
                    body,
                    "    {} total = {first}, near = {first};\n    int filled = 0;",
                    words("$T")
                );
                body += &runs(&format!(
                    "    for (Index i = 0; i < run; i++, z += step) {{
        near = with(near, {});
        if (++filled == {BLOCK}) {{ total = with(total, near); near = {first}; filled = 0; }}
    }}
",
                    load("z")
                ));
                let _ = writeln!(body, "    {}", store("y", "with(total, near)"));
            }
            Form::Row => {
                let t = words("$T");
                let _ = writeln!(body, "    {t} total = {first}, near = {first};\n    Index filled = 0;");
                body += &runs(&format!(
                    "    Index i = 0;
    while (i + {LANES} <= run) {{
        const Index stop = min(i + {LANES} * {BLOCK}, run);
        {t} lane[{LANES}];
        for (int l = 0; l < {LANES}; l++) lane[l] = {first};
        for (; i + {LANES} <= stop; i += {LANES}) {{
            for (int l = 0; l < {LANES}; l++) lane[l] = with(lane[l], {});
        }}
        for (int width = {LANES} / 2; width > 0; width /= 2) {{
            for (int l = 0; l < width; l++) lane[l] = with(lane[l], lane[l + width]);
        }}
        near = with(near, lane[0]);
        filled++;
    }}
    for (; i < run; i++, filled++) near = with(near, {});
    if (filled >= {BLOCK}) {{ total = with(total, near); near = {first}; filled = 0; }}
",
                    load("z + i + l"),
                    load("z + i"),
                ));
                let _ = writeln!(body, "    {}", store("y", "with(total, near)"));
            }
            Form::Columns => {
                let t = words("$T");
                let _ = writeln!(
                    body,
                    "    {t} total[{COLUMNS}], near[{COLUMNS}];
    for (int l = 0; l < {COLUMNS}; l++) total[l] = near[l] = {first};
    Index filled = 0;"
                );
                body += &runs(&format!(
                    "    for (Index i = 0; i < run;) {{
        const Index stop = min(i + {BLOCK}, run);
        filled += stop - i;
        if (lanes == {COLUMNS}) {{
            for (; i < stop; i++, z += step) {{
                for (int l = 0; l < {COLUMNS}; l++) near[l] = with(near[l], {value});
            }}
        }} else {{
            for (; i < stop; i++, z += step) {{
                for (int l = 0; l < lanes; l++) near[l] = with(near[l], {value});
            }}
        }}
        if (filled >= {BLOCK}) {{
            for (int l = 0; l < {COLUMNS}; l++) {{ total[l] = with(total[l], near[l]); near[l] = {first}; }}
            filled = 0;
        }}
    }}
",
                    value = load("z + l"),
                ));
                let last = self.kept - 1;
                let place = format!("y + l * s1_{last}");
                let _ = writeln!(
                    body,
                    "    for (int l = 0; l < lanes; l++) {{ {} }}",
                    store(&place, "with(total[l], near[l])")
                );
            }
            Form::Group => {
                let _ = write!(
                    body,
                    "    {}\n    const int t = {};\n    {} near = {first};\n    \
                     for (Index r = begin + t; r < end; r += {GROUP}) {{\n",
                    opencl_c::shared(number, "shared", GROUP as usize),
                    opencl_c::item_in_group(0),
                    words("$T"),
                );
                body += &space::decode("r", self.reduced, "r");
                let place = format!("x + {}", space::place("r", self.reduced, 0));
                let barrier = opencl_c::barrier();
                let _ = write!(
                    body,
                    "    near = with(near, {});
    }}
    shared[t] = near;
    {barrier}
    for (int width = {GROUP} / 2; width > 0; width /= 2) {{
        if (t < width) shared[t] = with(shared[t], shared[t + width]);
        {barrier}
    }}
    if (t == 0) {{ {} }}
",
                    load(&place),
                    store("y", "shared[0]"),
                );
            }
        }
        opencl_c::program(&parameters, &body)
    }
}
