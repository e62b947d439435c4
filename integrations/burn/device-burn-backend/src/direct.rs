//! The most frequent operations of burn's CPU engine, called without burn's interpreter.
//!
//! The interpreter keeps tensors by identifiers: a small operation spends most of its time on putting them in
//! and taking them out. It would pass the operations here to the engine unchanged (`burn-router` 0.22.1,
//! `src/interpreter.rs`).

use std::slice;

use burn_backend::ops::{ActivationOps, BoolTensorOps, FloatTensorOps, IntTensorOps};
use burn_backend::{FloatDType, Scalar, Shape, Slice};
use burn_flex::{Flex, FlexDevice, FlexTensor};
use burn_ir::{
    ActivationOperationIr, BaseOperationIr, BinaryOpIr, CatOpIr, CreationOpIr, FloatOperationIr, MatmulOpIr,
    NumericOperationIr, OperationIr, ReduceDimOpIr, ReduceOpIr, ScalarOpIr, ShapeOpIr, SliceAssignOpIr,
    TensorIr, UnaryOpIr,
};

use crate::dtype::is_quantized;
use crate::operation::{Operands, copy};

/// An operation that is a call of the engine.
pub(crate) struct Direct<'a> {
    call: Call<'a>,
    pub(crate) out: &'a TensorIr,
}

/// A function of the engine, with its arguments.
#[derive(Clone, Copy)]
enum Call<'a> {
    New(fn(Shape, &FlexDevice, FloatDType) -> FlexTensor),
    Reshape(&'a TensorIr),
    SliceAssign(&'a [Slice], [&'a TensorIr; 2]),
    Cat(fn(Vec<FlexTensor>, usize) -> FlexTensor, &'a CatOpIr),
    One(fn(FlexTensor) -> FlexTensor, &'a TensorIr),
    Two(fn(FlexTensor, FlexTensor) -> FlexTensor, [&'a TensorIr; 2]),
    Scalar(fn(FlexTensor, Scalar) -> FlexTensor, &'a TensorIr, Scalar),
    Dim(fn(FlexTensor, usize) -> FlexTensor, &'a TensorIr, usize),
}

impl<'a> Direct<'a> {
    /// The operation as such a call, if it is one.
    pub(crate) fn of(operation: &'a OperationIr) -> Option<Self> {
        match operation {
            OperationIr::BaseFloat(BaseOperationIr::Cat(op)) => Some(cat(Flex::float_cat, op)),
            OperationIr::BaseInt(BaseOperationIr::Cat(op)) => Some(cat(Flex::int_cat, op)),
            OperationIr::BaseBool(BaseOperationIr::Cat(op)) => Some(cat(Flex::bool_cat, op)),
            OperationIr::BaseFloat(operation) => base(operation),
            OperationIr::NumericFloat(_, operation) => numeric(operation),
            OperationIr::Float(_, operation) => float(operation),
            OperationIr::Activation(operation) => activation(operation),
            _ => None,
        }
    }

    /// The operation, if it joins tensors.
    pub(crate) fn joins(&self) -> Option<&'a CatOpIr> {
        match self.call {
            Call::Cat(_, cat) => Some(cat),
            _ => None,
        }
    }

    /// The tensors that it takes, in the order in which it takes them.
    fn inputs(&self) -> impl Iterator<Item = &'a TensorIr> {
        let all: (&[TensorIr], Option<&TensorIr>) = match self.call {
            Call::New(_) => (&[], None),
            Call::Cat(_, cat) => (&cat.tensors, None),
            Call::SliceAssign(_, [first, second]) | Call::Two(_, [first, second]) => {
                (slice::from_ref(first), Some(second))
            }
            Call::Reshape(input)
            | Call::One(_, input)
            | Call::Scalar(_, input, _)
            | Call::Dim(_, input, _) => (slice::from_ref(input), None),
        };
        all.0.iter().chain(all.1)
    }

    /// Whether any of its tensors is quantized.
    pub(crate) fn is_quantized(&self) -> bool {
        self.inputs().chain([self.out]).any(|tensor| is_quantized(tensor.dtype))
    }

    /// Whether its inputs are the first `count` local identifiers, one after the other.
    pub(crate) fn takes_in_order(&self, count: usize) -> bool {
        self.inputs().map(Operands::place).eq(0..count)
    }

    /// The first input or, if there is none, the output.
    pub(crate) fn first(&self) -> &'a TensorIr {
        self.inputs().next().unwrap_or(self.out)
    }

    /// Calls the engine. `None` if any input is.
    ///
    /// # Panics
    ///
    /// Where the engine does. It has taken all inputs.
    pub(crate) fn run(&self, mut take: impl FnMut(&TensorIr) -> Option<FlexTensor>) -> Option<FlexTensor> {
        Some(match self.call {
            Call::New(function) => function(copy(&self.out.shape), &FlexDevice, self.out.dtype.into()),
            Call::Cat(function, cat) => {
                let mut tensors = Vec::with_capacity(cat.tensors.len());
                cat.tensors.iter().for_each(|input| tensors.extend(take(input)));
                if tensors.len() < cat.tensors.len() {
                    return None;
                }
                function(tensors, cat.dim)
            }
            Call::Reshape(input) => Flex::float_reshape(take(input)?, copy(&self.out.shape)),
            Call::SliceAssign(ranges, [tensor, value]) => {
                let tensor = take(tensor);
                let value = take(value);
                Flex::float_slice_assign(tensor?, ranges, value?)
            }
            Call::One(function, input) => function(take(input)?),
            Call::Two(function, [lhs, rhs]) => {
                let lhs = take(lhs);
                let rhs = take(rhs);
                function(lhs?, rhs?)
            }
            Call::Scalar(function, input, scalar) => function(take(input)?, scalar),
            Call::Dim(function, input, dim) => function(take(input)?, dim),
        })
    }
}

fn base(operation: &BaseOperationIr) -> Option<Direct<'_>> {
    use BaseOperationIr::*;
    Some(match operation {
        Ones(CreationOpIr { out }) => Direct { call: Call::New(Flex::float_ones), out },
        Zeros(CreationOpIr { out }) => Direct { call: Call::New(Flex::float_zeros), out },
        Reshape(ShapeOpIr { input, out }) => Direct { call: Call::Reshape(input), out },
        SliceAssign(SliceAssignOpIr { tensor, ranges, value, out }) => {
            Direct { call: Call::SliceAssign(ranges, [tensor, value]), out }
        }
        _ => return None,
    })
}

fn numeric(operation: &NumericOperationIr) -> Option<Direct<'_>> {
    use NumericOperationIr::*;
    Some(match operation {
        Add(op) => two(Flex::float_add, op),
        Sub(op) => two(Flex::float_sub, op),
        Mul(op) => two(Flex::float_mul, op),
        Div(op) => two(Flex::float_div, op),
        AddScalar(op) => scalar(Flex::float_add_scalar, op),
        SubScalar(op) => scalar(Flex::float_sub_scalar, op),
        MulScalar(op) => scalar(Flex::float_mul_scalar, op),
        DivScalar(op) => scalar(Flex::float_div_scalar, op),
        Neg(op) => one(Flex::float_neg, op),
        Mean(ReduceOpIr { input, out }) => Direct { call: Call::One(Flex::float_mean, input), out },
        Sum(ReduceOpIr { input, out }) => Direct { call: Call::One(Flex::float_sum, input), out },
        MeanDim(op) => dim(Flex::float_mean_dim, op),
        SumDim(op) => dim(Flex::float_sum_dim, op),
        _ => return None,
    })
}

