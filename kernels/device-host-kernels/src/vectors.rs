//! Functions of `f32` that the compiler turns into vector instructions, where the standard library has a
//! call for each element: polynomials without a branch.
//!
//! The polynomials are fitted for the least largest error. How far results are from the exact ones, over all
//! `f32`, is beside each function in units in the last place, and a test samples it. What a polynomial does
//! not reach (NaN, infinities, zeros, subnormals, overflow) is the standard library's.

use device_kernels::{Binary, Unary};

use crate::functions::{BinaryBlock, UnaryBlock, vectorized_widest};

/// The function of blocks, where there is one here.
pub(crate) fn unary(unary: Unary) -> Option<UnaryBlock<f32, f32>> {
    /// A block function: for which elements the polynomials are, and what computes the others.
    macro_rules! block {
        (|$a:ident| $value:expr, if $usual:expr, else $exact:expr) => {
            |a, out| map(a, out, |$a| $usual, |$a| $value, |$a| $exact)
        };
    }
    let block: UnaryBlock<f32, f32> = match unary {
        Unary::Exp => block!(|a| exp(a), if a.abs() < EXP_END, else a.exp()),
        Unary::Log => block!(|a| ln(a), if is_normal_and_positive(a), else a.ln()),
        Unary::Log1p => block!(|a| ln_1p(a), if a > -0.999 && a < 1e30, else a.ln_1p()),
        Unary::Sin => block!(|a| sin_cos(a, 0), if a.abs() < ANGLE_END, else a.sin()),
        Unary::Cos => block!(|a| sin_cos(a, 1), if a.abs() < ANGLE_END, else a.cos()),
        Unary::Tanh => block!(|a| tanh(a), if !a.is_nan(), else a),
        Unary::Erf => block!(|a| erf(a), if !a.is_nan(), else a),
        Unary::Sigmoid => block!(
            |a| 1.0 / (1.0 + exp(-a)),
            if a.abs() < EXP_END,
            else 1.0 / (1.0 + (-a).exp())
        ),
        Unary::LogSigmoid => block!(
            |a| if a < 0.0 { a } else { 0.0 } - ln_1p(exp(-a.abs())),
            if a.abs() < EXP_END,
            else if a > 0.0 { -(-a).exp() } else { a }
        ),
        Unary::Gelu => block!(
            |a| 0.5 * a * (1.0 + erf(a * std::f32::consts::FRAC_1_SQRT_2)),
            if !a.is_nan(),
            else a
        ),
        _ => return None,
    };
    Some(block)
}

/// The function of two blocks, where there is one here.
pub(crate) fn binary(binary: Binary) -> Option<BinaryBlock<f32>> {
    match binary {
        Binary::Pow => Some(|a, b, out| {
            // A NaN is the standard library's, which gives it a sign.
            let usual = |a: f32, b: f32| {
                is_normal_and_positive(a.abs()) & b.is_finite() & ((a > 0.0) | (b.round_ties_even() == b))
            };
            vectorized_widest(|| out.iter_mut().zip(a).zip(b).for_each(|((out, a), b)| *out = pow(*a, *b)));
            if vectorized_widest(|| a.iter().zip(b).fold(true, |all, (a, b)| all & usual(*a, *b))) {
                return;
            }
            for ((out, &a), &b) in out.iter_mut().zip(a).zip(b).filter(|((_, a), b)| !usual(**a, **b)) {
                *out = a.powf(b);
            }
        }),
        _ => None,
    }
}

/// Writes what `fast` computes of each element, and then what `exact` computes of those that are not `usual`.
#[inline(always)]
fn map(
    a: &[f32],
    out: &mut [f32],
    usual: impl Fn(f32) -> bool,
    fast: impl Fn(f32) -> f32,
    exact: impl Fn(f32) -> f32,
) {
    vectorized_widest(|| out.iter_mut().zip(a).for_each(|(out, a)| *out = fast(*a)));
    if vectorized_widest(|| a.iter().fold(true, |all, a| all & usual(*a))) {
        return;
    }
    out.iter_mut().zip(a).filter(|(_, a)| !usual(**a)).for_each(|(out, a)| *out = exact(*a));
}

