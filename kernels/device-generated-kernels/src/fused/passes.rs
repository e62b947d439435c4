//! Expressions with reductions: an item or a group has a row, which is all elements that are reduced to one.
//!
//! It goes over the row once for all reductions that need no other one, then computes what follows from their
//! results alone, then goes over the row for the next reductions. A last pass writes the outputs. Inputs are
//! read, and values computed, in each pass anew: a row is still in the cache.
//!
//! As in other reductions, no running result takes in more than about a hundred others.

use std::fmt::Write;

use device_kernels::{Call, Dims, NodeKind, Operator};
use smallvec::{SmallVec, smallvec};

use super::values::{self, Running, Source, Values};
use super::{ARRAYS, View};
use crate::Target;
use crate::element::Number;
use crate::form::InnerStep;
use crate::opencl_c::{self, Parameters};
use crate::space::{self, DimOf, SpaceOf};

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Rows {
    /// How many dimensions there are.
    kept: usize,
    reduced: usize,
    /// How each array lies along a row.
    arrays: SmallVec<[Along; 8]>,
    /// The nodes that have one value in a row.
    alike: SmallVec<[bool; 32]>,
    form: Form,
}

/// How an array lies along a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Along {
    /// It has one element.
    One,
    /// Its elements in the innermost dimension are so far apart.
    Elements(InnerStep),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Form {
    /// An item has a row, element by element.
    Plain,
    /// An item has a row, several elements at a time.
    Lanes,
    /// A group of so many items has a row.
    Group(i64),
}

/// The rows of a call, with the arguments and items of its kernel.
pub(super) struct Extent {
    pub(super) rows: Rows,
    pub(super) indices: SmallVec<[i64; 24]>,
    pub(super) items: [usize; 3],
    pub(super) group: [usize; 3],
    pub(super) offsets: [i64; ARRAYS],
}

/// How many elements an item handles at a time.
const LANES: i64 = 16;
/// How many numbers go into one running result.
const BLOCK: i64 = 64;
/// A row of so many elements is short: whatever their strides are, they stay in the cache of a core from one
/// pass to the next, together with their neighbours.
const SHORT: i64 = 64;
/// A row of more elements is long.
const LONG: i64 = 8192;
/// The bytes that a group shares, half of what OpenCL guarantees.
const SHARED: usize = 16 << 10;

