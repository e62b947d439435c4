//! The operations that compute each element by itself, and reductions, as an operator of kernels and its
//! operands. These can be fused.

use burn_ir::{
    ActivationOperationIr, BaseOperationIr, BinaryOpIr, BoolOperationIr, FloatOperationIr, IntOperationIr,
    NumericOperationIr, OperationIr, ScalarIr, ScalarOpIr, TensorIr,
};
use device_kernels::{Binary, Compare, DType, Dims, MAX_RANK, Operator, Reduction, Scalar, Unary};
use smallvec::SmallVec;

use crate::dtype::{dtype_of, integers};
use crate::mapping::value;
use crate::operation::Operands;

/// An operation with one output that is one operator: an element-wise one, or a reduction.
#[derive(Clone, Debug)]
pub(crate) struct Elementwise {
    pub(crate) operator: Operator,
    pub(crate) terms: SmallVec<[Term; 3]>,
}

/// An operand.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Term {
    /// The input of the operation at this place.
    Input(usize),
    /// A number of the program, which may be another one at the next call.
    Scalar(Scalar),
    /// A number of the operation itself.
    Literal(Scalar),
}

/// The types of an [`Elementwise`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Types {
    /// The operands' type, but the condition of [`Operator::Where`].
    pub(crate) from: DType,
    /// The output's type.
    pub(crate) to: DType,
}

impl Elementwise {
    /// The types, if expressions have them and the shapes.
    pub(crate) fn types(&self, operands: &Operands) -> Option<Types> {
        let [out] = &operands.outputs[..] else { return None };
        let mut tensors = operands.inputs.iter().chain([out]);
        if tensors.any(|tensor| tensor.shape.num_dims() > MAX_RANK || tensor.shape.contains(&0)) {
            return None;
        }
        if let Operator::Reduce { dims, .. } = self.operator {
            let rank = operands.inputs.first()?.shape.num_dims();
            if dims == Dims::default() || dims.iter().any(|dim| dim >= rank) {
                return None;
            }
        }
        let to = dtype_of(out.dtype)?;
        let mut from = None;
        for (place, term) in self.terms.iter().enumerate() {
            let Term::Input(input) = *term else { continue };
            let dtype = dtype_of(operands.inputs.get(input)?.dtype)?;
            if place == 0 && self.operator == Operator::Where {
                if dtype != DType::Bool {
                    return None;
                }
            } else if *from.get_or_insert(dtype) != dtype {
                return None;
            }
        }
        let from = from.unwrap_or(to);
        let fits = match self.operator {
            Operator::Copy => true,
            Operator::Compare(_) | Operator::Unary(Unary::IsNan | Unary::IsInf) => to == DType::Bool,
            _ => from == to,
        };
        fits.then_some(Types { from, to })
    }

    /// The type of the operand at `place`.
    pub(crate) fn operand_type(operator: Operator, from: DType, place: usize) -> DType {
        if place == 0 && operator == Operator::Where { DType::Bool } else { from }
    }
}

/// The operation as one operator, if it is one. Its tensors have local identifiers, from [`Operands`].
pub(crate) fn elementwise(operation: &OperationIr) -> Option<Elementwise> {
    match operation {
        OperationIr::BaseFloat(base) | OperationIr::BaseInt(base) | OperationIr::BaseBool(base) => {
            of_base(base)
        }
        OperationIr::NumericFloat(_, numeric) | OperationIr::NumericInt(_, numeric) => of_numeric(numeric),
        OperationIr::Float(_, float) => of_float(float),
        OperationIr::Int(int) => of_int(int),
        OperationIr::Bool(bool) => of_bool(bool),
        OperationIr::Activation(activation) => of_activation(activation),
        _ => None,
    }
}

fn some<const N: usize>(operator: impl Into<Operator>, terms: [Term; N]) -> Option<Elementwise> {
    Some(Elementwise { operator: operator.into(), terms: SmallVec::from_slice(&terms) })
}

fn input_of(tensor: &TensorIr) -> Term {
    Term::Input(Operands::place(tensor))
}

