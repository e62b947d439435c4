//! The most frequent operations of burn's CPU engine, called without burn's interpreter.
//!
//! The interpreter keeps tensors by identifiers: a small operation spends most of its time on putting them in
//! and taking them out. It would pass the operations here to the engine unchanged (`burn-router` 0.22.1,
//! `src/interpreter.rs`).

use burn_backend::ops::{ActivationOps, FloatTensorOps};
use burn_backend::{FloatDType, Scalar, Shape, Slice};
use burn_flex::{Flex, FlexDevice, FlexTensor};
use burn_ir::{
    ActivationOperationIr, BaseOperationIr, CatOpIr, CreationOpIr, FloatOperationIr, NumericOperationIr,
    OperationIr, ReduceDimOpIr, ScalarOpIr, ShapeOpIr, SliceAssignOpIr, TensorIr,
};
use smallvec::SmallVec;

use crate::operation::Operands;

/// A function of the engine, with the arguments that are not tensors and the places of the tensors.
enum Direct<'a> {
    New(fn(Shape, &FlexDevice, FloatDType) -> FlexTensor, &'a CreationOpIr),
    Reshape(&'a ShapeOpIr),
    SliceAssign(&'a [Slice], [usize; 2]),
    Cat(&'a CatOpIr),
    One(fn(FlexTensor) -> FlexTensor, usize),
    Two(fn(FlexTensor, FlexTensor) -> FlexTensor, [usize; 2]),
    Scalar(fn(FlexTensor, Scalar) -> FlexTensor, usize, Scalar),
    Dim(fn(FlexTensor, usize) -> FlexTensor, usize, usize),
}

/// Runs an operation that is one of these, and takes its inputs. For another one, leaves them where they are.
///
/// # Panics
///
/// Where the engine does.
pub(crate) fn run(operation: &OperationIr, inputs: &mut SmallVec<[FlexTensor; 4]>) -> Option<FlexTensor> {
    Some(match direct(operation)? {
        Direct::New(function, new) => function(new.out.shape.clone(), &FlexDevice, new.out.dtype.into()),
        Direct::Cat(cat) if are_in_order(&cat.tensors, inputs) => {
            Flex::float_cat(std::mem::take(inputs).into_vec(), cat.dim)
        }
        Direct::Reshape(reshape) if inputs.len() == 1 => {
            Flex::float_reshape(inputs.remove(0), reshape.out.shape.clone())
        }
        Direct::SliceAssign(ranges, [0, 1]) if inputs.len() == 2 => {
            let value = inputs.remove(1);
            Flex::float_slice_assign(inputs.remove(0), ranges, value)
        }
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

/// Whether `tensors` are all the inputs, one after the other.
fn are_in_order(tensors: &[TensorIr], inputs: &[FlexTensor]) -> bool {
    let mut tensors = tensors.iter().enumerate();
    tensors.len() == inputs.len() && tensors.all(|(place, tensor)| Operands::place(tensor) == place)
}

fn direct(operation: &OperationIr) -> Option<Direct<'_>> {
    match operation {
        OperationIr::BaseFloat(operation) => base(operation),
        OperationIr::NumericFloat(_, operation) => numeric(operation),
        OperationIr::Float(_, operation) => float(operation),
        OperationIr::Activation(operation) => activation(operation),
        _ => None,
    }
}

fn base(operation: &BaseOperationIr) -> Option<Direct<'_>> {
    use BaseOperationIr::*;
    Some(match operation {
        Ones(op) => Direct::New(Flex::float_ones, op),
        Zeros(op) => Direct::New(Flex::float_zeros, op),
        Cat(op) => Direct::Cat(op),
        Reshape(op) => Direct::Reshape(op),
        SliceAssign(SliceAssignOpIr { tensor, ranges, value, .. }) => {
            Direct::SliceAssign(ranges, [tensor, value].map(Operands::place))
        }
        _ => return None,
    })
}

fn numeric(operation: &NumericOperationIr) -> Option<Direct<'_>> {
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
        Neg(op) => one(Flex::float_neg, &op.input),
        Mean(op) => one(Flex::float_mean, &op.input),
        Sum(op) => one(Flex::float_sum, &op.input),
        MeanDim(op) => dim(Flex::float_mean_dim, op),
        SumDim(op) => dim(Flex::float_sum_dim, op),
        _ => return None,
    })
}

fn float(operation: &FloatOperationIr) -> Option<Direct<'_>> {
    use FloatOperationIr::*;
    Some(match operation {
        Exp(op) => one(Flex::float_exp, &op.input),
        Log(op) => one(Flex::float_log, &op.input),
        PowfScalar(op) => scalar(Flex::float_powf_scalar, op),
        Recip(op) => one(Flex::float_recip, &op.input),
        Sqrt(op) => one(Flex::float_sqrt, &op.input),
        Tanh(op) => one(Flex::float_tanh, &op.input),
        Matmul(op) => two(Flex::float_matmul, &op.lhs, &op.rhs),
        _ => return None,
    })
}

fn activation(operation: &ActivationOperationIr) -> Option<Direct<'_>> {
    use ActivationOperationIr::*;
    Some(match operation {
        Relu(op) => one(Flex::relu, &op.input),
        ReluBackward(op) => two(Flex::relu_backward, &op.lhs, &op.rhs),
        Sigmoid(op) => one(Flex::sigmoid, &op.input),
        SigmoidBackward(op) => two(Flex::sigmoid_backward, &op.lhs, &op.rhs),
        _ => return None,
    })
}

fn one(function: fn(FlexTensor) -> FlexTensor, input: &TensorIr) -> Direct<'static> {
    Direct::One(function, Operands::place(input))
}

fn two(
    function: fn(FlexTensor, FlexTensor) -> FlexTensor,
    lhs: &TensorIr,
    rhs: &TensorIr,
) -> Direct<'static> {
    Direct::Two(function, [lhs, rhs].map(Operands::place))
}

fn scalar(function: fn(FlexTensor, Scalar) -> FlexTensor, operation: &ScalarOpIr) -> Direct<'static> {
    Direct::Scalar(function, Operands::place(&operation.lhs), operation.rhs.into())
}

fn dim(function: fn(FlexTensor, usize) -> FlexTensor, operation: &ReduceDimOpIr) -> Direct<'static> {
    Direct::Dim(function, Operands::place(&operation.input), operation.axis)
}
