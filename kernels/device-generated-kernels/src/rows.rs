//! Operators that read a dimension more than once, or that find a place in it: softmax and the index of an
//! extremum. Each row along that dimension is an item's, or a group's where groups run side by side.

use std::fmt::Write;

use device_kernels::{Call, Extremum};
use smallvec::{SmallVec, smallvec};

use super::element::{Element, Number, element};
use super::expression;
use super::opencl_c::{self, Parameters};
use super::space::{self, Space};
use super::{Place, Plan, Step, Target};

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Recipe {
    function: Function,
    input: Element,
    output: Element,
    kept: usize,
    /// Whether the elements of a row are neighbours in each array.
    neighbours: bool,
    group: bool,
    /// Whether an item looks for the place of an extremum by lanes: of long rows, as it takes longer to
    /// compile.
    lanes: bool,
    wide: bool,
}

/// What is computed of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Function {
    Softmax,
    LogSoftmax,
    Arg(Extremum),
}

/// How many items a group has, and how many elements an item handles at a time.
const GROUP: i64 = 256;
const LANES: i64 = 16;

pub(crate) fn plan(call: &Call, function: Function, dim: usize, target: Target) -> Option<Plan> {
    let &[(out, out_layout)] = call.outputs() else { return None };
    let (dtype, layout) = call.inputs().first()?.array()?;
    let mut shape: SmallVec<[usize; 8]> = layout.shape().into();
    let len = super::index(std::mem::replace(&mut shape[dim], 1))?;
    let arrays: [(&[isize], usize); 2] =
        [(layout.strides(), layout.offset()), (out_layout.strides(), out_layout.offset())];
    let kept = Space::new(&shape, &arrays)?.sort(0).merge();
    let steps = super::indices([layout.strides()[dim], out_layout.strides()[dim]])?;
    let rows = kept.len();
    // A group for a row: where rows are long, or too few for an item each.
    let group = target.traits.groups && (len >= 1024 || (len >= 64 && rows < target.traits.units * 256));
    let written = !matches!(function, Function::Arg(_));
    let neighbours = steps[0] == 1 && (steps[1] == 1 || !written);
    let recipe = Recipe {
        function,
        input: element(dtype)?,
        output: element(out)?,
        kept: kept.rank(),
        neighbours,
        group,
        lanes: !written && !group && neighbours && len >= 8 * LANES,
        wide: target.wide,
    };
    let mut indices: SmallVec<[i64; 24]> = smallvec![rows, len, steps[0], steps[1]];
    indices.extend(kept.indices(&[0, 1]));
    let (items, group) = match group {
        true => ([super::product([rows, GROUP])?, 1, 1], [GROUP as usize, 1, 1]),
        false => super::heavy_line(super::product([rows])?, target.traits),
    };
    Some(Plan::from(Step {
        recipe: super::Kind::Rows(recipe).into(),
        arrays: smallvec![(Place::Array(0), kept.offsets[0]), (Place::Array(1), kept.offsets[1])],
        values: SmallVec::new(),
        indices,
        items,
        group,
    }))
}

impl Recipe {
    pub(crate) fn text(&self) -> String {
        let mut indices: Vec<String> = ["rows", "len", "step", "out_step"].map(str::to_owned).into();
        indices.extend(space::names("", self.kept, &[0, 1]));
        let number = self.input.number();
        let words = |text: &str| expression::spell(number, text);
        let better = match self.function {
            Function::Arg(Extremum::Min) => "<",
            _ => ">",
        };
        let parameters = Parameters {
            arrays: vec![(self.input, false), (self.output, true)],
            indices,
            wide: self.wide,
            functions: words(&format!(
                "int better($T a, $T b) {{ return a {better} b || (a != a && b == b); }}\n\
                 int equal($T a, $T b) {{ return a == b || (a != a && b != b); }}\n"
            )),
            group: self.group.then_some([GROUP as usize, 1, 1]),
            ..Parameters::default()
        };
        let item = if self.group { opencl_c::group(0) } else { opencl_c::item(0) };
        let mut body = format!("    const Index row = {item};\n");
        if !self.group {
            // There is exactly one group for each row. PoCL 3.1 crashes on some kernels that return before a
            // barrier.
            body += "    if (row >= rows) return;\n";
        }
        body += &space::decode("", self.kept, "row");
        let _ = writeln!(
            body,
            "    const Index x = o0 + {}, y = o1 + {};",
            space::place("", self.kept, 0),
            space::place("", self.kept, 1)
        );
        body += &match (self.function, self.group) {
            (Function::Arg(_), false) if self.lanes => self.place_by_lanes(),
            (Function::Arg(_), false) => self.place_of_item(),
            (Function::Arg(_), true) => self.place_of_group(),
            (_, false) => self.softmax_of_item(),
            (_, true) => self.softmax_of_group(),
        };
        opencl_c::program(&parameters, &body)
    }

