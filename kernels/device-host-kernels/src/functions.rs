//! What operators compute of each element, by the type that is computed in.

use device_kernels::{Binary, Unary};

use crate::element::Compute;
use crate::vectors;

/// A function of a block of one input.
pub(crate) type UnaryBlock<A, O> = fn(&[A], &mut [O]);

/// A function of blocks of two inputs.
pub(crate) type BinaryBlock<A, O = A> = fn(&[A], &[A], &mut [O]);

/// Numbers. A function is `None` where an operator is not for the type.
pub(crate) trait Number: Compute + PartialOrd {
    fn unary(unary: Unary) -> Option<UnaryBlock<Self, Self>>;

    /// Whether elements are not numbers, or infinite.
    fn test(unary: Unary) -> Option<UnaryBlock<Self, bool>> {
        let _ = unary;
        None
    }

    fn binary(binary: Binary) -> Option<BinaryBlock<Self>>;

    /// The sum, which wraps for integers.
    fn sum(self, other: Self) -> Self;

    /// The product, which wraps for integers.
    fn product(self, other: Self) -> Self;

    /// Converts a block, as `as` converts.
    fn convert<O: Compute>() -> UnaryBlock<Self, O>;

    /// The larger one. NaN if one is: it equals nothing, itself included.
    #[inline(always)]
    #[expect(clippy::eq_op, reason = "NaN differs from itself")]
    fn larger(self, other: Self) -> Self {
        // Without `||`, so that there is no branch.
        if (self != self) | (self > other) { self } else { other }
    }

    /// The smaller one. NaN if one is.
    #[inline(always)]
    #[expect(clippy::eq_op, reason = "NaN differs from itself")]
    fn smaller(self, other: Self) -> Self {
        if (self != self) | (self < other) { self } else { other }
    }
}

/// Calls `work`, which the compiler has compiled for the wider vectors too that most processors have.
#[inline(always)]
pub(crate) fn vectorized<R>(work: impl FnOnce() -> R) -> R {
    #[cfg(target_arch = "x86_64")]
    {
        #[target_feature(enable = "avx2")]
        fn with_avx2<R>(work: impl FnOnce() -> R) -> R {
            work()
        }
        if is_x86_feature_detected!("avx2") {
            // SAFETY: the processor has these instructions.
            return unsafe { with_avx2(work) };
        }
    }
    work()
}

/// Like [`vectorized`], for functions that compute so much for each element that the widest vectors pay.
#[inline(always)]
pub(crate) fn vectorized_widest<R>(work: impl FnOnce() -> R) -> R {
    #[cfg(target_arch = "x86_64")]
    {
        #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
        fn with_avx512<R>(work: impl FnOnce() -> R) -> R {
            work()
        }
        if is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512dq")
            && is_x86_feature_detected!("avx512vl")
        {
            // SAFETY: the processor has these instructions.
            return unsafe { with_avx512(work) };
        }
    }
    vectorized(work)
}

#[inline(always)]
pub(crate) fn map<A: Copy, O>(a: &[A], out: &mut [O], compute: impl Fn(A) -> O) {
    vectorized(|| out.iter_mut().zip(a).for_each(|(out, a)| *out = compute(*a)));
}

#[inline(always)]
pub(crate) fn zip<A: Copy, O>(a: &[A], b: &[A], out: &mut [O], compute: impl Fn(A, A) -> O) {
    vectorized(|| out.iter_mut().zip(a).zip(b).for_each(|((out, a), b)| *out = compute(*a, *b)));
}

/// A block function of each element.
macro_rules! block {
    (|$a:ident| $value:expr) => {
        Some(|a, out| map(a, out, |$a| $value))
    };
    (|$a:ident, $b:ident| $value:expr) => {
        Some(|a, b, out| zip(a, b, out, |$a, $b| $value))
    };
}

