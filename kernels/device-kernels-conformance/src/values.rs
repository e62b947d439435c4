//! What the elements of an operand are drawn from.

use device_kernels::{DType, Scalar};

use crate::draw::{Draw, Stream};
use crate::element::{self, Value, convert};

/// What the elements of an operand are drawn from.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Domain {
    /// Numbers of all magnitudes, with NaN, infinities, subnormal numbers, both zeros and the ends of integer
    /// types.
    All,
    /// Numbers of all magnitudes up to the square root of the largest: products are finite.
    Moderate,
    /// Numbers from -4 to 4, some of them integers.
    Small,
    /// Integers from -4 to 4 (0 to 4 for unsigned types), whose sums and products are exact.
    Integers,
    /// [`Integers`](Self::Integers), and sometimes NaN and infinities.
    Few,
    /// Numbers near 1 and -1, whose products are neither large nor small.
    NearOne,
    /// Numbers from 0 to 1.
    Unit,
    /// Numbers up to 2^15, and what is special.
    Angles,
    /// Indices below a limit.
    Below(usize),
    /// Indices, some of which are outside the limit.
    Around(usize),
    /// Numbers from the first to the second, often one of these, or 0 if it is between them.
    Within(f64, f64),
}

impl Domain {
    /// Any finite number of a magnitude up to `2^bits`, small ones more often.
    fn magnitude(stream: &mut Stream, bits: f64) -> f64 {
        let sign = if stream.below(2) == 0 { 1.0 } else { -1.0 };
        match stream.below(3) {
            0 => sign * stream.unit() * 4.0,
            1 => sign * (stream.unit() * 24.0 - 12.0).exp2(),
            _ => sign * ((stream.unit() * 2.0 - 1.0) * bits).exp2(),
        }
    }

    fn float(self, dtype: DType, stream: &mut Stream) -> f64 {
        let bits = element::largest(dtype).log2();
        match self {
            Self::All | Self::Angles if stream.below(6) == 0 => {
                let tiny = element::smallest_normal(dtype);
                let special = [
                    f64::NAN,
                    f64::INFINITY,
                    f64::NEG_INFINITY,
                    0.0,
                    -0.0,
                    1.0,
                    -1.0,
                    0.5,
                    2.5,
                    -1.5,
                    tiny / 4.0,
                    -tiny / 2.0,
                    tiny,
                    element::largest(dtype),
                ];
                let special = special[stream.below(special.len() as u64) as usize];
                let is_angle = special.is_nan() || special.abs() < 2_f64.powi(15);
                if self == Self::Angles && !is_angle { 3.0 } else { special }
            }
            Self::All => Self::magnitude(stream, bits - 0.01),
            Self::Moderate => Self::magnitude(stream, bits / 2.0 - 1.0),
            Self::Angles => Self::magnitude(stream, 14.9),
            Self::Small => match stream.below(3) {
                0 => (stream.unit() * 9.0).floor() - 4.0,
                _ => stream.unit() * 8.0 - 4.0,
            },
            Self::Integers => (stream.unit() * 9.0).floor() - 4.0,
            Self::Few => match stream.below(24) {
                0 => [f64::NAN, f64::INFINITY, f64::NEG_INFINITY][stream.below(3) as usize],
                _ => (stream.unit() * 9.0).floor() - 4.0,
            },
            Self::NearOne => (0.9 + stream.unit() * 0.2) * if stream.below(2) == 0 { 1.0 } else { -1.0 },
            Self::Unit => stream.unit(),
            Self::Below(_) | Self::Around(_) => stream.unit(),
            Self::Within(low, high) => match stream.below(12) {
                0 => low,
                1 => high,
                2 => 0.0_f64.clamp(low, high),
                _ => low + stream.unit() * (high - low),
            },
        }
    }

    fn integer(self, dtype: DType, stream: &mut Stream) -> i128 {
        let (low, high) = element::range(dtype);
        match self {
            Self::All | Self::Moderate | Self::Angles => match stream.below(6) {
                0 => {
                    let special = [low, high, low + 1, high - 1, 0, 1, -1, 2, 31, 64];
                    special[stream.below(special.len() as u64) as usize].clamp(low, high)
                }
                1 | 2 => element::wrap(dtype, stream.next().into()),
                _ => i128::from(stream.below(25)) - if low < 0 { 12 } else { 0 },
            },
            Self::Below(limit) => i128::from(stream.below(limit.max(1) as u64)),
            Self::Around(limit) => match stream.below(8) {
                0 => limit as i128,
                1 => (limit as i128 + i128::from(stream.below(1000))).min(high),
                2 if low < 0 => -1 - i128::from(stream.below(9)),
                3 => [low.min(-1), high][stream.below(2) as usize].max(low).max(if low < 0 {
                    low
                } else {
                    limit as i128
                }),
                _ => i128::from(stream.below(limit.max(1) as u64)),
            },
            Self::Within(..) => (self.float(DType::F64, stream).round() as i128).clamp(low, high),
            _ if low < 0 => i128::from(stream.below(9)) - 4,
            _ => i128::from(stream.below(5)),
        }
    }

    /// The bytes of an element. A bool that is true may have any except zero.
    pub(crate) fn element(self, dtype: DType, stream: &mut Stream, bytes: &mut [u8]) {
        match dtype {
            DType::Bool => bytes[0] = [0, 1, 0, 1, 2, 255, 0, 128][stream.below(8) as usize],
            _ if dtype.is_float() => element::write(dtype, Value::Float(self.float(dtype, stream)), bytes),
            _ => element::write(dtype, Value::Int(self.integer(dtype, stream)), bytes),
        }
    }

    /// A scalar among operands of a type. It is a number that the type has, or one that has to be converted.
    pub(crate) fn scalar(self, dtype: DType, draw: &mut Draw<'_>) -> Scalar {
        let mut stream = draw.stream();
        if dtype == DType::Bool {
            return Scalar::Bool(stream.below(2) == 1);
        }
        if dtype.is_float() {
            let value = self.float(dtype, &mut stream);
            return match draw.below(3) {
                0 => Scalar::Int(stream.below(9) as i64 - 4),
                _ => Scalar::Float(convert(Value::Float(value), dtype).as_f64()),
            };
        }
        match draw.below(4) {
            3 if self == Self::All => Scalar::Float(stream.unit() * 600.0 - 300.0),
            2 if self == Self::All => Scalar::Int(stream.below(1000) as i64 - 500),
            _ => Scalar::Int(self.integer(dtype, &mut stream) as i64),
        }
    }
}
