use device_kernels::{DType, Distribution, Layout, Operator};

use super::support::{Array, FLOATS, assert_close, compute, device, rounded, those_of};

/// Philox 4x32 with ten rounds.
fn philox(mut counter: [u32; 4], [mut k, mut l]: [u32; 2]) -> [u32; 4] {
    for _ in 0..10 {
        let [a, b, c, d] = counter;
        let (p, q) = (u64::from(a) * 0xd251_1f53, u64::from(c) * 0xcd9e_8d57);
        counter = [(q >> 32) as u32 ^ b ^ k, q as u32, (p >> 32) as u32 ^ d ^ l, p as u32];
        (k, l) = (k.wrapping_add(0x9e37_79b9), l.wrapping_add(0xbb67_ae85));
    }
    counter
}

fn words(counter: u64, seed: u64) -> [u32; 4] {
    philox([counter as u32, (counter >> 32) as u32, 0, 0], [seed as u32, (seed >> 32) as u32])
}

#[test]
fn the_generator_is_the_published_one() {
    // The known answers of the authors' library, for Philox 4x32-10.
    assert_eq!(philox([0; 4], [0; 2]), [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]);
    assert_eq!(philox([!0; 4], [!0; 2]), [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]);
}

const SEED: u64 = 0x1234_5678_9abc_def0;
const OFFSET: u64 = (1 << 34) + 3;

fn drawn(dtype: DType, distribution: Distribution, layout: Layout) -> Option<Vec<f64>> {
    let device = device()?;
    let out = Array::with_layout(device, dtype, layout, &vec![1.0; layout.range().end]);
    Some(compute(device, Operator::Random { distribution, seed: SEED, offset: OFFSET }, &[], &[&out]))
}

/// The 32 bits of an element.
fn bits(dtype: DType, i: u64) -> u32 {
    let at = OFFSET + i;
    if dtype.size() == 8 { words(at, SEED)[0] } else { words(at / 4, SEED)[(at % 4) as usize] }
}

fn layouts() -> [Layout; 2] {
    let whole = Layout::contiguous([30, 40]).unwrap();
    [whole, whole.transpose(0, 1).unwrap().flip(0).unwrap()]
}

#[test]
fn uniform_and_normal_numbers() {
    for dtype in those_of(FLOATS) {
        for layout in layouts() {
            let (low, high) = (-1.0, 3.0);
            let Some(found) = drawn(dtype, Distribution::Uniform { low, high }, layout) else { return };
            let unit = |i: u64| match dtype {
                DType::F64 => {
                    let [low, high, ..] = words(OFFSET + i, SEED);
                    ((u64::from(high) << 32 | u64::from(low)) >> 11) as f64 * 2.0_f64.powi(-53)
                }
                _ => f64::from(bits(dtype, i) >> 8) * 2.0_f64.powi(-24),
            };
            let expected: Vec<f64> =
                (0..1200).map(|i| rounded(dtype, low + (high - low) * unit(i))).collect();
            assert!(found.iter().all(|x| (low..high).contains(x)), "{dtype}");
            assert_close(dtype, &found, &expected, 2.0);

            let (mean, deviation) = (2.0, 0.5);
            let found = drawn(dtype, Distribution::Normal { mean, deviation }, layout).unwrap();
            let normal = |i: u64| {
                let [a, b, ..] = words(OFFSET + i, SEED).map(|word| f64::from(word >> 8) * 2.0_f64.powi(-24));
                (-2.0 * (a + 2.0_f64.powi(-24)).ln()).sqrt() * (std::f64::consts::TAU * b).cos()
            };
            let expected: Vec<f64> =
                (0..1200).map(|i| rounded(dtype, mean + deviation * normal(i))).collect();
            assert_close(dtype, &found, &expected, 64.0);
        }
    }
}

#[test]
fn booleans_and_integers() {
    for dtype in those_of(DType::ALL) {
        for probability in [0.0, 0.3, 1.0] {
            let Some(found) = drawn(dtype, Distribution::Bernoulli { probability }, layouts()[1]) else {
                return;
            };
            let expected: Vec<f64> = (0..1200)
                .map(|i| f64::from(u8::from(f64::from(bits(dtype, i)) * 2.0_f64.powi(-32) < probability)))
                .collect();
            assert_eq!(found, expected, "{dtype} {probability}");
        }
    }
    let (low, high) = (i64::from(i32::MIN), i64::from(i32::MAX) + 1);
    for (dtype, low, high) in [
        (DType::U8, 3, 250),
        (DType::I32, -7, 1000),
        (DType::I32, low, high),
        (DType::U32, 5, 4_000_000_000),
        (DType::I64, -5, 1000),
        (DType::I64, -(1 << 40), 1 << 41),
    ] {
        let found = drawn(dtype, Distribution::Integers { low, high }, layouts()[0]).unwrap();
        let range = (high - low) as u64;
        let expected: Vec<f64> = (0..1200)
            .map(|i| {
                let [first, second, ..] = words(OFFSET + i, SEED);
                let part = match range {
                    0..=0xFFFF_FFFF => (u64::from(bits(dtype, i)) * range) >> 32,
                    _ => (u64::from(second) << 32 | u64::from(first)) % range,
                };
                (low + part as i64) as f64
            })
            .collect();
        assert_eq!(found, expected, "{dtype} {low} {high}");
    }
}