macro_rules! floats {
    ($($ty:ident, $from:ident, [$unary:expr, $binary:expr], $erf:path, $asinh:path, $acosh:path, $atanh:path;)*) => {$(
        impl Number for $ty {
            fn unary(unary: Unary) -> Option<UnaryBlock<Self, Self>> {
                let block: Option<UnaryBlock<Self, Self>> = $unary(unary);
                block.or_else(|| match unary {
                    Unary::Neg => block!(|a| -a),
                    Unary::Abs => block!(|a| a.abs()),
                    // `signum` of zero is one.
                    Unary::Sign => block!(|a| if a == 0.0 || a.is_nan() { 0.0 } else { a.signum() }),
                    Unary::Recip => block!(|a| 1.0 / a),
                    Unary::Sqrt => block!(|a| a.sqrt()),
                    Unary::Exp => block!(|a| a.exp()),
                    Unary::Log => block!(|a| a.ln()),
                    Unary::Log1p => block!(|a| a.ln_1p()),
                    Unary::Sin => block!(|a| a.sin()),
                    Unary::Cos => block!(|a| a.cos()),
                    Unary::Tan => block!(|a| a.tan()),
                    Unary::Asin => block!(|a| a.asin()),
                    Unary::Acos => block!(|a| a.acos()),
                    Unary::Atan => block!(|a| a.atan()),
                    Unary::Sinh => block!(|a| a.sinh()),
                    Unary::Cosh => block!(|a| a.cosh()),
                    Unary::Tanh => block!(|a| a.tanh()),
                    Unary::Asinh => block!(|a| $asinh(a)),
                    // libm has a number for some that have none.
                    Unary::Acosh => block!(|a| if a < 1.0 { Self::NAN } else { $acosh(a) }),
                    // libm changes the sign of the NaN below -1, which burn's sort sees: it puts NaNs of one
                    // sign before all numbers, and NaNs of the other behind.
                    Unary::Atanh => block!(|a| $atanh(if a < -1.0 { -a } else { a })),
                    Unary::Erf => block!(|a| $erf(a)),
                    Unary::Floor => block!(|a| a.floor()),
                    Unary::Ceil => block!(|a| a.ceil()),
                    Unary::Round => block!(|a| a.round_ties_even()),
                    Unary::Trunc => block!(|a| a.trunc()),
                    Unary::Relu => block!(|a| a.larger(0.0)),
                    Unary::Sigmoid => block!(|a| 1.0 / (1.0 + (-a).exp())),
                    Unary::LogSigmoid => block!(|a| a.smaller(0.0) - (-a.abs()).exp().ln_1p()),
                    Unary::Gelu => {
                        block!(|a| 0.5 * a * (1.0 + $erf(a * std::$ty::consts::FRAC_1_SQRT_2)))
                    }
                    _ => None,
                })
            }

            fn test(unary: Unary) -> Option<UnaryBlock<Self, bool>> {
                match unary {
                    Unary::IsNan => block!(|a| a.is_nan()),
                    Unary::IsInf => block!(|a| a.is_infinite()),
                    _ => None,
                }
            }

            fn binary(binary: Binary) -> Option<BinaryBlock<Self>> {
                let block: Option<BinaryBlock<Self>> = $binary(binary);
                block.or_else(|| match binary {
                    Binary::Add => block!(|a, b| a + b),
                    Binary::Sub => block!(|a, b| a - b),
                    Binary::Mul => block!(|a, b| a * b),
                    Binary::Div => block!(|a, b| a / b),
                    Binary::Rem => block!(|a, b| {
                        let rest = a % b;
                        match rest == 0.0 {
                            true => (0.0 as Self).copysign(b),
                            false if (rest < 0.0) != (b < 0.0) => rest + b,
                            false => rest,
                        }
                    }),
                    Binary::Pow => block!(|a, b| a.powf(b)),
                    Binary::Max => block!(|a, b| a.larger(b)),
                    Binary::Min => block!(|a, b| a.smaller(b)),
                    Binary::Atan2 => block!(|a, b| a.atan2(b)),
                    Binary::ReluGrad => block!(|a, b| if a <= 0.0 { 0.0 } else { b }),
                    Binary::SigmoidGrad => block!(|a, b| b * a * (1.0 - a)),
                    _ => None,
                })
            }

            fn sum(self, other: Self) -> Self {
                self + other
            }

            fn product(self, other: Self) -> Self {
                self * other
            }

            fn convert<O: Compute>() -> UnaryBlock<Self, O> {
                |a, out| map(a, out, O::$from)
            }
        }
    )*};
}

