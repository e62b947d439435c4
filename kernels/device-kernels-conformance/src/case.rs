//! A case: memories with their bytes, and calls that work on them one after the other.

use std::fmt;
use std::ops::Range;

use device_kernels::{Argument, Call, DType, Layout, MAX_RANK, Operator, Scalar};

use crate::draw::Draw;
use crate::element::{self, Value};
use crate::reference;
use crate::values::Domain;

/// An array: a part of a memory, and a layout within that part.
#[derive(Clone, Debug)]
pub(crate) struct View {
    /// Which memory.
    pub(crate) memory: usize,
    /// The bytes of the memory that the buffer has.
    pub(crate) bytes: Range<usize>,
    pub(crate) dtype: DType,
    pub(crate) layout: Layout,
}

/// An input of a step.
#[derive(Clone, Debug)]
pub(crate) enum Operand {
    Array(View),
    Scalar(Scalar),
}

/// A call.
#[derive(Clone, Debug)]
pub(crate) struct Step {
    pub(crate) operator: Operator,
    pub(crate) inputs: Vec<Operand>,
    pub(crate) outputs: Vec<View>,
    /// The stream that it is enqueued in.
    pub(crate) stream: usize,
}

/// Calls, and the bytes of all memories before the first.
#[derive(Clone, Debug, Default)]
pub(crate) struct Case {
    pub(crate) memories: Vec<Vec<u8>>,
    pub(crate) steps: Vec<Step>,
    /// Whether the stream may return an error in place of the outputs.
    pub(crate) may_fail: bool,
    /// Whether all arrays are in one memory.
    pub(crate) one_memory: bool,
    /// Whether the linked sets may do an expression in parts, as `device_kernels::run` does it.
    pub(crate) in_parts: bool,
}

/// Which layouts an array can have.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Kind {
    /// Elements one after the other, from the start of the buffer on.
    Plain,
    /// Any of the next ones, or plain.
    Any,
    /// Elements one after the other, behind an offset.
    Offset,
    /// Dimensions in another order.
    Transposed,
    /// Negative strides.
    Negative,
    /// Strides that leave gaps.
    Gaps,
}

impl View {
    /// Where an element is in its memory.
    pub(crate) fn place(&self, index: &[usize]) -> usize {
        let steps = index.iter().zip(self.layout.strides()).map(|(&index, &stride)| index as isize * stride);
        let element = self.layout.offset() as isize + steps.sum::<isize>();
        self.bytes.start + element as usize * self.dtype.size()
    }

    pub(crate) fn argument(&self) -> Argument {
        Argument::Array(self.dtype, self.layout)
    }

    /// The elements, in the order of their indices.
    pub(crate) fn read(&self, memories: &[Vec<u8>]) -> reference::Array {
        let mut values = Vec::with_capacity(self.layout.len());
        reference::for_each_index(self.layout.shape(), |index| {
            values.push(element::read(self.dtype, &memories[self.memory][self.place(index)..]));
        });
        reference::Array { dtype: self.dtype, shape: self.layout.shape().to_vec(), values }
    }

    /// The array with another layout over the same elements.
    pub(crate) fn with_layout(&self, layout: Layout) -> Self {
        Self { layout, ..self.clone() }
    }
}

impl Operand {
    pub(crate) fn argument(&self) -> Argument {
        match self {
            Self::Array(view) => view.argument(),
            Self::Scalar(scalar) => Argument::Scalar(*scalar),
        }
    }

    /// The input of the reference.
    pub(crate) fn read(&self, memories: &[Vec<u8>]) -> reference::Input {
        match self {
            Self::Array(view) => reference::Input::Array(view.read(memories)),
            Self::Scalar(scalar) => reference::Input::Scalar(*scalar),
        }
    }

    pub(crate) fn view(&self) -> Option<&View> {
        match self {
            Self::Array(view) => Some(view),
            Self::Scalar(_) => None,
        }
    }
}

impl From<View> for Operand {
    fn from(view: View) -> Self {
        Self::Array(view)
    }
}

impl From<Scalar> for Operand {
    fn from(scalar: Scalar) -> Self {
        Self::Scalar(scalar)
    }
}

