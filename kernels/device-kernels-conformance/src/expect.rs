//! What an element of an output has to be.

use std::fmt;

use device_kernels::DType;

use crate::element::{self, Value};

/// What an element of an output has to be.
#[derive(Clone, Debug, PartialEq)]
pub enum Expect {
    /// The vocabulary does not say what it is.
    Anything,
    /// The bytes that it has before the call.
    Kept,
    /// This value and no other: a moved number keeps the sign of a zero. A NaN may be any NaN.
    Exactly(Value),
    /// A number that differs from this one by no more than the second.
    Near(f64, f64),
    /// One of these.
    OneOf(Vec<Expect>),
}

impl Expect {
    /// A value for which the sign of a zero does not count.
    #[must_use]
    pub fn value(value: Value) -> Self {
        match value {
            Value::Float(value) => Self::Near(value, 0.0),
            Value::Int(_) => Self::Exactly(value),
        }
    }

    /// `value` or one of `others`.
    #[must_use]
    pub fn or(self, others: impl IntoIterator<Item = Self>) -> Self {
        let mut all = vec![self];
        for other in others {
            // Compared as text: two zeros are equal, and may differ in their signs.
            if !all.iter().any(|one| one.to_string() == other.to_string()) {
                all.push(other);
            }
        }
        if all.len() == 1 { all.remove(0) } else { Self::OneOf(all) }
    }

    /// The value to continue with. `None` if none is known.
    #[must_use]
    pub fn likely(&self) -> Option<Value> {
        match self {
            Self::Anything | Self::Kept => None,
            Self::Exactly(value) => Some(*value),
            Self::Near(value, _) => Some(Value::Float(*value)),
            Self::OneOf(all) => all.first().and_then(Self::likely),
        }
    }

    /// Whether the element that `bytes` are is as expected.
    #[must_use]
    pub fn fits(&self, dtype: DType, bytes: &[u8]) -> bool {
        if dtype == DType::Bool && bytes[0] > 1 && *self != Self::Anything {
            return false;
        }
        self.fits_value(dtype, element::read(dtype, bytes))
    }

    fn fits_value(&self, dtype: DType, found: Value) -> bool {
        match (self, found) {
            // What is kept is compared by its bytes, as all that is not written.
            (Self::Anything | Self::Kept, _) => true,
            (Self::OneOf(all), _) => all.iter().any(|one| one.fits_value(dtype, found)),
            (Self::Exactly(Value::Float(expected)), Value::Float(found)) => {
                expected.to_bits() == found.to_bits() || (expected.is_nan() && found.is_nan())
            }
            (Self::Exactly(expected), found) => *expected == found,
            (&Self::Near(expected, error), found) => is_near(dtype, expected, error, found.as_f64()),
        }
    }
}

fn is_near(dtype: DType, expected: f64, error: f64, found: f64) -> bool {
    if expected.is_nan() || found.is_nan() {
        return expected.is_nan() && found.is_nan();
    }
    if expected.is_infinite() {
        return found == expected;
    }
    if found.is_infinite() {
        // Where it is rounded to infinity, or may be by its error.
        let largest = element::largest(dtype);
        let reaches = expected.abs() + error >= largest + element::ulp(dtype, largest) / 2.0;
        return reaches && found.is_sign_negative() == expected.is_sign_negative();
    }
    // A subnormal result may be flushed to zero: see `tolerance.rs`.
    let flushed = found == 0.0
        && dtype != DType::F64
        && expected.abs() - error < element::smallest_normal(dtype)
        && dtype.is_float();
    // The reference has its own error, far smaller than a unit of any type but `f64`.
    let slack = expected.abs() * 1e-15 * f64::from(u8::from(dtype != DType::F64));
    flushed || (found - expected).abs() <= error + slack
}

impl fmt::Display for Expect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Anything => f.write_str("any value"),
            Self::Kept => f.write_str("what was there"),
            Self::Exactly(Value::Float(value)) => write!(f, "exactly {value:?}"),
            Self::Exactly(Value::Int(value)) => write!(f, "{value}"),
            Self::Near(value, 0.0) => write!(f, "{value:?}"),
            Self::Near(value, error) => write!(f, "{value:?} within {error:.3e}"),
            Self::OneOf(all) => {
                let all: Vec<_> = all.iter().map(ToString::to_string).collect();
                write!(f, "{}", all.join(" or "))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fits(expect: Expect, dtype: DType, found: f64) -> bool {
        let mut bytes = [0; 8];
        element::write(dtype, Value::Float(found), &mut bytes);
        expect.fits(dtype, &bytes)
    }

    #[test]
    fn an_error_is_allowed_and_no_more() {
        assert!(fits(Expect::Near(1.0, 0.01), DType::F32, 1.01 - 1e-6));
        assert!(!fits(Expect::Near(1.0, 0.01), DType::F32, 1.0101));
        assert!(!fits(Expect::Near(1.0, 0.01), DType::F32, f64::NAN));
        assert!(!fits(Expect::Near(f64::NAN, 0.01), DType::F32, 1.0));
        assert!(fits(Expect::Near(f64::NAN, 0.0), DType::F32, f64::NAN));
    }

    #[test]
    fn infinity_is_expected_where_a_number_is_too_large() {
        assert!(fits(Expect::Near(1e39, 0.0), DType::F32, f64::INFINITY));
        assert!(!fits(Expect::Near(1e39, 0.0), DType::F32, f64::NEG_INFINITY));
        assert!(!fits(Expect::Near(1e38, 0.0), DType::F32, f64::INFINITY));
        assert!(!fits(Expect::Near(f64::INFINITY, 0.0), DType::F32, 3e38));
        assert!(fits(Expect::Near(65504.0, 32.0), DType::F16, f64::INFINITY));
    }

    #[test]
    fn subnormal_results_may_be_zero_but_not_those_of_f64_and_not_moved_ones() {
        assert!(fits(Expect::Near(1e-40, 0.0), DType::F32, 0.0));
        assert!(!fits(Expect::Near(1e-37, 0.0), DType::F32, 0.0));
        assert!(!fits(Expect::Near(1e-310, 0.0), DType::F64, 0.0));
        assert!(!fits(Expect::Exactly(Value::Float(1e-40)), DType::F32, 0.0));
        assert!(!fits(Expect::Exactly(Value::Float(0.0)), DType::F32, -0.0));
    }

    #[test]
    fn a_bool_is_0_or_1() {
        assert!(Expect::Exactly(Value::Int(1)).fits(DType::Bool, &[1]));
        assert!(!Expect::Exactly(Value::Int(1)).fits(DType::Bool, &[2]));
    }
}
