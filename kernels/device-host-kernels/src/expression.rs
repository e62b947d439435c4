//! Expressions: all nodes are computed for a block of elements before the next block, so that what is between
//! them stays in the fastest cache.
//!
//! The elements of a call are rows, along the reduced dimensions, which are the innermost ones. Without
//! reductions there is one row. Short rows are computed several at a time, each node once. A long row is read
//! once for each reduction that waits for another, and once more for the outputs.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Arc, LazyLock};

use device_kernels::short::ELEMENTS;
use device_kernels::{
    Argument, Call, DType, Dims, Expression, ExpressionNode, Layout, NodeKind, Operator, Scalar,
};
use device_registry::backend::BackendError;
use parking_lot::RwLock;
use rayon::prelude::*;
use smallvec::SmallVec;

use crate::arrays::CHUNK;
use crate::blocks::{self, Block, BlockFunction, REPEATED, ReadBlock, Reducer, Running, Target, Values};
use crate::call_bytes::Source;
use crate::threads::on_all;

/// How many elements are computed at a time, as long as rows are not longer. A few blocks fit into the
/// fastest cache, and all of an expression into the next. Half as many cost an eighth more, for the calls.
const BLOCK: usize = 2048;

/// The longest row whose nodes are computed once each: some nodes of it fit into the second cache.
const SHORT_ROW: usize = 4096;

/// How the nodes of an expression are computed, whatever the call.
struct Program {
    steps: Vec<Step>,
}

enum Step {
    /// Inputs and literals.
    Given,
    Elementwise {
        function: BlockFunction,
        rounds: bool,
    },
    Reduction(Box<dyn Reducer>),
}

/// What a node is in a call.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Class {
    /// One value.
    Constant,
    /// A value for each row.
    Row,
    /// A value for each element.
    Full,
}

/// A node in a call.
struct Node<'a> {
    dtype: DType,
    class: Class,
    step: &'a Step,
    operands: &'static [usize],
    /// The input that it is.
    input: Option<usize>,
    /// The literal that it is, or the scalar that the input is.
    scalar: Option<Scalar>,
    /// Whether the elements of the input are read where they are.
    is_in_memory: bool,
    /// Whether it is what an output has before it is written.
    is_output_before: bool,
    is_output: bool,
    /// The output that it may be written to at once: it is no other one, and nothing is computed from it.
    direct: Option<usize>,
    /// Whether it has a value for each element, and an operand has one for each row.
    mixes_rows: bool,
    /// Where it has its block.
    slot: usize,
}

/// An input of a call.
enum Reader<'a> {
    Scalar,
    Array(Box<dyn ReadBlock + 'a>),
    /// The elements that this output has before it is written.
    Output(usize),
}

/// All that the threads of a call share.
struct Frame<'a> {
    expression: Expression,
    nodes: Vec<Node<'a>>,
    slot_count: usize,
    readers: SmallVec<[Reader<'a>; 8]>,
    reads_outputs: bool,
    /// The outputs, in the order of the loop.
    outputs: SmallVec<[(DType, Layout); 2]>,
    rows: usize,
    /// The elements of a row.
    len: usize,
}

/// The parts of the outputs that one thread writes.
struct Outputs<'a> {
    bytes: SmallVec<[&'a mut [u8]; 2]>,
    /// The first row, and the first element of that, that they have.
    row: usize,
    column: usize,
    /// How many rows and columns they have.
    rows: usize,
    columns: usize,
    /// Whether the bytes are whole outputs, and not of these rows and columns.
    is_whole: bool,
}

/// Some rows, or a part of one row.
#[derive(Clone)]
struct Area {
    rows: Range<usize>,
    columns: Range<usize>,
}

/// The memory of one thread.
struct Worker {
    slots: Slots,
    expanded: [Block; 3],
}

/// Blocks of nodes. A block that is written is not in its place.
type Slots = Vec<Option<Box<Block>>>;