fn float(operation: &FloatOperationIr) -> Option<Direct<'_>> {
    use FloatOperationIr::*;
    Some(match operation {
        Exp(op) => one(Flex::float_exp, op),
        Log(op) => one(Flex::float_log, op),
        PowfScalar(op) => scalar(Flex::float_powf_scalar, op),
        Recip(op) => one(Flex::float_recip, op),
        Sqrt(op) => one(Flex::float_sqrt, op),
        Tanh(op) => one(Flex::float_tanh, op),
        Matmul(MatmulOpIr { lhs, rhs, out }) => {
            Direct { call: Call::Two(Flex::float_matmul, [lhs, rhs]), out }
        }
        _ => return None,
    })
}

fn activation(operation: &ActivationOperationIr) -> Option<Direct<'_>> {
    use ActivationOperationIr::*;
    Some(match operation {
        Relu(op) => one(Flex::relu, op),
        ReluBackward(op) => two(Flex::relu_backward, op),
        Sigmoid(op) => one(Flex::sigmoid, op),
        SigmoidBackward(op) => two(Flex::sigmoid_backward, op),
        _ => return None,
    })
}

fn cat(function: fn(Vec<FlexTensor>, usize) -> FlexTensor, cat: &CatOpIr) -> Direct<'_> {
    Direct { call: Call::Cat(function, cat), out: &cat.out }
}

fn one<'a>(function: fn(FlexTensor) -> FlexTensor, op: &'a UnaryOpIr) -> Direct<'a> {
    Direct { call: Call::One(function, &op.input), out: &op.out }
}

fn two<'a>(function: fn(FlexTensor, FlexTensor) -> FlexTensor, op: &'a BinaryOpIr) -> Direct<'a> {
    Direct { call: Call::Two(function, [&op.lhs, &op.rhs]), out: &op.out }
}

fn scalar<'a>(function: fn(FlexTensor, Scalar) -> FlexTensor, op: &'a ScalarOpIr) -> Direct<'a> {
    Direct { call: Call::Scalar(function, &op.lhs, op.rhs.into()), out: &op.out }
}

fn dim<'a>(function: fn(FlexTensor, usize) -> FlexTensor, op: &'a ReduceDimOpIr) -> Direct<'a> {
    Direct { call: Call::Dim(function, &op.input, op.axis), out: &op.out }
}