#[inline(always)]
fn is_normal_and_positive(a: f32) -> bool {
    (f32::MIN_POSITIVE..=f32::MAX).contains(&a)
}

/// The value of a polynomial, whose coefficients begin with the one of the highest power.
macro_rules! polynomial {
    ($x:expr; $highest:expr $(, $coefficient:expr)*) => {{
        let value = $highest;
        $(let value = value * $x + $coefficient;)*
        value
    }};
}

/// Its sum with a number rounds the number to an integer, which is then in the lowest bits.
const ROUND: f32 = 12_582_912.0;

/// As [`ROUND`], of `f64`.
const ROUND_F64: f64 = 6_755_399_441_055_744.0;

/// The logarithm of two in two parts: the product of the first with an exponent is exact.
const LN_2: [f32; 2] = [0.693_359_4, -0.000_212_194_44];

/// From here on a power may not be a normal number.
const EXP_END: f32 = 87.0;

/// The power of e of a number within ±[`EXP_END`]: 1.0 units.
#[inline(always)]
fn exp(x: f32) -> f32 {
    let rounded = x * std::f32::consts::LOG2_E + ROUND;
    let exponent = rounded - ROUND;
    let rest = x - exponent * LN_2[0] - exponent * LN_2[1];
    let power = polynomial!(rest; 0.001_382_136_3, 0.008_368_669, 0.041_668_26, 0.166_665_21, 0.499_999_94);
    let power = power * rest * rest + rest + 1.0;
    power * f32::from_bits((rounded.to_bits() << 23).wrapping_add(1_f32.to_bits()))
}

/// The logarithm of a positive normal number: 0.9 units.
#[inline(always)]
fn ln(x: f32) -> f32 {
    // Parts x into a power of two and a number from the root of a half to the root of two.
    let distance = x.to_bits().wrapping_sub(std::f32::consts::FRAC_1_SQRT_2.to_bits()) as i32;
    let exponent = (distance >> 23) as f32;
    let x = f32::from_bits(x.to_bits().wrapping_sub((distance & !0x7f_ffff) as u32)) - 1.0;
    let rest = polynomial!(
        x; 0.067_509_56, -0.116_714_49, 0.118_835_68, -0.124_060_32, 0.142_203_27, -0.166_679_96, 0.200_020_73,
        -0.250_000_1, 0.333_333_13
    );
    let rest = rest * x * x * x + exponent * LN_2[1] - 0.5 * x * x;
    rest + x + exponent * LN_2[0]
}

/// The logarithm of a number plus one, from -0.999 to 1e30: 1.5 units.
#[inline(always)]
fn ln_1p(x: f32) -> f32 {
    let sum = 1.0 + x;
    // What the sum has lost of x, by the derivative of the logarithm.
    ln(sum) + (x - (sum - 1.0)) / sum
}

/// 1.4 units.
#[inline(always)]
fn tanh(x: f32) -> f32 {
    let size = x.abs();
    let square = x * x;
    let near = polynomial!(
        square; -0.005_695_813, 0.020_630_825, -0.053_737_14, 0.133_314_1, -0.333_332_8
    );
    let near = near * square * size + size;
    // It is one from 9.02 on.
    let clamped = if size < 10.0 { size } else { 10.0 };
    let far = 1.0 - 2.0 / (exp(2.0 * clamped) + 1.0);
    if size < 0.625 { near } else { far }.copysign(x)
}

/// 1.3 units.
#[inline(always)]
fn erf(x: f32) -> f32 {
    let size = x.abs();
    let square = x * x;
    let near = polynomial!(
        square; 7.806_903e-5, -0.000_799_785_3, 0.005_187_162, -0.026_853_347, 0.112_835_79, -0.376_126_26,
        0.128_379_17
    );
    let near = near * size + size;
    // It is one from 3.92 on. The polynomial is the logarithm of what is left to one.
    let clamped = if size < 3.95 { size } else { 3.95 };
    let left = polynomial!(
        clamped; -0.000_185_566_27, 0.002_939_549, -0.021_805_154, 0.103_037_156, 0.638_225_8, 1.127_04,
        0.000_353_709_3
    );
    let far = 1.0 - exp(-left);
    if size < 1.0 { near } else { far }.copysign(x)
}

