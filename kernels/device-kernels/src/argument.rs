//! The arguments of a call: arrays, by type and layout, and values. No memory is in them.

use std::fmt;

use smallvec::SmallVec;

use crate::dtype::DType;
use crate::layout::Layout;
use crate::scalar::Scalar;

/// What an operator is called with: the type and layout of an array, or a value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Argument {
    /// An array.
    Array(DType, Layout),
    /// A value for each element.
    Scalar(Scalar),
}

/// The inputs of most operators, in place.
pub(crate) type Inputs = SmallVec<[Argument; 3]>;
pub(crate) type Outputs = SmallVec<[(DType, Layout); 2]>;

impl Argument {
    /// The type and layout, if it is an array.
    #[must_use]
    pub fn array(&self) -> Option<(DType, &Layout)> {
        match self {
            Self::Array(dtype, layout) => Some((*dtype, layout)),
            Self::Scalar(_) => None,
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.array().is_some_and(|(_, layout)| layout.len() == 0)
    }
}

impl From<(DType, Layout)> for Argument {
    fn from((dtype, layout): (DType, Layout)) -> Self {
        Self::Array(dtype, layout)
    }
}

impl<S: Into<Scalar>> From<S> for Argument {
    fn from(scalar: S) -> Self {
        Self::Scalar(scalar.into())
    }
}

impl fmt::Display for Argument {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Array(dtype, layout) => write!(f, "{dtype} {:?}", layout.shape()),
            Self::Scalar(scalar) => scalar.fmt(f),
        }
    }
}
