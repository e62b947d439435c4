//! What is in memory, what is computed with, and values of both.

use device_kernels::{DType, Scalar};
use half::{bf16, f16};

/// What an array has in memory: a type of the vocabulary, or bits that are moved as they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Element {
    F32,
    F16,
    BF16,
    F64,
    I32,
    I64,
    U8,
    U32,
    Bool,
    /// Any 16 bits.
    Bits16,
    /// Any 64 bits.
    Bits64,
}

/// What a kernel computes with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Number {
    Float,
    Double,
    Int,
    Long,
    Uint,
    Ulong,
}

/// A value that is an argument of a kernel.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value {
    /// A `float`.
    Float(f32),
    /// A `double`, on devices that have it.
    Double(f64),
    /// An `int`.
    Int(i32),
    /// A `long`.
    Long(i64),
    /// A `uint`.
    Uint(u32),
    /// A `ulong`.
    Ulong(u64),
}

/// The elements of arrays of this type.
pub(crate) fn element(dtype: DType) -> Option<Element> {
    Some(match dtype {
        DType::F32 => Element::F32,
        DType::F16 => Element::F16,
        DType::BF16 => Element::BF16,
        DType::F64 => Element::F64,
        DType::I32 => Element::I32,
        DType::I64 => Element::I64,
        DType::U8 => Element::U8,
        DType::U32 => Element::U32,
        DType::Bool => Element::Bool,
        _ => return None,
    })
}

impl Element {
    pub(crate) fn number(self) -> Number {
        match self {
            Self::F32 | Self::F16 | Self::BF16 => Number::Float,
            Self::F64 => Number::Double,
            Self::I32 => Number::Int,
            Self::I64 => Number::Long,
            Self::U8 | Self::U32 | Self::Bool | Self::Bits16 => Number::Uint,
            Self::Bits64 => Number::Ulong,
        }
    }

    /// The size in bytes.
    pub(crate) fn size(self) -> usize {
        match self {
            Self::U8 | Self::Bool => 1,
            Self::F16 | Self::BF16 | Self::Bits16 => 2,
            Self::F32 | Self::I32 | Self::U32 => 4,
            Self::F64 | Self::I64 | Self::Bits64 => 8,
        }
    }

    /// What moves the same bits. Types of one size are one, so that they need one program. A `bool` is
    /// written as 0 or 1, and stays what it is.
    pub(crate) fn moved(self) -> Self {
        match self {
            Self::F16 | Self::BF16 | Self::Bits16 => Self::Bits16,
            Self::F32 | Self::I32 | Self::U32 => Self::U32,
            Self::F64 | Self::I64 | Self::Bits64 => Self::Bits64,
            Self::U8 | Self::Bool => self,
        }
    }

    /// The scalar as an element, as a kernel computes with it.
    pub(crate) fn value(self, scalar: Scalar) -> Value {
        let float = scalar.as_f64();
        let int = match scalar {
            Scalar::Float(_) => None,
            Scalar::Int(_) | Scalar::Bool(_) => Some(scalar.as_i64()),
        };
        match self {
            Self::F32 => Value::Float(int.map_or(float as f32, |int| int as f32)),
            Self::F16 => Value::Float(f16::from_f32(odd(float)).to_f32()),
            Self::BF16 => Value::Float(bf16::from_f32(odd(float)).to_f32()),
            Self::F64 => Value::Double(float),
            Self::I32 => Value::Int(int.map_or(float as i32, |int| int as i32)),
            Self::I64 => Value::Long(scalar.as_i64()),
            Self::U8 => Value::Uint(int.map_or(float as u8, |int| int as u8).into()),
            Self::U32 => Value::Uint(int.map_or(float as u32, |int| int as u32)),
            Self::Bool => Value::Uint(scalar.as_bool().into()),
            Self::Bits16 => Value::Uint(int.map_or(float as u16, |int| int as u16).into()),
            Self::Bits64 => Value::Ulong(int.map_or(float as u64, |int| int as u64)),
        }
    }

