//! Many element-wise operators as one, with reductions among them.

use std::fmt;
use std::hash::{Hash, Hasher};

use smallvec::SmallVec;

use crate::dtype::DType;
use crate::operator::{Dims, Operator};
use crate::problem::Problem;
use crate::scalar::Scalar;

/// An operator that is made of others: element-wise operators, and reductions of one set of dimensions, whose
/// results later element-wise operators may use. One call of it reads each input and writes each output once,
/// where a call for each of its operators moves every result in between through memory.
///
/// ```
/// use device_kernels::{DType, Expression};
///
/// let gated = Expression::build(|e| {
///     let x = e.input(DType::F32);
///     let gate = e.input(DType::F32);
///     e.output(x.gelu() * gate + 1.0);
/// })?;
/// assert_eq!(gated.name(), "gelu·mul·add");
///
/// let softmax = Expression::build(|e| {
///     let x = e.input(DType::F32);
///     let powers = (x - x.max([1])).exp();
///     e.output(powers / powers.sum([1]));
/// })?;
/// assert_eq!(softmax.name(), "reduce_max·sub·exp·reduce_sum·div");
/// # Ok::<(), device_kernels::ExpressionError>(())
/// ```
///
/// [`run`](crate::run()) enqueues it as any operator: with an [`Argument`](crate::Argument) for each input,
/// an array or a scalar, and an array for each output. The *shape* of a call is the one that its inputs and
/// outputs are broadcast to, and the dimensions of reductions count in it. An output has that shape. If its
/// value follows from reductions, literals, scalars and inputs that are alike along the reduced dimensions,
/// it may have one element in each of those instead. Reduced dimensions without elements are an error.
///
/// An output may have the elements of an input that has the same layout once it is broadcast.
///
/// # Rounding
///
/// Each result is rounded to its type as the operator of its own would round it, so that an expression gives
/// what its operators give one after the other. Between a product and a sum there is no fused multiply-add.
/// With [`keep_precision`](crate::ExpressionBuilder::keep_precision), kernels may leave such rounding out.
/// Reductions may differ in the last bits, as they add in another order.
///
/// # Lifetime
///
/// Equal expressions are one value, which stays for the life of the program. Numbers that change from call to
/// call are therefore inputs that get scalars, and no literals.
#[derive(Clone, Copy)]
pub struct Expression(&'static Definition);

/// What an expression is.
pub(crate) struct Definition {
    pub(crate) nodes: Vec<ExpressionNode>,
    pub(crate) inputs: Vec<DType>,
    pub(crate) outputs: Vec<usize>,
    pub(crate) dims: Option<Dims>,
    pub(crate) keeps_precision: bool,
    pub(crate) name: String,
}

/// A value in an [`Expression`]: what it is, and its type.
#[derive(Clone, Debug, PartialEq)]
pub struct ExpressionNode {
    /// What it is.
    pub kind: NodeKind,
    /// The type of its elements.
    pub dtype: DType,
}

/// What a value in an [`Expression`] is.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum NodeKind {
    /// The input with this number.
    Input(usize),
    /// A number, converted to the node's type.
    Literal(Scalar),
    /// The result of an [element-wise](Operator::is_elementwise) operator or a [`Operator::Reduce`].
    Result {
        /// The operator.
        operator: Operator,
        /// The numbers of the nodes that it is computed from. They are smaller than this node's.
        operands: SmallVec<[usize; 3]>,
    },
}

/// Why there is no such [`Expression`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ExpressionError {
    /// An operator that does not fit the types of its operands.
    #[error("{operator} of {operands}: {problem}")]
    #[non_exhaustive]
    Operator {
        /// The operator.
        operator: String,
        /// The types of its operands.
        operands: String,
        /// What is wrong.
        #[source]
        problem: Problem,
    },
    /// An operator that no expression has, such as a product of matrices.
    #[error("`{operator}` cannot be in an expression: only element-wise operators and reductions can")]
    Kind {
        /// The operator.
        operator: String,
    },
    /// Reductions of different dimensions.
    #[error(
        "a reduction of the dimensions {found} beside one of {expected}: an expression reduces one set of dimensions"
    )]
    Dims {
        /// The dimensions of the first reduction.
        expected: Dims,
        /// The dimensions of this one.
        found: Dims,
    },
    /// There are too many nodes, inputs or outputs.
    #[error("{found} {of} are too many: an expression has at most {most}")]
    Count {
        /// Of what there are too many.
        of: &'static str,
        /// How many there are.
        found: usize,
        /// How many there can be.
        most: usize,
    },
    /// Nothing is computed.
    #[error("an expression without an output")]
    NoOutput,
    /// A value of another builder.
    #[error("a value of another expression")]
    Foreign,
    /// A description that is none of an expression.
    #[error("`{step}` is no step of an expression: {expected}")]
    Description {
        /// The step.
        step: String,
        /// What is expected.
        expected: &'static str,
    },
}