fn unary(operator: impl Into<Operator>, input: &TensorIr) -> Option<Elementwise> {
    some(operator, [input_of(input)])
}

fn binary(operator: impl Into<Operator>, operands: &BinaryOpIr) -> Option<Elementwise> {
    some(operator, [&operands.lhs, &operands.rhs].map(input_of))
}

fn with_scalar(operator: impl Into<Operator>, operands: &ScalarOpIr) -> Option<Elementwise> {
    some(operator, [input_of(&operands.lhs), Term::Scalar(value(operands.rhs))])
}

fn with_bound(operator: impl Into<Operator>, operands: &ScalarOpIr) -> Option<Elementwise> {
    some(operator, [input_of(&operands.lhs), bound(operands.rhs, &operands.lhs)])
}

/// An output of which all elements are the same.
fn fill(value: Term) -> Option<Elementwise> {
    some(Operator::Copy, [value])
}

fn reduce(reduction: Reduction, input: &TensorIr, dims: Dims) -> Option<Elementwise> {
    unary(Operator::Reduce { reduction, dims }, input)
}

/// The mean of floats. A mean of integers is several operators.
fn mean(input: &TensorIr, dims: Dims) -> Option<Elementwise> {
    input.dtype.is_float().then(|| reduce(Reduction::Mean, input, dims)).flatten()
}

/// Whether any or all elements are true. Of numbers, it is several operators.
fn any_or_all(reduction: Reduction, input: &TensorIr, dims: Dims) -> Option<Elementwise> {
    let is_bool = dtype_of(input.dtype) == Some(DType::Bool);
    is_bool.then(|| reduce(reduction, input, dims)).flatten()
}

pub(crate) fn all_dims(tensor: &TensorIr) -> Dims {
    Dims::all(tensor.shape.num_dims())
}

/// A bound for elements of the tensor. A bound beyond the integers of its dtype becomes the last one in
/// range.
fn bound(limit: ScalarIr, tensor: &TensorIr) -> Term {
    let int = match limit {
        ScalarIr::Int(int) => int,
        ScalarIr::UInt(int) => i64::try_from(int).unwrap_or(i64::MAX),
        ScalarIr::Float(_) | ScalarIr::Bool(_) => return Term::Scalar(value(limit)),
    };
    let in_range = |(low, high)| Scalar::Int(int.clamp(low, high));
    Term::Scalar(integers(tensor.dtype).map_or(value(limit), in_range))
}

fn of_base(base: &BaseOperationIr) -> Option<Elementwise> {
    use BaseOperationIr::*;
    match base {
        Cast(cast) => unary(Operator::Copy, &cast.input),
        MaskWhere(mask) => some(Operator::Where, [&mask.mask, &mask.value, &mask.tensor].map(input_of)),
        MaskFill(mask) => {
            let scalar = Term::Scalar(value(mask.value));
            some(Operator::Where, [input_of(&mask.mask), scalar, input_of(&mask.tensor)])
        }
        Equal(operands) => binary(Compare::Eq, operands),
        NotEqual(operands) => binary(Compare::Ne, operands),
        EqualElem(operands) => with_scalar(Compare::Eq, operands),
        NotEqualElem(operands) => with_scalar(Compare::Ne, operands),
        // New memory has any contents, and burn's engine gives zeros.
        Empty(_) | Zeros(_) => fill(Term::Literal(Scalar::Int(0))),
        Ones(_) => fill(Term::Literal(Scalar::Int(1))),
        All(op) => any_or_all(Reduction::All, &op.input, all_dims(&op.input)),
        Any(op) => any_or_all(Reduction::Any, &op.input, all_dims(&op.input)),
        AllDim(op) => any_or_all(Reduction::All, &op.input, Dims::from([op.axis])),
        AnyDim(op) => any_or_all(Reduction::Any, &op.input, Dims::from([op.axis])),
        _ => None,
    }
}

