//! Element-wise operators.

use device_kernels::{Binary, Compare, DType, Operator, Scalar, Unary};

use super::Input;
use crate::element::{self, Value, is_subnormal, of_scalar, wrap};
use crate::expect::Expect;
use crate::tolerance;

/// The expected elements of the output, in the order of their indices.
pub(super) fn expected(operator: Operator, inputs: &[Input], out: (DType, &[usize])) -> Vec<Expect> {
    let (out_dtype, shape) = out;
    // The condition of a choice, and the input of a copy, have their own type.
    let alone = usize::from(matches!(operator, Operator::Where | Operator::Copy));
    let alike = inputs[alone..].iter().find_map(Input::dtype).unwrap_or(out_dtype);
    let mut expected = Vec::new();
    super::for_each_index(shape, |index| {
        let of = |place: usize| match &inputs[place] {
            Input::Array(array) => array.at_broadcast(index),
            Input::Scalar(scalar) => match operator {
                Operator::Where if place == 0 => of_scalar(*scalar, DType::Bool),
                _ => of_scalar(*scalar, alike),
            },
        };
        expected.push(match operator {
            Operator::Copy => match &inputs[0] {
                Input::Array(array) => copy(array.dtype, out_dtype, of(0)),
                Input::Scalar(scalar) => fill(*scalar, out_dtype),
            },
            Operator::Where => Expect::Exactly(if of(0).is_true() { of(1) } else { of(2) }),
            _ => {
                let operands: Vec<Value> = (0..inputs.len()).map(of).collect();
                with_flushed(alike, &operands, &|operands| element(operator, alike, operands))
            }
        });
    });
    expected
}

/// The element that follows from subnormal operands as they are, or from zeros in their place.
fn with_flushed(dtype: DType, operands: &[Value], element: &dyn Fn(&[Value]) -> Expect) -> Expect {
    let exact = element(operands);
    let subnormal =
        |value: &Value| dtype.is_float() && dtype != DType::F64 && is_subnormal(dtype, value.as_f64());
    let places: Vec<usize> = (0..operands.len()).filter(|&place| subnormal(&operands[place])).collect();
    let flushed = (1..1_usize << places.len()).map(|chosen| {
        let mut operands = operands.to_vec();
        for (bit, &place) in places.iter().enumerate() {
            if chosen >> bit & 1 == 1 {
                operands[place] = Value::Float(0.0_f64.copysign(operands[place].as_f64()));
            }
        }
        element(&operands)
    });
    exact.or(flushed.collect::<Vec<_>>())
}

/// One element of an operator that computes.
#[must_use]
pub fn element(operator: Operator, dtype: DType, operands: &[Value]) -> Expect {
    match (operator, operands) {
        (Operator::Unary(function), &[a]) => unary(function, dtype, a),
        (Operator::Binary(function), &[a, b]) => match (a, b) {
            (Value::Float(a), Value::Float(b)) => binary_of_floats(function, dtype, a, b),
            _ => binary_of_integers(function, dtype, a.as_int(), b.as_int()),
        },
        (Operator::Compare(comparison), &[a, b]) => {
            Expect::Exactly(Value::Int(compare(comparison, a, b).into()))
        }
        (Operator::Clamp, &[a, low, high]) => match (a, low, high) {
            (Value::Float(a), Value::Float(low), Value::Float(high)) => {
                Expect::Near(smaller(larger(a, low), high), 0.0)
            }
            _ => Expect::Exactly(Value::Int(a.as_int().max(low.as_int()).min(high.as_int()))),
        },
        _ => unreachable!("{operator} does not compute one element of {} operands", operands.len()),
    }
}

fn unary(function: Unary, dtype: DType, a: Value) -> Expect {
    let truth = |truth: bool| Expect::Exactly(Value::Int(truth.into()));
    match (function, a) {
        (Unary::IsNan, _) => truth(a.is_nan()),
        (Unary::IsInf, _) => truth(a.as_f64().is_infinite()),
        (_, Value::Float(a)) => {
            let exact = unary_of_float(function, a);
            let error = tolerance::unary(function, dtype, a, exact);
            let expect = Expect::Near(exact, error);
            // The formula has a product of infinity and zero.
            let may_be_nan = function == Unary::Gelu && a == f64::NEG_INFINITY;
            if may_be_nan { expect.or([Expect::Near(f64::NAN, 0.0)]) } else { expect }
        }
        (Unary::Not, Value::Int(a)) if dtype == DType::Bool => truth(a == 0),
        (_, Value::Int(a)) => Expect::Exactly(Value::Int(wrap(
            dtype,
            match function {
                Unary::Neg => -a,
                Unary::Abs => a.abs(),
                Unary::Sign => a.signum(),
                Unary::Not => !a,
                _ => unreachable!("{function} is for floats"),
            },
        ))),
    }
}