impl Expression {
    pub(crate) fn new(definition: &'static Definition) -> Self {
        Self(definition)
    }

    /// The most nodes, inputs and literals among them.
    pub const MOST_NODES: usize = 128;
    /// The most inputs.
    pub const MOST_INPUTS: usize = 16;
    /// The most outputs.
    pub const MOST_OUTPUTS: usize = 8;

    /// The values, each behind those that it is computed from. There is none that no output needs, except
    /// inputs.
    #[must_use]
    pub fn nodes(&self) -> &'static [ExpressionNode] {
        &self.0.nodes
    }

    /// The types of the inputs.
    #[must_use]
    pub fn inputs(&self) -> &'static [DType] {
        &self.0.inputs
    }

    /// The numbers of the nodes that are the outputs.
    #[must_use]
    pub fn outputs(&self) -> &'static [usize] {
        &self.0.outputs
    }

    /// The dimensions that are reduced. `None` if there is no reduction.
    #[must_use]
    pub fn dims(&self) -> Option<Dims> {
        self.0.dims
    }

    /// Whether kernels may keep more precision than the types of the nodes have: see
    /// [`ExpressionBuilder::keep_precision`](crate::ExpressionBuilder::keep_precision).
    #[must_use]
    pub fn keeps_precision(&self) -> bool {
        self.0.keeps_precision
    }

    /// The names of its operators, for traces: `gelu·mul·add`. Of more than eight there are the first seven,
    /// and how many follow.
    #[must_use]
    pub fn name(&self) -> &'static str {
        &self.0.name
    }

    /// How many operators it is made of.
    #[must_use]
    pub fn operator_count(&self) -> usize {
        self.nodes().iter().filter(|node| node.operands().is_some()).count()
    }

    /// For each node, whether its value in a call is the same along the reduced dimensions. `is_alike` says
    /// so of an input, which is true for a scalar.
    pub(crate) fn alike(&self, is_alike: impl Fn(usize) -> bool) -> SmallVec<[bool; 32]> {
        let mut alike = SmallVec::<[bool; 32]>::new();
        for node in self.nodes() {
            alike.push(match &node.kind {
                NodeKind::Input(place) => is_alike(*place),
                NodeKind::Literal(_) => true,
                NodeKind::Result { operator: Operator::Reduce { .. }, .. } => true,
                NodeKind::Result { operands, .. } => operands.iter().all(|&operand| alike[operand]),
            });
        }
        alike
    }
}

impl ExpressionNode {
    /// The operator and its operands, if the node is a result.
    #[must_use]
    pub fn operands(&self) -> Option<(Operator, &[usize])> {
        match &self.kind {
            NodeKind::Result { operator, operands } => Some((*operator, operands)),
            NodeKind::Input(_) | NodeKind::Literal(_) => None,
        }
    }
}

impl PartialEq for Expression {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self.0, other.0)
    }
}

impl Eq for Expression {}

impl Hash for Expression {
    fn hash<H: Hasher>(&self, state: &mut H) {
        std::ptr::from_ref(self.0).addr().hash(state);
    }
}

impl From<Expression> for Operator {
    fn from(expression: Expression) -> Self {
        Self::Expression(expression)
    }
}

