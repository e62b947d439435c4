//! A call of an operator: what it computes, with which types and layouts, but no memory. `check` has
//! `Call::new`.

use std::any::Any;
use std::fmt;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

use smallvec::SmallVec;

use crate::argument::{Argument, Inputs, Outputs};
use crate::dtype::DType;
use crate::layout::Layout;
use crate::operator::Operator;
use crate::problem::Problem;
use crate::scalar::Scalar;
use crate::short::is_short;

/// An operator with its arguments, which were checked: a kernel set need not check them again.
///
/// Inputs of element-wise operators have the shape of the output: broadcast ones have strides of zero. So do
/// the batches and the bias of [`Operator::MatMul`].
///
/// A clone is cheap, as it shares what was checked. `Display` gives it in one line, as errors do:
///
/// ```
/// use device_kernels::{Argument, Binary, Call, DType, Layout};
///
/// let array = |shape: &[usize]| Layout::contiguous(shape).map(|layout| Argument::Array(DType::F32, layout));
/// let matrix = array(&[2, 3])?;
/// let row = array(&[3])?;
/// let call = Call::new(Binary::Add, &[matrix, row], &[matrix])?;
/// assert_eq!(call.to_string(), "add(f32 [2, 3], f32 [2, 3]) -> f32 [2, 3]");
///
/// let error = Call::new(Binary::Add, &[matrix, array(&[4])?], &[matrix]).unwrap_err();
/// assert_eq!(
///     error.to_string(),
///     "add(f32 [2, 3], f32 [4]) -> f32 [2, 3]: the shape [4] cannot be broadcast to [2, 3]"
/// );
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Call(Arc<Checked>);

/// It is large, and a call is moved several times on its way to the device.
#[derive(Debug, PartialEq)]
struct Checked {
    operator: Operator,
    inputs: Inputs,
    sources: SmallVec<[usize; 3]>,
    outputs: Outputs,
    byte_ranges: SmallVec<[Range<usize>; 4]>,
    kept: Kept,
}

/// See [`Call::kept`].
#[derive(Debug, Default)]
struct Kept(OnceLock<Box<dyn Any + Send + Sync>>);

/// What is made of a call follows from the call.
impl PartialEq for Kept {
    fn eq(&self, _other: &Self) -> bool {
        true
    }
}

/// A call with arguments that the operator cannot have.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{call}: {problem}")]
pub struct CallError {
    call: String,
    #[source]
    problem: Problem,
}

impl CallError {
    pub(crate) fn new(call: String, problem: Problem) -> Self {
        Self { call, problem }
    }

    /// What is wrong.
    #[must_use]
    pub fn problem(&self) -> &Problem {
        &self.problem
    }
}

impl Call {
    /// The caller has checked that they fit.
    pub(crate) fn checked(operator: Operator, inputs: Inputs, outputs: Outputs) -> Self {
        let sources = (0..inputs.len()).collect();
        Self::of(operator, inputs, sources, outputs)
    }

    /// A fill of the output, as there is nothing to compute it from: with a value, or with the input at the
    /// place `source`.
    pub(crate) fn fill(value: Argument, source: usize, outputs: &[(DType, Layout)]) -> Self {
        let inputs = SmallVec::from_iter([value]);
        let sources = SmallVec::from_iter([source]);
        Self::of(Operator::Copy, inputs, sources, outputs.into())
    }

    fn of(operator: Operator, inputs: Inputs, sources: SmallVec<[usize; 3]>, outputs: Outputs) -> Self {
        let bytes = |(dtype, layout): (DType, &Layout)| {
            let elements = layout.range();
            elements.start * dtype.size()..elements.end * dtype.size()
        };
        let byte_ranges = arrays(&inputs, &outputs).map(bytes).collect();
        Self(Arc::new(Checked { operator, inputs, sources, outputs, byte_ranges, kept: Kept::default() }))
    }

    /// Whether these are the values of its scalars, by their bits.
    pub(crate) fn has_scalars(&self, scalars: &[Scalar]) -> bool {
        let own = self.0.inputs.iter().filter_map(|input| match input {
            Argument::Scalar(scalar) => Some(scalar),
            Argument::Array(..) => None,
        });
        let bits = |scalar: &Scalar| match *scalar {
            Scalar::Float(value) => (0, value.to_bits()),
            Scalar::Int(value) => (1, value as u64),
            Scalar::Bool(value) => (2, value.into()),
        };
        own.map(bits).eq(scalars.iter().map(bits))
    }

