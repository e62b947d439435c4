//! Products of matrices, in three forms.
//!
//! *Simple*: an item has an element of the product. *Tiled*, where groups run side by side: a group has a
//! tile of 64 x 64, and shares the tiles of the inputs. *Packed*, otherwise: the inputs are copied into
//! panels that are read one element after the other, and an item multiplies panels with its accumulators in
//! vector registers, as BLIS does (Van Zee and van de Geijn, "BLIS: a framework for rapidly instantiating
//! BLAS functionality", TOMS 2015).
//!
//! Integers are multiplied as unsigned ones, which wrap to the same bits.

use std::fmt::Write;

use device_kernels::{Argument, Call, Operator};
use smallvec::{SmallVec, smallvec};

use super::element::{Element, Number, element};
use super::opencl_c::{self, Parameters};
use super::space::{self, Dim, Space};
use super::{Place, Plan, Step, Target};

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Simple {
    element: Element,
    bias: bool,
    batch: usize,
    /// Whether both inputs have neighbours in the direction of the sum.
    rows: bool,
    wide: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Tiled {
    element: Element,
    bias: bool,
    batch: usize,
    /// Whether neighbours in the direction of the sum are neighbours in memory, for each input.
    along: [bool; 2],
    wide: bool,
}

/// A copy of a matrix into panels of so many rows.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Pack {
    pub(super) element: Element,
    pub(super) panel: i64,
    pub(super) batch: usize,
    /// Whether the rows of a panel are neighbours in memory.
    pub(super) neighbours: bool,
    pub(super) wide: bool,
}

/// The product of two matrices in panels.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Packed {
    element: Element,
    bias: bool,
    batch: usize,
    /// Whether the columns of the output are neighbours in memory.
    neighbours: bool,
    wide: bool,
}

/// The rows of a panel of the first input.
pub(super) const ROWS: i64 = 6;
/// The bytes of a vector register. Two of them are the columns of a panel of the second input.
const REGISTER: usize = 32;
/// How many panels of the first input an item multiplies with one of the second.
const PANELS: i64 = 8;
/// How far a panel is multiplied at a time, so that it stays in the nearest cache.
const DEPTH: i64 = 256;
/// The side of a tile, the items of a group in each direction, and the depth of a tile.
const TILE: i64 = 64;
const SIDE: i64 = 16;

// The arrays of the batch's space.
pub(super) const A: usize = 0;
pub(super) const B: usize = 1;
pub(super) const OUT: usize = 2;
pub(super) const BIAS: usize = 3;

/// A product of matrices, as the layouts of a [`MatMul`](device_kernels::Operator::MatMul) have it: matrices
/// of a batch that are multiplied with the same one are one, and the batch has as few dimensions as it can.
#[derive(Clone, Debug)]
pub struct Matrices {
    /// The rows of the first input and of the output.
    pub m: i64,
    /// The columns of the second input and of the output.
    pub n: i64,
    /// The columns of the first input, which are the rows of the second one.
    pub k: i64,
    /// The strides of the first input's rows and columns, in elements.
    pub a: [i64; 2],
    /// The strides of the second input.
    pub b: [i64; 2],
    /// The strides of the output.
    pub out: [i64; 2],
    /// The strides of the bias, if there is one.
    pub bias: Option<[i64; 2]>,
    batch: Space,
}

/// A product that is to be planned.
struct Product {
    element: Element,
    matrices: Matrices,
    target: Target,
}