impl Step {
    /// The call, checked by the rules of the vocabulary.
    pub(crate) fn call(&self) -> Result<Call, String> {
        let inputs: Vec<Argument> = self.inputs.iter().map(Operand::argument).collect();
        let outputs: Vec<Argument> = self.outputs.iter().map(View::argument).collect();
        Call::new(self.operator, &inputs, &outputs).map_err(|error| error.to_string())
    }

    /// The views in the order of [`Call::arrays`].
    pub(crate) fn arrays(&self, call: &Call) -> Vec<View> {
        let arrays = call.inputs().iter().zip(call.sources()).filter(|(input, _)| input.array().is_some());
        let inputs = arrays.filter_map(|(_, &source)| self.inputs[source].view());
        inputs.chain(&self.outputs).cloned().collect()
    }
}

impl Case {
    /// Adds an array with elements of a domain.
    pub(crate) fn array(
        &mut self,
        draw: &mut Draw<'_>,
        dtype: DType,
        shape: &[usize],
        kind: Kind,
        domain: Domain,
    ) -> View {
        let layout = layout(draw, shape, kind);
        let view = self.place(draw, dtype, layout);
        let mut stream = draw.stream();
        self.fill(&view, |bytes| domain.element(dtype, &mut stream, bytes));
        view
    }

    /// Adds an array of given values.
    pub(crate) fn values(&mut self, dtype: DType, shape: &[usize], values: &[f64]) -> View {
        let mut draw = Draw::new(&[]);
        let layout = layout(&mut draw, shape, Kind::Plain);
        let view = self.place(&mut draw, dtype, layout);
        let mut values = values.iter().cycle();
        self.fill(&view, |bytes| {
            let value = *values.next().expect("there is a value");
            let value = if dtype.is_float() { Value::Float(value) } else { Value::Int(value as i128) };
            element::write(dtype, value, bytes);
        });
        view
    }

    /// Adds an array that is written to. Its elements are arbitrary bytes before.
    pub(crate) fn output(&mut self, draw: &mut Draw<'_>, dtype: DType, shape: &[usize], kind: Kind) -> View {
        let layout = layout(draw, shape, kind);
        self.place(draw, dtype, layout)
    }

    /// Writes the elements of an array.
    pub(crate) fn fill(&mut self, view: &View, mut element: impl FnMut(&mut [u8])) {
        let memory = &mut self.memories[view.memory];
        reference::for_each_index(view.layout.shape(), |index| {
            let place = view.place(index);
            element(&mut memory[place..place + view.dtype.size()]);
        });
    }

    /// Adds a buffer for a layout, with other bytes around it that have to stay as they are.
    pub(crate) fn place(&mut self, draw: &mut Draw<'_>, dtype: DType, layout: Layout) -> View {
        let size = dtype.size();
        let memory = match self.memories.len() {
            0 => self.add_memory(),
            _ if self.one_memory => 0,
            _ => self.add_memory(),
        };
        // Elements are at multiples of their size.
        let from = self.memories[memory].len().next_multiple_of(8) + draw.below(9) * size;
        let used = from..from + layout.range().end * size;
        // The buffer may be longer than the array.
        let bytes = from..used.end + draw.below(4) * size;
        let end = bytes.end + 8 * size + draw.below(9);
        let bytes_of = |at: usize| (at as u32).wrapping_mul(0x9e37_79b1).rotate_left(9) as u8;
        let start = self.memories[memory].len();
        self.memories[memory].extend((start..end).map(bytes_of));
        View { memory, bytes, dtype, layout }
    }

    fn add_memory(&mut self) -> usize {
        self.memories.push(Vec::new());
        self.memories.len() - 1
    }

    /// Adds the memories and calls of another case, which are enqueued in a stream.
    pub(crate) fn append(&mut self, other: Self, stream: usize) {
        let first = self.memories.len();
        self.memories.extend(other.memories);
        for mut step in other.steps {
            let inputs = step.inputs.iter_mut().filter_map(|input| match input {
                Operand::Array(view) => Some(view),
                Operand::Scalar(_) => None,
            });
            inputs.chain(&mut step.outputs).for_each(|view| view.memory += first);
            step.stream = stream;
            self.steps.push(step);
        }
    }

