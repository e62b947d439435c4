//! Arguments: how many there are, whether they are arrays, and of which types and shapes.

use std::fmt;

use crate::argument::{Argument, Outputs};
use crate::dtype::DType;
use crate::layout::Layout;
use crate::problem::Problem;

/// An array among the arguments.
#[derive(Clone, Copy)]
pub(crate) struct Array<'a> {
    pub(crate) dtype: DType,
    pub(crate) layout: &'a Layout,
}

impl<'a> Array<'a> {
    pub(crate) fn expect(self, argument: &'static str, shape: &[usize]) -> Result<(), Problem> {
        self.expect_if(self.layout.shape() == shape, argument, format_args!("{shape:?}"))
    }

    pub(super) fn expect_if(
        self,
        fits: bool,
        argument: &'static str,
        expected: impl fmt::Display,
    ) -> Result<(), Problem> {
        let found = || self.layout.shape().to_vec();
        if fits {
            Ok(())
        } else {
            Err(Problem::Shape { argument, expected: expected.to_string(), found: found() })
        }
    }

    pub(crate) fn same_dtype(self, argument: &'static str, expected: DType) -> Result<(), Problem> {
        let found = self.dtype;
        if found == expected {
            Ok(())
        } else {
            Err(Problem::DType { argument, expected: expected.to_string(), found })
        }
    }

    pub(crate) fn same(self, argument: &'static str, dtype: DType, shape: &[usize]) -> Result<(), Problem> {
        self.same_dtype(argument, dtype)?;
        self.expect(argument, shape)
    }

    /// The length of an array of one dimension.
    pub(super) fn vector(self, argument: &'static str) -> Result<usize, Problem> {
        self.expect_if(self.layout.rank() == 1, argument, "[n]")?;
        Ok(self.layout.len())
    }

    /// The shape of images.
    pub(super) fn image(self, argument: &'static str) -> Result<&'a [usize], Problem> {
        self.expect_if(self.layout.rank() == 4, argument, "[n, c, h, w]")?;
        Ok(self.layout.shape())
    }
}

/// Types that an argument can have.
#[derive(Clone, Copy)]
pub(crate) enum Class {
    Any,
    Float,
    Integer,
    Number,
    Index,
    Bits,
    Bool,
}

impl Class {
    pub(crate) fn check(self, argument: &'static str, found: DType) -> Result<(), Problem> {
        let (fits, expected) = match self {
            Self::Any => (true, "any type"),
            Self::Float => (found.is_float(), "a float"),
            Self::Integer => (found.is_integer(), "an integer"),
            Self::Number => (found.is_float() || found.is_integer(), "a number"),
            Self::Index => (found.is_index(), "i32, i64 or u32"),
            Self::Bits => (found.is_integer() || found == DType::Bool, "an integer or bool"),
            Self::Bool => (found == DType::Bool, "bool"),
        };
        let expected = || expected.to_owned();
        if fits { Ok(()) } else { Err(Problem::DType { argument, expected: expected(), found }) }
    }
}

/// A number in an error.
pub(crate) fn count(number: usize) -> &'static str {
    const NUMBERS: [&str; 17] =
        ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9", "10", "11", "12", "13", "14", "15", "16"];
    NUMBERS.get(number).unwrap_or(&"more than 16")
}

pub(super) fn arrays(outputs: &[Argument]) -> Result<Outputs, Problem> {
    let array = |output: &Argument| {
        let (dtype, layout) = output.array().ok_or(Problem::Scalar { argument: "an output" })?;
        Ok((dtype, *layout))
    };
    outputs.iter().map(array).collect()
}

pub(super) fn one(outputs: &[(DType, Layout)]) -> Result<Array<'_>, Problem> {
    match outputs {
        [(dtype, layout)] => Ok(Array { dtype: *dtype, layout }),
        _ => Err(Problem::Count { of: "outputs", expected: "1", found: outputs.len() }),
    }
}

fn array(input: &Argument) -> Result<Array<'_>, Problem> {
    match input {
        Argument::Array(dtype, layout) => Ok(Array { dtype: *dtype, layout }),
        Argument::Scalar(_) => Err(Problem::Scalar { argument: "an input" }),
    }
}

pub(super) fn one_array(inputs: &[Argument]) -> Result<Array<'_>, Problem> {
    match inputs {
        [input] => array(input),
        _ => Err(Problem::Count { of: "inputs", expected: "1", found: inputs.len() }),
    }
}

pub(super) fn two_arrays(inputs: &[Argument]) -> Result<[Array<'_>; 2], Problem> {
    match inputs {
        [a, b] => Ok([array(a)?, array(b)?]),
        _ => Err(Problem::Count { of: "inputs", expected: "2", found: inputs.len() }),
    }
}

pub(super) fn two_arrays_and_bias(
    inputs: &[Argument],
) -> Result<(Array<'_>, Array<'_>, Option<Array<'_>>), Problem> {
    match inputs {
        [a, b] => Ok((array(a)?, array(b)?, None)),
        [a, b, bias] => Ok((array(a)?, array(b)?, Some(array(bias)?))),
        _ => Err(Problem::Count { of: "inputs", expected: "2 or 3", found: inputs.len() }),
    }
}