pub(super) fn extent(
    call: &Call,
    values: &Values,
    dims: Dims,
    views: &[View<'_>],
    target: Target,
) -> Option<Extent> {
    let count = views.len();
    let inputs = count - call.outputs().len();
    let shape = call.shape();
    let only = |reduced: bool| -> SmallVec<[usize; 8]> {
        let sizes = shape.iter().enumerate();
        sizes.map(|(dim, &size)| if dims.contains(dim) == reduced { size } else { 1 }).collect()
    };
    let kept = SpaceOf::<ARRAYS>::new(&only(false), views)?.sort(count - 1).merge();
    let mut reduced = SpaceOf::<ARRAYS>::new(&only(true), views)?;
    let alike = values.expression.reduced_nodes(call);
    let nodes = values.expression.outputs();
    let mut arrays: SmallVec<[Along; 8]> = smallvec![Along::Elements(InnerStep::Zero); count];
    for (array, ((_, layout), &node)) in (inputs..).zip(call.outputs().iter().zip(nodes)) {
        if alike[node] && dims.iter().all(|dim| layout.shape()[dim] == 1) {
            reduced.dims.iter_mut().for_each(|dim| dim.strides[array] = 0);
            arrays[array] = Along::One;
        }
    }
    // In the order of an array that has all elements. Which one that is among several makes no difference to
    // what is computed.
    let steps = |array: &usize| reduced.dims.iter().filter(|dim| dim.strides[*array] != 0).count();
    let order = (0..count).max_by_key(steps).unwrap_or(0);
    let reduced = reduced.sort(order).merge();
    for (array, along) in arrays.iter_mut().enumerate() {
        if reduced.dims.iter().all(|dim| dim.strides[array] == 0) && (array < inputs || *along == Along::One)
        {
            *along = Along::One;
        } else if let Some(inner) = reduced.dims.last() {
            *along = Along::Elements(inner.strides[array].into());
        }
    }
    let form = form(&kept, &reduced, count, target)?;
    let (rows, len) = (kept.len(), reduced.len());
    let (items, group) = match form {
        Form::Group(size) => ([crate::product([rows, size])?, 1, 1], [size as usize, 1, 1]),
        Form::Plain | Form::Lanes => crate::heavy_line(crate::product([rows])?, target.traits),
    };
    let outer = len / reduced.dims.last().map_or(1, |dim| dim.size).max(1);
    let mut indices: SmallVec<[i64; 24]> = smallvec![rows, len, outer];
    let every: SmallVec<[usize; ARRAYS]> = (0..count).collect();
    indices.extend(kept.indices(&every));
    let mut offsets = kept.offsets;
    for (array, (_, first)) in views.iter().enumerate() {
        offsets[array] += reduced.offsets[array] - crate::index(*first)?;
    }
    let rows = Rows { kept: kept.rank(), reduced: reduced.rank(), arrays, alike, form };
    indices.extend(reduced.indices(&rows.along()));
    if let Form::Group(size) = form {
        let shared = rows.shared(values);
        let sizes = shared.iter().map(|(number, count)| number.size() * count * size as usize);
        if sizes.sum::<usize>() > SHARED {
            return None;
        }
    }
    Some(Extent { rows, indices, items, group, offsets })
}

/// Who has a row. `None` where one launch would be slower than one for each reduction, which is split into
/// parts and has forms for all strides.
fn form(kept: &SpaceOf<ARRAYS>, reduced: &SpaceOf<ARRAYS>, count: usize, target: Target) -> Option<Form> {
    let (rows, len, units) = (kept.len(), reduced.len(), target.traits.units);
    let inner = reduced.dims.last();
    let size = inner.map_or(1, |dim| dim.size);
    let step = |dim: Option<&DimOf<ARRAYS>>, array: usize| dim.map_or(0, |dim| dim.strides[array].abs());
    // Whether the elements of a row are nearer to each other than to elements of other rows.
    let near = (0..count).all(|array| {
        let step = step(inner, array);
        let mut other = kept.dims.iter().chain(&reduced.dims).map(|dim| dim.strides[array].abs());
        other.all(|other| other == 0 || other >= step)
    });
    // From pass to pass, a strided row has left the cache, unless it is short. Where items run side by side,
    // as many as keep the device busy, they read neighbours if their rows are neighbours.
    let beside = || (0..count).all(|array| step(kept.dims.last(), array) <= 1);
    if !near && len > SHORT {
        return (target.traits.groups && rows >= 256 * units && beside()).then_some(Form::Plain);
    }
    // A few long rows would keep a few cores busy, and all others would wait. Short runs in a long row take
    // longer to find than to read.
    if len > LONG && rows < 4 * units || (reduced.rank() > 1 && len > SHORT && size < LANES) {
        return None;
    }
    Some(match size {
        _ if target.traits.groups && len >= SHORT => Form::Group(if len < 1024 { 64 } else { 256 }),
        size if !target.traits.groups && near && size >= 2 * LANES => Form::Lanes,
        _ => Form::Plain,
    })
}

/// For each node, how many reductions it is computed from, one of the other.
fn depths(values: &Values) -> SmallVec<[usize; 32]> {
    let mut depths = SmallVec::<[usize; 32]>::new();
    for node in values.expression.nodes() {
        depths.push(node.operands().map_or(0, |(operator, operands)| {
            let deepest = operands.iter().map(|&operand| depths[operand]).max().unwrap_or(0);
            deepest + usize::from(matches!(operator, Operator::Reduce { .. }))
        }));
    }
    depths
}

/// The reductions of each pass, which are computed from the reductions of the passes before.
fn passes(values: &Values) -> Vec<Vec<Running>> {
    let depths = depths(values);
    let mut passes = Vec::new();
    for depth in 1..=depths.iter().copied().max().unwrap_or(0) {
        let nodes = (0..depths.len()).filter(|&node| depths[node] == depth);
        passes.push(nodes.filter_map(|node| values.running(node)).collect());
    }
    passes
}

impl Rows {
    /// The arrays that have several elements in a row.
    fn along(&self) -> SmallVec<[usize; ARRAYS]> {
        (0..self.arrays.len()).filter(|&array| self.arrays[array] != Along::One).collect()
    }

    /// How many arrays of each number a group shares: one for each reduction of a pass.
    fn shared(&self, values: &Values) -> Vec<(Number, usize)> {
        let mut shared = Vec::<(Number, usize)>::new();
        for pass in passes(values) {
            for running in &pass {
                let number = running.number;
                let count = pass.iter().filter(|other| other.number == number).count();
                match shared.iter_mut().find(|(of, _)| *of == number) {
                    Some((_, most)) => *most = count.max(*most),
                    None => shared.push((number, count)),
                }
            }
        }
        shared
    }

    pub(super) fn text(&self, values: &Values, sources: &[Source], parameters: &mut Parameters) -> String {
        let every: Vec<usize> = (0..self.arrays.len()).collect();
        parameters.indices.extend(["rows", "len", "outer"].map(str::to_owned));
        parameters.indices.extend(space::names("", self.kept, &every));
        parameters.indices.extend(space::names("r", self.reduced, &self.along()));
        let mut body = String::new();
        if let Form::Group(size) = self.form {
            parameters.group = Some([size as usize, 1, 1]);
            for (number, count) in self.shared(values) {
                for place in 0..count {
                    let shared = opencl_c::shared(number, &shared_name(number, place), size as usize);
                    let _ = writeln!(body, "    {shared}");
                }
            }
            // There is exactly one group for each row. PoCL 3.1 crashes on some kernels that return before a
            // barrier.
            let (group, item) = (opencl_c::group(0), opencl_c::item_in_group(0));
            let _ = writeln!(body, "    const Index row = {group};\n    const int t = {item};");
        } else {
            let item = opencl_c::item(0);
            let _ = writeln!(body, "    const Index row = {item};\n    if (row >= rows) return;");
        }
        body += &space::decode("", self.kept, "row");
        for array in every {
            let _ = writeln!(
                body,
                "    const Index x{array} = o{array} + {};",
                space::place("", self.kept, array)
            );
        }
        let run = self.reduced.checked_sub(1).map_or("1".to_owned(), |inner| format!("rn{inner}"));
        let _ = writeln!(body, "    const Index run = {run};\n    int filled;");
        let writer = Writer { rows: self, values, sources };
        let depths = depths(values);
        let of_row = |depth: usize| {
            let nodes = (0..depths.len()).filter(|&node| self.alike[node] && depths[node] == depth);
            let nodes = nodes.filter(|&node| values.running(node).is_none());
            nodes.map(|node| values.declare(node, sources, |array| format!("x{array}"))).collect::<String>()
        };
        body += &of_row(0);
        for (pass, reductions) in passes(values).iter().enumerate() {
            body += &writer.reduce(reductions);
            body += &of_row(pass + 1);
        }
        let first = self.arrays.len() - values.expression.outputs().len();
        let outputs = (first..).zip(values.expression.outputs().iter().copied());
        let (of_row, whole): (Vec<_>, Vec<_>) =
            outputs.partition(|(array, _)| self.arrays[*array] == Along::One);
        if let Form::Group(_) = self.form {
            // An output may be an input in place: all items have read what one of them overwrites.
            let _ = writeln!(body, "    barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);");
        }
        if !whole.is_empty() {
            body += &writer.write(&whole);
        }
        let stores = of_row
            .iter()
            .map(|&(array, node)| values.store(node, array, &format!("x{array}"), &values::name(node)));
        let stores: String = stores.collect();
        match self.form {
            Form::Group(_) if !stores.is_empty() => body + "    if (t == 0) {\n" + &stores + "    }\n",
            _ => body + &stores,
        }
    }
}

fn shared_name(number: Number, place: usize) -> String {
    format!("shared_{}{place}", opencl_c::number_type(number))
}

struct Writer<'a> {
    rows: &'a Rows,
    values: &'a Values,
    sources: &'a [Source],
}

