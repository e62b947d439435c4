//! Expressions that no kernel set has as a whole: the parts that it has, one after the other.

use device_registry::{Buffer, Device, Stream};
use smallvec::SmallVec;

use crate::argument::Argument;
use crate::call::{Call, CallError, signature};
use crate::dtype::DType;
use crate::error::RunError;
use crate::expression::extract::Source;
use crate::layout::{Layout, LayoutError};
use crate::operator::{Dims, Expression, NodeKind, Operator};
use crate::planned::Planned;
use crate::problem::Problem;
use crate::scalar::Scalar;

/// The calls that an expression consists of, in their order.
///
/// No part reads what a later one writes, but one may write an output before the next reads an input: an
/// output may be in no memory of an input.
#[derive(Clone, Debug, Default)]
pub struct Parts {
    parts: Vec<Part>,
    temporaries: Vec<usize>,
}

/// One of the [`Parts`] of an expression.
#[derive(Clone, Debug)]
pub struct Part {
    planned: Planned,
    places: SmallVec<[PartPlace; 4]>,
    /// For each scalar among the inputs of its call, the input of the whole that it is, unless it is a
    /// literal.
    scalars: SmallVec<[Option<usize>; 2]>,
}

/// Where an array of a [`Part`] is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PartPlace {
    /// The buffer of an array of the whole call, as [`Call::arrays`] counts.
    Array(usize),
    /// The temporary array with this number.
    Temporary(usize),
}

/// A value that a part reads or writes.
#[derive(Clone, Copy, Debug)]
struct Value {
    argument: Argument,
    place: Option<PartPlace>,
    /// The input of the whole that a scalar is.
    input: Option<usize>,
}

impl Value {
    fn literal(scalar: Scalar) -> Self {
        Self { argument: Argument::Scalar(scalar), place: None, input: None }
    }

    fn array(dtype: DType, layout: Layout, place: PartPlace) -> Self {
        Self { argument: Argument::Array(dtype, layout), place: Some(place), input: None }
    }
}

impl Part {
    /// Its call, which is not in parts itself.
    #[must_use]
    pub fn planned(&self) -> &Planned {
        &self.planned
    }

    /// Where its arrays are, in the order of [`Call::arrays`].
    #[must_use]
    pub fn places(&self) -> &[PartPlace] {
        &self.places
    }
}

/// What is known while the parts of a call are listed.
struct Splitter<'a> {
    device: Device,
    call: &'a Call,
    expression: Expression,
    /// The inputs of the whole.
    inputs: SmallVec<[Value; 8]>,
    /// For each node, its value once a part has computed it.
    values: Vec<Option<Value>>,
    parts: Parts,
}

impl Parts {
    /// Lists the parts, each of which some set has.
    ///
    /// # Errors
    ///
    /// If no set has a part that is a single operator.
    pub(crate) fn new(device: Device, call: &Call, expression: Expression) -> Result<Self, RunError> {
        let mut arrays = 0..;
        let value = |(input, argument): (usize, &Argument)| {
            let place = argument.array().and_then(|_| arrays.next()).map(PartPlace::Array);
            Value { argument: *argument, place, input: Some(input) }
        };
        let inputs: SmallVec<[Value; 8]> = call.inputs().iter().enumerate().map(value).collect();
        let splitter = || Splitter {
            device,
            call,
            expression,
            inputs: inputs.clone(),
            values: vec![None; expression.nodes().len()],
            parts: Self::default(),
        };
        let mut around = splitter();
        if let Some(dims) = expression.dims() {
            if let Err(error) = around.around_reductions(dims) {
                // A part may have more inputs or outputs than an expression has.
                around = splitter();
                around.single_operators().map_err(|_| error)?;
            }
        } else {
            around.single_operators()?;
        }
        around.parts.share_temporaries();
        Ok(around.parts)
    }

