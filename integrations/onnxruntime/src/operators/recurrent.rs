//! Recurrent networks: one product of matrices for the inputs of all steps, and the operators of each step.

use device_kernels::{Binary, Operator, Unary};

use super::{Plan, Row, declined, expect_int};
use crate::context::{Array, Context, Shape};
use crate::failure::Failure;
use crate::node::Kind::{Int, Text};
use crate::node::Node;

pub(super) const ROWS: &[Row] = &[
    Row::new("GRU", gru).since(7).attributes(&[
        ("direction", Text),
        ("layout", Int),
        ("linear_before_reset", Int),
    ]),
    Row::new("LSTM", lstm).since(7).attributes(&[("direction", Text), ("layout", Int)]),
    Row::new("RNN", rnn).since(7).attributes(&[("direction", Text), ("layout", Int)]),
];

/// The cell of a network.
#[derive(Clone, Copy, PartialEq)]
enum Cell {
    Gru {
        /// The product with the state comes before the gate that resets it.
        linear_before_reset: bool,
    },
    Lstm,
    Rnn,
}

impl Cell {
    /// How many numbers it computes for each of the state.
    fn gates(self) -> usize {
        match self {
            Self::Gru { .. } => 3,
            Self::Lstm => 4,
            Self::Rnn => 1,
        }
    }

    /// The functions of its gates, which nodes may give.
    fn activations(self) -> &'static [&'static str] {
        match self {
            Self::Gru { .. } => &["Sigmoid", "Tanh"],
            Self::Lstm => &["Sigmoid", "Tanh", "Tanh"],
            Self::Rnn => &["Tanh"],
        }
    }
}

fn gru(node: &Node) -> Result<Plan, Failure> {
    let linear_before_reset = node.int_or("linear_before_reset", 0) != 0;
    recurrent(node, Cell::Gru { linear_before_reset })
}

fn lstm(node: &Node) -> Result<Plan, Failure> {
    expect_int(node, "input_forget", 0)?;
    recurrent(node, Cell::Lstm)
}

fn rnn(node: &Node) -> Result<Plan, Failure> {
    recurrent(node, Cell::Rnn)
}

/// Which way the network goes through the steps.
#[derive(Clone, Copy)]
enum Direction {
    Forward,
    Reverse,
    Both,
}

fn recurrent(node: &Node, cell: Cell) -> Result<Plan, Failure> {
    let direction = match node.text("direction") {
        None | Some("forward") => Direction::Forward,
        Some("reverse") => Direction::Reverse,
        Some("bidirectional") => Direction::Both,
        Some(other) => return declined(format_args!("the direction `{other}`")),
    };
    if let Some(given) = node.texts("activations") {
        let usual = cell.activations().iter().cycle();
        if !given.iter().zip(usual).all(|(given, usual)| given.eq_ignore_ascii_case(usual)) {
            return declined(format_args!("the activations {given:?}"));
        }
    }
    if node.has_attribute("clip") {
        return declined("`clip`");
    }
    if node.has_input(4) {
        return declined("sequences of different lengths");
    }
    let batch_first = node.int_or("layout", 0) != 0;
    let asked = [0, 1, 2].map(|at| node.has_output(at));
    let dtype = node.input(0)?;
    let names = ["add", "copy", "matmul", "mul", "sigmoid", "sub", "tanh"];
    Plan::new(names.map(|name| (name, dtype)), move |context| {
        let directions = if matches!(direction, Direction::Both) { 2 } else { 1 };
        let network = Network::new(context, cell, directions, batch_first, asked)?;
        match direction {
            Direction::Forward => network.run(0, false),
            Direction::Reverse => network.run(0, true),
            Direction::Both => {
                network.run(0, false)?;
                network.run(1, true)
            }
        }
    })
}