fn unary_of_float(function: Unary, a: f64) -> f64 {
    if a.is_nan() && function != Unary::Sign {
        return a;
    }
    match function {
        Unary::Neg => -a,
        Unary::Abs => a.abs(),
        Unary::Sign if a == 0.0 || a.is_nan() => 0.0,
        Unary::Sign => a.signum(),
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
        // The standard library's square the large, and add up what cancels.
        Unary::Asinh if a.abs() > 1e8 => (a.abs().ln() + std::f64::consts::LN_2).copysign(a),
        Unary::Asinh => a.asinh(),
        Unary::Acosh if a > 1e8 => a.ln() + std::f64::consts::LN_2,
        Unary::Acosh => a.acosh(),
        Unary::Atanh => 0.5 * (a.ln_1p() - (-a).ln_1p()),
        Unary::Erf => erf(a),
        Unary::Floor => a.floor(),
        Unary::Ceil => a.ceil(),
        Unary::Round => a.round_ties_even(),
        Unary::Trunc => a.trunc(),
        Unary::Relu => a.max(0.0),
        Unary::Sigmoid if a < 0.0 => a.exp() / (1.0 + a.exp()),
        Unary::Sigmoid => 1.0 / (1.0 + (-a).exp()),
        Unary::LogSigmoid => a.min(0.0) - (-a.abs()).exp().ln_1p(),
        Unary::Gelu if a == f64::NEG_INFINITY => 0.0,
        Unary::Gelu => a / 2.0 * erfc(-a / std::f64::consts::SQRT_2),
        _ => unreachable!("{function} is not for floats"),
    }
}

/// The error function: by a series of positive terms where it is not near 1, and else by a continued
/// fraction.
#[must_use]
pub fn erf(a: f64) -> f64 {
    if a.abs() >= 2.5 {
        return (1.0 - upper_erfc(a.abs())).copysign(a);
    }
    // 2 / sqrt(pi) * exp(-a^2) * sum of 2^n * a^(2 n + 1) / (1 * 3 * .. * (2 n + 1))
    let mut term = a;
    let mut sum = a;
    for n in 1..200 {
        term *= 2.0 * a * a / f64::from(2 * n + 1);
        sum += term;
    }
    std::f64::consts::FRAC_2_SQRT_PI * (-a * a).exp() * sum
}

/// What the error function lacks to 1.
#[must_use]
pub fn erfc(a: f64) -> f64 {
    match a {
        2.5.. => upper_erfc(a),
        _ if a <= -2.5 => 2.0 - upper_erfc(-a),
        _ => 1.0 - erf(a),
    }
}

/// `exp(-a^2) / sqrt(pi) / (a + (1/2) / (a + (2/2) / (a + (3/2) / ..)))`, for `a` from 2.5 on.
fn upper_erfc(a: f64) -> f64 {
    let fraction = (1..=120).rev().fold(a, |rest, n| a + f64::from(n) / 2.0 / rest);
    (-a * a).exp() / std::f64::consts::PI.sqrt() / fraction
}

fn binary_of_floats(function: Binary, dtype: DType, a: f64, b: f64) -> Expect {
    let nan = Expect::Near(f64::NAN, 0.0);
    let exact = match function {
        Binary::Add => a + b,
        Binary::Sub => a - b,
        Binary::Mul => a * b,
        Binary::Div => a / b,
        Binary::Rem => return rem(dtype, a, b),
        Binary::Pow => a.powf(b),
        Binary::Max => larger(a, b),
        Binary::Min => smaller(a, b),
        // The angle of the origin depends on the signs of its zeros, for devices that look at them.
        Binary::Atan2 if a == 0.0 && b == 0.0 => {
            use std::f64::consts::PI;
            let angle = |angle: f64| Expect::Near(angle, tolerance::binary(function, dtype, a, b, angle));
            return angle(0.0).or([angle(PI), angle(-PI)]);
        }
        Binary::Atan2 => a.atan2(b),
        Binary::ReluGrad if a <= 0.0 => 0.0,
        Binary::ReluGrad => b,
        Binary::SigmoidGrad => b * a * (1.0 - a),
        _ => unreachable!("{function} is not for floats"),
    };
    let expect = Expect::Near(exact, tolerance::binary(function, dtype, a, b, exact));
    // "A NaN in an input gives NaN", and IEEE 754 has powers that are 1 for all that. A choice need not look
    // at the other.
    let may_be_nan = (a.is_nan() || b.is_nan()) && matches!(function, Binary::Pow | Binary::ReluGrad);
    if may_be_nan { expect.or([nan]) } else { expect }
}