    /// The same call with other values for its scalars, as far as there are new ones.
    pub(crate) fn with_scalars(&self, scalars: &[Scalar]) -> Self {
        let mut inputs = self.0.inputs.clone();
        let places = inputs.iter_mut().filter(|input| input.array().is_none());
        places.zip(scalars).for_each(|(input, scalar)| *input = Argument::Scalar(*scalar));
        Self(Arc::new(Checked {
            operator: self.0.operator,
            inputs,
            sources: self.0.sources.clone(),
            outputs: self.0.outputs.clone(),
            byte_ranges: self.0.byte_ranges.clone(),
            kept: Kept::default(),
        }))
    }

    /// How traces and logs call it: the [name](Operator::name) of the operator, or of an expression
    /// [its parts](crate::Expression::name).
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self.operator() {
            Operator::Expression(expression) => expression.name(),
            operator => operator.name(),
        }
    }

    /// What is computed.
    #[must_use]
    #[inline]
    pub fn operator(&self) -> Operator {
        self.0.operator
    }

    /// The inputs, in the operator's order.
    #[must_use]
    #[inline]
    pub fn inputs(&self) -> &[Argument] {
        &self.0.inputs
    }

    /// Which argument of [`new`](Self::new) each input is. A sum of no elements, for example, becomes a
    /// [`Copy`](Operator::Copy) of a zero, which has no array among its inputs.
    #[must_use]
    #[inline]
    pub fn sources(&self) -> &[usize] {
        &self.0.sources
    }

    /// The outputs, in the operator's order. None has an element twice.
    #[must_use]
    #[inline]
    pub fn outputs(&self) -> &[(DType, Layout)] {
        &self.0.outputs
    }

    /// Whether the call writes nothing: then no kernel runs for it. A kernel set only gets calls that write,
    /// and none of their arrays is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        let updates_nothing = self.operator().updates() && self.inputs().iter().any(Argument::is_empty);
        updates_nothing || self.outputs().iter().any(|(_, layout)| layout.len() == 0)
    }

    /// The arrays in the order of a launch's buffers: the inputs', then the outputs.
    #[inline]
    pub fn arrays(&self) -> impl Iterator<Item = (DType, &Layout)> {
        arrays(self.inputs(), self.outputs())
    }

    /// The bytes of each array in its buffer, from its first element to its last, in the order of
    /// [`arrays`](Self::arrays).
    #[must_use]
    #[inline]
    pub fn byte_ranges(&self) -> &[Range<usize>] {
        &self.0.byte_ranges
    }

    /// What a kernel set makes of the call, such as its plan: made at the first use, and kept as long as the
    /// call and its clones are. Of a [planned](crate::Planned) call that is as long as the thread remembers
    /// it.
    ///
    /// There is one such value. `None` if another type's was kept: a second set makes its own each time.
    pub fn kept<T: Any + Send + Sync>(&self, make: impl FnOnce(&Self) -> T) -> Option<&T> {
        self.0.kept.0.get_or_init(|| Box::new(make(self))).downcast_ref()
    }

    /// Whether the call is short: one core of a host takes some tens of microseconds for it at most. Its
    /// arrays have some thousands of elements, and a matrix multiplication some hundreds of thousands of
    /// products. Convolutions and poolings are never short, and a custom operator is if its definition says
    /// that it is light.
    #[must_use]
    pub fn is_short(&self) -> bool {
        is_short(self.operator(), self.inputs(), self.outputs())
    }
}

fn arrays<'a>(
    inputs: &'a [Argument],
    outputs: &'a [(DType, Layout)],
) -> impl Iterator<Item = (DType, &'a Layout)> {
    let inputs = inputs.iter().filter_map(Argument::array);
    inputs.chain(outputs.iter().map(|(dtype, layout)| (*dtype, layout)))
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let outputs: Vec<Argument> = self.outputs().iter().copied().map(Argument::from).collect();
        f.write_str(&signature(self.operator(), self.inputs(), &outputs))
    }
}

pub(crate) fn signature<A: fmt::Display>(operator: Operator, inputs: &[A], outputs: &[A]) -> String {
    let list = |arguments: &[A]| arguments.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    format!("{operator}({}) -> {}", list(inputs), list(outputs))
}