impl fmt::Debug for Expression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Expression({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ExpressionBuilder;
    use crate::operator::{Binary, Compare, Reduction, Unary};

    fn error(describe: impl FnOnce(&ExpressionBuilder)) -> String {
        Expression::build(describe).unwrap_err().to_string()
    }

    #[test]
    fn equal_expressions_are_one_and_literals_are_told_apart() {
        let plus = |number: f64| Expression::build(|e| e.output(e.input(DType::F32) + number)).unwrap();
        assert_eq!(plus(1.0), plus(1.0));
        assert_ne!(plus(0.0), plus(-0.0));
        let relaxed = Expression::build(|e| {
            e.keep_precision();
            e.output(e.input(DType::F32) + 1.0);
        });
        assert_ne!(plus(1.0), relaxed.unwrap());
    }

    #[test]
    fn values_that_no_output_needs_are_left_out_but_inputs_stay() {
        let expression = Expression::build(|e| {
            let a = e.input(DType::F32);
            let b = e.input(DType::F32);
            let _ = (a * b).exp();
            e.output(-a);
        })
        .unwrap();
        assert_eq!(expression.inputs(), [DType::F32, DType::F32]);
        assert_eq!(expression.operator_count(), 1);
        assert_eq!(expression.name(), "neg");
    }

    #[test]
    fn the_types_of_results_follow_from_operands() {
        let expression = Expression::build(|e| {
            let a = e.input(DType::F16);
            let larger = a.compare(Compare::Gt, 0.5);
            e.output(larger.select(a, 2));
            e.output(larger);
            e.output(larger.cast(DType::I64) + 1);
            e.output(a.apply(Unary::IsNan));
        })
        .unwrap();
        let types: Vec<_> = expression.outputs().iter().map(|&node| expression.nodes()[node].dtype).collect();
        assert_eq!(types, [DType::F16, DType::Bool, DType::I64, DType::Bool]);
    }

    #[test]
    fn mistakes_are_errors_that_name_the_operator() {
        type Describe = fn(&ExpressionBuilder);
        let cases: [(Describe, &str); 9] = [
            (
                |e| e.output(e.input(DType::F32) + e.input(DType::I32)),
                "add of f32, i32: expected f32 as the type of each input, found i32",
            ),
            (
                |e| e.output(e.input(DType::I32).sqrt()),
                "sqrt of i32: expected a float as the type of the inputs, found i32",
            ),
            (|_| {}, "an expression without an output"),
            (
                |e| {
                    let a = e.input(DType::F32);
                    e.output(a.sum([0]) + a.sum([1]));
                },
                "a reduction of the dimensions [1] beside one of [0]: an expression reduces one set of dimensions",
            ),
            (
                |e| {
                    let a = e.input(DType::F32);
                    e.output(e.apply(Operator::MatMul, &[a, a]));
                },
                "`matmul` cannot be in an expression: only element-wise operators and reductions can",
            ),
            (
                |e| {
                    let mut a = e.input(DType::F32);
                    (0..200).for_each(|_| a = a + 1.0);
                    e.output(a);
                },
                "257 nodes are too many: an expression has at most 128",
            ),
            (
                |e| {
                    let a = e.input(DType::F32);
                    (0..256).for_each(|_| _ = e.literal(DType::F32, 1.0));
                    e.output(a.exp());
                },
                "257 nodes are too many: an expression has at most 128",
            ),
            (
                |e| (0..17).for_each(|_| e.output(e.input(DType::F32))),
                "17 inputs are too many: an expression has at most 16",
            ),
            (
                |e| {
                    let a = e.input(DType::F32);
                    e.output(e.apply(Binary::Add, &[a]));
                },
                "add of f32: expected 2 as the number of inputs, found 1",
            ),
        ];
        for (describe, expected) in cases {
            assert_eq!(error(describe), expected);
        }
        let _ = Expression::build(|outer| {
            let a = outer.input(DType::F32);
            let other = Expression::build(|e| {
                let _ = e.input(DType::F32);
                let b = e.input(DType::F32);
                e.output(e.apply(Binary::Add, &[a, b]));
            });
            assert_eq!(other, Err(ExpressionError::Foreign));
        });
    }

    #[test]
    fn what_follows_from_reductions_alone_is_reduced() {
        let expression = Expression::build(|e| {
            let x = e.input(DType::F32);
            let scale = e.input(DType::F32);
            let mean = x.reduce(Reduction::Mean, [1]) * scale;
            e.output(mean);
            e.output(x - mean);
        })
        .unwrap();
        let [mean, difference] = *expression.outputs() else { unreachable!("it has two") };
        let of = |is_alike: bool| {
            let alike = expression.alike(|place| place == 1 && is_alike);
            [alike[mean], alike[difference]]
        };
        assert_eq!(of(true), [true, false]);
        assert_eq!(of(false), [false, false]);
    }
}