impl Matrices {
    /// `None` if the call is another operator's, or an index of it does not fit 64 bits.
    #[must_use]
    pub fn of(call: &Call) -> Option<Self> {
        let ([(_, out)], Operator::MatMul) = (call.outputs(), call.operator()) else { return None };
        let layouts: SmallVec<[_; 3]> = call.inputs().iter().filter_map(Argument::array).collect();
        let a = layouts.first()?.1;
        let b = layouts.get(1)?.1;
        let bias = layouts.get(2).map(|bias| bias.1);
        let arrays = [a, b, out, bias.unwrap_or(out)];
        let views: SmallVec<[(&[isize], usize); 4]> =
            arrays.iter().map(|layout| (layout.strides(), layout.offset())).collect();
        let rank = out.rank() - 2;
        let mut batch = Space::new(&out.shape()[..rank], &views)?.merge();
        let last = |array: usize| super::indices([rank, rank + 1].map(|dim| views[array].0[dim]));
        let [mut m, n, k] = super::indices([out.shape()[rank], out.shape()[rank + 1], a.shape()[rank + 1]])?;
        let (mut a, b, mut out, mut of_bias) = (last(A)?, last(B)?, last(OUT)?, last(BIAS)?);
        // Matrices that are multiplied with the same one are one matrix, if their rows continue evenly.
        while let Some(dim) = batch.dims.last() {
            if m == 1 {
                // A single row has no stride of its own, so it takes the next dimension's.
                (a[0], out[0], of_bias[0]) = (dim.strides[A], dim.strides[OUT], dim.strides[BIAS]);
            }
            let even = |array: usize, row: i64| dim.strides[array] == row * m;
            if dim.strides[B] != 0 || !(even(A, a[0]) && even(OUT, out[0]) && even(BIAS, of_bias[0])) {
                break;
            }
            m *= dim.size;
            batch.dims.pop();
        }
        Some(Self { m, n, k, a, b, out, bias: bias.map(|_| of_bias), batch })
    }

    /// How many products there are, and the strides from one to the next, of the first input, the second one,
    /// the output and the bias. `None` if the batch has several dimensions.
    #[must_use]
    pub fn batch(&self) -> Option<(i64, [i64; 4])> {
        match &self.batch.dims[..] {
            [] => Some((1, [0; 4])),
            [dim] => Some((dim.size, dim.strides)),
            _ => None,
        }
    }

    /// Where the arrays have their first elements, in the order of [`batch`](Self::batch)'s strides.
    #[must_use]
    pub fn offsets(&self) -> [i64; 4] {
        self.batch.offsets
    }
}

pub(crate) fn plan(call: &Call, target: Target) -> Option<Plan> {
    let [(dtype, _)] = call.outputs() else { return None };
    let matrices = Matrices::of(call)?;
    let Matrices { m, n, k, .. } = matrices;
    let product = Product { element: element(*dtype)?, matrices, target };
    match target.traits.groups {
        _ if m < 4 || n < 8 || (m * n).saturating_mul(k) <= 16 * 16 * 16 => product.simple(),
        true => product.tiled(),
        false => product.packed(),
    }
}

impl Product {
    /// What is computed with.
    fn number(&self) -> Number {
        self.element.number().unsigned()
    }

    fn arrays(&self) -> SmallVec<[(Place, i64); 4]> {
        let offsets = self.matrices.batch.offsets;
        let out = if self.matrices.bias.is_some() { 3 } else { 2 };
        let mut arrays: SmallVec<[(Place, i64); 4]> = smallvec![
            (Place::Array(0), offsets[A]),
            (Place::Array(1), offsets[B]),
            (Place::Array(out), offsets[OUT])
        ];
        if self.matrices.bias.is_some() {
            arrays.push((Place::Array(2), offsets[BIAS]));
        }
        arrays
    }

    fn indices(&self, batch: &Space) -> SmallVec<[i64; 24]> {
        let Matrices { m, n, k, a, b, out, bias, .. } = self.matrices;
        let bias = bias.unwrap_or(out);
        let mut indices: SmallVec<[i64; 24]> =
            smallvec![m, n, k, a[0], a[1], b[0], b[1], out[0], out[1], bias[0], bias[1]];
        indices.extend(batch.indices(&[A, B, OUT, BIAS]));
        indices
    }

    fn step(&self, recipe: super::Recipe, items: [usize; 3], group: [usize; 3]) -> Step {
        let arrays = self.arrays();
        let indices = self.indices(&self.matrices.batch);
        Step { recipe, arrays, values: SmallVec::new(), indices, items, group }
    }

