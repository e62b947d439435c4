//! Random tensors: each device has a generator of its own, and the same seed gives the same numbers on every device.
//!
//! They are the numbers of burn's CPU engine for that seed. The engine itself has one generator for the process, so that
//! a program with two devices would get other numbers than with one.

use burn_backend::{DType, TensorData};
use burn_ir::RandomOpIr;
use burn_std::rand::{SeedableRng, StdRng, get_seeded_rng};
use burn_std::{bf16, f16};
use parking_lot::Mutex;

/// The generator of a device. Without a seed it begins anywhere.
#[derive(Default)]
pub(crate) struct Random(Mutex<Option<StdRng>>);

impl Random {
    pub(crate) fn seed(&self, seed: u64) {
        *self.0.lock() = Some(StdRng::seed_from_u64(seed));
    }

    /// The values of a random tensor, or nothing for a type that has none.
    pub(crate) fn draw(&self, operation: &RandomOpIr) -> Option<TensorData> {
        let RandomOpIr { out, distribution } = operation;
        let mut generator = self.0.lock();
        let generator = generator.get_or_insert_with(get_seeded_rng);
        macro_rules! draw {
            ($($dtype:pat => $type:ty,)*) => {
                match out.dtype {
                    $($dtype => TensorData::random::<$type, _, _>(out.shape.clone(), *distribution, generator),)*
                    _ => return None,
                }
            };
        }
        Some(draw! {
            DType::F64 => f64,
            DType::F32 | DType::Flex32 => f32,
            DType::F16 => f16,
            DType::BF16 => bf16,
            DType::I64 => i64,
            DType::I32 => i32,
            DType::I16 => i16,
            DType::I8 => i8,
            DType::U64 => u64,
            DType::U32 => u32,
            DType::U16 => u16,
            DType::U8 => u8,
        })
    }
}
