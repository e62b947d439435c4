//! How far a result may be from the exact one: all bounds, each with its reason.
//!
//! # Functions
//!
//! The bounds are those that OpenCL requires of a full profile: "The OpenCL C Specification", version 3.0,
//! section "OpenCL Numerical Compliance", "Relative Error as ULPs", the table for single precision. Devices
//! for other interfaces meet them as well, or come close; a kernel that does not needs code of its own for
//! the function. A unit in the last place (ulp) is the distance of the two numbers of the type that are next
//! to the exact result.
//!
//! - `f64` has the same table in OpenCL. One unit is added: the reference computes in `f64`, and its library
//!   functions are within one unit themselves.
//! - `f16` and `bf16` are computed in `f32` and rounded, which gives little more than half a unit, or by
//!   functions for `half`, for which the extension `cl_khr_fp16` requires at most 4 units (2 for most of
//!   them). So the bound is the smaller one of the table's and 4 units.
//! - Sine, cosine and tangent are tested up to 2^15 only: for larger angles, exact reduction costs more than
//!   programs want to pay.
//!
//! # Subnormal numbers
//!
//! OpenCL and most GPUs may flush subnormal numbers of `f32` to zero. So may kernels for `f32`, `f16` and
//! `bf16`, the latter two of which are often computed in `f32`: a subnormal input may count as zero, and a
//! subnormal result may be zero. `f64` may not be flushed (OpenCL requires subnormal numbers of it). A number
//! that is only moved is not computed, and has to stay as it is: see
//! [`Expect::Exactly`](crate::expect::Expect::Exactly).
//!
//! # Sums
//!
//! Let `u` be the unit roundoff of the type that the sum is computed in, `n` the number of terms, and `S` the
//! sum of their magnitudes. One after the other, in any order, the error is at most `(n - 1) * u * S`
//! (Higham, "Accuracy and Stability of Numerical Algorithms", section 4.2). Rounding errors are as often
//! positive as negative, so that `sqrt(n) * u * S` is what really occurs; a tree has `log2(n) * u * S` at
//! worst. The bound here is `min(n, 8 * sqrt(n)) * u * S`: no sum in the type itself exceeds it, and a sum in
//! a smaller type does.
//!
//! The bound would hide an element that was left out of a long sum. So where all terms are integers and `S`
//! has no more bits than the significand, every order of addition gives the exact result, and the bound is
//! zero. Long sums are tested with such terms. (Fast products that add other terms, such as Winograd's with
//! thirds, and products of fewer bits than the type has, such as TF32's with other terms, are no sums in this
//! sense. They fail.)

use device_kernels::{Binary, DType, Unary};

use crate::element::{roundoff, smallest_normal, ulp};

/// The type that sums and functions of a type are computed in.
pub(crate) fn computed_in(dtype: DType) -> DType {
    match dtype {
        DType::F16 | DType::BF16 => DType::F32,
        other => other,
    }
}

/// A number of units of the result, limited as the module says.
pub(crate) fn ulps(dtype: DType, exact: f64, units: f64) -> f64 {
    let units = match dtype {
        DType::F64 => units + 1.0,
        DType::F16 | DType::BF16 => units.clamp(0.5, 4.0),
        _ => units.max(0.5),
    };
    units * ulp(dtype, exact)
}

/// The error of rounding the exact result, which has almost no error of its own, to the type. A conversion
/// may go through `f32`, and round twice: that adds a tiny part of a unit.
pub(crate) fn rounding(dtype: DType, exact: f64) -> f64 {
    if dtype == DType::F64 { 0.0 } else { 0.501 * ulp(dtype, exact) }
}

/// The error of an element-wise function of one input `a`.
pub(crate) fn unary(function: Unary, dtype: DType, a: f64, exact: f64) -> f64 {
    let units = match function {
        // Nothing is rounded.
        Unary::Neg
        | Unary::Abs
        | Unary::Sign
        | Unary::Floor
        | Unary::Ceil
        | Unary::Round
        | Unary::Trunc
        | Unary::Relu => return 0.0,
        Unary::Recip => 2.5,
        Unary::Sqrt | Unary::Exp | Unary::Log => 3.0,
        Unary::Log1p => 2.0,
        Unary::Sin | Unary::Cos | Unary::Asin | Unary::Acos | Unary::Sinh | Unary::Cosh => 4.0,
        Unary::Asinh | Unary::Acosh => 4.0,
        Unary::Tan | Unary::Atan | Unary::Tanh | Unary::Atanh => 5.0,
        Unary::Erf => 16.0,
        // An exponential (3), a sum (0.5) and a reciprocal (2.5), of which units of inputs may be two of the
        // result.
        Unary::Sigmoid => 10.0,
        // An exponential (3), a logarithm of 1 and more (2) and a sum (0.5); the same factor.
        Unary::LogSigmoid => 10.0,
        // The error function (16 units of a number that is at most 1) and a sum; then a product with `a / 2`.
        // Where the sum cancels, for negative `a`, the error stays as large as it was.
        Unary::Gelu => return ulps(dtype, exact, 4.0) + a.abs() / 2.0 * ulps(dtype, 0.75, 18.0),
        _ => 4.0,
    };
    ulps(dtype, exact, units)
}