    fn simple(&self) -> Option<Plan> {
        let Matrices { m, n, a, b, .. } = self.matrices;
        let recipe = super::Kind::Simple(Simple {
            element: self.element,
            bias: self.matrices.bias.is_some(),
            batch: self.matrices.batch.rank(),
            rows: a[1] == 1 && b[0] == 1,
            wide: self.target.wide,
        })
        .into();
        let ([items, ..], group) = super::heavy_line(super::product([m, n])?, self.target.traits);
        let items = [items, super::product([self.matrices.batch.len()])?, 1];
        Some(self.step(recipe, items, group).into())
    }

    fn tiled(&self) -> Option<Plan> {
        let Matrices { m, n, a, b, .. } = self.matrices;
        let recipe = super::Kind::Tiled(Tiled {
            element: self.element,
            bias: self.matrices.bias.is_some(),
            batch: self.matrices.batch.rank(),
            along: [a[1] == 1, b[0] == 1],
            wide: self.target.wide,
        })
        .into();
        let tiles = |size: i64| super::product([count(size, TILE), SIDE]);
        let items = [tiles(n)?, tiles(m)?, super::product([self.matrices.batch.len()])?];
        Some(self.step(recipe, items, [SIDE as usize, SIDE as usize, 1]).into())
    }

    fn packed(&self) -> Option<Plan> {
        let Matrices { m, n, k, a, b, out, bias, .. } = self.matrices;
        let columns = 2 * lanes(self.number());
        let mut plan = Plan::default();
        let mut batch = self.matrices.batch.clone();
        let inputs = [(A, m, a, ROWS), (B, n, [b[1], b[0]], columns)];
        for (array, size, [along, across], panel) in inputs {
            let panels = count(size, panel);
            // A matrix of several products is packed once.
            let mut own = Space { dims: SmallVec::new(), offsets: [0; 4] };
            let mut stride = super::index(super::product([panels, panel, k])?)?;
            for dim in batch.dims.iter_mut().rev() {
                let packed = if dim.strides[array] == 0 { 0 } else { stride };
                if packed != 0 {
                    own.dims.insert(0, Dim { size: dim.size, strides: [dim.strides[array], packed, 0, 0] });
                    stride = stride.checked_mul(dim.size)?;
                }
                dim.strides[array] = packed;
            }
            let scratch = Place::Scratch(plan.scratch.len());
            plan.scratch.push(super::product([stride])?.checked_mul(self.number().size())?);
            let recipe = Pack {
                element: self.element,
                panel,
                batch: own.rank(),
                neighbours: along == 1,
                wide: self.target.wide,
            };
            let from = (Place::Array(array), self.matrices.batch.offsets[array]);
            let depth = Depth { k, inner: k, across, jump: 0 };
            plan.steps.push(recipe.step([size, along], depth, [from, (scratch, 0)], &own)?);
        }
        let mut arrays = self.arrays();
        arrays[A] = (Place::Scratch(0), 0);
        arrays[B] = (Place::Scratch(1), 0);
        let product =
            OfPanels { element: self.element, sizes: [m, n, k], out, bias, batch, wide: self.target.wide };
        plan.steps.push(product.step(arrays)?);
        Some(plan)
    }
}

/// How far one item packs.
pub(super) const CHUNK: i64 = 64;

/// How many parts of a size there are.
pub(super) fn count(size: i64, part: i64) -> i64 {
    (size + part - 1) / part
}

/// The columns of a panel of the second input.
pub(super) fn panel_columns(number: Number) -> i64 {
    2 * lanes(number)
}

/// A product of inputs that are packed already: `m`, `n`, `k`; the output's strides of rows and columns; the
/// bias' strides, likewise; and the batch, with the arrays A, B, output and bias.
pub(super) struct OfPanels {
    pub(super) element: Element,
    pub(super) sizes: [i64; 3],
    pub(super) out: [i64; 2],
    pub(super) bias: Option<[i64; 2]>,
    pub(super) batch: Space,
    pub(super) wide: bool,
}

