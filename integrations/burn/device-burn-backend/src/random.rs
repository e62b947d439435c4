//! Random tensors: each device has its own generator, and the same seed gives the same numbers on every
//! device.
//!
//! The generator is [`device_kernels::Operator::Random`], whose numbers depend only on the seed and on their
//! index. So it does not matter which device draws, or whether the host does for it.

use std::hash::{BuildHasher, RandomState};

use burn_backend::{DType, Distribution, TensorData};
use burn_ir::TensorIr;
use burn_std::{bf16, f16};
use device_kernels::{Argument, Call, Distribution as Draw, Layout, Operator};
use parking_lot::Mutex;

use crate::dtype::{dtype_of, integers};

/// The generator of a device. Without a seed it begins anywhere.
#[derive(Default)]
pub(crate) struct Random(Mutex<Option<Numbers>>);

/// Random numbers that no other tensor has, from one seed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Numbers {
    seed: u64,
    /// The generator's counter at the first one. Each number has one of its own, also where it needs no whole
    /// one.
    counter: u64,
}

impl Random {
    pub(crate) fn seed(&self, seed: u64) {
        *self.0.lock() = Some(Numbers { seed, counter: 0 });
    }

    /// Takes the next `len` numbers.
    pub(crate) fn take(&self, len: usize) -> Numbers {
        let mut next = self.0.lock();
        let next = next.get_or_insert_with(|| Numbers { seed: RandomState::new().hash_one(0), counter: 0 });
        let numbers = *next;
        next.counter = next.counter.wrapping_add(len as u64);
        numbers
    }
}

impl Numbers {
    /// The operator that draws them as elements of `dtype`.
    pub(crate) fn operator(&self, distribution: Draw, dtype: device_kernels::DType) -> Operator {
        let offset = self.counter.wrapping_mul(distribution.per_counter(dtype));
        Operator::Random { distribution, seed: self.seed, offset }
    }

    /// The values of a random tensor, drawn on the host. Nothing for a type or a distribution that has none.
    pub(crate) fn draw(&self, out: &TensorIr, distribution: Distribution) -> Option<TensorData> {
        // Types that kernels do not have are drawn as the widest of their kind, and converted.
        let integers = out.dtype.is_int() || out.dtype.is_uint();
        let normal = matches!(distribution, Distribution::Normal(..));
        let drawn = match out.dtype {
            _ if integers && normal => DType::F64,
            DType::F64 | DType::F32 | DType::F16 | DType::BF16 => out.dtype,
            DType::I64 | DType::I32 | DType::U32 | DType::U8 => out.dtype,
            DType::Flex32 => DType::F32,
            _ if integers => DType::I64,
            _ => return None,
        };
        let draw = match (draw(distribution, drawn)?, distribution) {
            (Draw::Integers { .. }, Distribution::Default) => all_integers(out.dtype)?,
            (draw, _) => draw,
        };
        let layout = Layout::contiguous(&out.shape[..]).ok()?;
        let dtype = dtype_of(drawn)?;
        let call = Call::new(self.operator(draw, dtype), &[], &[Argument::Array(dtype, layout)]).ok()?;
        let shape = out.shape.clone();
        macro_rules! draw {
            ($($dtype:pat => $type:ty,)*) => {
                match drawn {
                    $($dtype => {
                        let mut values = vec![<$type>::default(); shape.num_elements()];
                        let bytes = bytemuck::cast_slice_mut(&mut values);
                        device_host_kernels::compute(&call, &[], &mut [bytes]).ok()?;
                        TensorData::new(values, shape)
                    })*
                    _ => return None,
                }
            };
        }
        let data = draw! {
            DType::F64 => f64,
            DType::F32 => f32,
            DType::F16 => f16,
            DType::BF16 => bf16,
            DType::I64 => i64,
            DType::I32 => i32,
            DType::U32 => u32,
            DType::U8 => u8,
        };
        // Any 64 bits are a number of either type.
        if out.dtype == DType::U64 && distribution == Distribution::Default {
            let values: Vec<u64> = data.iter::<i64>().map(i64::cast_unsigned).collect();
            return Some(TensorData::new(values, out.shape.clone()));
        }
        Some(data.convert_dtype(out.dtype))
    }
}

/// The random numbers of `distribution` for elements of `dtype`. `None` if kernels do not draw them.
pub(crate) fn draw(distribution: Distribution, tensor_dtype: DType) -> Option<Draw> {
    let dtype = dtype_of(tensor_dtype)?;
    if dtype.is_float() {
        return Some(match distribution {
            Distribution::Default => Draw::Uniform { low: 0.0, high: 1.0 },
            Distribution::Uniform(low, high) => Draw::Uniform { low, high },
            Distribution::Normal(mean, deviation) => Draw::Normal { mean, deviation },
            Distribution::Bernoulli(probability) => Draw::Bernoulli { probability },
        });
    }
    match distribution {
        Distribution::Bernoulli(probability) => Some(Draw::Bernoulli { probability }),
        Distribution::Uniform(low, high) => Some(Draw::Integers { low: low as i64, high: high as i64 }),
        Distribution::Default => all_integers(tensor_dtype),
        Distribution::Normal(..) => None,
    }
}

/// Any integer of `dtype`, as far as `i64` has it.
fn all_integers(dtype: DType) -> Option<Draw> {
    let (low, high) = integers(dtype)?;
    Some(Draw::Integers { low, high: high.saturating_add(1) })
}

#[cfg(test)]
mod tests {
    use burn_ir::TensorId;

    use super::*;

    #[test]
    fn draws_of_any_kind_have_counters_of_their_own() {
        let random = Random::default();
        random.seed(7);
        let offset = |len, distribution, dtype| match random.take(len).operator(distribution, dtype) {
            Operator::Random { seed: 7, offset, .. } => offset,
            other => panic!("{other}"),
        };
        let normal = Draw::Normal { mean: 0.0, deviation: 1.0 };
        let uniform = Draw::Uniform { low: 0.0, high: 1.0 };
        assert_eq!(offset(1000, normal, device_kernels::DType::F32), 0);
        // Four of its elements have one counter between them, and it begins at the counter 1000.
        assert_eq!(offset(10, uniform, device_kernels::DType::F32), 4000);
        assert_eq!(offset(1, uniform, device_kernels::DType::F64), 1010);
    }

    #[test]
    fn integers_of_any_width_are_drawn_from_all_of_their_range() {
        let random = Random::default();
        random.seed(1);
        let dtypes = [DType::I8, DType::I16, DType::I32, DType::I64];
        for dtype in dtypes.into_iter().chain([DType::U8, DType::U16, DType::U32, DType::U64]) {
            let out = TensorIr::uninit(TensorId::new(0), [1000].into(), dtype);
            let data = random.take(1000).draw(&out, Distribution::Default).expect("it has random numbers");
            assert_eq!(data.dtype(), dtype);
            let values: Vec<i128> = match dtype {
                DType::U64 => data.iter::<u64>().map(i128::from).collect(),
                _ => data.iter::<i64>().map(i128::from).collect(),
            };
            let bits = 8 * dtype.size();
            let low = if dtype.is_uint() { 0 } else { -(1_i128 << (bits - 1)) };
            let quarter = 1_i128 << (bits - 2);
            let in_quarter =
                |number: i128| values.iter().filter(|value| (**value - low) / quarter == number).count();
            assert!((0..4).all(|number| in_quarter(number) > 100), "{dtype:?}");
        }
    }
}
