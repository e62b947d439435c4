//! How an expression is made: values that compute.

use std::cell::RefCell;
use std::fmt;
use std::ops::{Add, Div, Mul, Neg, Rem, Sub};

use smallvec::SmallVec;

use crate::check;
use crate::dtype::DType;
use crate::operator::{
    Binary, Compare, Dims, Expression, ExpressionError, ExpressionNode, NodeKind, Operator, Reduction, Unary,
};
use crate::scalar::Scalar;

/// Takes the inputs and outputs of an [`Expression`], and makes values of them: see [`Expression::build`].
///
/// A mistake is kept, and all that follows it is ignored.
#[derive(Default)]
pub struct ExpressionBuilder(RefCell<State>);

#[derive(Default)]
struct State {
    nodes: Vec<ExpressionNode>,
    inputs: usize,
    outputs: Vec<usize>,
    dims: Option<Dims>,
    keeps_precision: bool,
    error: Option<ExpressionError>,
}

/// A value in an expression that is being built. The operators of Rust compute with it, where the other
/// operand may be a number, which then has the type of this one.
#[derive(Clone, Copy)]
pub struct ExpressionValue<'e> {
    builder: &'e ExpressionBuilder,
    node: usize,
}

/// What a value is computed with: another value, or a number.
pub trait Term<'e> {
    /// The value. A number has the type of `like`.
    fn value(self, like: ExpressionValue<'e>) -> ExpressionValue<'e>;
}

impl Expression {
    /// Makes an expression: `describe` adds inputs and outputs to the builder, and computes with values.
    ///
    /// # Errors
    ///
    /// The first mistake, such as operands of different types. No output, or too many nodes.
    pub fn build(describe: impl FnOnce(&ExpressionBuilder)) -> Result<Self, ExpressionError> {
        let builder = ExpressionBuilder::default();
        describe(&builder);
        builder.finish()
    }
}

impl ExpressionBuilder {
    /// The next input, an array or a scalar at each call.
    pub fn input(&self, dtype: DType) -> ExpressionValue<'_> {
        let mut state = self.0.borrow_mut();
        let place = state.inputs;
        state.inputs += 1;
        self.add(&mut state, ExpressionNode { kind: NodeKind::Input(place), dtype })
    }

    /// A number, converted to `dtype`.
    pub fn literal(&self, dtype: DType, value: impl Into<Scalar>) -> ExpressionValue<'_> {
        let kind = NodeKind::Literal(value.into());
        self.add(&mut self.0.borrow_mut(), ExpressionNode { kind, dtype })
    }

    /// Makes `value` the next output.
    pub fn output(&self, value: ExpressionValue<'_>) {
        let node = self.node(value);
        let mut state = self.0.borrow_mut();
        match node {
            Ok(node) => state.outputs.push(node),
            Err(error) => state.fail(error),
        }
    }

    /// Allows kernels to compute with more precision than the types of the values have: not to round numbers
    /// of 16 bits before the outputs, and to fuse a product with a sum. Results may then differ between
    /// devices.
    pub fn keep_precision(&self) {
        self.0.borrow_mut().keeps_precision = true;
    }

    /// The result of an operator: an [element-wise](Operator::is_elementwise) one, or a
    /// [reduction](Operator::Reduce). For a conversion there is [`ExpressionValue::cast`].
    pub fn apply(
        &self,
        operator: impl Into<Operator>,
        operands: &[ExpressionValue<'_>],
    ) -> ExpressionValue<'_> {
        self.result(operator.into(), operands, None)
    }

    pub(super) fn result(
        &self,
        operator: Operator,
        operands: &[ExpressionValue<'_>],
        to: Option<DType>,
    ) -> ExpressionValue<'_> {
        let operands = operands.iter().map(|value| self.node(*value));
        let operands = operands.collect::<Result<SmallVec<[usize; 3]>, _>>();
        let mut state = self.0.borrow_mut();
        let node = operands.and_then(|operands| state.checked(operator, operands, to));
        match node {
            Ok(node) => self.add(&mut state, node),
            Err(error) => {
                state.fail(error);
                ExpressionValue { builder: self, node: 0 }
            }
        }
    }

    /// Keeps a mistake.
    pub(super) fn fail(&self, error: ExpressionError) {
        self.0.borrow_mut().fail(error);
    }

    fn node(&self, value: ExpressionValue<'_>) -> Result<usize, ExpressionError> {
        if std::ptr::eq(value.builder, self) { Ok(value.node) } else { Err(ExpressionError::Foreign) }
    }

    fn add(&self, state: &mut State, node: ExpressionNode) -> ExpressionValue<'_> {
        // Some of them may not be needed, but not that many.
        if state.nodes.len() < 2 * Expression::MOST_NODES {
            state.nodes.push(node);
        } else {
            let found = state.nodes.len() + 1;
            state.fail(ExpressionError::Count { of: "nodes", found, most: Expression::MOST_NODES });
        }
        ExpressionValue { builder: self, node: state.nodes.len() - 1 }
    }

    pub(super) fn finish(self) -> Result<Expression, ExpressionError> {
        let State { nodes, inputs, outputs, keeps_precision, error, .. } = self.0.into_inner();
        if let Some(error) = error {
            return Err(error);
        }
        if outputs.is_empty() {
            return Err(ExpressionError::NoOutput);
        }
        let (nodes, outputs) = needed(nodes, outputs);
        for (of, found, most) in [
            ("inputs", inputs, Expression::MOST_INPUTS),
            ("outputs", outputs.len(), Expression::MOST_OUTPUTS),
            ("nodes", nodes.len(), Expression::MOST_NODES),
        ] {
            if found > most {
                return Err(ExpressionError::Count { of, found, most });
            }
        }
        Ok(Expression::of(nodes, outputs, keeps_precision))
    }
}