impl OfPanels {
    /// The arrays are A, B, the output and the bias.
    pub(super) fn step(self, arrays: SmallVec<[(Place, i64); 4]>) -> Option<Step> {
        let ([m, n, k], [om, on]) = (self.sizes, self.out);
        let columns = panel_columns(self.element.number().unsigned());
        let mut indices: SmallVec<[i64; 24]> = smallvec![m, n, k, 0, 0, 0, 0, om, on];
        indices.extend(self.bias.unwrap_or_default());
        indices.extend(self.batch.indices(&[A, B, OUT, BIAS]));
        let [columns, rows, batch] = [count(n, columns), count(m, ROWS * PANELS), self.batch.len()];
        let items = [super::product([columns])?, super::product([rows])?, super::product([batch])?];
        let recipe = super::Kind::Packed(Packed {
            element: self.element,
            bias: self.bias.is_some(),
            batch: self.batch.rank(),
            neighbours: on == 1,
            wide: self.wide,
        })
        .into();
        Some(Step { recipe, arrays, values: SmallVec::new(), indices, items, group: [1; 3] })
    }
}

/// How many numbers a register has.
fn lanes(number: Number) -> i64 {
    (REGISTER / number.size()) as i64
}

/// What the forms have in common.
struct Form {
    element: Element,
    bias: bool,
    batch: usize,
    wide: bool,
}

impl Form {
    /// What is computed with.
    fn number(&self) -> &'static str {
        opencl_c::number_type(self.element.number().unsigned())
    }

    fn parameters(&self, inputs: Element, group: Option<[usize; 3]>) -> Parameters {
        let mut arrays = vec![(inputs, false), (inputs, false), (self.element, true)];
        if self.bias {
            arrays.push((self.element, false));
        }
        let names = ["m", "n", "k", "am", "ak", "bk", "bn", "om", "on", "cm", "cn"].map(str::to_owned);
        let indices = names.into_iter().chain(space::names("", self.batch, &[A, B, OUT, BIAS])).collect();
        Parameters { arrays, indices, wide: self.wide, group, ..Parameters::default() }
    }

    /// Statements that declare where the matrices are: `xa`, `xb`, `xo` and `xc`.
    fn places(&self, batch: &str) -> String {
        let mut text = space::decode("", self.batch, batch);
        for (array, name) in [(A, "a"), (B, "b"), (OUT, "o"), (BIAS, "c")] {
            if array != BIAS || self.bias {
                let place = space::place("", self.batch, array);
                let _ = writeln!(text, "    const Index x{name} = o{array} + {place};");
            }
        }
        text
    }

    /// A statement that writes a sum as the element of `row` and `column`.
    fn store(&self, column_step: &str, sum: &str) -> String {
        let sum = match self.bias {
            true => {
                let bias = opencl_c::load(self.element, "p3", "xc + row * cm + column * cn");
                format!("({sum} + ({}){bias})", self.number())
            }
            false => format!("({sum})"),
        };
        let value = format!("({}){sum}", opencl_c::number_type(self.element.number()));
        opencl_c::store(self.element, "p2", &format!("xo + row * om + (column){column_step}"), &value)
    }

    /// The element of an input as what is computed with.
    fn load(&self, array: usize, place: &str) -> String {
        format!("({}){}", self.number(), opencl_c::load(self.element, &format!("p{array}"), place))
    }
}

