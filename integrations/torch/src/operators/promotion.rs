//! Which type PyTorch computes in: `docs/source/tensor_attributes.rst` of PyTorch, "type promotion".

use device_kernels::{DType, Scalar};

use crate::operators::call::Input;

/// The type in which an operator on these inputs computes. `None` if PyTorch has no such type, or kernels.
///
/// Arrays with dimensions decide, unless an array without dimensions or a number is of a higher category:
/// booleans are below integers, and these below floats.
pub(super) fn promoted(inputs: &[Input]) -> Option<DType> {
    let arrays = || inputs.iter().filter_map(Input::array);
    let of_arrays = |has_dimensions: bool| {
        let types = arrays().filter(|array| (array.rank() > 0) == has_dimensions).map(|array| array.dtype);
        types.map(Some).reduce(|a, b| both(a?, b?))
    };
    let numbers = inputs.iter().filter_map(|input| match input {
        Input::Scalar(Scalar::Float(_)) => Some(DType::F32),
        Input::Scalar(Scalar::Int(_)) => Some(DType::I64),
        Input::Scalar(Scalar::Bool(_)) => Some(DType::Bool),
        Input::Array(_) => None,
    });
    let numbers = numbers.map(Some).reduce(|a, b| both(a?, b?));
    [of_arrays(true), of_arrays(false), numbers].into_iter().flatten().reduce(|higher, lower| {
        let higher = higher?;
        let lower = lower?;
        if category(lower) > category(higher) { both(higher, lower) } else { Some(higher) }
    })?
}

fn category(dtype: DType) -> u8 {
    match dtype {
        DType::Bool => 0,
        _ if dtype.is_float() => 2,
        _ => 1,
    }
}

/// The smallest type that has the values of both.
fn both(a: DType, b: DType) -> Option<DType> {
    use DType::{BF16, Bool, F16, F32, F64, I32, I64, U8};
    Some(match (a, b) {
        _ if a == b => a,
        (Bool, other) | (other, Bool) => other,
        (F64, _) | (_, F64) => F64,
        (F32, _) | (_, F32) | (F16, BF16) | (BF16, F16) => F32,
        (F16 | BF16, _) => a,
        (_, F16 | BF16) => b,
        (U8 | I32 | I64, I64) | (I64, U8 | I32) => I64,
        (U8, I32) | (I32, U8) => I32,
        // PyTorch has no rule for unsigned integers of more than 8 bits.
        _ => return None,
    })
}

/// Whether a number is one of a type: what is not, PyTorch refuses, or wraps in its own way.
pub(super) fn fits(number: Scalar, dtype: DType) -> bool {
    let whole = |low: i64, high: i64| match number {
        Scalar::Int(value) => (low..=high).contains(&value),
        Scalar::Bool(_) => true,
        Scalar::Float(_) => false,
    };
    let below = |largest: f64| !number.as_f64().is_finite() || number.as_f64().abs() <= largest;
    match dtype {
        DType::Bool => matches!(number, Scalar::Bool(_)),
        DType::U8 => whole(0, 255),
        DType::I32 => whole(i32::MIN.into(), i32::MAX.into()),
        DType::U32 => whole(0, u32::MAX.into()),
        DType::I64 => whole(i64::MIN, i64::MAX),
        DType::F16 => below(65504.0),
        DType::BF16 => below(3.38e38),
        DType::F32 => below(f32::MAX.into()),
        DType::F64 => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_outside_of_a_type_do_not_fit() {
        assert!(fits(Scalar::Int(255), DType::U8) && !fits(Scalar::Int(256), DType::U8));
        assert!(!fits(Scalar::Int(1 << 40), DType::I32) && !fits(Scalar::Float(1.0), DType::I32));
        assert!(!fits(Scalar::Float(1e5), DType::F16) && fits(Scalar::Float(f64::INFINITY), DType::F16));
    }

    #[test]
    fn a_number_of_a_higher_category_decides() {
        let promote =
            |numbers: &[Scalar]| promoted(&numbers.iter().map(|&n| Input::from(n)).collect::<Vec<_>>());
        assert_eq!(promote(&[Scalar::Int(1), Scalar::Bool(true)]), Some(DType::I64));
        assert_eq!(promote(&[Scalar::Int(1), Scalar::Float(1.0)]), Some(DType::F32));
        assert_eq!(both(DType::F16, DType::BF16), Some(DType::F32));
        assert_eq!(both(DType::U8, DType::I32), Some(DType::I32));
        assert_eq!(both(DType::U32, DType::I32), None);
    }
}