    /// The bits of the scalar as an element, as [`moved`](Self::moved) has them.
    pub(crate) fn moved_value(self, scalar: Scalar) -> Value {
        match (self, self.value(scalar)) {
            (Self::F16, Value::Float(value)) => Value::Uint(f16::from_f32(value).to_bits().into()),
            (Self::BF16, Value::Float(value)) => Value::Uint(bf16::from_f32(value).to_bits().into()),
            (_, Value::Float(value)) => Value::Uint(value.to_bits()),
            (_, Value::Double(value)) => Value::Ulong(value.to_bits()),
            (_, Value::Int(value)) => Value::Uint(value.cast_unsigned()),
            (_, Value::Long(value)) => Value::Ulong(value.cast_unsigned()),
            (_, value @ (Value::Uint(_) | Value::Ulong(_))) => value,
        }
    }
}

/// The number as an `f32` that rounds to the same `f16` and `bf16`: rounded toward zero, with its last bit
/// set if it is not exact. Rounded to the nearest twice, a number may end on the wrong side.
fn odd(value: f64) -> f32 {
    let nearest = value as f32;
    if f64::from(nearest) == value || nearest.is_nan() {
        return nearest;
    }
    let bits = nearest.to_bits();
    let away = f64::from(nearest).abs() > value.abs();
    f32::from_bits((bits - u32::from(away)) | 1)
}

impl Number {
    pub(crate) fn is_float(self) -> bool {
        matches!(self, Self::Float | Self::Double)
    }

    pub(crate) fn is_signed(self) -> bool {
        matches!(self, Self::Int | Self::Long)
    }

    /// The size in bytes.
    pub(crate) fn size(self) -> usize {
        match self {
            Self::Float | Self::Int | Self::Uint => 4,
            Self::Double | Self::Long | Self::Ulong => 8,
        }
    }

    /// What integers of this size wrap in. Floats are themselves.
    pub(crate) fn unsigned(self) -> Self {
        match self {
            Self::Int => Self::Uint,
            Self::Long => Self::Ulong,
            other => other,
        }
    }

    /// An array of such numbers, as an intermediate result.
    pub(crate) fn element(self) -> Element {
        match self {
            Self::Float => Element::F32,
            Self::Double => Element::F64,
            Self::Int => Element::I32,
            Self::Long => Element::I64,
            Self::Uint => Element::U32,
            Self::Ulong => Element::Bits64,
        }
    }

    /// The number as a value.
    pub(crate) fn value(self, value: f64) -> Value {
        self.element().value(Scalar::Float(value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_type_has_an_element_of_its_size() {
        for dtype in DType::ALL {
            let found = element(dtype).unwrap_or_else(|| panic!("{dtype} has no element"));
            assert_eq!(found.size(), dtype.size(), "{dtype}");
            assert_eq!(found.number().is_float(), dtype.is_float(), "{dtype}");
            let same = DType::ALL.iter().filter(|other| element(**other) == Some(found));
            assert_eq!(same.collect::<Vec<_>>(), [&dtype]);
        }
    }

    #[test]
    fn scalars_are_rounded_once() {
        // Between 1 and the next `f16`, or `bf16`, and a little nearer to one of them than `f32` can say.
        for (element, half) in [(Element::F16, 1.0 / 2048.0), (Element::BF16, 1.0 / 256.0)] {
            let value = |value: f64| element.value(Scalar::Float(value));
            assert_eq!(value(1.0 + half + 1e-12), Value::Float(1.0 + 2.0 * half as f32));
            assert_eq!(value(1.0 + half), Value::Float(1.0));
            assert_eq!(value(1.0 + half - 1e-12), Value::Float(1.0));
            assert_eq!(value(-1.0 - half - 1e-12), Value::Float(-1.0 - 2.0 * half as f32));
        }
        assert_eq!(Element::F16.value(Scalar::Float(1e300)), Value::Float(f32::INFINITY));
        assert!(matches!(Element::BF16.value(Scalar::Float(f64::NAN)), Value::Float(nan) if nan.is_nan()));
    }

    #[test]
    fn integers_wrap_and_floats_are_limited() {
        assert_eq!(Element::U8.value(Scalar::Int(257)), Value::Uint(1));
        assert_eq!(Element::U8.value(Scalar::Float(300.0)), Value::Uint(255));
        assert_eq!(Element::I32.value(Scalar::Float(f64::NAN)), Value::Int(0));
        assert_eq!(Element::F16.moved_value(Scalar::Float(1.0)), Value::Uint(0x3c00));
        assert_eq!(Element::I64.moved_value(Scalar::Int(-1)), Value::Ulong(u64::MAX));
    }
}