/// From here on angles are reduced by the standard library.
const ANGLE_END: f32 = 1_000_000.0;

/// The sine of an angle and some right angles more: 0.5 units, as it is computed in `f64`.
#[inline(always)]
fn sin_cos(x: f32, right_angles: u64) -> f32 {
    // The first part has so few bits that its product with the number of right angles is exact.
    const RIGHT_ANGLE: [f64; 2] = [1.570_796_326_734_125_6, 6.077_100_506_506_192e-11];
    let x = f64::from(x);
    let rounded = x * std::f64::consts::FRAC_2_PI + ROUND_F64;
    let count = rounded - ROUND_F64;
    let x = x - count * RIGHT_ANGLE[0] - count * RIGHT_ANGLE[1];
    let square = x * x;
    let sine = polynomial!(
        square; 2.718_311_577_570_572_6e-6, -0.000_198_393_348_426_912_37, 0.008_333_329_385_899_743,
        -0.166_666_666_416_264_6
    );
    let sine = sine * square * x + x;
    let cosine = polynomial!(
        square; -2.718_010_883_382_513e-7, 2.479_904_116_549_280_2e-5, -0.001_388_888_107_941_369_6,
        0.041_666_666_562_092_954, -0.499_999_999_995_452
    );
    let cosine = cosine * square + 1.0;
    let quarter = rounded.to_bits().wrapping_add(right_angles);
    let value = if quarter & 1 == 0 { sine } else { cosine };
    (if quarter & 2 == 0 { value } else { -value }) as f32
}

/// The power of a normal number with a finite exponent, which is an integer if the number is negative:
/// 0.5 units, as it is computed in `f64`.
#[inline(always)]
fn pow(x: f32, y: f32) -> f32 {
    let of_size = exp2_f64(f64::from(y) * log2_f64(f64::from(x.abs())));
    let half = 0.5 * y;
    let is_odd = half.round_ties_even() != half;
    if (x < 0.0) & is_odd { -of_size } else { of_size }
}

/// The logarithm to base two of a positive normal number.
#[inline(always)]
fn log2_f64(x: f64) -> f64 {
    const BIAS: u64 = 1023;
    const FRACTION: u64 = (1 << 52) - 1;
    // As in `ln`. Vectors of these integers have no conversion, so the exponent becomes the fraction of 2^52.
    let distance = x.to_bits().wrapping_sub(std::f64::consts::FRAC_1_SQRT_2.to_bits());
    let biased = distance.wrapping_add(BIAS << 52) >> 52;
    let exponent =
        f64::from_bits(biased | 4_503_599_627_370_496_f64.to_bits()) - (4_503_599_627_370_496.0 + 1023.0);
    let x = f64::from_bits(x.to_bits().wrapping_sub(distance & !FRACTION));
    let ratio = (x - 1.0) / (x + 1.0);
    let square = ratio * ratio;
    let log = polynomial!(
        square; 0.282_903_885_477_718_84, 0.319_905_335_322_231_8, 0.412_209_263_626_608, 0.577_077_942_212_093,
        0.961_796_694_114_188, 2.885_390_081_777_848_6
    );
    log * ratio + exponent
}