/// Whether the reduced dimensions are the innermost ones, so that rows lie in the order of the loop. Rows of
/// others are read faster by the kernels of reductions.
pub(crate) fn has_rows(call: &Call, expression: Expression) -> bool {
    let Some(dims) = expression.dims() else { return true };
    let mut is_reduced = call.shape().iter().enumerate().filter(|(_, size)| **size > 1);
    let mut found = false;
    is_reduced.all(|(dim, _)| {
        found |= dims.contains(dim);
        found == dims.contains(dim)
    })
}

pub(crate) fn run(
    call: &Call,
    expression: Expression,
    inputs: &[Source<'_>],
    outputs: &mut [&mut [u8]],
) -> Result<(), BackendError> {
    let unsupported = || crate::unsupported(format_args!("in {call}"));
    if !has_rows(call, expression) {
        return Err(unsupported());
    }
    let program = Program::of(expression).ok_or_else(unsupported)?;
    let frame = Frame::new(call, expression, &program, inputs).ok_or_else(unsupported)?;
    frame.run(outputs);
    Ok(())
}

impl Program {
    /// The program of an expression, of which there are few.
    fn of(expression: Expression) -> Option<Arc<Self>> {
        static ALL: LazyLock<RwLock<HashMap<Expression, Arc<Program>>>> = LazyLock::new(RwLock::default);

        if let Some(program) = ALL.read().get(&expression) {
            return Some(Arc::clone(program));
        }
        let program = Arc::new(Self::new(expression)?);
        ALL.write().insert(expression, Arc::clone(&program));
        Some(program)
    }

    fn new(expression: Expression) -> Option<Self> {
        let nodes = expression.nodes();
        let step = |node: &ExpressionNode| {
            let Some((operator, operands)) = node.operands() else { return Some(Step::Given) };
            let types: SmallVec<[DType; 3]> = operands.iter().map(|&operand| nodes[operand].dtype).collect();
            Some(match operator {
                Operator::Reduce { reduction, .. } => Step::Reduction(blocks::reducer(reduction, types[0])?),
                _ => {
                    let function = blocks::function(operator, &types, node.dtype)?;
                    let rounds = !expression.keeps_precision() && !operator.is_exact();
                    Step::Elementwise { function, rounds }
                }
            })
        };
        Some(Self { steps: nodes.iter().map(step).collect::<Option<_>>()? })
    }
}

impl<'a> Frame<'a> {
    fn new(
        call: &'a Call,
        expression: Expression,
        program: &'a Program,
        inputs: &[Source<'a>],
    ) -> Option<Self> {
        let shape = call.shape();
        let dims = expression.dims();
        let (rows, len) = match dims {
            None => (1, shape.iter().product()),
            Some(dims) => shape.iter().enumerate().fold((1, 1), |(rows, len), (dim, size)| {
                if dims.contains(dim) { (rows, len * size) } else { (rows * size, len) }
            }),
        };
        let order = order(call, dims);
        let view = |layout: &Layout| order.as_ref().map_or(Some(*layout), |order| layout.permute(order).ok());
        let outputs = call.outputs().iter().map(|(dtype, layout)| Some((*dtype, view(layout)?)));
        let mut frame = Self {
            expression,
            nodes: Vec::with_capacity(expression.nodes().len()),
            slot_count: 0,
            readers: SmallVec::new(),
            reads_outputs: inputs.iter().any(|source| matches!(source, Source::Output(_))),
            outputs: outputs.collect::<Option<_>>()?,
            rows,
            len,
        };
        let is_alike = expression.reduced_nodes(call);
        for ((place, node), step) in expression.nodes().iter().enumerate().zip(&program.steps) {
            let input = match &node.kind {
                NodeKind::Input(input) => Some(*input),
                _ => None,
            };
            let scalar = match (&node.kind, input.map(|input| &call.inputs()[input])) {
                (NodeKind::Literal(scalar), _) | (_, Some(Argument::Scalar(scalar))) => Some(*scalar),
                _ => None,
            };
            let class = match scalar {
                Some(_) => Class::Constant,
                None if is_alike[place] => Class::Row,
                None => Class::Full,
            };
            let operands = node.operands().map_or(&[][..], |(_, operands)| operands);
            let has_rows = || operands.iter().any(|&operand| frame.nodes[operand].class == Class::Row);
            let mixes_rows = class == Class::Full && has_rows();
            let mut is_in_memory = false;
            if let Some(input) = input {
                let reader = match (call.inputs()[input].array(), inputs[input]) {
                    (Some((dtype, layout)), Source::Bytes(bytes)) => {
                        let layout = match class {
                            Class::Row => one_of_each(layout, dims?)?,
                            _ => view(layout)?,
                        };
                        let reader = blocks::reader(dtype, bytes, &layout)?;
                        is_in_memory = reader.in_place(0, 0).is_some();
                        Reader::Array(reader)
                    }
                    (Some(_), Source::Output(output)) => Reader::Output(output),
                    _ => Reader::Scalar,
                };
                frame.readers.push(reader);
            }
            frame.nodes.push(Node {
                dtype: node.dtype,
                class,
                step,
                operands,
                input,
                scalar,
                is_in_memory,
                is_output_before: matches!(frame.readers.last(), Some(Reader::Output(_))) && input.is_some(),
                is_output: expression.outputs().contains(&place),
                direct: None,
                mixes_rows,
                slot: 0,
            });
        }
        frame.give_slots();
        frame.find_direct();
        Some(frame)
    }

    /// Gives nodes blocks: nodes with a value for each element share them, one after the other.
    fn give_slots(&mut self) {
        let mut last_use: Vec<usize> = (0..self.nodes.len()).collect();
        for (place, node) in self.nodes.iter().enumerate() {
            node.operands.iter().for_each(|&operand| last_use[operand] = place);
        }
        let is_shared = |node: &Node<'_>| node.class == Class::Full && !node.is_output_before;
        let mut free: Vec<usize> = Vec::new();
        for place in 0..self.nodes.len() {
            let slot = match free.last() {
                Some(_) if is_shared(&self.nodes[place]) => free.pop(),
                _ => None,
            };
            self.nodes[place].slot = slot.unwrap_or_else(|| {
                self.slot_count += 1;
                self.slot_count - 1
            });
            for &operand in self.nodes[place].operands.iter().chain([&place]) {
                let node = &self.nodes[operand];
                // An operand may be there twice.
                if is_shared(node) && last_use[operand] == place && !free.contains(&node.slot) {
                    free.push(node.slot);
                }
            }
        }
    }

    fn find_direct(&mut self) {
        let is_used = |place: usize| self.nodes.iter().any(|node| node.operands.contains(&place));
        let mut direct = SmallVec::<[(usize, usize); 2]>::new();
        for (output, &place) in self.expression.outputs().iter().enumerate() {
            let is_once = self.expression.outputs().iter().filter(|&&other| other == place).count() == 1;
            let layout = &self.outputs[output].1;
            let is_full = self.nodes[place].class == Class::Full && layout.len() == self.rows * self.len;
            if is_once && is_full && layout.is_contiguous() && !is_used(place) {
                direct.push((place, output));
            }
        }
        direct.into_iter().for_each(|(place, output)| self.nodes[place].direct = Some(output));
    }

    fn run(&self, outputs: &mut [&mut [u8]]) {
        let work = self.rows.saturating_mul(self.len).saturating_mul(self.expression.operator_count().max(1));
        // Never for a call that is short: see `on_all`.
        let is_large = work > 16 * ELEMENTS;
        let is_contiguous = self.is_contiguous();
        let all = Area { rows: 0..self.rows, columns: 0..self.len };
        if self.len <= SHORT_ROW && self.expression.dims().is_some() {
            // Each thread has some rows, of which it computes some at a time.
            let least = (CHUNK / 4).div_ceil(self.len);
            let parts = match is_large && is_contiguous {
                true => self.parts(outputs, &all, least, self.len),
                false => self.parts(outputs, &all, self.rows.max(1), self.len),
            };
            each(parts, is_large, || self.worker(), |worker, part| self.short_rows(worker, part));
        } else if self.expression.dims().is_some() && is_contiguous && (self.rows >= 16 || !is_large) {
            let parts = self.parts(outputs, &all, 1, self.len);
            each(
                parts,
                is_large,
                || self.worker(),
                |worker, part| self.long_row(worker, std::slice::from_mut(part), false),
            );
        } else {
            // Rows that are divided: one after the other.
            let columns = if is_large && is_contiguous { CHUNK } else { self.len.max(1) };
            for row in 0..self.rows {
                let area = Area { rows: row..row + 1, columns: 0..self.len };
                let mut parts = self.parts(outputs, &area, 1, columns);
                self.long_row(&mut self.worker(), &mut parts, is_large);
            }
        }
    }

    fn is_contiguous(&self) -> bool {
        self.outputs.iter().all(|(_, layout)| layout.is_contiguous())
    }

    /// Divides an area of the outputs into parts of so many rows and columns. Outputs that are not contiguous
    /// have one part.
    fn parts<'b>(
        &self,
        outputs: &'b mut [&mut [u8]],
        area: &Area,
        rows: usize,
        columns: usize,
    ) -> Vec<Outputs<'b>> {
        let mut parts = Vec::new();
        let is_whole = !self.is_contiguous() || (rows >= self.rows && columns >= self.len);
        for row in area.rows.clone().step_by(rows) {
            for column in area.columns.clone().step_by(columns) {
                let rows = rows.min(area.rows.end - row);
                let columns = columns.min(area.columns.end - column);
                parts.push(Outputs { bytes: SmallVec::new(), row, column, rows, columns, is_whole });
            }
        }
        for (bytes, (dtype, layout)) in outputs.iter_mut().zip(&self.outputs) {
            let mut rest = &mut **bytes;
            if is_whole {
                parts.iter_mut().for_each(|part| part.bytes.push(std::mem::take(&mut rest)));
                continue;
            }
            let is_full = layout.len() == self.rows * self.len;
            let first = if is_full { area.rows.start * self.len } else { area.rows.start };
            rest = rest.split_at_mut(first * dtype.size()).1;
            for part in &mut parts {
                let len = match is_full {
                    true => part.rows * part.columns,
                    // The first part of a divided row has the row's value.
                    false if part.column == 0 => part.rows,
                    false => 0,
                };
                let (of_part, others) = std::mem::take(&mut rest).split_at_mut(len * dtype.size());
                part.bytes.push(of_part);
                rest = others;
            }
        }
        parts
    }

    fn worker(&self) -> Worker {
        let mut worker = Worker { slots: Vec::new(), expanded: Default::default() };
        worker.slots.resize_with(self.slot_count, Option::default);
        for node in &self.nodes {
            if let Some(scalar) = node.scalar {
                blocks::constant(
                    node.dtype,
                    scalar,
                    worker.slots[node.slot].get_or_insert_default(),
                    REPEATED,
                );
            }
        }
        worker
    }

    /// Rows that are computed whole, several at a time.
    fn short_rows(&self, worker: &mut Worker, outputs: &mut Outputs<'_>) {
        let at_a_time = (BLOCK / self.len).max(1);
        let end = outputs.row + outputs.rows;
        for row in (outputs.row..end).step_by(at_a_time) {
            let area = Area { rows: row..end.min(row + at_a_time), columns: 0..self.len };
            self.read_outputs(worker, Class::Row, &area, outputs);
            self.read_outputs(worker, Class::Full, &area, outputs);
            for place in 0..self.nodes.len() {
                let is_written = self.compute(worker, place, &area, Some(&mut *outputs));
                self.reduce_rows(worker, place, &area);
                if self.nodes[place].is_output && !is_written {
                    self.write(worker, place, &area, outputs);
                }
            }
        }
    }

    /// One row, whose parts are the outputs of it: reductions that wait for others after those.
    fn long_row(&self, worker: &mut Worker, parts: &mut [Outputs<'_>], on_threads: bool) {
        let Some(row) = parts.first().map(|part| part.row) else { return };
        let area = Area { rows: row..row + 1, columns: 0..0 };
        self.read_outputs(worker, Class::Row, &area, &parts[0]);
        let mut is_done: SmallVec<[bool; 32]> = SmallVec::from_elem(false, self.nodes.len());
        loop {
            // All of the row that is known: it has no columns.
            for place in 0..self.nodes.len() {
                let is_ready = self.nodes[place].class != Class::Full
                    && self.nodes[place].operands.iter().all(|&operand| is_done[operand]);
                if is_ready && !is_done[place] && !matches!(self.nodes[place].step, Step::Reduction(_)) {
                    self.compute(worker, place, &area, None);
                    is_done[place] = true;
                }
            }
            let known = self.known(&is_done);
            let ready: SmallVec<[usize; 4]> = (0..self.nodes.len())
                .filter(|&place| {
                    let is_reduction = matches!(self.nodes[place].step, Step::Reduction(_));
                    is_reduction && !is_done[place] && known[self.nodes[place].operands[0]]
                })
                .collect();
            let targets: SmallVec<[usize; 4]> = match ready.is_empty() {
                true => self.expression.outputs().into(),
                false => ready.iter().map(|&place| self.nodes[place].operands[0]).collect(),
            };
            let needed = self.needed(&targets);
            let is_last = ready.is_empty();
            let pass = |worker: &mut Worker, part: &mut Outputs<'_>| {
                let mut running: SmallVec<[Running; 4]> =
                    ready.iter().map(|&place| self.reducer(place).start()).collect();
                let end = part.column + part.columns;
                for column in (part.column..end).step_by(BLOCK) {
                    let area = Area { rows: row..row + 1, columns: column..end.min(column + BLOCK) };
                    self.read_outputs(worker, Class::Full, &area, part);
                    for (place, node) in self.nodes.iter().enumerate() {
                        let mut is_written = false;
                        if needed[place] && node.class == Class::Full {
                            is_written = self.compute(worker, place, &area, is_last.then_some(&mut *part));
                        }
                        if needed[place] && is_last && node.is_output && !is_written {
                            self.write(worker, place, &area, part);
                        }
                        if let Some(number) = ready.iter().position(|&ready| ready == place) {
                            let operand = node.operands[0];
                            self.expand(worker, 0, operand, &area, true);
                            let values = self.full_values(worker, 0, operand, &area, true);
                            running[number] = self.reducer(place).add(running[number], values);
                        }
                    }
                }
                running
            };
            let results: Vec<SmallVec<[Running; 4]>> = if on_threads {
                let known = &*worker;
                let of_part = |part: &mut Outputs<'_>| {
                    let mut worker = self.worker();
                    self.copy_rows(known, &mut worker, &is_done, &area);
                    pass(&mut worker, part)
                };
                on_all(|| parts.par_iter_mut().map(of_part).collect())
            } else {
                parts.iter_mut().map(|part| pass(worker, part)).collect()
            };
            if is_last {
                return;
            }
            for (number, &place) in ready.iter().enumerate() {
                let reducer = self.reducer(place);
                let all = results.iter().map(|of_part| of_part[number]);
                let running = all.reduce(|a, b| reducer.combine(a, b)).unwrap_or_else(|| reducer.start());
                let block = worker.slots[self.nodes[place].slot].get_or_insert_default();
                reducer.finish(running, self.len, block, 0, 1);
                self.round(place, block, 1);
                is_done[place] = true;
            }
        }
    }

    fn reducer(&self, place: usize) -> &dyn Reducer {
        match self.nodes[place].step {
            Step::Reduction(reducer) => &**reducer,
            _ => unreachable!("only reductions are ready"),
        }
    }

    /// For each node, whether all values of rows that it is computed from are there.
    fn known(&self, is_done: &[bool]) -> SmallVec<[bool; 32]> {
        let mut known = SmallVec::<[bool; 32]>::new();
        for (node, is_done) in self.nodes.iter().zip(is_done) {
            known.push(match node.class {
                Class::Full => node.operands.iter().all(|&operand| known[operand]),
                Class::Row => *is_done,
                Class::Constant => true,
            });
        }
        known
    }

    /// The nodes that are computed for these, of each element.
    fn needed(&self, targets: &[usize]) -> SmallVec<[bool; 32]> {
        let mut needed = SmallVec::from_elem(false, self.nodes.len());
        targets.iter().for_each(|&target| needed[target] = true);
        for place in (0..self.nodes.len()).rev() {
            if needed[place] && self.nodes[place].class == Class::Full {
                self.nodes[place].operands.iter().for_each(|&operand| needed[operand] = true);
            }
        }
        needed
    }

    /// Copies the values of a row to the memory of another thread.
    fn copy_rows(&self, from: &Worker, to: &mut Worker, is_done: &[bool], area: &Area) {
        for place in
            (0..self.nodes.len()).filter(|&place| is_done[place] && self.nodes[place].class == Class::Row)
        {
            let value = self.values(&from.slots, place, area, 1);
            let block = to.slots[self.nodes[place].slot].get_or_insert_default();
            blocks::repeat(value, 0, block, 0..1, 1);
        }
    }

    fn count(&self, place: usize, area: &Area) -> usize {
        match self.nodes[place].class {
            Class::Full => area.rows.len() * area.columns.len(),
            Class::Row | Class::Constant => area.rows.len(),
        }
    }

    /// The number of a node's first value in an area.
    fn start(&self, place: usize, area: &Area) -> usize {
        match self.nodes[place].class {
            Class::Full => area.rows.start * self.len + area.columns.start,
            Class::Row | Class::Constant => area.rows.start,
        }
    }

    /// Reads inputs of a class out of outputs, before those are written.
    fn read_outputs(&self, worker: &mut Worker, class: Class, area: &Area, outputs: &Outputs<'_>) {
        if !self.reads_outputs {
            return;
        }
        for (place, node) in self.nodes.iter().enumerate().filter(|(_, node)| node.class == class) {
            let Some(Reader::Output(output)) = node.input.map(|input| &self.readers[input]) else { continue };
            let count = self.count(place, area);
            let (dtype, layout) = self.outputs[*output];
            let (layout, start) = self.place_in(outputs, *output, dtype, layout, self.start(place, area));
            // The input may be of another type that has the same size.
            if let Some(reader) = blocks::reader(node.dtype, outputs.bytes[*output], &layout) {
                reader.read(start, count, worker.slots[self.nodes[place].slot].get_or_insert_default());
            }
        }
    }

    /// The layout of the part of an output that a thread has, and where an element is in it.
    fn place_in(
        &self,
        outputs: &Outputs<'_>,
        output: usize,
        dtype: DType,
        layout: Layout,
        start: usize,
    ) -> (Layout, usize) {
        let elements = outputs.bytes[output].len() / dtype.size();
        match Layout::contiguous([elements]) {
            Ok(part) if !outputs.is_whole => {
                let is_full = layout.len() == self.rows * self.len;
                let first = if is_full { outputs.row * self.len + outputs.column } else { outputs.row };
                (part, start - first)
            }
            _ => (layout, start),
        }
    }

    /// Computes a node, unless it is a reduction. Returns whether it is written to `outputs` already.
    fn compute(
        &self,
        worker: &mut Worker,
        place: usize,
        area: &Area,
        outputs: Option<&mut Outputs<'_>>,
    ) -> bool {
        let node = &self.nodes[place];
        let count = self.count(place, area);
        match node.step {
            Step::Given => {
                let reader = node.input.map(|input| &self.readers[input]);
                if let (false, Some(Reader::Array(reader))) = (node.is_in_memory, reader) {
                    let block = worker.slots[node.slot].get_or_insert_default();
                    reader.read(self.start(place, area), count, block);
                }
            }
            Step::Elementwise { function, rounds } => {
                if node.mixes_rows {
                    for (number, &operand) in node.operands.iter().enumerate() {
                        self.expand(worker, number, operand, area, false);
                    }
                }
                let mut block = worker.slots[node.slot].take().unwrap_or_default();
                let mut values = [Values::F32(&[]); 3];
                for (number, &operand) in node.operands.iter().enumerate() {
                    values[number] = match node.mixes_rows {
                        true => self.full_values(worker, number, operand, area, false),
                        false => self.values(&worker.slots, operand, area, count),
                    };
                }
                let start = self.start(place, area);
                let target = outputs.and_then(|outputs| self.target(outputs, node.direct?, start, count));
                let is_written = target.is_some();
                function(&values, target.unwrap_or(Target::Block(&mut block)), count);
                if *rounds {
                    self.round(place, &mut block, count);
                }
                worker.slots[node.slot] = Some(block);
                return is_written;
            }
            Step::Reduction(_) => {}
        }
        false
    }

    /// The place of an output's elements, if they are as they are computed in.
    fn target<'b>(
        &self,
        outputs: &'b mut Outputs<'_>,
        output: usize,
        start: usize,
        count: usize,
    ) -> Option<Target<'b>> {
        let (dtype, layout) = self.outputs[output];
        let (_, start) = self.place_in(outputs, output, dtype, layout, start);
        let bytes = start * dtype.size()..(start + count) * dtype.size();
        Target::of_output(dtype, outputs.bytes[output].get_mut(bytes)?)
    }

    fn round(&self, place: usize, block: &mut Block, count: usize) {
        if !self.expression.keeps_precision() {
            blocks::round(self.nodes[place].dtype, block, count);
        }
    }

    /// Reduces each row of an area that has whole rows.
    fn reduce_rows(&self, worker: &mut Worker, place: usize, area: &Area) {
        let Step::Reduction(reducer) = self.nodes[place].step else { return };
        let operand = self.nodes[place].operands[0];
        let rows = area.rows.len();
        self.expand(worker, 0, operand, area, true);
        let mut block = worker.slots[self.nodes[place].slot].take().unwrap_or_default();
        let values = self.full_values(worker, 0, operand, area, true);
        for row in 0..rows {
            let of_row = blocks::part(values, row * self.len..(row + 1) * self.len);
            reducer.finish(reducer.add(reducer.start(), of_row), self.len, &mut block, row, rows);
        }
        self.round(place, &mut block, rows);
        worker.slots[self.nodes[place].slot] = Some(block);
    }

    /// Repeats the values of rows for each element, and constants `fully`, without which functions repeat the
    /// one value that there is.
    fn expand(&self, worker: &mut Worker, number: usize, operand: usize, area: &Area, fully: bool) {
        let columns = area.columns.len();
        let rows = area.rows.len();
        match self.nodes[operand].class {
            Class::Full => return,
            Class::Constant if !fully => return,
            _ => {}
        }
        let count = if fully || rows > 1 { columns } else { columns.min(REPEATED) };
        let is_constant = self.nodes[operand].class == Class::Constant;
        let values = self.values(&worker.slots, operand, area, rows);
        for row in 0..rows {
            let of_row = if is_constant { 0 } else { row };
            let range = row * count..(row + 1) * count;
            blocks::repeat(values, of_row, &mut worker.expanded[number], range, rows * count);
        }
    }

    /// The values of an operand for each element, of which those in `expanded` are there.
    fn full_values<'b>(
        &'b self,
        worker: &'b Worker,
        number: usize,
        operand: usize,
        area: &Area,
        fully: bool,
    ) -> Values<'b> {
        let count = area.rows.len() * area.columns.len();
        let expanded = |count| blocks::values(self.nodes[operand].dtype, &worker.expanded[number], count);
        match self.nodes[operand].class {
            Class::Row if !fully && area.rows.len() == 1 => expanded(count.min(REPEATED)),
            Class::Row => expanded(count),
            Class::Constant if fully => expanded(count),
            _ => self.values(&worker.slots, operand, area, count),
        }
    }

    /// The values of an operand, in its block or in the memory of the input.
    fn values<'b>(&'b self, slots: &'b Slots, operand: usize, area: &Area, count: usize) -> Values<'b> {
        let node = &self.nodes[operand];
        if let (true, Some(input)) = (node.is_in_memory, node.input)
            && let Reader::Array(reader) = &self.readers[input]
            && let Some(values) = reader.in_place(self.start(operand, area), count)
        {
            return values;
        }
        let count = if node.class == Class::Constant { count.min(REPEATED) } else { count };
        blocks::values(node.dtype, slots[node.slot].as_deref().expect("operands are computed first"), count)
    }

    /// Writes the outputs that a node is.
    fn write(&self, worker: &mut Worker, place: usize, area: &Area, outputs: &mut Outputs<'_>) {
        for output in 0..self.outputs.len() {
            if self.expression.outputs()[output] != place {
                continue;
            }
            let (dtype, layout) = self.outputs[output];
            let is_full = layout.len() == self.rows * self.len;
            let (count, start) = match is_full {
                true => {
                    (area.rows.len() * area.columns.len(), area.rows.start * self.len + area.columns.start)
                }
                false => (area.rows.len(), area.rows.start),
            };
            // The value of a row is written once.
            if !is_full && area.columns.start > 0 {
                continue;
            }
            let (layout, start) = self.place_in(outputs, output, dtype, layout, start);
            if is_full {
                self.expand(worker, 0, place, area, true);
            }
            let values = match is_full {
                true => self.full_values(worker, 0, place, area, true),
                false => self.values(&worker.slots, place, area, count),
            };
            blocks::write(dtype, values, outputs.bytes[output], &layout, start);
        }
    }
}

