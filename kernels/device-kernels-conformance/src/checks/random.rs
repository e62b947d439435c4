//! The group `random`.

use device_kernels::{DType, Distribution, Operator};

use super::{FLOATS, INTEGERS, for_each};
use crate::case::{Case, Kind};
use crate::check::Check;
use crate::draw::{Draw, TAILS};

pub(super) fn checks() -> Vec<Check> {
    let mut checks = Vec::new();
    let mut random = |name: &str,
                      proves: &str,
                      dtypes: &[DType],
                      distribution: fn(DType, &mut Draw<'_>) -> Distribution| {
        let kinds = for_each(dtypes, move |dtype, case, draw| {
            let distribution = distribution(dtype, draw);
            fill(case, draw, distribution, dtype);
        });
        checks.push(Check::random(format!("random::{name}"), proves, kinds));
    };
    random("uniform", "uniform numbers are those of the generator", &FLOATS, |_, draw| {
        draw.one_of(&[
            Distribution::Uniform { low: 0.0, high: 1.0 },
            Distribution::Uniform { low: -2.0, high: 2.0 },
            Distribution::Uniform { low: 5.0, high: 5.0 },
            Distribution::Uniform { low: 100.0, high: 4000.0 },
        ])
    });
    random("normal", "normal numbers are those of the generator", &FLOATS, |_, draw| {
        draw.one_of(&[
            Distribution::Normal { mean: 0.0, deviation: 1.0 },
            Distribution::Normal { mean: 10.0, deviation: 0.5 },
            Distribution::Normal { mean: -1.0, deviation: 0.0 },
        ])
    });
    random(
        "bernoulli",
        "true is drawn where the generator's number is below the probability",
        &DType::ALL,
        |_, draw| Distribution::Bernoulli { probability: draw.one_of(&[0.5, 0.1, 0.999, 0.0, 1.0]) },
    );
    random("integers", "integers are those of the generator", &INTEGERS, integers);
    checks.push(Check::fixed(
        "random::same_numbers_from_any_offset",
        "a number depends on the seed and its place behind the offset alone",
        offsets,
    ));
    checks.push(Check::fixed(
        "random::same_numbers_for_any_length",
        "a number does not depend on how many are drawn, nor on the layout",
        lengths,
    ));
    checks.push(Check::fixed("random::seeds", "all 64 bits of a seed and of an offset count", seeds));
    checks
}

fn integers(dtype: DType, draw: &mut Draw<'_>) -> Distribution {
    let (low, high) = match dtype {
        DType::U8 => draw.one_of(&[(0, 6), (0, 256), (250, 251)]),
        DType::U32 => draw.one_of(&[(0, 6), (0, 1 << 32), (7, u32::MAX.into())]),
        DType::I32 => draw.one_of(&[(0, 6), (i64::from(i32::MIN), 1 << 31), (-5, 5)]),
        _ => draw.one_of(&[(0, 6), (i64::MIN, i64::MAX), (-5, 1 << 40), (-(1 << 31), 1 << 31)]),
    };
    Distribution::Integers { low, high }
}

fn fill(case: &mut Case, draw: &mut Draw<'_>, distribution: Distribution, dtype: DType) {
    let shape = draw.shape(4);
    let seed = u64::from(draw.number()) << draw.one_of(&[0, 16, 32]);
    let offset = draw.one_of(&[0, 1, 2, 3, 4, 1000, (1 << 34) - 3, u64::MAX - 2]);
    let out = case.output(draw, dtype, &shape, Kind::Any);
    case.step(Operator::Random { distribution, seed, offset }, [], [out]);
}

/// The distributions that a case is made of, with their types.
const ALL: [(Distribution, DType); 6] = [
    (Distribution::Uniform { low: 0.0, high: 1.0 }, DType::F32),
    (Distribution::Integers { low: 0, high: 1000 }, DType::I32),
    (Distribution::Bernoulli { probability: 0.5 }, DType::Bool),
    (Distribution::Normal { mean: 0.0, deviation: 1.0 }, DType::F32),
    (Distribution::Integers { low: 0, high: 1000 }, DType::I64),
    (Distribution::Uniform { low: 0.0, high: 1.0 }, DType::F64),
];

fn plain(distribution: Distribution, dtype: DType, shape: &[usize], seed: u64, offset: u64) -> Case {
    let mut case = Case::default();
    let out = case.output(&mut Draw::new(&[]), dtype, shape, Kind::Plain);
    case.step(Operator::Random { distribution, seed, offset }, [], [out]);
    case
}

fn offsets() -> Vec<Case> {
    let of = |offset| ALL.map(|(distribution, dtype)| plain(distribution, dtype, &[37], 11, offset));
    (0..9).chain([63, 256, 1000, 65_536]).flat_map(of).collect()
}

fn lengths() -> Vec<Case> {
    let mut cases = Vec::new();
    for (distribution, dtype) in ALL {
        for size in TAILS {
            cases.push(plain(distribution, dtype, &[size], 5, 0));
        }
        cases.push(plain(distribution, dtype, &[7, 600], 5, 0));
        let mut case = Case::default();
        let out = case.output(&mut Draw::new(&[]), dtype, &[9, 31], Kind::Transposed);
        case.step(Operator::Random { distribution, seed: 5, offset: 2 }, [], [out]);
        cases.push(case);
    }
    cases
}

fn seeds() -> Vec<Case> {
    let mut cases = Vec::new();
    for (distribution, dtype) in ALL {
        for seed in [0, 1, 1 << 32, u64::MAX] {
            cases.push(plain(distribution, dtype, &[9], seed, 0));
        }
        for offset in [1 << 32, 1 << 34, (1 << 34) - 2, u64::MAX - 3] {
            cases.push(plain(distribution, dtype, &[9], 3, offset));
        }
    }
    cases
}