fn of_numeric(numeric: &NumericOperationIr) -> Option<Elementwise> {
    use NumericOperationIr::*;
    match numeric {
        Add(operands) => binary(Binary::Add, operands),
        Sub(operands) => binary(Binary::Sub, operands),
        Mul(operands) => binary(Binary::Mul, operands),
        Div(operands) => binary(Binary::Div, operands),
        Rem(operands) => binary(Binary::Rem, operands),
        Powi(operands) => binary(Binary::Pow, operands),
        AddScalar(operands) => with_scalar(Binary::Add, operands),
        SubScalar(operands) => with_scalar(Binary::Sub, operands),
        MulScalar(operands) => with_scalar(Binary::Mul, operands),
        DivScalar(operands) => with_scalar(Binary::Div, operands),
        RemScalar(operands) => with_scalar(Binary::Rem, operands),
        PowiScalar(operands) => with_scalar(Binary::Pow, operands),
        ClampMin(operands) => with_bound(Binary::Max, operands),
        ClampMax(operands) => with_bound(Binary::Min, operands),
        Clamp(clamp) => {
            let [low, high] = [clamp.min, clamp.max].map(|limit| bound(limit, &clamp.tensor));
            some(Operator::Clamp, [input_of(&clamp.tensor), low, high])
        }
        Greater(operands) => binary(Compare::Gt, operands),
        GreaterEqual(operands) => binary(Compare::Ge, operands),
        Lower(operands) => binary(Compare::Lt, operands),
        LowerEqual(operands) => binary(Compare::Le, operands),
        GreaterElem(operands) => with_scalar(Compare::Gt, operands),
        GreaterEqualElem(operands) => with_scalar(Compare::Ge, operands),
        LowerElem(operands) => with_scalar(Compare::Lt, operands),
        LowerEqualElem(operands) => with_scalar(Compare::Le, operands),
        Abs(op) => unary(Unary::Abs, &op.input),
        Neg(op) => unary(Unary::Neg, &op.input),
        Sign(op) => unary(Unary::Sign, &op.input),
        Full(full) => fill(Term::Scalar(value(full.value))),
        Sum(op) => reduce(Reduction::Sum, &op.input, all_dims(&op.input)),
        Prod(op) => reduce(Reduction::Prod, &op.input, all_dims(&op.input)),
        Mean(op) => mean(&op.input, all_dims(&op.input)),
        Max(op) => reduce(Reduction::Max, &op.input, all_dims(&op.input)),
        Min(op) => reduce(Reduction::Min, &op.input, all_dims(&op.input)),
        SumDim(op) => reduce(Reduction::Sum, &op.input, Dims::from([op.axis])),
        SumDims(op) => reduce(Reduction::Sum, &op.input, op.axes.iter().copied().collect()),
        ProdDim(op) => reduce(Reduction::Prod, &op.input, Dims::from([op.axis])),
        MeanDim(op) => mean(&op.input, Dims::from([op.axis])),
        MaxDim(op) => reduce(Reduction::Max, &op.input, Dims::from([op.axis])),
        MinDim(op) => reduce(Reduction::Min, &op.input, Dims::from([op.axis])),
        _ => None,
    }
}

