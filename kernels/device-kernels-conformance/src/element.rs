//! Elements: their values, their bytes, and how far neighbouring ones are apart.

use device_kernels::{DType, Scalar};

/// The value of an element, without loss: every element of every type is one of these.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value {
    /// A floating-point number.
    Float(f64),
    /// An integer, or a boolean as 0 or 1.
    Int(i128),
}

impl Value {
    /// The value as a floating-point number.
    #[must_use]
    pub fn as_f64(self) -> f64 {
        match self {
            Self::Float(value) => value,
            Self::Int(value) => value as f64,
        }
    }

    /// The value as an integer: a floating-point number is rounded toward zero, and NaN is 0.
    #[must_use]
    pub fn as_int(self) -> i128 {
        match self {
            Self::Float(value) => value as i128,
            Self::Int(value) => value,
        }
    }

    /// Whether the value is not zero.
    #[must_use]
    pub fn is_true(self) -> bool {
        match self {
            Self::Float(value) => value != 0.0,
            Self::Int(value) => value != 0,
        }
    }

    /// Whether the value is not a number.
    #[must_use]
    pub fn is_nan(self) -> bool {
        matches!(self, Self::Float(value) if value.is_nan())
    }
}

/// How floating-point numbers of a type are stored: the bits of the significand, with the hidden one, and the
/// exponents of the smallest and of the largest normal number.
fn format(dtype: DType) -> (i32, i32, i32) {
    match dtype {
        DType::F16 => (11, -14, 15),
        DType::BF16 => (8, -126, 127),
        DType::F64 => (53, -1022, 1023),
        _ => (24, -126, 127),
    }
}

/// A power of two, also a subnormal one.
#[must_use]
pub fn power_of_two(exponent: i32) -> f64 {
    match exponent {
        1024.. => f64::INFINITY,
        -1022..=1023 => f64::from_bits(((exponent + 1023) as u64) << 52),
        -1074..=-1023 => f64::from_bits(1 << (exponent + 1074)),
        _ => 0.0,
    }
}

/// The exponent of a number's highest bit. Of zero and of subnormal numbers, the smallest one.
fn exponent(value: f64) -> i32 {
    match (value.to_bits() >> 52) as i32 & 0x7ff {
        0 => -1022,
        biased => biased - 1023,
    }
}

/// The distance between the two numbers of the type that are next to `value`.
#[must_use]
pub fn ulp(dtype: DType, value: f64) -> f64 {
    let (bits, smallest, largest) = format(dtype);
    power_of_two(exponent(value).clamp(smallest, largest) - (bits - 1))
}

/// Half the distance between 1 and the next number: how far rounding changes a number, relative to it.
#[must_use]
pub fn roundoff(dtype: DType) -> f64 {
    power_of_two(-format(dtype).0)
}

/// The largest finite number of a type.
#[must_use]
pub fn largest(dtype: DType) -> f64 {
    let (bits, _, largest) = format(dtype);
    (2.0 - power_of_two(1 - bits)) * power_of_two(largest)
}

/// The smallest normal number of a type.
#[must_use]
pub fn smallest_normal(dtype: DType) -> f64 {
    power_of_two(format(dtype).1)
}

/// Whether a number of the type is subnormal.
#[must_use]
pub fn is_subnormal(dtype: DType, value: f64) -> bool {
    value != 0.0 && value.abs() < smallest_normal(dtype)
}

/// The nearest number of the type; ties go to the even one.
#[must_use]
pub fn round(dtype: DType, value: f64) -> f64 {
    if dtype == DType::F64 || !value.is_finite() || value == 0.0 {
        return value;
    }
    let ulp = ulp(dtype, value);
    // Both are powers of two away from an integer: the division and the product are exact.
    let rounded = (value / ulp).round_ties_even() * ulp;
    if rounded.abs() > largest(dtype) { f64::INFINITY.copysign(value) } else { rounded }
}

/// The range of an integer type.
#[must_use]
pub fn range(dtype: DType) -> (i128, i128) {
    match dtype {
        DType::I32 => (i32::MIN.into(), i32::MAX.into()),
        DType::I64 => (i64::MIN.into(), i64::MAX.into()),
        DType::U8 => (0, u8::MAX.into()),
        DType::U32 => (0, u32::MAX.into()),
        _ => (0, 1),
    }
}

/// The integer of the type that has the lowest bits of `value`.
#[must_use]
pub fn wrap(dtype: DType, value: i128) -> i128 {
    match dtype {
        DType::I32 => i128::from(value as i32),
        DType::I64 => i128::from(value as i64),
        DType::U8 => i128::from(value as u8),
        DType::U32 => i128::from(value as u32),
        _ => i128::from(value != 0),
    }
}