    /// Gives the memory of temporary arrays that no further part reads to later ones of the same size.
    fn share_temporaries(&mut self) {
        let number = |place: &PartPlace| match *place {
            PartPlace::Temporary(number) => Some(number),
            PartPlace::Array(_) => None,
        };
        let mut last_use = vec![0; self.temporaries.len()];
        for (at, part) in self.parts.iter().enumerate() {
            part.places.iter().filter_map(number).for_each(|number| last_use[number] = at);
        }
        let mut memory: Vec<Option<usize>> = vec![None; self.temporaries.len()];
        let mut sizes: Vec<usize> = Vec::new();
        let mut free: Vec<usize> = Vec::new();
        for (at, part) in self.parts.iter_mut().enumerate() {
            let mut ended = Vec::new();
            for place in &mut part.places {
                let PartPlace::Temporary(number) = place else { continue };
                let old = *number;
                *number = *memory[old].get_or_insert_with(|| {
                    let found = free.iter().position(|&free| sizes[free] == self.temporaries[old]);
                    found.map(|found| free.swap_remove(found)).unwrap_or_else(|| {
                        sizes.push(self.temporaries[old]);
                        sizes.len() - 1
                    })
                });
                if last_use[old] == at && !ended.contains(number) {
                    ended.push(*number);
                }
            }
            free.extend(ended);
        }
        self.temporaries = sizes;
    }

    /// The parts, in the order in which they are launched.
    #[must_use]
    pub fn parts(&self) -> &[Part] {
        &self.parts
    }

    /// The bytes of each temporary array.
    #[must_use]
    pub fn temporaries(&self) -> &[usize] {
        &self.temporaries
    }

    /// The same parts of `call`, which differs in the values of its scalars alone.
    pub(crate) fn with_scalars_of(&self, call: &Call) -> Self {
        let part = |part: &Part| {
            let old = part.planned.call().inputs().iter().filter(|input| input.array().is_none());
            let new = old.zip(&part.scalars).filter_map(|(old, input)| {
                match input.and_then(|input| call.inputs().get(input)).unwrap_or(old) {
                    Argument::Scalar(scalar) => Some(*scalar),
                    Argument::Array(..) => None,
                }
            });
            let new: SmallVec<[Scalar; 2]> = new.collect();
            Part { planned: part.planned.with_scalars(&new), ..part.clone() }
        };
        Self { parts: self.parts.iter().map(part).collect(), temporaries: self.temporaries.clone() }
    }

    /// Enqueues all parts, with the buffers of the whole call, which were checked.
    pub(crate) fn enqueue(&self, stream: &Stream, call: &Call, buffers: &[&Buffer]) -> Result<(), RunError> {
        let allocate =
            |bytes| stream.allocate(bytes).map_err(|error| RunError::Device { call: call.clone(), error });
        let inputs = buffers.len() - call.outputs().len();
        // A part may write an output before the next reads the input that is in the same memory.
        let mut outputs: SmallVec<[Option<Buffer>; 2]> = SmallVec::new();
        let bytes = |place: usize| {
            let bytes = &call.byte_ranges()[place];
            buffers[place].offset() + bytes.start..buffers[place].offset() + bytes.end
        };
        let overlap = |input: usize, output: usize| {
            let input_bytes = bytes(input);
            let output_bytes = bytes(output);
            buffers[input].shares_memory(buffers[output])
                && input_bytes.start < output_bytes.end
                && output_bytes.start < input_bytes.end
        };
        for (output, buffer) in buffers.iter().enumerate().skip(inputs) {
            let is_read = (0..inputs).any(|input| overlap(input, output));
            outputs.push(if is_read { Some(allocate(buffer.len())?) } else { None });
        }
        let temporaries = self.temporaries.iter().map(|bytes| allocate(*bytes));
        let temporaries = temporaries.collect::<Result<SmallVec<[Buffer; 8]>, _>>()?;
        for part in &self.parts {
            let at = |place: &PartPlace| match *place {
                PartPlace::Temporary(number) => &temporaries[number],
                PartPlace::Array(number) => {
                    let output = number.checked_sub(inputs).and_then(|output| outputs[output].as_ref());
                    output.unwrap_or(buffers[number])
                }
            };
            let buffers: SmallVec<[&Buffer; 4]> = part.places.iter().map(at).collect();
            part.planned.enqueue(stream, &buffers)?;
        }
        for (number, temporary) in outputs.iter().enumerate() {
            if let Some(temporary) = temporary {
                let (dtype, layout) = call.outputs()[number];
                let array = Argument::Array(dtype, layout);
                let copy =
                    Planned::of(stream.device(), Operator::Copy, &[(&array).into()], &[(&array).into()])?;
                copy.enqueue(stream, &[temporary, buffers[inputs + number]])?;
            }
        }
        Ok(())
    }
}