fn rem(dtype: DType, a: f64, b: f64) -> Expect {
    if b.is_infinite() && a.is_finite() {
        // The formula has a product of infinity and zero, and `fmod` gives `a`.
        return Expect::Anything;
    }
    let rest = a % b;
    let exact = if rest != 0.0 && (rest < 0.0) != (b < 0.0) { rest + b } else { rest };
    let error = tolerance::binary(Binary::Rem, dtype, a, b, exact);
    let near = |exact| Expect::Near(exact, error);
    if error >= b.abs() {
        // The quotient has more bits than the type.
        return near(exact).or([Expect::Near(0.0, b.abs() + error)]);
    }
    // By one multiple more or less, where the quotient is next to an integer.
    let others = [(exact.abs() <= error, exact + b), ((exact - b).abs() <= error, exact - b)];
    near(exact).or(others.into_iter().filter(|(close, _)| *close).map(|(_, other)| near(other)))
}

fn larger(a: f64, b: f64) -> f64 {
    if a.is_nan() || a > b { a } else { b }
}

fn smaller(a: f64, b: f64) -> f64 {
    if a.is_nan() || a < b { a } else { b }
}

fn binary_of_integers(function: Binary, dtype: DType, a: i128, b: i128) -> Expect {
    let width = 8 * dtype.size() as u32;
    // The lowest bits of `b`, as an unsigned number.
    let shift = (b & i128::from(width - 1)) as u32;
    let result = match function {
        Binary::Add => a + b,
        Binary::Sub => a - b,
        Binary::Mul => a.wrapping_mul(b),
        Binary::Div | Binary::Rem if b == 0 => return Expect::Anything,
        Binary::Div => a / b,
        Binary::Rem => {
            let rest = a % b;
            if rest != 0 && (rest < 0) != (b < 0) { rest + b } else { rest }
        }
        Binary::Pow => power(a, b),
        Binary::Max => a.max(b),
        Binary::Min => a.min(b),
        Binary::And => a & b,
        Binary::Or => a | b,
        Binary::Xor => a ^ b,
        Binary::Shl => a << shift,
        Binary::Shr => a >> shift,
        _ => unreachable!("{function} is for floats"),
    };
    Expect::Exactly(Value::Int(wrap(dtype, result)))
}

/// The lowest 64 bits of a power depend only on the lowest 64 bits of its factors.
fn power(a: i128, b: i128) -> i128 {
    if b < 0 {
        return match a {
            1 => 1,
            -1 => {
                if b % 2 == 0 {
                    1
                } else {
                    -1
                }
            }
            _ => 0,
        };
    }
    let mut result = 1_u64;
    let mut factor = a as u64;
    let mut exponent = b as u64;
    while exponent > 0 {
        if exponent & 1 == 1 {
            result = result.wrapping_mul(factor);
        }
        factor = factor.wrapping_mul(factor);
        exponent >>= 1;
    }
    result.into()
}

fn compare(comparison: Compare, a: Value, b: Value) -> bool {
    match (a, b) {
        (Value::Float(a), Value::Float(b)) => holds(comparison, &a, &b),
        _ => holds(comparison, &a.as_int(), &b.as_int()),
    }
}

fn holds<T: PartialOrd>(comparison: Compare, a: &T, b: &T) -> bool {
    match comparison {
        Compare::Eq => a == b,
        Compare::Ne => a != b,
        Compare::Lt => a < b,
        Compare::Le => a <= b,
        Compare::Gt => a > b,
        Compare::Ge => a >= b,
        _ => unreachable!("{comparison} is not one of the comparisons"),
    }
}