/// The value as an element of another type, as `as` of Rust converts it.
#[must_use]
pub fn convert(value: Value, to: DType) -> Value {
    if to.is_float() {
        return Value::Float(match value {
            Value::Float(value) => round(to, value),
            Value::Int(value) => round_int(to, value),
        });
    }
    Value::Int(match value {
        _ if to == DType::Bool => i128::from(value.is_true()),
        Value::Float(value) => {
            let (low, high) = range(to);
            (value as i128).clamp(low, high)
        }
        Value::Int(value) => wrap(to, value),
    })
}

/// An integer as the nearest number of the type. `f64` in between would round twice.
fn round_int(dtype: DType, value: i128) -> f64 {
    match dtype {
        DType::F64 => value as f64,
        DType::F32 => f64::from(value as f32),
        _ => {
            // What `f64` cannot have is far below half a unit of 16 bits. It only has to break ties.
            let near = value as f64;
            let rest = value - near as i128;
            let nudged = if rest == 0 { near } else { near + ulp(DType::F64, near).copysign(rest as f64) };
            round(dtype, nudged)
        }
    }
}

/// The value of a scalar among operands of a type.
#[must_use]
pub fn of_scalar(scalar: Scalar, dtype: DType) -> Value {
    let value = match scalar {
        Scalar::Float(value) => Value::Float(value),
        Scalar::Int(value) => Value::Int(value.into()),
        Scalar::Bool(value) => Value::Int(value.into()),
    };
    convert(value, dtype)
}

/// The value that the bytes of an element stand for. `bytes` may be longer.
#[must_use]
pub fn read(dtype: DType, bytes: &[u8]) -> Value {
    fn first<const N: usize>(bytes: &[u8]) -> [u8; N] {
        *bytes.first_chunk().expect("an element has so many bytes")
    }
    match dtype {
        DType::F32 => Value::Float(f32::from_le_bytes(first(bytes)).into()),
        DType::F64 => Value::Float(f64::from_le_bytes(first(bytes))),
        DType::F16 | DType::BF16 => Value::Float(read_half(dtype, u16::from_le_bytes(first(bytes)))),
        DType::I32 => Value::Int(i32::from_le_bytes(first(bytes)).into()),
        DType::I64 => Value::Int(i64::from_le_bytes(first(bytes)).into()),
        DType::U8 => Value::Int(bytes[0].into()),
        DType::U32 => Value::Int(u32::from_le_bytes(first(bytes)).into()),
        DType::Bool => Value::Int(i128::from(bytes[0] != 0)),
        _ => unreachable!("{dtype} is not one of the types"),
    }
}

/// Writes the value as an element of the type, to the start of `bytes`. The value is rounded, or loses its
/// high bits.
pub fn write(dtype: DType, value: Value, bytes: &mut [u8]) {
    let value = convert(value, dtype);
    let element: [u8; 8] = match (dtype, value) {
        (DType::F32, Value::Float(value)) => u64::from((value as f32).to_bits()).to_le_bytes(),
        (DType::F64, Value::Float(value)) => value.to_le_bytes(),
        (_, Value::Float(value)) => u64::from(write_half(dtype, value)).to_le_bytes(),
        (_, Value::Int(value)) => (value as i64).to_le_bytes(),
    };
    bytes[..dtype.size()].copy_from_slice(&element[..dtype.size()]);
}

fn read_half(dtype: DType, bits: u16) -> f64 {
    let (width, smallest, _) = format(dtype);
    let fraction = bits & ((1 << (width - 1)) - 1);
    let field = i32::from(bits & 0x7fff) >> (width - 1);
    let top = 0x7fff >> (width - 1);
    let unit = |exponent: i32| power_of_two(exponent - (width - 1));
    let magnitude = match field {
        0 => f64::from(fraction) * unit(smallest),
        field if field == top && fraction == 0 => f64::INFINITY,
        field if field == top => f64::NAN,
        field => f64::from(fraction + (1 << (width - 1))) * unit(smallest + field - 1),
    };
    // Not a product: NaN has a sign too.
    if bits >> 15 == 0 { magnitude } else { -magnitude }
}

