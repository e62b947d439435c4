#![doc = include_str!("../README.md")]
#![cfg_attr(docsrs, feature(doc_cfg))]
#![forbid(unsafe_code)]

mod argument;
mod buffers;
mod call;
mod check;
mod coverage;
mod custom;
mod described;
mod dtype;
mod error;
mod expression;
mod layout;
mod operator;
mod planned;
mod problem;
mod run;
mod scalar;
mod set;
#[doc(hidden)]
pub mod short;

pub use argument::Argument;
pub use buffers::BufferProblem;
pub use call::{Call, CallError};
pub use coverage::{CallLimits, Coverage};
pub use custom::{
    ArrayType, CustomOperator, Elements, Evaluation, Example, ExampleInput, OPERATORS, OperatorDefinition,
    OperatorDescriptor, Signature, operator, operators,
};
pub use described::{DescriptionError, OperatorOption, OperatorOptions, OptionValues};
pub use dtype::{DType, DTypes};
pub use error::{RunError, Sets};
pub use expression::builder::{ExpressionBuilder, ExpressionValue, Term};
pub use layout::{Layout, LayoutError, MAX_RANK};
pub use operator::{
    Binary, Compare, Conv2d, Dims, Distribution, Expression, ExpressionError, ExpressionNode, Extremum,
    MAX_STEP, NodeKind, Operator, Pool2d, Reduction, Sorted, Unary, Update,
};
pub use planned::{ArgumentRef, Planned, Prepared};
pub use planned::{Part, PartPlace, Parts};
pub use problem::Problem;
pub use run::{Operand, OperandRef, run, run_ref};
pub use scalar::Scalar;
pub use set::{ComputeOnHost, KERNEL_SETS, KernelSet, KernelSetDescriptor, Kernels, LinkedSet, kernel_sets};

/// Registers a kernel set, with [`KERNEL_SETS`](static@KERNEL_SETS) as the group, or an operator, with
/// [`OPERATORS`](static@OPERATORS).
#[doc(inline)]
pub use entry_points::entry_points;