/// A conversion of one element.
pub(super) fn copy(from: DType, to: DType, value: Value) -> Expect {
    let converted = element::convert(value, to);
    if from == to || !to.is_float() {
        // A conversion may read a subnormal number as zero.
        let flushed =
            from != to && from.is_float() && from != DType::F64 && is_subnormal(from, value.as_f64());
        let zero = flushed.then_some(Expect::Exactly(Value::Int(0)));
        return Expect::Exactly(converted).or(zero);
    }
    let exact = match value {
        Value::Float(value) => value,
        Value::Int(_) => converted.as_f64(),
    };
    let zero = from.is_float() && from != DType::F64 && is_subnormal(from, exact);
    // To the nearest number. Where the source has more bits than `f32`, half a unit and a little more.
    let error = match (from, to) {
        (_, DType::F64) | (DType::F16 | DType::BF16, DType::F32) => 0.0,
        (DType::F32 | DType::F16 | DType::BF16, _) => {
            return Expect::Near(converted.as_f64(), 0.0).or(zero.then_some(Expect::Near(0.0, 0.0)));
        }
        (_, DType::F32) if from.is_integer() || from == DType::Bool => return Expect::value(converted),
        _ => tolerance::rounding(to, exact),
    };
    Expect::Near(exact, error).or(zero.then_some(Expect::Near(0.0, 0.0)))
}

/// A scalar as an element of the output.
fn fill(scalar: Scalar, to: DType) -> Expect {
    let converted = of_scalar(scalar, to);
    match (scalar, to) {
        (Scalar::Float(value), DType::F32 | DType::F16 | DType::BF16) => {
            Expect::Near(value, tolerance::rounding(to, value)).or([Expect::value(converted)])
        }
        _ => Expect::value(converted),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_function_has_its_known_values() {
        // Abramowitz and Stegun, "Handbook of Mathematical Functions", table 7.1 and 7.3.
        for (a, expected) in [
            (0.0, 0.0),
            (0.5, 0.520_499_877_813_046_5),
            (1.0, 0.842_700_792_949_714_9),
            (2.0, 0.995_322_265_018_952_7),
            (-2.0, -0.995_322_265_018_952_7),
        ] {
            assert!((erf(a) - expected).abs() < 3e-16, "{a}: {}", erf(a));
        }
        // Both ways agree where one takes over.
        assert!((1.0 - erf(2.499_999_999_999) - upper_erfc(2.5)).abs() < 1e-14);
        assert!((erfc(3.0) / 2.209_049_699_858_544e-5 - 1.0).abs() < 1e-13);
        assert_eq!((erf(f64::INFINITY), erfc(f64::NEG_INFINITY)), (1.0, 2.0));
    }

    fn ints(function: Binary, dtype: DType, a: i128, b: i128) -> i128 {
        match binary_of_integers(function, dtype, a, b) {
            Expect::Exactly(value) => value.as_int(),
            other => panic!("{other}"),
        }
    }

    #[test]
    fn integers_wrap_and_divide_as_the_vocabulary_says() {
        let smallest = i32::MIN.into();
        assert_eq!(ints(Binary::Add, DType::U8, 200, 100), 44);
        assert_eq!(ints(Binary::Div, DType::I32, smallest, -1), smallest);
        assert_eq!(ints(Binary::Div, DType::I32, -7, 2), -3);
        assert_eq!(ints(Binary::Rem, DType::I32, -7, 2), 1);
        assert_eq!(ints(Binary::Rem, DType::I32, 7, -2), -1);
        assert_eq!(ints(Binary::Pow, DType::I32, -1, -3), -1);
        assert_eq!(ints(Binary::Pow, DType::I32, 2, -1), 0);
        assert_eq!(ints(Binary::Pow, DType::U8, 3, 6), 729 - 512);
        assert_eq!(ints(Binary::Pow, DType::I64, -3, 41), (-3_i64).wrapping_pow(41).into());
        assert_eq!(ints(Binary::Shl, DType::I32, 1, 33), 2);
        assert_eq!(ints(Binary::Shr, DType::I32, -8, -31), -4);
        assert_eq!(binary_of_integers(Binary::Rem, DType::U8, 1, 0), Expect::Anything);
    }

    #[test]
    fn a_rest_of_floats_has_the_sign_of_the_divisor() {
        for (a, b, expected) in [(5.5, 2.0, 1.5), (-5.5, 2.0, 0.5), (5.5, -2.0, -0.5), (-5.5, -2.0, -1.5)] {
            assert_eq!(rem(DType::F32, a, b).likely(), Some(Value::Float(expected)));
        }
    }

    #[test]
    fn a_nan_is_kept_by_maximum_and_minimum() {
        for (a, b) in [(f64::NAN, 1.0), (1.0, f64::NAN)] {
            assert!(larger(a, b).is_nan() && smaller(a, b).is_nan());
        }
        assert_eq!((larger(1.0, 2.0), smaller(1.0, 2.0)), (2.0, 1.0));
    }
}