    /// Adds a call.
    pub(crate) fn step(
        &mut self,
        operator: impl Into<Operator>,
        inputs: impl IntoIterator<Item = Operand>,
        outputs: impl IntoIterator<Item = View>,
    ) {
        self.steps.push(Step {
            operator: operator.into(),
            inputs: inputs.into_iter().collect(),
            outputs: outputs.into_iter().collect(),
            stream: 0,
        });
    }
}

/// A layout in which no two indices are of one element.
pub(crate) fn layout(draw: &mut Draw<'_>, shape: &[usize], kind: Kind) -> Layout {
    let rank = shape.len();
    let kind = match kind {
        Kind::Any => draw.one_of(&[
            Kind::Plain,
            Kind::Offset,
            Kind::Transposed,
            Kind::Negative,
            Kind::Gaps,
            Kind::Transposed,
            Kind::Any,
        ]),
        kind => kind,
    };
    let mixed = kind == Kind::Any;
    let offset = if kind == Kind::Plain { 0 } else { usize::from(kind == Kind::Offset) + draw.below(7) };
    let mut order: Vec<usize> = (0..rank).collect();
    if mixed || kind == Kind::Transposed {
        // From the last one on, so that zeros give the plain order; then all dimensions in the opposite
        // order.
        for place in (1..rank).rev() {
            order.swap(place, place - draw.below(place + 1));
        }
        if kind == Kind::Transposed && order.is_sorted() {
            order.reverse();
        }
    }
    let mut strides = [0_isize; MAX_RANK];
    let mut stride = 1;
    let mut first = offset;
    for &dim in order.iter().rev() {
        let size = shape[dim].max(1);
        if mixed || kind == Kind::Gaps {
            stride *= draw.within(if mixed { 1 } else { 2 }, 3);
        }
        let negative = (mixed && draw.one_in(2)) || kind == Kind::Negative;
        strides[dim] = if negative { -(stride as isize) } else { stride as isize };
        if negative && !shape.contains(&0) {
            first += (size - 1) * stride;
        }
        if mixed && shape[dim] == 1 && draw.one_in(3) {
            // No step is made, so that it may be any number.
            strides[dim] = draw.one_of(&[1 << 40, -(1 << 40), isize::MAX, isize::MIN]);
        }
        stride = stride * size + if mixed || kind == Kind::Gaps { draw.below(3) } else { 0 };
    }
    Layout::strided(shape, &strides[..rank], first).expect("all places are behind the offset")
}

/// A layout for reading, in which some dimensions have strides of zero.
pub(crate) fn repeated(draw: &mut Draw<'_>, shape: &[usize]) -> (Vec<usize>, Vec<bool>) {
    let repeats: Vec<bool> = shape.iter().map(|_| draw.one_in(2)).collect();
    let once = shape.iter().zip(&repeats).map(|(&size, &repeats)| if repeats { size.min(1) } else { size });
    (once.collect(), repeats)
}

impl Step {
    /// The operator with the shapes of its arguments.
    pub(crate) fn describe(&self) -> String {
        self.call().map_or_else(|error| error, |call| call.to_string())
    }
}

/// The operator and all its arguments, with their layouts.
impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, in stream {}:", self.operator, self.stream)?;
        if let Operator::Expression(expression) = self.operator {
            write!(f, "\n  expression: {expression}")?;
        }
        for (place, input) in self.inputs.iter().enumerate() {
            match input {
                Operand::Scalar(scalar) => write!(f, "\n  input {place}: {scalar}")?,
                Operand::Array(view) => write!(f, "\n  input {place}: {view}")?,
            }
        }
        self.outputs.iter().enumerate().try_for_each(|(place, view)| write!(f, "\n  output {place}: {view}"))
    }
}

impl fmt::Display for View {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { memory, bytes, dtype, layout } = self;
        let shape = layout.shape();
        let strides = layout.strides();
        let offset = layout.offset();
        write!(
            f,
            "{dtype} {shape:?}, strides {strides:?}, offset {offset}, in bytes {bytes:?} of memory {memory}"
        )
    }
}
