//! One value in place of an array.

use std::fmt;

/// A value that an operator uses for each element. It is converted to the type of the other operands, as `as`
/// of Rust converts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Scalar {
    /// A floating-point number.
    Float(f64),
    /// An integer.
    Int(i64),
    /// A boolean.
    Bool(bool),
}

impl Scalar {
    /// The value as a floating-point number. A boolean is 0 or 1.
    #[must_use]
    pub fn as_f64(self) -> f64 {
        match self {
            Self::Float(value) => value,
            Self::Int(value) => value as f64,
            Self::Bool(value) => f64::from(u8::from(value)),
        }
    }

    /// The value as an integer: a floating-point number is rounded toward zero, to the nearest of the range,
    /// and NaN is 0.
    #[must_use]
    pub fn as_i64(self) -> i64 {
        match self {
            Self::Float(value) => value as i64,
            Self::Int(value) => value,
            Self::Bool(value) => i64::from(value),
        }
    }

    /// Whether the value is not zero.
    #[must_use]
    pub fn as_bool(self) -> bool {
        match self {
            Self::Float(value) => value != 0.0,
            Self::Int(value) => value != 0,
            Self::Bool(value) => value,
        }
    }
}

impl From<f64> for Scalar {
    fn from(value: f64) -> Self {
        Self::Float(value)
    }
}

impl From<f32> for Scalar {
    fn from(value: f32) -> Self {
        Self::Float(value.into())
    }
}

impl From<i64> for Scalar {
    fn from(value: i64) -> Self {
        Self::Int(value)
    }
}

impl From<i32> for Scalar {
    fn from(value: i32) -> Self {
        Self::Int(value.into())
    }
}

impl From<bool> for Scalar {
    fn from(value: bool) -> Self {
        Self::Bool(value)
    }
}

impl fmt::Display for Scalar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Float(value) => fmt::Debug::fmt(value, f),
            Self::Int(value) => value.fmt(f),
            Self::Bool(value) => value.fmt(f),
        }
    }
}