/// The tensors of a node. Where batches come first in them, they are seen with steps first.
struct Network<'a> {
    context: &'a Context,
    cell: Cell,
    /// By step, batch and number, as one matrix of all steps.
    input: Array,
    steps: usize,
    batch: usize,
    hidden: usize,
    /// By step, direction, batch and number.
    all: Array,
    /// The state before the first step, and of an LSTM its cell, by direction, batch and number.
    first: [Option<Array>; 2],
    /// The same after the last step.
    last: [Option<Array>; 2],
}

impl<'a> Network<'a> {
    /// Makes those outputs that are `asked` for.
    fn new(
        context: &'a Context,
        cell: Cell,
        directions: usize,
        batch_first: bool,
        asked: [bool; 3],
    ) -> Result<Self, Failure> {
        let steps_first = |array: Array| {
            let layout = if batch_first { array.layout.transpose(0, 1)? } else { array.layout };
            Ok::<_, Failure>(array.with_layout(layout))
        };
        let input = steps_first(context.array(0)?)?;
        let [steps, batch, size] = *input.shape() else {
            return declined(format_args!("an input of {} dimensions", input.rank()));
        };
        let states = context.shape_of_input(2)?;
        let hidden = *states.last().unwrap_or(&0);
        for (at, width) in [(1, size), (2, hidden)] {
            let found = context.shape_of_input(at)?;
            let expected = [directions, cell.gates() * hidden, width];
            if *found != expected {
                return declined(format_args!("input {at} has the shape {found:?}: expected {expected:?}"));
            }
        }
        let input = if input.layout.is_contiguous() {
            input
        } else {
            let copy = context.scratch(input.dtype, input.shape())?;
            context.copy(&input, &copy)?;
            copy
        };
        let input = input.reshaped([steps * batch, size])?;
        let has_cell = cell == Cell::Lstm;
        let state = |at| context.optional(at)?.map(steps_first).transpose();
        let first = [state(5)?, if has_cell { state(6)? } else { None }];
        let all = match (asked[0], batch_first) {
            (true, true) => {
                let out = context.output(0, &[batch, steps, directions, hidden])?;
                out.with_layout(out.layout.permute([1, 2, 0, 3])?)
            }
            (true, false) => context.output(0, &[steps, directions, batch, hidden])?,
            (false, _) => context.scratch(input.dtype, &[steps, directions, batch, hidden])?,
        };
        let state = |at: usize| {
            if !asked[at] {
                return Ok(None);
            }
            let shape = if batch_first { [batch, directions, hidden] } else { [directions, batch, hidden] };
            steps_first(context.output(at, &shape)?).map(Some)
        };
        let last = [state(1)?, if has_cell { state(2)? } else { None }];
        Ok(Self { context, cell, input, steps, batch, hidden, all, first, last })
    }

    /// Goes through the steps in the direction with this number.
    fn run(&self, number: usize, reverse: bool) -> Result<(), Failure> {
        let context = self.context;
        let (weights, states) = (self.weights(1, number)?, self.weights(2, number)?);
        let bias = self.bias(number)?;
        // One product for the inputs of all steps, by gate, step, batch and number.
        let gates = self.cell.gates();
        let of_inputs = context.scratch(self.input.dtype, &[gates, self.steps * self.batch, self.hidden])?;
        context.product_into(&self.input, &weights, bias.as_ref().map(|bias| &bias.of_inputs), &of_inputs)?;
        let of_inputs = of_inputs.reshaped([gates, self.steps, self.batch, self.hidden])?;
        let peepholes = match context.optional(7)? {
            Some(all) if self.cell == Cell::Lstm => Some(part(&all, 0, number)?),
            _ => None,
        };

        let mut state = self.begin(0, number)?;
        let mut cell = self.begin(1, number)?;
        for step in 0..self.steps {
            let step = if reverse { self.steps - 1 - step } else { step };
            let next = part(&part(&self.all, 0, step)?, 0, number)?;
            let of_input = part(&of_inputs, 1, step)?;
            match self.cell {
                Cell::Rnn => {
                    let sum = context.product_plus(&state, &states, &of_input)?;
                    context.run(Unary::Tanh, &[part(&sum, 0, 0)?.into()], &[&next])?;
                }
                Cell::Lstm => {
                    let sums = context.product_plus(&state, &states, &of_input)?;
                    cell = self.lstm(&sums, &cell, peepholes.as_ref(), &next)?;
                }
                Cell::Gru { linear_before_reset } => {
                    let of_state = bias.as_ref().and_then(|bias| bias.of_state.as_ref());
                    let behind = linear_before_reset.then_some(of_state);
                    self.gru(&state, &states, &of_input, behind, &next)?;
                }
            }
            state = next;
        }
        for (last, value) in self.last.iter().zip([&state, &cell]) {
            if let Some(last) = last {
                context.copy(value, &part(last, 0, number)?)?;
            }
        }
        Ok(())
    }