    fn load(&self, index: &str) -> String {
        let step = if self.neighbours { "" } else { " * step" };
        opencl_c::load(self.input, "p0", &format!("x + ({index}){step}"))
    }

    /// A statement that writes the softmax at `i` of a row with the largest element `top` and the sum
    /// `total`.
    fn store(&self) -> String {
        let step = if self.neighbours { "" } else { " * out_step" };
        let value = match self.function {
            Function::LogSoftmax => "(value - top) - logarithm",
            _ => "@exp(value - top) / total",
        };
        let value = expression::spell(self.input.number(), value);
        opencl_c::store(self.output, "p1", &format!("y + i{step}"), &format!("({value})"))
    }

    fn place_of_item(&self) -> String {
        let t = opencl_c::number_type(self.input.number());
        let at = format!("({})at", opencl_c::number_type(self.output.number()));
        format!(
            "    {t} best = {};
    Index at = 0;
    for (Index i = 1; i < len; i++) {{
        const {t} value = {};
        if (better(value, best)) {{ best = value; at = i; }}
    }}
    {}
",
            self.load("0"),
            self.load("i"),
            opencl_c::store(self.output, "p1", "y", &at),
        )
    }

    /// The best one by lanes, which compilers make vectors of, and then the first that is equal to it.
    fn place_by_lanes(&self) -> String {
        let words = |text: &str| expression::spell(self.input.number(), text);
        let at = format!("({})at", opencl_c::number_type(self.output.number()));
        words(&format!(
            "    $T tops[{LANES}];
    for (int l = 0; l < {LANES}; l++) tops[l] = {first};
    Index i = 0;
    for (; i + {LANES} <= len; i += {LANES}) {{
        for (int l = 0; l < {LANES}; l++) {{
            const $T value = {lane};
            tops[l] = better(value, tops[l]) ? value : tops[l];
        }}
    }}
    $T best = tops[0];
    for (int l = 1; l < {LANES}; l++) best = better(tops[l], best) ? tops[l] : best;
    for (; i < len; i++) {{
        const $T value = {load};
        best = better(value, best) ? value : best;
    }}
    Index at = 0;
    for (; at + {LANES} <= len; at += {LANES}) {{
        int found = 0;
        for (int l = 0; l < {LANES}; l++) found |= equal({lane_at}, best);
        if (found) break;
    }}
    while (at < len - 1 && !equal({load_at}, best)) at++;
    {store}
",
            first = self.load("0"),
            lane = self.load("i + l"),
            load = self.load("i"),
            lane_at = self.load("at + l"),
            load_at = self.load("at"),
            store = opencl_c::store(self.output, "p1", "y", &at),
        ))
    }