impl State {
    fn fail(&mut self, error: ExpressionError) {
        self.error.get_or_insert(error);
    }

    fn checked(
        &mut self,
        operator: Operator,
        operands: SmallVec<[usize; 3]>,
        to: Option<DType>,
    ) -> Result<ExpressionNode, ExpressionError> {
        // A mistake before this has left nodes out.
        if let Some(error) = &self.error {
            return Err(error.clone());
        }
        let mut types = SmallVec::<[DType; 3]>::new();
        for &operand in &operands {
            types.push(self.nodes[operand].dtype);
        }
        if let Operator::Reduce { dims, .. } = operator {
            let expected = *self.dims.get_or_insert(dims);
            if expected != dims {
                return Err(ExpressionError::Dims { expected, found: dims });
            }
        } else if !operator.is_elementwise() {
            return Err(ExpressionError::Kind { operator: operator.to_string() });
        }
        let dtype = to.unwrap_or_else(|| result_type(operator, &types));
        check::types(operator, &types, dtype).map_err(|problem| {
            let operands: Vec<_> = types.iter().map(ToString::to_string).collect();
            let operator = operator.name().to_owned();
            ExpressionError::Operator { operator, operands: operands.join(", "), problem }
        })?;
        Ok(ExpressionNode { kind: NodeKind::Result { operator, operands }, dtype })
    }
}

/// The type of a result, unless it is a conversion.
fn result_type(operator: Operator, operands: &[DType]) -> DType {
    let first = operands.first().copied().unwrap_or(DType::F32);
    match operator {
        Operator::Compare(_) | Operator::Unary(Unary::IsNan | Unary::IsInf) => DType::Bool,
        Operator::Where => operands.get(1).copied().unwrap_or(first),
        _ => first,
    }
}

/// The nodes that outputs need, and all inputs.
fn needed(nodes: Vec<ExpressionNode>, mut outputs: Vec<usize>) -> (Vec<ExpressionNode>, Vec<usize>) {
    let mut needs = vec![false; nodes.len()];
    outputs.iter().for_each(|&output| needs[output] = true);
    for (place, node) in nodes.iter().enumerate().rev() {
        match &node.kind {
            NodeKind::Input(_) => needs[place] = true,
            NodeKind::Result { operands, .. } if needs[place] => {
                operands.iter().for_each(|&operand| needs[operand] = true);
            }
            _ => {}
        }
    }
    let mut places = vec![0; nodes.len()];
    let mut kept = Vec::new();
    for (place, mut node) in nodes.into_iter().enumerate().filter(|(place, _)| needs[*place]) {
        if let NodeKind::Result { operands, .. } = &mut node.kind {
            operands.iter_mut().for_each(|operand| *operand = places[*operand]);
        }
        places[place] = kept.len();
        kept.push(node);
    }
    outputs.iter_mut().for_each(|output| *output = places[*output]);
    (kept, outputs)
}

impl<'e> ExpressionValue<'e> {
    /// The type of its elements.
    #[must_use]
    pub fn dtype(self) -> DType {
        let state = self.builder.0.borrow();
        state.nodes.get(self.node).map_or(DType::F32, |node| node.dtype)
    }

    /// The result of an element-wise operator of one input.
    #[must_use]
    pub fn apply(self, unary: Unary) -> Self {
        self.builder.result(unary.into(), &[self], None)
    }

    fn binary(self, binary: Binary, other: impl Term<'e>) -> Self {
        self.builder.result(binary.into(), &[self, other.value(self)], None)
    }

