//! Random numbers, by the rule of `Operator::Random`.

use device_kernels::{DType, Distribution};

use crate::element::Value;
use crate::expect::Expect;
use crate::tolerance;

/// Philox 4x32 with ten rounds.
#[must_use]
pub fn philox(mut counter: [u32; 4], mut key: [u32; 2]) -> [u32; 4] {
    for round in 0..10 {
        if round > 0 {
            key = [key[0].wrapping_add(0x9e37_79b9), key[1].wrapping_add(0xbb67_ae85)];
        }
        let products = [u64::from(counter[0]) * 0xd251_1f53, u64::from(counter[2]) * 0xcd9e_8d57];
        let [high, low] =
            [products.map(|product| (product >> 32) as u32), products.map(|product| product as u32)];
        counter = [high[1] ^ counter[1] ^ key[0], low[1], high[0] ^ counter[3] ^ key[1], low[0]];
    }
    counter
}

/// The four words of a counter of 64 bits.
fn words(counter: u64, seed: u64) -> [u32; 4] {
    let split = |number: u64| [number as u32, (number >> 32) as u32];
    let [low, high] = split(counter);
    philox([low, high, 0, 0], split(seed))
}

pub(super) fn random(
    distribution: Distribution,
    seed: u64,
    offset: u64,
    dtype: DType,
    len: usize,
) -> Vec<Expect> {
    (0..len as u64).map(|i| number(distribution, seed, offset.wrapping_add(i), dtype)).collect()
}

/// The random number `number` of a seed.
fn number(distribution: Distribution, seed: u64, number: u64, dtype: DType) -> Expect {
    let wide = words(number, seed);
    let wide_bits = u64::from(wide[1]) << 32 | u64::from(wide[0]);
    let is_wide = matches!(dtype, DType::F64 | DType::I64);
    let bits = if is_wide { wide[0] } else { words(number / 4, seed)[(number % 4) as usize] };
    match distribution {
        Distribution::Uniform { low, high } => {
            let unit = match dtype {
                DType::F64 => (wide_bits >> 11) as f64 * 2_f64.powi(-53),
                _ => f64::from(bits >> 8) * 2_f64.powi(-24),
            };
            Expect::Near(low + unit * (high - low), tolerance::uniform(dtype, low, high))
        }
        Distribution::Normal { mean, deviation } => {
            let u1 = f64::from((wide[0] >> 8) + 1) * 2_f64.powi(-24);
            let u2 = f64::from(wide[1] >> 8) * 2_f64.powi(-24);
            let radius = (-2.0 * u1.ln()).sqrt();
            let exact = mean + deviation * radius * (std::f64::consts::TAU * u2).cos();
            Expect::Near(exact, tolerance::normal(dtype, mean, deviation, radius, exact))
        }
        Distribution::Bernoulli { probability } => {
            let drawn = f64::from(bits) * 2_f64.powi(-32) < probability;
            Expect::value(crate::element::convert(Value::Int(drawn.into()), dtype))
        }
        Distribution::Integers { low, high } => {
            let range = (i128::from(high) - i128::from(low)) as u64;
            let above = match u32::try_from(range) {
                Ok(range) => (u64::from(bits) * u64::from(range)) >> 32,
                Err(_) => wide_bits % range,
            };
            Expect::Exactly(Value::Int(i128::from(low) + i128::from(above)))
        }
        _ => unreachable!("{distribution:?} is not one of the distributions"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The test vectors that the authors publish, in `kat_vectors` of Random123.
    #[test]
    fn the_generator_gives_the_published_numbers() {
        for (counter, key, expected) in [
            ([0; 4], [0; 2], [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]),
            ([!0; 4], [!0; 2], [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]),
            (
                [0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344],
                [0xa409_3822, 0x299f_31d0],
                [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1],
            ),
        ] {
            assert_eq!(philox(counter, key), expected);
        }
    }

    #[test]
    fn four_elements_share_a_counter() {
        let bits = |i| match number(Distribution::Integers { low: 0, high: (1 << 32) - 1 }, 0, i, DType::U32)
        {
            Expect::Exactly(value) => value.as_int(),
            other => panic!("{other}"),
        };
        // The range is one less than all, so the product loses less than one.
        for (i, word) in [0x6627_e8d5_i128, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8].into_iter().enumerate() {
            assert!((word - 1..=word).contains(&bits(i as u64)), "{i}");
        }
    }

    #[test]
    fn the_high_word_of_a_counter_counts() {
        assert_eq!(words(1 << 32, 3 << 32 | 5), philox([0, 1, 0, 0], [5, 3]));
    }
}