impl Simple {
    pub(crate) fn text(&self) -> String {
        let &Self { element, bias, batch, rows, wide } = self;
        let form = Form { element, bias, batch, wide };
        let parameters = form.parameters(element, None);
        let t = form.number();
        let mut body = format!(
            "    const Index i = {};\n    if (i >= m * n) return;\n    const Index row = i / n, column = i % n;\n",
            opencl_c::item(0)
        );
        body += &form.places(opencl_c::item(1));
        let _ =
            writeln!(body, "    {t} sum = 0;\n    Index x = xa + row * am, y = xb + column * bn, i0 = 0;");
        if rows {
            let _ = writeln!(
                body,
                "    while (i0 + 16 <= k) {{
        const Index stop = min(i0 + 1024, k);
        {t} lane[16];
        for (int l = 0; l < 16; l++) lane[l] = 0;
        for (; i0 + 16 <= stop; i0 += 16) {{
            for (int l = 0; l < 16; l++) lane[l] += {} * {};
        }}
        for (int width = 8; width > 0; width /= 2) {{
            for (int l = 0; l < width; l++) lane[l] += lane[l + width];
        }}
        sum += lane[0];
    }}",
                form.load(A, "x + i0 + l"),
                form.load(B, "y + i0 + l"),
            );
        }
        let _ = writeln!(
            body,
            "    while (i0 < k) {{
        const Index stop = min(i0 + 256, k);
        {t} near = 0;
        for (; i0 < stop; i0++) near += {} * {};
        sum += near;
    }}
    {}",
            form.load(A, "x + i0 * ak"),
            form.load(B, "y + i0 * bk"),
            form.store(" * on", "sum"),
        );
        opencl_c::program(&parameters, &body)
    }
}

impl Tiled {
    pub(crate) fn text(&self) -> String {
        let &Self { element, bias, batch, along, wide } = self;
        let form = Form { element, bias, batch, wide };
        let parameters = form.parameters(element, Some([SIDE as usize, SIDE as usize, 1]));
        let t = form.number();
        let pitch = TILE + 1;
        let each = TILE / SIDE;
        // Neighbouring items read neighbouring elements.
        let spread = |along: bool| match along {
            true => format!("const int d = e % {SIDE}, s = e / {SIDE};"),
            false => format!("const int s = e % {TILE}, d = e / {TILE};"),
        };
        let mut body = form.places(opencl_c::group(2));
        let shared =
            |name: &str| opencl_c::shared(element.number().unsigned(), name, (SIDE * pitch) as usize);
        let _ = writeln!(
            body,
            "    {shared_a}
    {shared_b}
    const int tx = {tx}, ty = {ty};
    const Index top = {gy} * {TILE}, left = {gx} * {TILE};
    {t} sums[{each}][{each}];
    for (int i = 0; i < {each}; i++) for (int j = 0; j < {each}; j++) sums[i][j] = 0;
    for (Index base = 0; base < k; base += {SIDE}) {{
        for (int e = ty * {SIDE} + tx; e < {TILE} * {SIDE}; e += {SIDE} * {SIDE}) {{
            {spread_a}
            const Index row = top + s, depth = base + d;
            tile_a[d * {pitch} + s] = row < m && depth < k ? {load_a} : 0;
        }}
        for (int e = ty * {SIDE} + tx; e < {TILE} * {SIDE}; e += {SIDE} * {SIDE}) {{
            {spread_b}
            const Index column = left + s, depth = base + d;
            tile_b[d * {pitch} + s] = column < n && depth < k ? {load_b} : 0;
        }}
        {barrier}
        for (int d = 0; d < {SIDE}; d++) {{
            {t} x[{each}], y[{each}];
            for (int i = 0; i < {each}; i++) x[i] = tile_a[d * {pitch} + ty + {SIDE} * i];
            for (int j = 0; j < {each}; j++) y[j] = tile_b[d * {pitch} + tx + {SIDE} * j];
            for (int i = 0; i < {each}; i++) for (int j = 0; j < {each}; j++) sums[i][j] += x[i] * y[j];
        }}
        {barrier}
    }}
    for (int i = 0; i < {each}; i++) for (int j = 0; j < {each}; j++) {{
        const Index row = top + ty + {SIDE} * i, column = left + tx + {SIDE} * j;
        if (row < m && column < n) {{ {store} }}
    }}",
            shared_a = shared("tile_a"),
            shared_b = shared("tile_b"),
            tx = opencl_c::item_in_group(0),
            ty = opencl_c::item_in_group(1),
            gx = opencl_c::group(0),
            gy = opencl_c::group(1),
            spread_a = spread(along[A]),
            spread_b = spread(along[B]),
            load_a = form.load(A, "xa + row * am + depth * ak"),
            load_b = form.load(B, "xb + depth * bk + column * bn"),
            barrier = opencl_c::barrier(),
            store = form.store(" * on", "sums[i][j]"),
        );
        opencl_c::program(&parameters, &body)
    }
}