/// The error of an element-wise function of two inputs.
pub(crate) fn binary(function: Binary, dtype: DType, a: f64, b: f64, exact: f64) -> f64 {
    let units = match function {
        // OpenCL requires the nearest number, and so does every other interface.
        Binary::Add | Binary::Sub | Binary::Mul => return rounding(dtype, exact),
        Binary::Max | Binary::Min | Binary::ReluGrad => return 0.0,
        Binary::Div => 2.5,
        // `fmod` is exact, and adding `b` rounds. `a - b * floor(a / b)` has the error of the product, which
        // is as large as `a`; where the quotient is rounded to an integer, it can be `b` off: see the
        // reference.
        Binary::Rem => return ulps(dtype, a.abs().max(b.abs()), 4.0),
        Binary::Pow => 16.0,
        Binary::Atan2 => 6.0,
        // Two products and a difference, half a unit each, of which units of inputs may be two of the result.
        Binary::SigmoidGrad => 4.0,
        _ => 4.0,
    };
    ulps(dtype, exact, units)
}

/// The terms of a sum, or of products that are summed, while they are added.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terms {
    /// How many there are.
    pub(crate) count: usize,
    /// The sum of their magnitudes.
    pub(crate) magnitude: f64,
    /// Whether all are integers.
    pub(crate) integers: bool,
    /// Their sum.
    pub(crate) sum: f64,
}

impl Terms {
    pub(crate) const NONE: Self = Self { count: 0, magnitude: 0.0, integers: true, sum: 0.0 };

    pub(crate) fn add(&mut self, term: f64) {
        self.count += 1;
        self.magnitude += term.abs();
        self.integers &= term.fract() == 0.0;
        self.sum += term;
    }

    /// The error of the sum in a type, before it is rounded to an output. Products are rounded as well as
    /// sums, which is one more term.
    pub(crate) fn error(&self, computed_in: DType) -> f64 {
        let u = roundoff(computed_in);
        if self.integers && self.magnitude <= 1.0 / u {
            return 0.0;
        }
        let n = self.count as f64 + 1.0;
        let tiny = n * smallest_normal(computed_in) * f64::from(u8::from(computed_in != DType::F64));
        // Twice, for `f64`: the reference rounds in each addition as well.
        let twice = if computed_in == DType::F64 { 2.0 } else { 1.0 };
        twice * n.min(8.0 * n.sqrt()) * u * self.magnitude + tiny
    }

    /// The error of the sum, rounded to an output.
    pub(crate) fn error_in(&self, dtype: DType) -> f64 {
        self.error(computed_in(dtype)) + rounding(dtype, self.sum)
    }
}

/// The error of a product of `n` numbers: each multiplication rounds once.
pub(crate) fn product(dtype: DType, n: usize, exact: f64) -> f64 {
    let inner = computed_in(dtype);
    let twice = if dtype == DType::F64 { 2.0 } else { 1.0 };
    twice * n as f64 * 1.1 * roundoff(inner) * exact.abs() + rounding(dtype, exact)
}

/// The error of a mean: of the sum, and of a division (2.5 units) or of a product with a reciprocal (3
/// units).
pub(crate) fn mean(dtype: DType, terms: &Terms, divisor: f64) -> f64 {
    let exact = terms.sum / divisor;
    let inner = computed_in(dtype);
    terms.error(inner) / divisor + 3.5 * ulp(inner, exact) + rounding(dtype, exact)
}

