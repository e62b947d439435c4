//! The most frequent operations of burn's CPU engine, called without burn's interpreter.
//!
//! The interpreter keeps tensors by identifiers: a small operation spends most of its time on putting them in
//! and taking them out. What is here, it would pass to the engine as it is (`burn-router` 0.22.1,
//! `src/interpreter.rs`).

use burn_backend::Scalar;
use burn_backend::ops::{ActivationOps, FloatTensorOps};
use burn_flex::{Flex, FlexTensor};
use burn_ir::{
    ActivationOperationIr, FloatOperationIr, NumericOperationIr, OperationIr, ReduceDimOpIr, ScalarOpIr,
    TensorIr,
};
use smallvec::SmallVec;

use crate::operation::Operands;

/// A function of the engine, with the arguments that are not tensors and the places of those that are.
enum Direct {
    One(fn(FlexTensor) -> FlexTensor, usize),
    Two(fn(FlexTensor, FlexTensor) -> FlexTensor, [usize; 2]),
    Scalar(fn(FlexTensor, Scalar) -> FlexTensor, usize, Scalar),
    Dim(fn(FlexTensor, usize) -> FlexTensor, usize, usize),
}

/// Runs an operation that is one of these, and takes its inputs. Of another one, leaves them where they are.
///
/// # Panics
///
/// Where the engine does.
pub(crate) fn run(operation: &OperationIr, inputs: &mut SmallVec<[FlexTensor; 4]>) -> Option<FlexTensor> {
    Some(match direct(operation)? {
        Direct::One(function, 0) if inputs.len() == 1 => function(inputs.remove(0)),
        Direct::Scalar(function, 0, scalar) if inputs.len() == 1 => function(inputs.remove(0), scalar),
        Direct::Dim(function, 0, dim) if inputs.len() == 1 => function(inputs.remove(0), dim),
        Direct::Two(function, [0, 1]) if inputs.len() == 2 => {
            let second = inputs.remove(1);
            function(inputs.remove(0), second)
        }
        _ => return None,
    })
}

fn direct(operation: &OperationIr) -> Option<Direct> {
    match operation {
        OperationIr::NumericFloat(_, operation) => numeric(operation),
        OperationIr::Float(_, operation) => float(operation),
        OperationIr::Activation(operation) => activation(operation),
        _ => None,
    }
}

fn numeric(operation: &NumericOperationIr) -> Option<Direct> {
    use NumericOperationIr::*;
    Some(match operation {
        Add(op) => two(Flex::float_add, &op.lhs, &op.rhs),
        Sub(op) => two(Flex::float_sub, &op.lhs, &op.rhs),
        Mul(op) => two(Flex::float_mul, &op.lhs, &op.rhs),
        Div(op) => two(Flex::float_div, &op.lhs, &op.rhs),
        AddScalar(op) => scalar(Flex::float_add_scalar, op),
        SubScalar(op) => scalar(Flex::float_sub_scalar, op),
        MulScalar(op) => scalar(Flex::float_mul_scalar, op),
        DivScalar(op) => scalar(Flex::float_div_scalar, op),
        Mean(op) => one(Flex::float_mean, &op.input),
        Sum(op) => one(Flex::float_sum, &op.input),
        MeanDim(op) => dim(Flex::float_mean_dim, op),
        SumDim(op) => dim(Flex::float_sum_dim, op),
        _ => return None,
    })
}

fn float(operation: &FloatOperationIr) -> Option<Direct> {
    use FloatOperationIr::*;
    Some(match operation {
        Exp(op) => one(Flex::float_exp, &op.input),
        Log(op) => one(Flex::float_log, &op.input),
        Sqrt(op) => one(Flex::float_sqrt, &op.input),
        Tanh(op) => one(Flex::float_tanh, &op.input),
        Matmul(op) => two(Flex::float_matmul, &op.lhs, &op.rhs),
        _ => return None,
    })
}

fn activation(operation: &ActivationOperationIr) -> Option<Direct> {
    use ActivationOperationIr::*;
    Some(match operation {
        Relu(op) => one(Flex::relu, &op.input),
        ReluBackward(op) => two(Flex::relu_backward, &op.lhs, &op.rhs),
        Sigmoid(op) => one(Flex::sigmoid, &op.input),
        SigmoidBackward(op) => two(Flex::sigmoid_backward, &op.lhs, &op.rhs),
        _ => return None,
    })
}

fn one(function: fn(FlexTensor) -> FlexTensor, input: &TensorIr) -> Direct {
    Direct::One(function, Operands::place(input))
}

fn two(function: fn(FlexTensor, FlexTensor) -> FlexTensor, lhs: &TensorIr, rhs: &TensorIr) -> Direct {
    Direct::Two(function, [lhs, rhs].map(Operands::place))
}

fn scalar(function: fn(FlexTensor, Scalar) -> FlexTensor, operation: &ScalarOpIr) -> Direct {
    Direct::Scalar(function, Operands::place(&operation.lhs), operation.rhs.into())
}

fn dim(function: fn(FlexTensor, usize) -> FlexTensor, operation: &ReduceDimOpIr) -> Direct {
    Direct::Dim(function, Operands::place(&operation.input), operation.axis)
}