    /// The value as another type, as [`Operator::Copy`] converts.
    #[must_use]
    pub fn cast(self, dtype: DType) -> Self {
        if self.dtype() == dtype {
            return self;
        }
        self.builder.result(Operator::Copy, &[self], Some(dtype))
    }

    /// `self < other`, for example: a `bool`.
    #[must_use]
    pub fn compare(self, compare: Compare, other: impl Term<'e>) -> Self {
        self.builder.result(compare.into(), &[self, other.value(self)], None)
    }

    /// `a` where this `bool` is true, and else `b`. Of a value and a number, the value is `a`.
    #[must_use]
    pub fn select(self, a: Self, b: impl Term<'e>) -> Self {
        self.builder.result(Operator::Where, &[self, a, b.value(a)], None)
    }

    /// `min(max(self, low), high)`
    #[must_use]
    pub fn clamp(self, low: impl Term<'e>, high: impl Term<'e>) -> Self {
        self.builder.result(Operator::Clamp, &[self, low.value(self), high.value(self)], None)
    }

    /// `self` to the power of `other`.
    #[must_use]
    pub fn pow(self, other: impl Term<'e>) -> Self {
        self.binary(Binary::Pow, other)
    }

    /// The larger one.
    #[must_use]
    pub fn larger(self, other: impl Term<'e>) -> Self {
        self.binary(Binary::Max, other)
    }

    /// The smaller one.
    #[must_use]
    pub fn smaller(self, other: impl Term<'e>) -> Self {
        self.binary(Binary::Min, other)
    }

    /// The reduction of dimensions of the call's shape. All reductions of an expression have the same.
    #[must_use]
    pub fn reduce(self, reduction: Reduction, dims: impl Into<Dims>) -> Self {
        self.builder.result(Operator::Reduce { reduction, dims: dims.into() }, &[self], None)
    }

    /// The sum over dimensions.
    #[must_use]
    pub fn sum(self, dims: impl Into<Dims>) -> Self {
        self.reduce(Reduction::Sum, dims)
    }

    /// The mean over dimensions.
    #[must_use]
    pub fn mean(self, dims: impl Into<Dims>) -> Self {
        self.reduce(Reduction::Mean, dims)
    }

    /// The largest element of dimensions.
    #[must_use]
    pub fn max(self, dims: impl Into<Dims>) -> Self {
        self.reduce(Reduction::Max, dims)
    }
}

macro_rules! unary {
    ($($method:ident: $unary:ident,)*) => {
        impl ExpressionValue<'_> {
            $(
                #[doc = concat!("[`Unary::", stringify!($unary), "`]")]
                #[must_use]
                pub fn $method(self) -> Self {
                    self.apply(Unary::$unary)
                }
            )*
        }
    };
}

unary! {
    abs: Abs,
    recip: Recip,
    sqrt: Sqrt,
    exp: Exp,
    log: Log,
    sin: Sin,
    cos: Cos,
    tanh: Tanh,
    erf: Erf,
    relu: Relu,
    sigmoid: Sigmoid,
    gelu: Gelu,
}

impl<'e> Term<'e> for ExpressionValue<'e> {
    fn value(self, _like: ExpressionValue<'e>) -> Self {
        self
    }
}

impl<'e, S: Into<Scalar>> Term<'e> for S {
    fn value(self, like: ExpressionValue<'e>) -> ExpressionValue<'e> {
        like.builder.literal(like.dtype(), self)
    }
}

macro_rules! operators {
    ($($trait:ident, $method:ident;)*) => {$(
        impl<'e, T: Term<'e>> $trait<T> for ExpressionValue<'e> {
            type Output = Self;

            fn $method(self, other: T) -> Self {
                self.binary(Binary::$trait, other)
            }
        }

        impl<'e> $trait<ExpressionValue<'e>> for f64 {
            type Output = ExpressionValue<'e>;

            fn $method(self, other: ExpressionValue<'e>) -> ExpressionValue<'e> {
                self.value(other).binary(Binary::$trait, other)
            }
        }
    )*};
}

operators! {
    Add, add;
    Sub, sub;
    Mul, mul;
    Div, div;
    Rem, rem;
}

impl Neg for ExpressionValue<'_> {
    type Output = Self;

    fn neg(self) -> Self {
        self.apply(Unary::Neg)
    }
}

impl fmt::Debug for ExpressionValue<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ExpressionValue({} {})", self.dtype(), self.node)
    }
}

impl fmt::Debug for ExpressionBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.0.borrow();
        let nodes = state.nodes.len();
        f.debug_struct("ExpressionBuilder").field("nodes", &nodes).field("error", &state.error).finish()
    }
}