/// The direction of the sum: `k` elements, which are `across` apart. After each `inner` of them is a step of
/// `jump` more.
#[derive(Clone, Copy)]
pub(super) struct Depth {
    pub(super) k: i64,
    pub(super) inner: i64,
    pub(super) across: i64,
    pub(super) jump: i64,
}

impl Pack {
    /// Packs so many rows, which are `along` apart.
    pub(super) fn step(
        self,
        [rows, along]: [i64; 2],
        Depth { k, inner, across, jump }: Depth,
        arrays: [(Place, i64); 2],
        batch: &Space,
    ) -> Option<Step> {
        let mut indices: SmallVec<[i64; 24]> = smallvec![rows, k, along, across, inner, jump];
        indices.extend(batch.indices(&[0, 1]));
        let [panels, chunks, batch] = [count(rows, self.panel), count(k, CHUNK), batch.len()];
        let items = [super::product([panels])?, super::product([chunks])?, super::product([batch])?];
        let recipe = super::Kind::Pack(self).into();
        Some(Step {
            recipe,
            arrays: arrays.into_iter().collect(),
            values: SmallVec::new(),
            indices,
            items,
            group: [1; 3],
        })
    }

    pub(crate) fn text(&self) -> String {
        let &Self { element, panel, batch, neighbours, wide } = self;
        let number = element.number().unsigned();
        let names = ["size", "k", "along", "across", "inner", "jump"].map(str::to_owned);
        let parameters = Parameters {
            arrays: vec![(element, false), (number.element(), true)],
            indices: names.into_iter().chain(space::names("", batch, &[0, 1])).collect(),
            wide,
            ..Parameters::default()
        };
        let step = if neighbours { "" } else { " * along" };
        let load = |place: &str| {
            format!("({}){}", opencl_c::number_type(number), opencl_c::load(element, "p0", place))
        };
        let inside = load(&format!("x + l{step}"));
        let mut body = space::decode("", batch, opencl_c::item(2));
        let _ = writeln!(
            body,
            "    const Index panel = {}, begin = {} * {CHUNK}, end = min(begin + {CHUNK}, k);
    const Index rows = min((Index){panel}, size - panel * {panel});
    Index left = inner - begin % inner;
    Index x = o0 + {} + panel * {panel} * along + begin * across + begin / inner * jump;
    Index y = o1 + {} + (panel * k + begin) * {panel};
    for (Index i = begin; i < end; i++, x += across, y += {panel}) {{
        if (left-- == 0) {{ left = inner - 1; x += jump; }}
        if (rows == {panel}) {{
            for (int l = 0; l < {panel}; l++) p1[y + l] = {inside};
        }} else {{
            for (int l = 0; l < {panel}; l++) p1[y + l] = l < rows ? {inside} : 0;
        }}
    }}",
            opencl_c::item(0),
            opencl_c::item(1),
            space::place("", batch, 0),
            space::place("", batch, 1),
        );
        opencl_c::program(&parameters, &body)
    }
}