/// The relative error of `exp(x - max) / sum`, where `n` exponentials are summed and `distance` is `max - x`.
///
/// The difference is rounded, by at most `u * distance`, and the exponential makes of that a relative error
/// as large. Then there are the exponential (3 units), the sum of positive numbers, whose own errors are
/// relative ones of its terms, and the quotient (2.5 units). A unit is at most `2 * u`. The largest distance
/// among the terms counts for the sum.
pub(crate) fn softmax(dtype: DType, n: usize, distance: f64, exact: f64) -> f64 {
    let u = roundoff(computed_in(dtype));
    let n = n as f64;
    let relative = u * (distance + 6.0 + n.min(8.0 * n.sqrt()) + 8.0 + 5.0);
    relative * exact + rounding(dtype, exact) + ulps_of_f64(dtype, exact)
}

/// The error of `x - max - log(sum)`: of two differences, of the logarithm (3 units) and of the sum within
/// it, whose relative error is an absolute one of the logarithm.
pub(crate) fn log_softmax(dtype: DType, n: usize, distance: f64, log_sum: f64, exact: f64) -> f64 {
    let u = roundoff(computed_in(dtype));
    let n = n as f64;
    let absolute = u * (2.0 * distance + 8.0 * log_sum.abs() + n.min(8.0 * n.sqrt()) + 16.0);
    absolute + rounding(dtype, exact) + ulps_of_f64(dtype, exact)
}

fn ulps_of_f64(dtype: DType, exact: f64) -> f64 {
    if dtype == DType::F64 { 4.0 * ulp(dtype, exact) } else { 0.0 }
}

/// The error of a uniform number: of the difference of the ends, of a product and of a sum.
pub(crate) fn uniform(dtype: DType, low: f64, high: f64) -> f64 {
    ulps(dtype, low.abs().max(high.abs()).max((high - low).abs()), 2.0)
}

/// The error of a normal number: `mean + deviation * sqrt(-2 * log(u)) * cos(2π * v)`. The logarithm has 3
/// units, which the root halves, and the root itself has 3. The argument of the cosine is rounded by half a
/// unit of up to 2π, that is `4 * u`, and twice that with a rounded pi; the cosine has 4 units of at most 1.
/// Then a product and a sum.
pub(crate) fn normal(dtype: DType, mean: f64, deviation: f64, radius: f64, exact: f64) -> f64 {
    let inner = DType::F32;
    let u = roundoff(inner);
    deviation * radius * u * 32.0 + ulps(inner, mean.abs().max(exact.abs()), 1.0) + rounding(dtype, exact)
}

#[cfg(test)]
mod tests {
    use device_kernels::{Operator, Reduction};

    use super::*;
    use crate::draw::Stream;
    use crate::element::Value;
    use crate::expect::Expect;
    use crate::reference::elementwise::element;
    use crate::reference::{Array, Input, expected};

    fn fits(expect: &Expect, found: f32) -> bool {
        expect.fits(DType::F32, &found.to_le_bytes())
    }

    /// Numbers of all magnitudes up to `2^bits`, and small ones.
    fn numbers(bits: f64) -> impl Iterator<Item = f32> {
        let mut stream = Stream::of(3);
        (0..4000).map(move |at| {
            let sign = if stream.below(2) == 0 { 1.0 } else { -1.0 };
            let small = stream.unit() * 4.0;
            let any = ((stream.unit() * 2.0 - 1.0) * bits).exp2();
            (sign * if at % 2 == 0 { small } else { any }) as f32
        })
    }

    /// What a kernel does that calls the library of its language, and has formulas for what that lacks.
    fn ordinary(function: Unary, a: f32) -> Option<f32> {
        Some(match function {
            Unary::Recip => 1.0 / a,
            Unary::Sqrt => a.sqrt(),
            Unary::Exp => a.exp(),
            Unary::Log => a.ln(),
            Unary::Log1p => a.ln_1p(),
            Unary::Sin => a.sin(),
            Unary::Cos => a.cos(),
            Unary::Tan => a.tan(),
            Unary::Asin => a.asin(),
            Unary::Acos => a.acos(),
            Unary::Atan => a.atan(),
            Unary::Sinh => a.sinh(),
            Unary::Cosh => a.cosh(),
            Unary::Tanh => a.tanh(),
            Unary::Round => a.round_ties_even(),
            Unary::Sigmoid => 1.0 / (1.0 + (-a).exp()),
            Unary::LogSigmoid => a.min(0.0) - (-a.abs()).exp().ln_1p(),
            Unary::Gelu => {
                let erf = crate::reference::elementwise::erf((a / std::f32::consts::SQRT_2).into());
                a / 2.0 * (1.0 + erf as f32)
            }
            _ => return None,
        })
    }