/// The bits of a number that the type has.
fn write_half(dtype: DType, value: f64) -> u16 {
    let (width, smallest, _) = format(dtype);
    let sign = u16::from(value.is_sign_negative()) << 15;
    let infinity = 0x7fff & !((1 << (width - 1)) - 1);
    if value.is_nan() {
        return sign | infinity | 1 << (width - 2);
    }
    if value.is_infinite() {
        return sign | infinity;
    }
    let exponent = exponent(value).max(smallest);
    // At most 2^11: an integer, as the value is a number of the type.
    let units = (value.abs() / power_of_two(exponent - (width - 1))) as u16;
    // The hidden bit of a normal number adds one to the exponent's field.
    sign | ((((exponent - smallest) as u16) << (width - 1)) + units)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bits(dtype: DType, value: f64) -> u64 {
        let mut bytes = [0; 8];
        write(dtype, Value::Float(value), &mut bytes);
        u64::from_le_bytes(bytes)
    }

    #[test]
    fn numbers_of_16_bits_have_the_bits_that_the_formats_say() {
        for (dtype, value, expected) in [
            (DType::F16, 1.0, 0x3c00),
            (DType::F16, -2.0, 0xc000),
            (DType::F16, 65504.0, 0x7bff),
            (DType::F16, 65519.0, 0x7bff),
            (DType::F16, 65520.0, 0x7c00),
            (DType::F16, 5.960_464_477_539_063e-8, 1),
            (DType::F16, 6.097_555_160_522_461e-5, 0x03ff),
            (DType::F16, 2_f64.powi(-25), 0),
            (DType::F16, 1.0 + 2_f64.powi(-11), 0x3c00),
            (DType::F16, 1.0 + 3.0 * 2_f64.powi(-11), 0x3c02),
            (DType::F16, -0.0, 0x8000),
            (DType::BF16, 1.0, 0x3f80),
            (DType::BF16, f64::NEG_INFINITY, 0xff80),
            (DType::BF16, 3.389_531_389_251_535_5e38, 0x7f7f),
        ] {
            assert_eq!(bits(dtype, value), expected, "{dtype} {value}");
        }
        assert_eq!(bits(DType::F32, 1e-45), 1);
        // The sign of a NaN decides where it is sorted to.
        assert_eq!((bits(DType::F16, f64::NAN), bits(DType::F16, -f64::NAN)), (0x7e00, 0xfe00));
        assert!(read(DType::BF16, &0xffc0_u16.to_le_bytes()).as_f64().is_sign_negative());
    }

    #[test]
    fn every_type_has_the_numbers_that_fit_into_its_size() {
        for dtype in DType::ALL {
            let bits = 8 * dtype.size() as i32;
            let ends = if dtype.is_float() {
                let (significand, smallest, largest) = format(dtype);
                // The sign and the exponent, and the significand without its hidden bit.
                assert_eq!(significand + (largest + 1).ilog2() as i32 + 1, bits, "{dtype}");
                assert_eq!(smallest, 1 - largest, "{dtype}");
                [-super::largest(dtype), super::largest(dtype)].map(Value::Float)
            } else {
                let (low, high) = range(dtype);
                let count = if dtype == DType::Bool { 2 } else { 1 << bits };
                assert_eq!(high - low + 1, count, "{dtype}");
                [low, high].map(Value::Int)
            };
            for end in ends {
                let mut bytes = [0; 8];
                write(dtype, end, &mut bytes);
                assert_eq!(read(dtype, &bytes), end, "{dtype}");
            }
        }
    }

    #[test]
    fn every_number_of_16_bits_survives_a_round_trip() {
        for dtype in [DType::F16, DType::BF16] {
            for bits in 0..=u16::MAX {
                let value = read(dtype, &bits.to_le_bytes());
                if value.is_nan() {
                    continue;
                }
                let mut bytes = [0; 2];
                write(dtype, value, &mut bytes);
                assert_eq!(u16::from_le_bytes(bytes), bits, "{dtype}");
                if dtype == DType::BF16 {
                    assert_eq!(value.as_f64(), f64::from(f32::from_bits(u32::from(bits) << 16)));
                }
            }
        }
    }

    #[test]
    fn f32_is_rounded_as_the_processor_rounds_it() {
        for value in [1.0 + 2_f64.powi(-24), 1.0 / 3.0, 1e-40, 3.5e38, -1e-46, 16_777_217.0] {
            assert_eq!(round(DType::F32, value), f64::from(value as f32), "{value}");
        }
    }

    #[test]
    fn conversions_are_those_of_rust() {
        for value in [-1.5, 300.0, f64::NAN, 1e30, -1e30, 2.999] {
            assert_eq!(convert(Value::Float(value), DType::U8), Value::Int((value as u8).into()));
            assert_eq!(convert(Value::Float(value), DType::I64), Value::Int((value as i64).into()));
        }
        assert_eq!(convert(Value::Int(-1), DType::U32), Value::Int(u32::MAX.into()));
        assert_eq!(convert(Value::Int(300), DType::U8), Value::Int(44));
        assert_eq!(convert(Value::Float(f64::NAN), DType::Bool), Value::Int(1));
        let tie = (1 << 62) + (1 << 51) + 1;
        assert_eq!(convert(Value::Int(tie), DType::F16), Value::Float(f64::INFINITY));
        let above = (1_i128 << 62) + (1 << 54) + 1;
        assert_eq!(convert(Value::Int(above), DType::BF16), Value::Float(2_f64.powi(62) + 2_f64.powi(55)));
    }
}