macro_rules! integers {
    ($($ty:ident, $from:ident, $abs:expr, $sign:expr;)*) => {$(
        impl Number for $ty {
            fn unary(unary: Unary) -> Option<UnaryBlock<Self, Self>> {
                match unary {
                    Unary::Neg => block!(|a| a.wrapping_neg()),
                    Unary::Abs => block!(|a| $abs(a)),
                    Unary::Sign => block!(|a| $sign(a)),
                    Unary::Not => block!(|a| !a),
                    _ => None,
                }
            }

            // A power of an unsigned integer is never negative.
            #[allow(unused_comparisons)]
            fn binary(binary: Binary) -> Option<BinaryBlock<Self>> {
                match binary {
                    Binary::Add => block!(|a, b| a.wrapping_add(b)),
                    Binary::Sub => block!(|a, b| a.wrapping_sub(b)),
                    Binary::Mul => block!(|a, b| a.wrapping_mul(b)),
                    Binary::Div => block!(|a, b| if b == 0 { 0 } else { a.wrapping_div(b) }),
                    Binary::Rem => block!(|a, b| {
                        let rest = if b == 0 { 0 } else { a.wrapping_rem(b) };
                        if rest != 0 && (rest < 0) != (b < 0) { rest.wrapping_add(b) } else { rest }
                    }),
                    Binary::Pow => block!(|a, b| match b {
                        // The reciprocal, rounded toward zero.
                        b if b < 0 && a == 1 => 1,
                        b if b < 0 && a == (0 as Self).wrapping_sub(1) => if b & 1 == 0 { 1 } else { a },
                        b if b < 0 => 0,
                        b => power(a, b as u64, 1, Self::wrapping_mul),
                    }),
                    Binary::Max => block!(|a, b| a.max(b)),
                    Binary::Min => block!(|a, b| a.min(b)),
                    Binary::And => block!(|a, b| a & b),
                    Binary::Or => block!(|a, b| a | b),
                    Binary::Xor => block!(|a, b| a ^ b),
                    Binary::Shl => block!(|a, b| a.wrapping_shl(b as u32)),
                    Binary::Shr => block!(|a, b| a.wrapping_shr(b as u32)),
                    _ => None,
                }
            }

            #[inline(always)]
            fn sum(self, other: Self) -> Self {
                self.wrapping_add(other)
            }

            #[inline(always)]
            fn product(self, other: Self) -> Self {
                self.wrapping_mul(other)
            }

            fn convert<O: Compute>() -> UnaryBlock<Self, O> {
                |a, out| map(a, out, O::$from)
            }
        }
    )*};
}

floats! {
    f32, from_f32, [vectors::unary, vectors::binary], libm::erff, libm::asinhf, libm::acoshf, libm::atanhf;
    f64, from_f64, [|_| None, |_| None], libm::erf, libm::asinh, libm::acosh, libm::atanh;
}

integers! {
    i32, from_i32, i32::wrapping_abs, i32::signum;
    i64, from_i64, i64::wrapping_abs, i64::signum;
    u8, from_u8, |a| a, |a: u8| a.min(1);
    u32, from_u32, |a| a, |a: u32| a.min(1);
}

fn power<T: Copy>(mut base: T, mut exponent: u64, one: T, multiply: fn(T, T) -> T) -> T {
    let mut result = one;
    while exponent > 0 {
        if exponent & 1 == 1 {
            result = multiply(result, base);
        }
        base = multiply(base, base);
        exponent >>= 1;
    }
    result
}

/// The logical operators of booleans.
pub(crate) fn of_bools(binary: Binary) -> Option<BinaryBlock<bool>> {
    match binary {
        Binary::And => block!(|a, b| a & b),
        Binary::Or => block!(|a, b| a | b),
        Binary::Xor => block!(|a, b| a ^ b),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::hint::black_box;

    use super::*;

    #[test]
    fn a_nan_outside_of_the_domain_has_the_sign_that_the_standard_library_gives_it() {
        // At run time: a NaN that the compiler computes may have another sign.
        let outside = black_box([-f64::INFINITY, -2.0, -1.5, 1.5, 2.0, f64::INFINITY]);
        let mut found = [0.0; 6];
        for (unary, function) in [(Unary::Atanh, f64::atanh as fn(f64) -> f64), (Unary::Acosh, f64::acosh)] {
            f64::unary(unary).unwrap()(&outside, &mut found);
            for (&a, found) in outside.iter().zip(found) {
                let expected = function(a);
                assert_eq!(found.is_nan(), expected.is_nan(), "{unary}({a})");
                assert_eq!(found.is_sign_negative(), expected.is_sign_negative(), "{unary}({a}): {found}");
            }
        }
    }
}