    #[test]
    fn ordinary_code_in_f32_is_within_the_bounds() {
        for &function in Unary::ALL {
            let is_angle = matches!(function, Unary::Sin | Unary::Cos | Unary::Tan);
            for a in numbers(if is_angle { 15.0 } else { 127.0 }) {
                let Some(found) = ordinary(function, a) else { continue };
                let expect = element(Operator::Unary(function), DType::F32, &[Value::Float(a.into())]);
                assert!(fits(&expect, found), "{function}({a:?}): expected {expect}, found {found:?}");
            }
        }
        for (a, b) in numbers(60.0).zip(numbers(60.0).skip(7)) {
            let operands = [Value::Float(a.into()), Value::Float(b.into())];
            for (function, found) in [
                (Binary::Add, a + b),
                (Binary::Mul, a * b),
                (Binary::Div, a / b),
                (Binary::Pow, a.powf(b)),
                (Binary::Atan2, a.atan2(b)),
                (Binary::Rem, a - b * (a / b).floor()),
            ] {
                let expect = element(Operator::Binary(function), DType::F32, &operands);
                assert!(fits(&expect, found), "{function}({a:?}, {b:?}): expected {expect}, found {found:?}");
            }
        }
    }

    #[test]
    fn a_function_with_half_the_bits_is_outside_of_the_bounds() {
        for (function, a) in [(Unary::Exp, 1.5), (Unary::Tanh, 0.5), (Unary::Erf, 0.25), (Unary::Gelu, 1.0)] {
            let expect = element(Operator::Unary(function), DType::F32, &[Value::Float(a)]);
            let exact = expect.likely().unwrap().as_f64();
            assert!(!fits(&expect, (exact * (1.0 + 1e-5)) as f32), "{function}: {expect}");
        }
    }

    fn array(values: &[f32]) -> Input {
        let values: Vec<Value> = values.iter().map(|&value| Value::Float(value.into())).collect();
        Input::Array(Array { dtype: DType::F32, shape: vec![values.len()], values })
    }

    fn output(len: usize) -> [Array; 1] {
        [Array { dtype: DType::F32, shape: vec![len], values: vec![Value::Float(0.0); len] }]
    }

    #[test]
    fn sums_in_f32_are_within_the_bounds_and_those_in_f16_are_not() {
        let dims = device_kernels::Dims::from([0]);
        let sum = Operator::Reduce { reduction: Reduction::Sum, dims };
        for len in [2, 30, 1000, 4000] {
            let values: Vec<f32> = numbers(8.0).take(len).collect();
            let expect = &expected(sum, &[array(&values)], &output(1))[0][0];
            assert!(fits(expect, values.iter().sum()), "one after the other: {expect}");
            let halves: f32 = values.chunks(2).map(|pair| pair.iter().sum::<f32>()).sum();
            assert!(fits(expect, halves), "in pairs: {expect}");
            let narrow = |value: f32| crate::element::round(DType::F16, value.into()) as f32;
            let rough = values.iter().fold(0.0, |sum, &value| narrow(sum + value));
            assert!(!fits(expect, rough), "in f16: {expect}, found {rough}");
        }
    }

    #[test]
    fn a_long_sum_of_integers_lacks_no_element() {
        let values: Vec<f32> = (0..70_000).map(|at| (at % 5) as f32).collect();
        let dims = device_kernels::Dims::from([0]);
        let sum = Operator::Reduce { reduction: Reduction::Sum, dims };
        let expect = &expected(sum, &[array(&values)], &output(1))[0][0];
        assert!(fits(expect, 140_000.0) && !fits(expect, 139_999.0), "{expect}");
    }

    #[test]
    fn a_softmax_in_f32_is_within_the_bounds() {
        for len in [1, 5, 300] {
            let values: Vec<f32> = numbers(4.0).take(len).collect();
            let largest = values.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            let sum: f32 = values.iter().map(|value| (value - largest).exp()).sum();
            let input = [array(&values)];
            let softmax = &expected(Operator::Softmax { dim: 0 }, &input, &output(len))[0];
            let logarithms = &expected(Operator::LogSoftmax { dim: 0 }, &input, &output(len))[0];
            for (at, value) in values.iter().enumerate() {
                let quotient = (value - largest).exp() / sum;
                assert!(fits(&softmax[at], quotient), "{}: found {quotient}", softmax[at]);
                let logarithm = value - largest - sum.ln();
                assert!(fits(&logarithms[at], logarithm), "{}: found {logarithm}", logarithms[at]);
                assert!(len == 1 || !fits(&softmax[at], quotient * 1.001) || quotient < 1e-30);
            }
        }
    }
}