/// A power of two: infinite or zero where `f32` has no number for it.
#[inline(always)]
fn exp2_f64(x: f64) -> f32 {
    let x = if x < 200.0 { x } else { 200.0 };
    let x = if x > -200.0 { x } else { -200.0 };
    let rounded = x + ROUND_F64;
    let rest = x - (rounded - ROUND_F64);
    let power = polynomial!(
        rest; 1.520_191_796_429_253_7e-5, 0.000_154_692_911_154_774_81, 0.001_333_392_257_938_874,
        0.009_618_027_253_765_194, 0.055_504_103_534_282_55, 0.240_226_511_981_567_4, 0.693_147_180_728_453_2,
        0.999_999_999_961_682
    );
    (power * f64::from_bits((rounded.to_bits() << 52).wrapping_add(1_f64.to_bits()))) as f32
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The distance in units in the last place of the exact result, which is taken for a normal number.
    fn units(found: f32, exact: f64) -> f64 {
        let exponent = exact.abs().max(f32::MIN_POSITIVE.into()).log2().floor();
        (f64::from(found) - exact).abs() / 2_f64.powf(exponent - 23.0)
    }

    /// The worst of every `step`th `f32`, and where it is.
    fn worst(unary: Unary, exact: fn(f64) -> f64, step: usize) -> (f64, f32) {
        let compute = super::unary(unary).unwrap();
        let mut worst = (0.0, 0.0);
        let mut out = [0.0; 1024];
        let mut all = (0..=u32::MAX).step_by(step);
        loop {
            let a: Vec<f32> = all.by_ref().take(1024).map(f32::from_bits).collect();
            if a.is_empty() {
                return worst;
            }
            compute(&a, &mut out[..a.len()]);
            for (&a, &found) in a.iter().zip(&out) {
                let exact = exact(a.into());
                if found.is_nan() || exact.is_nan() || exact.abs() > f64::from(f32::MAX) {
                    assert_eq!(found.is_nan(), exact.is_nan(), "{unary}({a}) is {found}");
                    let rounded = exact as f32;
                    assert!(
                        found.is_nan() || rounded.is_infinite() == found.is_infinite(),
                        "{unary}({a}) is {found}"
                    );
                    continue;
                }
                let units = units(found, exact);
                if units > worst.0 {
                    worst = (units, a);
                }
            }
        }
    }

    #[test]
    fn results_are_within_the_stated_units_of_the_exact_ones() {
        type Exact = fn(f64) -> f64;
        let functions: [(Unary, Exact, f64); 7] = [
            (Unary::Exp, f64::exp, 1.0),
            (Unary::Log, f64::ln, 0.9),
            (Unary::Log1p, f64::ln_1p, 1.5),
            // Large angles are the standard library's.
            (Unary::Sin, f64::sin, 0.6),
            (Unary::Cos, f64::cos, 0.6),
            (Unary::Tanh, f64::tanh, 1.4),
            (Unary::Erf, libm::erf, 1.3),
        ];
        for (unary, exact, limit) in functions {
            let (units, at) = worst(unary, exact, 16_411);
            assert!(units <= limit, "{unary}({at}) is off by {units} units");
        }
    }

    #[test]
    fn powers_are_the_exact_ones_rounded() {
        // Without signaling NaNs.
        let all = (0..=u32::MAX).step_by(2_100_013).map(f32::from_bits);
        let bases: Vec<f32> =
            all.filter(|base| !base.is_nan()).chain([f32::NAN, 0.0, -0.0, 1.0, -1.0, 2.0]).collect();
        let mut out = vec![0.0; bases.len()];
        for exponent in
            [2.0, 3.0, -1.0, 0.5, 1.0 / 3.0, -2.75, 12.0, 40.5, -0.01, 0.0, 1e9, f32::INFINITY, f32::NAN]
        {
            binary(Binary::Pow).unwrap()(&bases, &vec![exponent; bases.len()], &mut out);
            for (&base, &found) in bases.iter().zip(&out) {
                let exact = f64::from(base).powf(exponent.into());
                if exact.is_nan() {
                    // burn sorts NaNs by their signs.
                    let expected = base.powf(exponent);
                    assert_eq!(found.to_bits(), expected.to_bits(), "{base} to the power of {exponent}");
                } else if (exact as f32).is_infinite() || exact == 0.0 {
                    assert_eq!(
                        found.to_string(),
                        (exact as f32).to_string(),
                        "{base} to the power of {exponent}"
                    );
                } else {
                    let units = units(found, exact);
                    assert!(
                        units <= 0.51,
                        "{base} to the power of {exponent}, {found}, is off by {units} units"
                    );
                }
            }
        }
    }
}