fn of_float(float: &FloatOperationIr) -> Option<Elementwise> {
    use FloatOperationIr::*;
    match float {
        Exp(op) => unary(Unary::Exp, &op.input),
        Log(op) => unary(Unary::Log, &op.input),
        Log1p(op) => unary(Unary::Log1p, &op.input),
        Erf(op) => unary(Unary::Erf, &op.input),
        Sqrt(op) => unary(Unary::Sqrt, &op.input),
        Cos(op) => unary(Unary::Cos, &op.input),
        Cosh(op) => unary(Unary::Cosh, &op.input),
        Sin(op) => unary(Unary::Sin, &op.input),
        Sinh(op) => unary(Unary::Sinh, &op.input),
        Tan(op) => unary(Unary::Tan, &op.input),
        Tanh(op) => unary(Unary::Tanh, &op.input),
        ArcCos(op) => unary(Unary::Acos, &op.input),
        ArcCosh(op) => unary(Unary::Acosh, &op.input),
        ArcSin(op) => unary(Unary::Asin, &op.input),
        ArcSinh(op) => unary(Unary::Asinh, &op.input),
        ArcTan(op) => unary(Unary::Atan, &op.input),
        ArcTanh(op) => unary(Unary::Atanh, &op.input),
        Round(op) => unary(Unary::Round, &op.input),
        Floor(op) => unary(Unary::Floor, &op.input),
        Ceil(op) => unary(Unary::Ceil, &op.input),
        Trunc(op) => unary(Unary::Trunc, &op.input),
        Recip(op) => unary(Unary::Recip, &op.input),
        IsNan(op) => unary(Unary::IsNan, &op.input),
        IsInf(op) => unary(Unary::IsInf, &op.input),
        ArcTan2(operands) => binary(Binary::Atan2, operands),
        Powf(operands) => binary(Binary::Pow, operands),
        PowfScalar(operands) => with_scalar(Binary::Pow, operands),
        IntoInt(cast) => unary(Operator::Copy, &cast.input),
        _ => None,
    }
}

fn of_int(int: &IntOperationIr) -> Option<Elementwise> {
    use IntOperationIr::*;
    match int {
        IntoFloat(cast) => unary(Operator::Copy, &cast.input),
        BitwiseAnd(operands) => binary(Binary::And, operands),
        BitwiseOr(operands) => binary(Binary::Or, operands),
        BitwiseXor(operands) => binary(Binary::Xor, operands),
        BitwiseLeftShift(operands) => binary(Binary::Shl, operands),
        BitwiseRightShift(operands) => binary(Binary::Shr, operands),
        BitwiseAndScalar(operands) => with_scalar(Binary::And, operands),
        BitwiseOrScalar(operands) => with_scalar(Binary::Or, operands),
        BitwiseXorScalar(operands) => with_scalar(Binary::Xor, operands),
        BitwiseLeftShiftScalar(operands) => with_scalar(Binary::Shl, operands),
        BitwiseRightShiftScalar(operands) => with_scalar(Binary::Shr, operands),
        BitwiseNot(op) => unary(Unary::Not, &op.input),
        Matmul(_) => None,
    }
}

fn of_bool(bool: &BoolOperationIr) -> Option<Elementwise> {
    use BoolOperationIr::*;
    match bool {
        IntoFloat(cast) | IntoInt(cast) => unary(Operator::Copy, &cast.input),
        Not(op) => unary(Unary::Not, &op.input),
        And(operands) => binary(Binary::And, operands),
        Or(operands) => binary(Binary::Or, operands),
        Xor(operands) => binary(Binary::Xor, operands),
    }
}

fn of_activation(activation: &ActivationOperationIr) -> Option<Elementwise> {
    use ActivationOperationIr::*;
    match activation {
        Relu(op) => unary(Unary::Relu, &op.input),
        Gelu(op) => unary(Unary::Gelu, &op.input),
        Sigmoid(op) => unary(Unary::Sigmoid, &op.input),
        LogSigmoid(op) => unary(Unary::LogSigmoid, &op.input),
        ReluBackward(operands) => binary(Binary::ReluGrad, operands),
        SigmoidBackward(operands) => binary(Binary::SigmoidGrad, operands),
        _ => None,
    }
}

/// The names of the operators that operations here are.
pub(crate) fn elementwise_operators() -> impl Iterator<Item = &'static str> {
    let unary = Unary::ALL.iter().map(|unary| unary.name());
    let binary = Binary::ALL.iter().map(|binary| binary.name());
    let compare = Compare::ALL.iter().map(|compare| compare.name());
    let reductions = Reduction::ALL.iter().map(|&reduction| {
        let dims = Dims::default();
        Operator::Reduce { reduction, dims }.name()
    });
    let others = [Operator::Where, Operator::Clamp, Operator::Copy].map(|operator| operator.name());
    unary.chain(binary).chain(compare).chain(reductions).chain(others)
}