impl Packed {
    pub(crate) fn text(&self) -> String {
        let &Self { element, bias, batch, neighbours, wide } = self;
        let form = Form { element, bias, batch, wide };
        let number = element.number().unsigned();
        let parameters = form.parameters(number.element(), None);
        let t = form.number();
        let lanes = lanes(number);
        let vector = opencl_c::vector(number, lanes as usize);
        let columns = 2 * lanes;
        let mut declared = String::new();
        let mut multiplied = String::new();
        let mut added = String::new();
        for row in 0..ROWS {
            let _ = writeln!(
                declared,
                "            {vector} c{row}_0 = ({vector})(0), c{row}_1 = ({vector})(0);"
            );
            let _ = writeln!(
                multiplied,
                "                c{row}_0 += ({vector})(p0[x + {row}]) * b0; c{row}_1 += ({vector})(p0[x + {row}]) * b1;"
            );
            for half in 0..2 {
                let place = format!("at + {}", row * columns + half * lanes);
                let before = opencl_c::load_vector(lanes as usize, "sums", &place);
                let sum = format!("{before} + c{row}_{half}");
                let _ = writeln!(
                    added,
                    "            {}",
                    opencl_c::store_vector(lanes as usize, "sums", &place, &sum)
                );
            }
        }
        let step = if neighbours { "" } else { " * on" };
        let store = form.store(step, "sums[at + l]");
        let mut body = form.places(opencl_c::item(2));
        let _ = writeln!(
            body,
            "    const Index left = {item0} * {columns}, first = {item1} * {PANELS};
    const Index panels = min((Index){PANELS}, (m + {ROWS} - 1) / {ROWS} - first);
    const Index b = xb + left * k;
    {t} sums[{size}];
    for (int i = 0; i < {size}; i++) sums[i] = 0;
    for (Index begin = 0; begin < k; begin += {DEPTH}) {{
        const Index end = min(begin + {DEPTH}, k);
        for (int panel = 0; panel < panels; panel++) {{
            Index x = xa + ((first + panel) * k + begin) * {ROWS};
            Index y = b + begin * {columns};
{declared}            for (Index i = begin; i < end; i++, x += {ROWS}, y += {columns}) {{
                const {vector} b0 = {b0}, b1 = {b1};
{multiplied}            }}
            const int at = panel * {tile};
{added}        }}
    }}
    const Index width = min((Index){columns}, n - left);
    for (int at = 0; at < panels * {tile}; at += {columns}) {{
        const Index row = first * {ROWS} + at / {columns};
        if (row >= m) break;
        if (width == {columns}) {{
            for (int l = 0; l < {columns}; l++) {{ const Index column = left + l; {store} }}
        }} else {{
            for (int l = 0; l < width; l++) {{ const Index column = left + l; {store} }}
        }}
    }}",
            item0 = opencl_c::item(0),
            item1 = opencl_c::item(1),
            size = PANELS * ROWS * columns,
            tile = ROWS * columns,
            b0 = opencl_c::load_vector(lanes as usize, "p1", "y"),
            b1 = opencl_c::load_vector(lanes as usize, "p1", &format!("y + {lanes}")),
        );
        opencl_c::program(&parameters, &body)
    }
}

#[cfg(test)]
mod tests {
    use device_kernels::{DType, Layout, Operator};

    use super::*;
    use crate::{Kind, Recipe, Traits};

    fn plan(a: Layout, b: Layout, out: &[usize], groups: bool) -> Plan {
        let array = |layout| Argument::Array(DType::F32, layout);
        let out = [array(Layout::contiguous(out).unwrap())];
        let call = Call::new(Operator::MatMul, &[array(a), array(b)], &out).unwrap();
        let traits = Traits { doubles: true, groups, units: 2 };
        crate::plan(&call, Target { traits, wide: true }).unwrap()
    }

    #[test]
    fn rows_that_are_multiplied_with_the_same_matrix_are_one_matrix() {
        let rows = Layout::contiguous([64, 1, 32]).unwrap();
        let matrix = Layout::contiguous([32, 64]).unwrap();
        let plan = plan(rows, matrix, &[64, 1, 64], true);
        let [Step { recipe: Recipe(Kind::Tiled(recipe)), .. }] = &plan.steps[..] else { panic!("{plan:?}") };
        assert_eq!(recipe.batch, 0);
    }

    #[test]
    fn sums_that_are_too_long_to_be_counted_have_a_plan() {
        // 2^63 products, of elements that are repeated.
        let one = Layout::contiguous([1, 1]).unwrap();
        let a = one.broadcast_to([16, 1 << 55]).unwrap();
        let b = one.broadcast_to([1 << 55, 16]).unwrap();
        for groups in [false, true] {
            let plan = plan(a, b, &[16, 16], groups);
            assert!(!matches!(&plan.steps[..], [Step { recipe: Recipe(Kind::Simple(_)), .. }]), "{plan:?}");
            // The panels need memory for all elements, which no device has.
            assert!(plan.scratch.iter().all(|&size| size >= 8 << 55), "{plan:?}");
        }
    }
}