/// Does the parts, on several threads if `is_large`.
fn each<'a>(
    mut parts: Vec<Outputs<'a>>,
    is_large: bool,
    worker: impl Fn() -> Worker + Sync + Send,
    work: impl Fn(&mut Worker, &mut Outputs<'a>) + Sync + Send,
) {
    if is_large && parts.len() > 1 {
        on_all(|| parts.par_iter_mut().for_each_init(worker, work));
    } else {
        let mut worker = worker();
        parts.iter_mut().for_each(|part| work(&mut worker, part));
    }
}

/// The order of the dimensions in which the first output's elements lie one after the other, if that is
/// another one. Reductions have rows.
fn order(call: &Call, dims: Option<Dims>) -> Option<SmallVec<[usize; 8]>> {
    let (_, first) = call.outputs().first()?;
    if dims.is_some() || first.is_contiguous() {
        return None;
    }
    let mut order: SmallVec<[usize; 8]> = (0..first.rank()).collect();
    order.sort_by_key(|&dim| std::cmp::Reverse(first.strides()[dim].unsigned_abs()));
    Some(order)
}

/// The first element of each of the dimensions.
fn one_of_each(layout: &Layout, dims: Dims) -> Option<Layout> {
    dims.iter().try_fold(*layout, |layout, dim| layout.slice(dim, 0, 1, 1).ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compute;

    fn call(text: &str, input: &[usize], output: &[usize]) -> Call {
        let array = |shape: &[usize]| Argument::Array(DType::F32, Layout::contiguous(shape).unwrap());
        let expression: Expression = text.parse().unwrap();
        Call::new(expression, &[array(input)], &[array(output)]).unwrap()
    }

    #[test]
    fn values_that_are_used_twice_are_looked_at_once() {
        let mut text = "input f32".to_owned();
        (0..60).for_each(|node| text += &format!(", mul {node} {node}"));
        let call = call(&(text + ", reduce_sum 60 1, output 61"), &[1, 5000], &[1, 1]);
        let ones = vec![1_f32; 5000];
        let mut sum = [0_f32];
        compute(&call, &[Some(bytemuck::cast_slice(&ones))], &mut [bytemuck::cast_slice_mut(&mut sum)])
            .unwrap();
        assert_eq!(sum, [5000.0]);
    }

    #[test]
    fn rows_that_are_not_innermost_are_refused() {
        let call = call("input f32, reduce_sum 0 0, output 1", &[3, 4], &[1, 4]);
        let error = compute(&call, &[Some(&[0; 48])], &mut [&mut [0; 16]]).unwrap_err();
        assert!(error.to_string().contains("reduce_sum"), "{error}");
    }
}
