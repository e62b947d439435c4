//! Random numbers, from seeds that the generator of PyTorch gives.

use device_kernels::{DType, Distribution, Operator};

use crate::failure::Failure;
use crate::operators::Row;
use crate::operators::call::Call;

pub(super) const TABLE: &[Row] = &[
    ("uniform_", uniform),
    ("normal_", normal),
    ("bernoulli_.float", bernoulli),
    ("random_", whole_range),
    ("random_.to", |call| integers(call, 0, call.int(1)?)),
    (
        "random_.from",
        |call| if call.is_none(2) { declined() } else { integers(call, call.int(1)?, call.int(2)?) },
    ),
];

fn declined() -> Result<(), Failure> {
    Err(Failure::declined("no kernel draws from its range"))
}

/// Fills the first argument. A seed is drawn only where a kernel uses it, so that the CPU draws what it would
/// have drawn.
fn draw(call: &Call<'_>, distribution: Distribution) -> Result<(), Failure> {
    let out = call.array(0)?;
    let operator = |seed| Operator::Random { distribution, seed, offset: 0 };
    call.check_supported(operator(0), &out)?;
    call.run(operator(call.seed()?), &[], &[&out])
}

fn uniform(call: &Call<'_>) -> Result<(), Failure> {
    let low = call.scalar(1)?.as_f64();
    let high = call.scalar(2)?.as_f64();
    if low > high {
        return declined();
    }
    draw(call, Distribution::Uniform { low, high })
}

fn normal(call: &Call<'_>) -> Result<(), Failure> {
    let mean = call.scalar(1)?.as_f64();
    let deviation = call.scalar(2)?.as_f64();
    if deviation < 0.0 {
        return declined();
    }
    draw(call, Distribution::Normal { mean, deviation })
}

fn bernoulli(call: &Call<'_>) -> Result<(), Failure> {
    let probability = call.scalar(1)?.as_f64();
    if !(0.0..=1.0).contains(&probability) {
        return declined();
    }
    draw(call, Distribution::Bernoulli { probability })
}

fn integers(call: &Call<'_>, low: i64, high: i64) -> Result<(), Failure> {
    if low >= high || !matches!(call.array(0)?.dtype, DType::I32 | DType::I64) {
        return declined();
    }
    draw(call, Distribution::Integers { low, high })
}

/// All that are not negative.
fn whole_range(call: &Call<'_>) -> Result<(), Failure> {
    match call.array(0)?.dtype {
        DType::I32 => integers(call, 0, 1 << 31),
        DType::I64 => integers(call, 0, i64::MAX),
        _ => declined(),
    }
}