impl Writer<'_> {
    /// The place of the element of a row with this index in its run.
    fn at(&self, array: usize, index: &str) -> String {
        let inner = self.rows.reduced.saturating_sub(1);
        let (base, step) = match (self.rows.arrays[array], self.rows.form) {
            (Along::One, _) => return format!("x{array}"),
            // The loop of a group has the whole place.
            (_, Form::Group(_)) => return format!("y{array}"),
            (Along::Elements(step), _) => (if self.rows.reduced > 1 { "y" } else { "x" }, step),
        };
        match step {
            InnerStep::Zero => format!("{base}{array}"),
            InnerStep::One => format!("{base}{array} + {index}"),
            InnerStep::Any => format!("{base}{array} + ({index}) * rs{array}_{inner}"),
        }
    }

    /// The nodes that differ along a row and that these are computed from, and the arrays that they read.
    fn needed(&self, targets: impl Iterator<Item = usize>) -> (Vec<usize>, Vec<usize>) {
        let nodes = self.values.expression.nodes();
        let mut needed = vec![false; nodes.len()];
        targets.for_each(|target| needed[target] = !self.rows.alike[target]);
        let mut arrays = Vec::new();
        for place in (0..nodes.len()).rev().filter(|&place| !self.rows.alike[place]) {
            match &nodes[place].kind {
                _ if !needed[place] => {}
                NodeKind::Result { operands, .. } => {
                    operands.iter().for_each(|&operand| needed[operand] |= !self.rows.alike[operand]);
                }
                NodeKind::Input(input) => {
                    if let Source::Array(array) = self.sources[*input] {
                        arrays.push(array);
                    }
                }
                _ => {}
            }
        }
        ((0..nodes.len()).filter(|&node| needed[node]).collect(), arrays)
    }

    fn declare(&self, nodes: &[usize], index: &str) -> String {
        let place = |array| self.at(array, index);
        nodes.iter().map(|&node| self.values.declare(node, self.sources, place)).collect()
    }

    /// The loop over each run of elements of an item's row that are evenly apart, from the index `i` on.
    fn runs(&self, arrays: &[usize], body: &str) -> String {
        let outer = self.rows.reduced.saturating_sub(1);
        let mut text = String::from("    {\n");
        if outer > 0 {
            text = String::from("    for (Index q = 0; q < outer; q++) {\n");
            text += &space::decode("r", outer, "q");
            for &array in arrays.iter().filter(|&&array| self.rows.arrays[array] != Along::One) {
                let place = space::place("r", outer, array);
                let _ = writeln!(text, "    const Index y{array} = x{array} + {place};");
            }
        }
        text + "    Index i = 0;\n" + body + "    }\n"
    }

    /// Does something for each element of a group's row.
    fn by_group(&self, size: i64, arrays: &[usize], body: &str) -> String {
        let mut text = format!("    for (Index r = t; r < len; r += {size}) {{\n");
        let rank = self.rows.reduced;
        if rank > 1 {
            text += &space::decode("r", rank, "r");
        }
        for &array in arrays {
            let place = match self.rows.arrays[array] {
                Along::One => continue,
                Along::Elements(_) if rank > 1 => space::place("r", rank, array),
                Along::Elements(InnerStep::Zero) => "0".to_owned(),
                Along::Elements(InnerStep::One) => "r".to_owned(),
                Along::Elements(InnerStep::Any) => format!("r * rs{array}_0"),
            };
            let _ = writeln!(text, "    const Index y{array} = x{array} + {place};");
        }
        text + body + "    }\n"
    }

    /// A pass with its reductions, and their results.
    fn reduce(&self, reductions: &[Running]) -> String {
        let (nodes, arrays) = self.needed(reductions.iter().map(|running| running.operand));
        let each = |text: &dyn Fn(&Running) -> String| reductions.iter().map(text).collect::<String>();
        let number =
            |name: &str, running: &Running| format!("{} {name}{}", running.number_type(), running.node);
        let mut text = each(&|running| {
            let (near, total, first) = (number("near", running), running.node, &running.first);
            format!("    {near} = {first}, total{total} = {first};\n")
        });
        text += "    filled = 0;\n";
        let fold = each(&|running| {
            let (node, first) = (running.node, &running.first);
            running.take(&format!("total{node}"), &format!("near{node}"))
                + &format!("    near{node} = {first};\n")
        });
        let fold = format!("{{\n{fold}    filled = 0;\n    }}\n");
        let mut single = self.declare(&nodes, "i");
        single +=
            &each(&|running| running.take(&format!("near{}", running.node), &values::name(running.operand)));
        let _ = write!(single, "    if (++filled >= {BLOCK}) {fold}");
        let single_loop = format!("    for (; i < run; i++) {{\n{single}    }}\n");
        let total = |running: &Running| {
            running.with(&format!("total{}", running.node), &format!("near{}", running.node))
        };
        match self.rows.form {
            Form::Group(size) => {
                text += &self.by_group(size, &arrays, &single);
                return text + &self.tree(size, reductions, total);
            }
            Form::Plain => text += &self.runs(&arrays, &single_loop),
            Form::Lanes => {
                let lane = |running: &Running, index: &str| format!("lane{}[{index}]", running.node);
                let lanes = format!(
                    "    while (i + {LANES} <= run) {{
    const Index stop = min(i + {LANES} * {BLOCK}, run);
{declared}    for (int l = 0; l < {LANES}; l++) {{
{first}    }}
    for (; i + {LANES} <= stop; i += {LANES}) {{
    for (int l = 0; l < {LANES}; l++) {{
{nodes}{taken}    }}
    }}
    for (int width = {LANES} / 2; width > 0; width /= 2) {{
    for (int l = 0; l < width; l++) {{
{folded}    }}
    }}
{near}    if (++filled >= {BLOCK}) {fold}    }}
",
                    declared = each(&|running| format!("    {}[{LANES}];\n", number("lane", running))),
                    first = each(&|running| format!("    {} = {};\n", lane(running, "l"), running.first)),
                    nodes = self.declare(&nodes, "i + l"),
                    taken = each(&|running| {
                        running.take(&lane(running, "l"), &values::name(running.operand))
                    }),
                    folded = each(&|running| running.take(&lane(running, "l"), &lane(running, "l + width"))),
                    near = each(&|running| {
                        running.take(&format!("near{}", running.node), &lane(running, "0"))
                    }),
                );
                text += &self.runs(&arrays, &(lanes + &single_loop));
            }
        }
        text + &each(&|running| self.values.declare_total(running, &total(running)))
    }

    /// The results of all items of a group as one.
    fn tree(&self, size: i64, reductions: &[Running], total: impl Fn(&Running) -> String) -> String {
        let barrier = opencl_c::barrier();
        let names: Vec<String> = (reductions.iter().enumerate())
            .map(|(place, running)| {
                let before = reductions[..place].iter().filter(|other| other.number == running.number);
                shared_name(running.number, before.count())
            })
            .collect();
        let mut text = format!("    {barrier}\n");
        let mut steps = String::new();
        let mut results = String::new();
        for (running, name) in reductions.iter().zip(&names) {
            let _ = writeln!(text, "    {name}[t] = {};", total(running));
            steps += &running.take(&format!("{name}[t]"), &format!("{name}[t + width]"));
            results += &self.values.declare_total(running, &format!("{name}[0]"));
        }
        let _ = write!(
            text,
            "    {barrier}
    for (int width = {size} / 2; width > 0; width /= 2) {{
    if (t < width) {{
{steps}    }}
    {barrier}
    }}
"
        );
        text + &results
    }

    /// The last pass, which writes arrays with the values of nodes.
    fn write(&self, outputs: &[(usize, usize)]) -> String {
        let (nodes, mut arrays) = self.needed(outputs.iter().map(|(_, node)| *node));
        arrays.extend(outputs.iter().map(|(array, _)| *array));
        let each = |text: &dyn Fn(usize, usize) -> String| {
            outputs.iter().map(|&(array, node)| text(array, node)).collect::<String>()
        };
        let single = self.declare(&nodes, "i")
            + &each(&|array, node| self.values.store(node, array, &self.at(array, "i"), &values::name(node)));
        let single_loop = format!("    for (; i < run; i++) {{\n{single}    }}\n");
        match self.rows.form {
            Form::Group(size) => self.by_group(size, &arrays, &single),
            Form::Plain => self.runs(&arrays, &single_loop),
            // All is computed before anything is written: compilers make vectors of both loops, although an
            // output may be an input.
            Form::Lanes => {
                let lanes = format!(
                    "    for (; i + {LANES} <= run; i += {LANES}) {{
{declared}    for (int l = 0; l < {LANES}; l++) {{
{nodes}{kept}    }}
    for (int l = 0; l < {LANES}; l++) {{
{stored}    }}
    }}
",
                    declared = each(&|array, node| {
                        format!("    {} out{array}[{LANES}];\n", self.values.number_type(node))
                    }),
                    nodes = self.declare(&nodes, "i + l"),
                    kept = each(&|array, node| format!("    out{array}[l] = {};\n", values::name(node))),
                    stored = each(&|array, node| {
                        let value = format!("out{array}[l]");
                        self.values.store(node, array, &self.at(array, "i + l"), &value)
                    }),
                );
                self.runs(&arrays, &(lanes + &single_loop))
            }
        }
    }
}
