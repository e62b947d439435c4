//! Random tensors: each device has a generator of its own, and the same seed gives the same numbers on every device.
//!
//! The generator is that of [`device_kernels::Operator::Random`], whose numbers depend on the seed and on their own number
//! alone. So it does not matter which device draws, or whether the host does for it.

use std::hash::{BuildHasher, RandomState};

use burn_backend::{DType, Distribution, TensorData};
use burn_ir::TensorIr;
use burn_std::{bf16, f16};
use device_kernels::{Argument, Call, Layout, Operator};
use parking_lot::Mutex;

use crate::describe;

/// The generator of a device. Without a seed it begins anywhere.
#[derive(Default)]
pub(crate) struct Random(Mutex<Option<Numbers>>);

/// Random numbers that no other tensor has, from one seed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Numbers {
    pub(crate) seed: u64,
    /// The number of the first one.
    pub(crate) offset: u64,
}

impl Random {
    pub(crate) fn seed(&self, seed: u64) {
        *self.0.lock() = Some(Numbers { seed, offset: 0 });
    }

    /// Takes the next `len` numbers.
    pub(crate) fn take(&self, len: usize) -> Numbers {
        let mut next = self.0.lock();
        let next = next.get_or_insert_with(|| Numbers { seed: RandomState::new().hash_one(0), offset: 0 });
        let numbers = *next;
        next.offset = next.offset.wrapping_add(len as u64);
        numbers
    }
}

impl Numbers {
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
        let draw = describe::draw(distribution, drawn)?;
        let layout = Layout::contiguous(&out.shape[..]).ok()?;
        let operator = Operator::Random { distribution: draw, seed: self.seed, offset: self.offset };
        let call = Call::new(operator, &[], &[Argument::Array(describe::dtype_of(drawn)?, layout)]).ok()?;
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
        Some(data.convert_dtype(out.dtype))
    }
}
