//! What can be wrong with the arguments of an operator.

use crate::dtype::DType;
use crate::layout::LayoutError;

/// Why arguments are invalid for an operator.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Problem {
    /// There are too few or too many.
    #[error("expected {expected} as the number of {of}, found {found}")]
    Count {
        /// `inputs`, `outputs` or `options`.
        of: &'static str,
        /// How many the operator has.
        expected: &'static str,
        /// How many were passed.
        found: usize,
    },
    /// A value was passed in place of an array.
    #[error("expected an array as {argument}, found a scalar")]
    Scalar {
        /// Which argument.
        argument: &'static str,
    },
    /// An argument has a type that it cannot have.
    #[error("expected {expected} as the type of {argument}, found {found}")]
    DType {
        /// Which argument.
        argument: &'static str,
        /// The types that it can have.
        expected: String,
        /// The type that it has.
        found: DType,
    },
    /// All inputs are scalars, from which no type follows.
    #[error("expected an array among the inputs, found scalars only")]
    NoArray,
    /// An argument has a shape that it cannot have.
    #[error("expected {expected} as the shape of {argument}, found {found:?}")]
    Shape {
        /// Which argument.
        argument: &'static str,
        /// The shape that follows from the other arguments.
        expected: String,
        /// The shape that it has.
        found: Vec<usize>,
    },
    /// A shape that cannot be broadcast, or a dimension that an array does not have.
    #[error(transparent)]
    Layout(#[from] LayoutError),
    /// An option has a value that makes no sense.
    #[error("expected {expected} as the {option}, found {found}")]
    Option {
        /// Which option.
        option: &'static str,
        /// Its values.
        expected: &'static str,
        /// The value that it has.
        found: String,
    },
    /// A rule of an operator that a crate declares.
    #[error("{0}")]
    Rule(String),
    /// There are no elements to take one from.
    #[error("there are no elements in {argument}, and the operator has no result for none")]
    Empty {
        /// Which argument.
        argument: &'static str,
    },
    /// Two indices of an output lead to one element, or may.
    #[error(
        "expected an output with each element once, found the strides {strides:?} for the shape {shape:?}"
    )]
    Repeated {
        /// The shape.
        shape: Vec<usize>,
        /// The strides.
        strides: Vec<isize>,
    },
}
