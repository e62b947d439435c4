//! The dtypes of burn that kernels have, and the integers of each.

use burn_backend::DType;
use burn_std::BoolStore;

/// The dtype of kernels. `None` for those that kernels do not have.
pub(crate) fn dtype_of(dtype: DType) -> Option<device_kernels::DType> {
    Some(match dtype {
        DType::F32 => device_kernels::DType::F32,
        DType::F16 => device_kernels::DType::F16,
        DType::BF16 => device_kernels::DType::BF16,
        DType::F64 => device_kernels::DType::F64,
        DType::I32 => device_kernels::DType::I32,
        DType::I64 => device_kernels::DType::I64,
        DType::U8 => device_kernels::DType::U8,
        DType::U32 => device_kernels::DType::U32,
        DType::Bool(BoolStore::Native) => device_kernels::DType::Bool,
        _ => return None,
    })
}

/// Whether tensors of a type are quantized. The engine keeps their values and scales apart; here they are the
/// bytes that burn writes for both, which only the engine reads.
pub(crate) fn is_quantized(dtype: DType) -> bool {
    matches!(dtype, DType::QFloat(_))
}

/// The smallest and the largest integer of `dtype`, as far as `i64` has them.
pub(crate) fn integers(dtype: DType) -> Option<(i64, i64)> {
    Some(match dtype {
        DType::U8 => (0, u8::MAX.into()),
        DType::U16 => (0, u16::MAX.into()),
        DType::U32 => (0, u32::MAX.into()),
        DType::I8 => (i8::MIN.into(), i8::MAX.into()),
        DType::I16 => (i16::MIN.into(), i16::MAX.into()),
        DType::I32 => (i32::MIN.into(), i32::MAX.into()),
        DType::I64 | DType::U64 => (i64::MIN, i64::MAX),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_dtype_of_kernels_is_one_of_burn() {
        let floats = [DType::F64, DType::F32, DType::F16, DType::BF16];
        let signed = [DType::I64, DType::I32, DType::I16, DType::I8];
        let unsigned = [DType::U64, DType::U32, DType::U16, DType::U8];
        let all = [floats, signed, unsigned].concat().into_iter().chain([DType::Bool(BoolStore::Native)]);
        let mut found = Vec::new();
        for (dtype, of_kernels) in all.filter_map(|dtype| Some((dtype, dtype_of(dtype)?))) {
            assert_eq!(
                (dtype.size(), dtype.is_float()),
                (of_kernels.size(), of_kernels.is_float()),
                "{dtype:?}"
            );
            found.push(of_kernels);
        }
        let mut expected = device_kernels::DType::ALL;
        found.sort_unstable();
        expected.sort_unstable();
        assert_eq!(found, expected);
    }
}
