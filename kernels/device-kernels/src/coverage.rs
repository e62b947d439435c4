//! The calls that a kernel set has kernels for, as data.

use std::borrow::Cow;
use std::fmt;

use crate::call::Call;
use crate::dtype::DTypes;
use crate::operator::Operator;

/// Says, as data, that a kernel set has a kernel for an operator, and for which calls: for tables, and for
/// [`KernelSet::supports`](crate::KernelSet::supports).
///
/// ```
/// use device_kernels::{Argument, Binary, Call, Coverage, DType, Layout};
///
/// let coverage = Coverage::of("add").dtypes([DType::F32]).contiguous();
/// let call = |dtype| {
///     let array = Argument::Array(dtype, Layout::contiguous([2, 3]).unwrap());
///     Call::new(Binary::Add, &[array, array], &[array]).unwrap()
/// };
/// assert!(coverage.covers(&call(DType::F32)) && !coverage.covers(&call(DType::I32)));
/// assert_eq!(coverage.to_string(), "add of f32, contiguous");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Coverage {
    operator: Cow<'static, str>,
    dtypes: DTypes,
    limits: CallLimits,
}

/// The limits of the calls in a [`Coverage`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CallLimits {
    /// Whether each array has to be [contiguous](crate::Layout::is_contiguous).
    pub contiguous: bool,
    /// Whether no input may be a [`Scalar`](crate::Scalar).
    pub arrays_only: bool,
    /// The most dimensions of an array. `usize::MAX` is no limit.
    pub max_rank: usize,
    /// The most elements of an array. `usize::MAX` is no limit.
    pub max_elements: usize,
}

impl Coverage {
    /// All calls of the operator with this [name](Operator::name).
    #[must_use]
    pub fn of(operator: impl Into<Cow<'static, str>>) -> Self {
        let max_rank = usize::MAX;
        let max_elements = usize::MAX;
        let limits = CallLimits { contiguous: false, arrays_only: false, max_rank, max_elements };
        Self { operator: operator.into(), dtypes: DTypes::ALL, limits }
    }

    /// All calls of every operator in this crate, but not of operators that other crates declare.
    #[must_use]
    pub fn of_all() -> Vec<Self> {
        Operator::names().map(Self::of).collect()
    }

    /// Only calls all of whose arrays have one of these types.
    #[must_use]
    pub fn dtypes(self, dtypes: impl Into<DTypes>) -> Self {
        Self { dtypes: dtypes.into(), ..self }
    }

    /// Only calls whose arrays are all [contiguous](crate::Layout::is_contiguous).
    #[must_use]
    pub fn contiguous(mut self) -> Self {
        self.limits.contiguous = true;
        self
    }

    /// Only calls without a [`Scalar`](crate::Scalar) among their inputs.
    #[must_use]
    pub fn arrays_only(mut self) -> Self {
        self.limits.arrays_only = true;
        self
    }

    /// Only calls none of whose arrays has more dimensions.
    #[must_use]
    pub fn max_rank(mut self, rank: usize) -> Self {
        self.limits.max_rank = rank;
        self
    }

    /// Only calls none of whose arrays has more elements.
    #[must_use]
    pub fn max_elements(mut self, elements: usize) -> Self {
        self.limits.max_elements = elements;
        self
    }

    /// The [name](Operator::name) of the operator.
    #[must_use]
    pub fn operator(&self) -> &str {
        &self.operator
    }

    /// The types that arrays may have.
    #[must_use]
    pub fn types(&self) -> DTypes {
        self.dtypes
    }

    /// The limits of the calls.
    #[must_use]
    pub fn limits(&self) -> CallLimits {
        self.limits
    }

    /// Whether a call is one of these.
    #[must_use]
    pub fn covers(&self, call: &Call) -> bool {
        let CallLimits { contiguous, arrays_only, max_rank, max_elements } = self.limits;
        let no_scalar = || call.inputs().iter().all(|input| input.array().is_some());
        self.operator == call.operator().name()
            && (!arrays_only || no_scalar())
            && call.arrays().all(|(dtype, layout)| {
                self.dtypes.contains(dtype)
                    && (!contiguous || layout.is_contiguous())
                    && layout.rank() <= max_rank
                    && layout.len() <= max_elements
            })
    }
}

/// One line: `add of f32, f16, contiguous, at most 4 dimensions`.
impl fmt::Display for Coverage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { operator, dtypes, limits } = self;
        let CallLimits { contiguous, arrays_only, max_rank, max_elements } = *limits;
        write!(f, "{operator} of {dtypes}")?;
        for (is_so, limit) in [(contiguous, "contiguous"), (arrays_only, "without scalars")] {
            if is_so {
                write!(f, ", {limit}")?;
            }
        }
        if max_rank < usize::MAX {
            write!(f, ", at most {max_rank} dimensions")?;
        }
        if max_elements < usize::MAX {
            write!(f, ", at most {max_elements} elements")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Argument, Binary, DType, Layout};

    fn add(inputs: [Argument; 2]) -> Call {
        let out = Layout::contiguous([2, 3]).unwrap();
        Call::new(Binary::Add, &inputs, &[Argument::Array(DType::F32, out)]).unwrap()
    }

    #[test]
    fn each_limit_excludes_the_calls_beyond_it() {
        let plain = Layout::contiguous([2, 3]).unwrap();
        let array = |layout| Argument::Array(DType::F32, layout);
        let call = add([array(plain), array(plain)]);
        let turned = add([array(plain), array(Layout::contiguous([3, 2]).unwrap().transpose(0, 1).unwrap())]);
        let scalar = add([array(plain), 1.0.into()]);
        let add = || Coverage::of("add");
        for (coverage, expected) in [
            (add(), [true, true, true]),
            (Coverage::of("sub"), [false; 3]),
            (add().dtypes([DType::I32, DType::F16]), [false; 3]),
            (add().dtypes([DType::I32, DType::F32]), [true; 3]),
            (add().contiguous(), [true, false, true]),
            (add().arrays_only(), [true, true, false]),
            (add().max_rank(1), [false; 3]),
            (add().max_rank(2), [true; 3]),
            (add().max_elements(5), [false; 3]),
            (add().max_elements(6), [true; 3]),
        ] {
            let found = [&call, &turned, &scalar].map(|call| coverage.covers(call));
            assert_eq!(found, expected, "{coverage}");
        }
        let all = add().dtypes([DType::I32]).contiguous().arrays_only().max_rank(2).max_elements(6);
        let expected = "add of i32, contiguous, without scalars, at most 2 dimensions, at most 6 elements";
        assert_eq!(all.to_string(), expected);
    }
}