    /// The matrices of an input by gate, the other way around.
    fn weights(&self, at: usize, number: usize) -> Result<Array, Failure> {
        let all = part(&self.context.array(at)?, 0, number)?;
        let by_gate = all.reshaped([self.cell.gates(), self.hidden, all.shape()[1]])?;
        Ok(by_gate.with_layout(by_gate.layout.transpose(1, 2)?))
    }

    /// The biases, if there are any.
    fn bias(&self, number: usize) -> Result<Option<Bias>, Failure> {
        let context = self.context;
        let Some(all) = context.optional(3)? else { return Ok(None) };
        let gates = self.cell.gates();
        let all = part(&all, 0, number)?.reshaped([2, gates, 1, self.hidden])?;
        let [ours, states] = [part(&all, 0, 0)?, part(&all, 0, 1)?];
        let of_inputs = context.scratch(all.dtype, ours.shape())?;
        let is_apart = self.cell == Cell::Gru { linear_before_reset: true };
        let joined = if is_apart { 2 } else { gates };
        let [a, b, sum] =
            [range(&ours, 0, 0, joined)?, range(&states, 0, 0, joined)?, range(&of_inputs, 0, 0, joined)?];
        context.add(&a, &b, &sum)?;
        if !is_apart {
            return Ok(Some(Bias { of_inputs, of_state: None }));
        }
        context.copy(&range(&ours, 0, 2, 1)?, &range(&of_inputs, 0, 2, 1)?)?;
        Ok(Some(Bias { of_inputs, of_state: Some(range(&states, 0, 2, 1)?) }))
    }

    /// The state or the cell before the first step.
    fn begin(&self, which: usize, number: usize) -> Result<Array, Failure> {
        match &self.first[which] {
            Some(first) => part(first, 0, number),
            None => {
                let zeros = self.context.scratch(self.input.dtype, &[self.batch, self.hidden])?;
                self.context.run(Operator::Copy, &[0.0.into()], &[&zeros])?;
                Ok(zeros)
            }
        }
    }

    /// One step of an LSTM, whose gates are input, output, forget and cell. Returns the next cell.
    fn lstm(
        &self,
        sums: &Array,
        cell: &Array,
        peepholes: Option<&Array>,
        next: &Array,
    ) -> Result<Array, Failure> {
        let context = self.context;
        let [input, output, forget, new] =
            [part(sums, 0, 0)?, part(sums, 0, 1)?, part(sums, 0, 2)?, part(sums, 0, 3)?];
        if let Some(peepholes) = peepholes {
            for (gate, at) in [(&input, 0), (&forget, 2)] {
                self.peep(gate, cell, peepholes, at)?;
                context.in_place(Unary::Sigmoid, gate)?;
            }
        } else {
            context.in_place(Unary::Sigmoid, &range(sums, 0, 0, 3)?)?;
        }
        context.in_place(Unary::Tanh, &new)?;
        let after = context.binary(Binary::Mul, &forget, cell)?;
        context.run(Binary::Mul, &[(&input).into(), (&new).into()], &[&new])?;
        context.add(&after, &new, &after)?;
        if let Some(peepholes) = peepholes {
            self.peep(&output, &after, peepholes, 1)?;
            context.in_place(Unary::Sigmoid, &output)?;
        }
        let shown = context.unary(Unary::Tanh, &after)?;
        context.run(Binary::Mul, &[output.into(), shown.into()], &[next])?;
        Ok(after)
    }