impl Splitter<'_> {
    /// Each operator by itself.
    fn single_operators(&mut self) -> Result<(), RunError> {
        let dims = self.expression.dims();
        let alike = self.expression.reduced_nodes(self.call);
        let full: SmallVec<[usize; 8]> = self.call.shape().into();
        let size = |(dim, &size): (usize, &usize)| {
            if dims.is_some_and(|dims| dims.contains(dim)) { 1 } else { size }
        };
        let reduced: SmallVec<[usize; 8]> = full.iter().enumerate().map(size).collect();
        for place in 0..self.values.len() {
            let node = &self.expression.nodes()[place];
            let value = match &node.kind {
                NodeKind::Input(input) => self.inputs[*input],
                NodeKind::Literal(scalar) => Value::literal(*scalar),
                NodeKind::Result { operator, operands } => {
                    let mut operands: SmallVec<[Value; 3]> =
                        operands.iter().map(|&operand| self.value(operand)).collect();
                    let inputs = operands.iter().map(|operand| operand.argument.array());
                    // Of scalars alone, no type follows, and a conversion is from the type that a scalar has
                    // here.
                    let reduces = matches!(operator, Operator::Reduce { .. });
                    let shape = if alike[place] { &reduced } else { &full };
                    let of_operands = if alike[place] && !reduces { &reduced } else { &full };
                    if inputs.flatten().next().is_none() {
                        let of = self.expression.nodes()[place].operands().map_or(0, |(_, nodes)| nodes[0]);
                        let dtype = self.expression.nodes()[of].dtype;
                        let filled = self.temporary(dtype, of_operands)?;
                        self.step(Operator::Copy, &operands[..1], &[filled])?;
                        operands[0] = filled;
                    }
                    for operand in &mut operands {
                        if let Argument::Array(_, layout) = &mut operand.argument {
                            // Each element counts in a reduction, also where one stands for many. Elsewhere
                            // one of those is enough.
                            let fitted = match (reduces, alike[place], dims) {
                                (true, ..) => layout.broadcast_to(&full),
                                (false, true, Some(dims)) => one_of_each(layout, dims),
                                _ => Ok(*layout),
                            };
                            *layout = fitted.map_err(|error| self.refused(error.into()))?;
                        }
                    }
                    let result = match self.output(place, shape) {
                        Some(output) => output,
                        None => self.temporary(node.dtype, shape)?,
                    };
                    self.step(*operator, &operands, &[result])?;
                    result
                }
            };
            self.values[place] = Some(value);
        }
        self.copied_outputs()
    }

    /// The reductions, and one part for what is before, between and behind them.
    fn around_reductions(&mut self, dims: Dims) -> Result<(), RunError> {
        let nodes = self.expression.nodes();
        let alike = self.expression.reduced_nodes(self.call);
        let shape: SmallVec<[usize; 8]> = self.call.shape().into();
        let reduced: SmallVec<[usize; 8]> = (shape.iter().enumerate())
            .map(|(dim, &size)| if dims.contains(dim) { 1 } else { size })
            .collect();
        let reduction = |place: usize| match &nodes[place].kind {
            NodeKind::Result { operator: operator @ Operator::Reduce { .. }, operands } => {
                Some((*operator, operands[0]))
            }
            _ => None,
        };
        loop {
            // Those that need no other one that is still to be computed.
            let mut waits = vec![false; nodes.len()];
            let mut ready = Vec::new();
            for (place, node) in nodes.iter().enumerate() {
                if self.values[place].is_some() {
                    continue;
                }
                let (_, operands) = node.operands().unwrap_or((Operator::Copy, &[]));
                waits[place] = operands.iter().any(|&operand| waits[operand]);
                if let Some((operator, operand)) = reduction(place) {
                    if !waits[place] {
                        ready.push((place, operator, operand));
                    }
                    waits[place] = true;
                }
            }
            if ready.is_empty() {
                break;
            }
            // An operand has all elements, also where they are alike: they count in a sum.
            let operands = ready.iter().map(|(_, _, operand)| *operand);
            let is_array = |node: &usize| match nodes[*node].kind {
                NodeKind::Input(input) => self.inputs[input].place.is_some(),
                _ => self.values[*node].is_some(),
            };
            let mut targets: Vec<usize> = operands.filter(|operand| !is_array(operand)).collect();
            targets.sort_unstable();
            targets.dedup();
            self.part(&targets, &shape, None)?;
            for (place, operator, operand) in ready {
                let result = match self.output(place, &reduced) {
                    Some(output) => output,
                    None => self.temporary(nodes[place].dtype, &reduced)?,
                };
                let mut operand = self.value(operand);
                // Each element counts, also where one stands for many.
                if let Argument::Array(_, layout) = &mut operand.argument {
                    *layout = layout.broadcast_to(&shape).map_err(|error| self.refused(error.into()))?;
                }
                self.step(operator, &[operand], &[result])?;
                self.values[place] = Some(result);
            }
            // What was computed for them may have been computed of fewer elements than its place now has.
            targets.iter().filter(|&&target| alike[target]).for_each(|&target| self.values[target] = None);
        }
        for (is_reduced, shape) in [(true, &reduced), (false, &shape)] {
            let outputs = self.expression.outputs().iter().enumerate();
            let outputs = outputs.filter(|(output, node)| {
                let layout = &self.call.outputs()[*output].1;
                let of_reduced = layout.shape() == &reduced[..] && alike[**node];
                self.values[**node].is_none() && of_reduced == is_reduced
            });
            let mut targets: Vec<usize> = outputs.map(|(_, node)| *node).collect();
            targets.sort_unstable();
            targets.dedup();
            self.part(&targets, shape, is_reduced.then_some(dims))?;
        }
        self.copied_outputs()
    }

    /// Computes nodes by a part of the expression. `alike` are dimensions in which one element of each input
    /// is enough.
    fn part(&mut self, targets: &[usize], shape: &[usize], alike: Option<Dims>) -> Result<(), RunError> {
        if targets.is_empty() {
            return Ok(());
        }
        let is_there = |node: usize| self.values[node].is_some();
        let extracted = self.expression.extract(targets, is_there);
        let extracted = extracted.map_err(|error| self.refused(Problem::Rule(error.to_string())))?;
        let mut inputs = SmallVec::<[Value; 8]>::new();
        for source in &extracted.sources {
            let mut value = match *source {
                Source::Input(input) => self.inputs[input],
                Source::Node(node) => self.value(node),
            };
            if let (Some(dims), Argument::Array(_, layout)) = (alike, &mut value.argument) {
                *layout = one_of_each(layout, dims).map_err(|error| self.refused(error.into()))?;
            }
            inputs.push(value);
        }
        let mut results = SmallVec::<[Value; 8]>::new();
        for &target in targets {
            results.push(match self.output(target, shape) {
                Some(output) => output,
                None => self.temporary(self.expression.nodes()[target].dtype, shape)?,
            });
        }
        self.step(extracted.expression.into(), &inputs, &results)?;
        for (&target, result) in targets.iter().zip(results) {
            self.values[target] = Some(result);
        }
        Ok(())
    }

    /// Outputs that are inputs, literals or the outputs before them.
    fn copied_outputs(&mut self) -> Result<(), RunError> {
        let first = self.call.byte_ranges().len() - self.call.outputs().len();
        for (output, &node) in self.expression.outputs().iter().enumerate() {
            let value = self.value(node);
            let place = PartPlace::Array(first + output);
            if value.place != Some(place) {
                let (dtype, layout) = self.call.outputs()[output];
                self.step(Operator::Copy, &[value], &[Value::array(dtype, layout, place)])?;
            }
        }
        Ok(())
    }

    /// The output that a node is, if it has the shape.
    fn output(&self, node: usize, shape: &[usize]) -> Option<Value> {
        let output = self.expression.outputs().iter().position(|&output| output == node)?;
        let first = self.call.byte_ranges().len() - self.call.outputs().len();
        let (dtype, layout) = self.call.outputs()[output];
        (layout.shape() == shape).then(|| Value::array(dtype, layout, PartPlace::Array(first + output)))
    }

    fn value(&self, node: usize) -> Value {
        let nodes = self.expression.nodes();
        match (self.values[node], &nodes[node].kind) {
            (Some(value), _) => value,
            (None, NodeKind::Input(input)) => self.inputs[*input],
            (None, NodeKind::Literal(scalar)) => Value::literal(*scalar),
            (None, NodeKind::Result { .. }) => unreachable!("a part computes it before it is used"),
        }
    }

    fn temporary(&mut self, dtype: DType, shape: &[usize]) -> Result<Value, RunError> {
        let layout = Layout::contiguous(shape).map_err(|error| self.refused(error.into()))?;
        let place = PartPlace::Temporary(self.parts.temporaries.len());
        self.parts.temporaries.push(layout.len() * dtype.size());
        Ok(Value::array(dtype, layout, place))
    }

    fn step(&mut self, operator: Operator, inputs: &[Value], outputs: &[Value]) -> Result<(), RunError> {
        let arguments = |values: &[Value]| values.iter().map(|value| value.argument).collect::<Vec<_>>();
        let planned =
            Planned::new(self.device, Call::new(operator, &arguments(inputs), &arguments(outputs))?)?;
        let places: SmallVec<[PartPlace; 4]> =
            inputs.iter().chain(outputs).filter_map(|value| value.place).collect();
        if let Some(nested) = &planned.parts {
            // No set has this part as a whole either.
            let first = self.parts.temporaries.len();
            self.parts.temporaries.extend(&nested.temporaries);
            for part in &nested.parts {
                let place = |place: &PartPlace| match *place {
                    PartPlace::Array(array) => places[array],
                    PartPlace::Temporary(number) => PartPlace::Temporary(first + number),
                };
                let of_whole = |input: &Option<usize>| input.and_then(|input| inputs[input].input);
                self.parts.parts.push(Part {
                    planned: part.planned.clone(),
                    places: part.places.iter().map(place).collect(),
                    scalars: part.scalars.iter().map(of_whole).collect(),
                });
            }
            return Ok(());
        }
        let call = planned.call();
        let scalars = call.inputs().iter().zip(call.sources()).filter(|(input, _)| input.array().is_none());
        let scalars = scalars.map(|(_, &source)| inputs.get(source).and_then(|value| value.input)).collect();
        self.parts.parts.push(Part { planned, places, scalars });
        Ok(())
    }

    fn refused(&self, problem: Problem) -> RunError {
        let outputs: Vec<Argument> = self.call.outputs().iter().copied().map(Argument::from).collect();
        CallError::new(signature(self.call.operator(), self.call.inputs(), &outputs), problem).into()
    }
}

/// The first element of each of the dimensions.
fn one_of_each(layout: &Layout, dims: Dims) -> Result<Layout, LayoutError> {
    dims.iter().try_fold(*layout, |layout, dim| layout.slice(dim, 0, 1, 1))
}