    fn place_of_group(&self) -> String {
        let t = opencl_c::number_type(self.input.number());
        let index = if self.wide { Number::Long } else { Number::Int };
        let at = format!("({})places[0]", opencl_c::number_type(self.output.number()));
        format!(
            "    {shared}
    {places}
    const int t = {item};
    {t} best = 0;
    Index at = -1;
    for (Index i = t; i < len; i += {GROUP}) {{
        const {t} value = {load};
        if (at < 0 || better(value, best)) {{ best = value; at = i; }}
    }}
    shared[t] = best;
    places[t] = at;
    {barrier}
    for (int width = {GROUP} / 2; width > 0; width /= 2) {{
        if (t < width && places[t + width] >= 0) {{
            const {t} a = shared[t + width], b = shared[t];
            const Index of_a = places[t + width], of_b = places[t];
            if (of_b < 0 || better(a, b) || (equal(a, b) && of_a < of_b)) {{ shared[t] = a; places[t] = of_a; }}
        }}
        {barrier}
    }}
    if (t == 0) {{ {store} }}
",
            shared = opencl_c::shared(self.input.number(), "shared", GROUP as usize),
            places = opencl_c::shared(index, "places", GROUP as usize),
            item = opencl_c::item_in_group(0),
            load = self.load("i"),
            barrier = opencl_c::barrier(),
            store = opencl_c::store(self.output, "p1", "y", &at),
        )
    }

    fn softmax_of_item(&self) -> String {
        let words = |text: &str| expression::spell(self.input.number(), text);
        words(&format!(
            "    $T tops[{LANES}], sums[{LANES}];
    for (int l = 0; l < {LANES}; l++) tops[l] = -INFINITY;
    Index i = 0;
    for (; i + {LANES} <= len; i += {LANES}) {{
        for (int l = 0; l < {LANES}; l++) {{
            const $T value = {lane};
            tops[l] = value > tops[l] ? value : tops[l];
        }}
    }}
    for (; i < len; i++) {{
        const $T value = {load};
        tops[0] = value > tops[0] ? value : tops[0];
    }}
    $T top = tops[0];
    for (int l = 1; l < {LANES}; l++) top = tops[l] > top ? tops[l] : top;
    $T total = 0;
    for (i = 0; i + {LANES} <= len;) {{
        const Index stop = min(i + 64 * {LANES}, len);
        for (int l = 0; l < {LANES}; l++) sums[l] = 0;
        for (; i + {LANES} <= stop; i += {LANES}) {{
            for (int l = 0; l < {LANES}; l++) sums[l] += @exp({lane} - top);
        }}
        for (int width = {LANES} / 2; width > 0; width /= 2) {{
            for (int l = 0; l < width; l++) sums[l] += sums[l + width];
        }}
        total += sums[0];
    }}
    for (; i < len; i++) total += @exp({load} - top);
    const $T logarithm = @log(total);
    for (i = 0; i < len; i++) {{
        const $T value = {load};
        {store}
    }}
",
            lane = self.load("i + l"),
            load = self.load("i"),
            store = self.store(),
        ))
    }

    fn softmax_of_group(&self) -> String {
        let words = |text: &str| expression::spell(self.input.number(), text);
        let tree = |result: &str, step: &str| {
            format!(
                "    {barrier}
    shared[t] = {result};
    {barrier}
    for (int width = {GROUP} / 2; width > 0; width /= 2) {{
        if (t < width) {{
            const $T a = shared[t], b = shared[t + width];
            shared[t] = {step};
        }}
        {barrier}
    }}
    {result} = shared[0];
",
                barrier = opencl_c::barrier()
            )
        };
        words(&format!(
            "    {shared}
    const int t = {item};
    $T top = -INFINITY, total = 0;
    for (Index i = t; i < len; i += {GROUP}) {{
        const $T value = {load};
        top = value > top ? value : top;
    }}
{of_top}    for (Index i = t; i < len; i += {GROUP}) total += @exp({load} - top);
{of_total}    const $T logarithm = @log(total);
    for (Index i = t; i < len; i += {GROUP}) {{
        const $T value = {load};
        {store}
    }}
",
            shared = opencl_c::shared(self.input.number(), "shared", GROUP as usize),
            item = opencl_c::item_in_group(0),
            load = self.load("i"),
            of_top = tree("top", "a > b ? a : b"),
            of_total = tree("total", "a + b"),
            store = self.store(),
        ))
    }
}