    /// Adds what a gate sees of the cell.
    fn peep(&self, gate: &Array, cell: &Array, peepholes: &Array, at: usize) -> Result<(), Failure> {
        let weights = range(peepholes, 0, at * self.hidden, self.hidden)?;
        let seen = self.context.binary(Binary::Mul, cell, weights.broadcast_to(cell.shape())?)?;
        self.context.add(gate, &seen, gate)
    }

    /// One step of a GRU, whose gates are update, reset and state. The state is reset before its product, or
    /// `behind` it and its bias.
    fn gru(
        &self,
        state: &Array,
        states: &Array,
        of_input: &Array,
        behind: Option<Option<&Array>>,
        next: &Array,
    ) -> Result<(), Failure> {
        let context = self.context;
        let gates = context.product_plus(state, &range(states, 0, 0, 2)?, &range(of_input, 0, 0, 2)?)?;
        context.in_place(Unary::Sigmoid, &gates)?;
        let [update, reset] = [part(&gates, 0, 0)?, part(&gates, 0, 1)?];
        let weights = range(states, 0, 2, 1)?;
        let of_input = range(of_input, 0, 2, 1)?;
        let new = if let Some(bias) = behind {
            let product = context.scratch(state.dtype, of_input.shape())?;
            context.product_into(state, &weights, bias, &product)?;
            let kept = context.binary(Binary::Mul, &reset, part(&product, 0, 0)?)?;
            context.binary(Binary::Add, kept, part(&of_input, 0, 0)?)?
        } else {
            let kept = context.binary(Binary::Mul, &reset, state)?;
            part(&context.product_plus(&kept, &weights, &of_input)?, 0, 0)?
        };
        context.in_place(Unary::Tanh, &new)?;
        // (1 - update) * new + update * state, as the new one and a part of the way to the old one.
        let way = context.binary(Binary::Sub, state, &new)?;
        context.run(Binary::Mul, &[update.into(), (&way).into()], &[&way])?;
        context.add(&new, &way, next)
    }
}

/// The biases of one direction, by gate.
struct Bias {
    /// Added to the product of the input.
    of_inputs: Array,
    /// Added to a product of the state, whose result is reset.
    of_state: Option<Array>,
}

impl Context {
    fn add(&self, a: &Array, b: &Array, out: &Array) -> Result<(), Failure> {
        self.run(Binary::Add, &[a.into(), b.into()], &[out])
    }

    fn in_place(&self, unary: Unary, array: &Array) -> Result<(), Failure> {
        self.run(unary, &[array.into()], &[array])
    }

    /// The product of a matrix and one of each gate, plus what is added to it.
    fn product_into(&self, a: &Array, b: &Array, plus: Option<&Array>, out: &Array) -> Result<(), Failure> {
        let mut operands = vec![a.into(), b.into()];
        if let Some(plus) = plus {
            operands.push(plus.broadcast_to(out.shape())?.into());
        }
        self.run(Operator::MatMul, &operands, &[out])
    }

    fn product_plus(&self, a: &Array, b: &Array, plus: &Array) -> Result<Array, Failure> {
        let out = self.scratch(a.dtype, plus.shape())?;
        self.product_into(a, b, Some(plus), &out)?;
        Ok(out)
    }
}

/// A range of a dimension.
fn range(array: &Array, dim: usize, start: usize, len: usize) -> Result<Array, Failure> {
    Ok(array.with_layout(array.layout.slice(dim, start, len, 1)?))
}

/// One place of a dimension, which is gone then.
fn part(array: &Array, dim: usize, place: usize) -> Result<Array, Failure> {
    let one = range(array, dim, place, 1)?;
    let mut shape = Shape::from_slice(one.shape());
    shape.remove(dim);
    one.reshaped(shape)
}
