//! The elements of arrays: how they are stored, and what they are computed in.

use bytemuck::Pod;
use device_kernels::Scalar;
use half::{bf16, f16};

/// An element as memory holds it.
pub(crate) trait Element: Pod + Send + Sync {
    /// What it is computed in: `f32` for the types of 16 bits, and itself for numbers that are wider.
    type Compute: Compute;

    fn load(self) -> Self::Compute;
    fn store(value: Self::Compute) -> Self;

    /// Elements that are stored as they are computed in need no conversion.
    fn as_compute(elements: &[Self]) -> Option<&[Self::Compute]> {
        let _ = elements;
        None
    }

    /// The same for elements that are written.
    fn as_compute_mut(elements: &mut [Self]) -> Option<&mut [Self::Compute]> {
        let _ = elements;
        None
    }
}

/// What elements are computed in.
pub(crate) trait Compute:
    Copy + Default + bytemuck::Zeroable + PartialEq + Send + Sync + 'static
{
    fn from_scalar(scalar: Scalar) -> Self;

    // Conversions as `as` has them, and to booleans whether it is not zero.
    fn from_f32(value: f32) -> Self;
    fn from_f64(value: f64) -> Self;
    fn from_i32(value: i32) -> Self;
    fn from_i64(value: i64) -> Self;
    fn from_u8(value: u8) -> Self;
    fn from_u32(value: u32) -> Self;
    fn from_bool(value: bool) -> Self;
}

macro_rules! conversions {
    ($($from:ident($ty:ident)),*) => {
        $(fn $from(value: $ty) -> Self {
            value as Self
        })*
    };
    (bool $($from:ident($ty:ident)),*) => {
        $(fn $from(value: $ty) -> Self {
            value != 0 as $ty
        })*
    };
}

/// A boolean in memory: any byte but zero is true.
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(transparent)]
pub(crate) struct Bool(u8);

macro_rules! stored_as_computed {
    ($($ty:ident: $scalar:expr;)*) => {$(
        impl Element for $ty {
            type Compute = Self;

            fn load(self) -> Self {
                self
            }

            fn store(value: Self) -> Self {
                value
            }

            fn as_compute(elements: &[Self]) -> Option<&[Self]> {
                Some(elements)
            }

            fn as_compute_mut(elements: &mut [Self]) -> Option<&mut [Self]> {
                Some(elements)
            }
        }

        impl Compute for $ty {
            fn from_scalar(scalar: Scalar) -> Self {
                let convert: fn(Scalar) -> Self = $scalar;
                convert(scalar)
            }

            conversions! {
                from_f32(f32), from_f64(f64), from_i32(i32), from_i64(i64), from_u8(u8), from_u32(u32)
            }

            fn from_bool(value: bool) -> Self {
                u8::from(value) as Self
            }
        }
    )*};
}

// Integers take a floating-point scalar as `as` converts it to them, and an integer with the bits that fit.
macro_rules! integer {
    ($ty:ident) => {
        |scalar| match scalar {
            Scalar::Float(value) => value as $ty,
            other => other.as_i64() as $ty,
        }
    };
}

stored_as_computed! {
    f32: |scalar| scalar.as_f64() as f32;
    f64: Scalar::as_f64;
    i32: integer!(i32);
    i64: integer!(i64);
    u8: integer!(u8);
    u32: integer!(u32);
    // Bits that are only copied.
    u16: integer!(u16);
    u64: integer!(u64);
}

impl Compute for bool {
    fn from_scalar(scalar: Scalar) -> Self {
        scalar.as_bool()
    }

    conversions! {
        bool from_f32(f32), from_f64(f64), from_i32(i32), from_i64(i64), from_u8(u8), from_u32(u32)
    }

    fn from_bool(value: bool) -> Self {
        value
    }
}

impl Element for Bool {
    type Compute = bool;

    fn load(self) -> bool {
        self.0 != 0
    }

    fn store(value: bool) -> Self {
        Self(value.into())
    }
}

impl Element for f16 {
    type Compute = f32;

    fn load(self) -> f32 {
        self.to_f32()
    }

    fn store(value: f32) -> Self {
        Self::from_f32(value)
    }
}

impl Element for bf16 {
    type Compute = f32;

    fn load(self) -> f32 {
        self.to_f32()
    }

    fn store(value: f32) -> Self {
        Self::from_f32(value)
    }
}

/// Runs `$body` with `$E` as the element type of a dtype.
macro_rules! with_element {
    ($dtype:expr, $E:ident => $body:expr) => {
        match $dtype {
            DType::F32 => { type $E = f32; $body }
            DType::F64 => { type $E = f64; $body }
            DType::I32 => { type $E = i32; $body }
            DType::I64 => { type $E = i64; $body }
            DType::U8 => { type $E = u8; $body }
            DType::U32 => { type $E = u32; $body }
            other => with_element!(@converted other, $E => $body),
        }
    };
    (floats $dtype:expr, $E:ident => $body:expr) => {
        match $dtype {
            DType::F32 => { type $E = f32; $body }
            DType::F64 => { type $E = f64; $body }
            DType::F16 => { type $E = half::f16; $body }
            DType::BF16 => { type $E = half::bf16; $body }
            other => Err(crate::unsupported(other)),
        }
    };
    (numbers $dtype:expr, $E:ident => $body:expr) => {
        match $dtype {
            DType::I32 => { type $E = i32; $body }
            DType::I64 => { type $E = i64; $body }
            DType::U8 => { type $E = u8; $body }
            DType::U32 => { type $E = u32; $body }
            other => with_element!(floats other, $E => $body),
        }
    };
    (@converted $dtype:expr, $E:ident => $body:expr) => {
        match $dtype {
            DType::F16 => { type $E = half::f16; $body }
            DType::BF16 => { type $E = half::bf16; $body }
            DType::Bool => { type $E = crate::element::Bool; $body }
            other => Err(crate::unsupported(other)),
        }
    };
}
pub(crate) use with_element;

#[cfg(test)]
mod tests {
    use device_kernels::DType;
    use device_registry::backend::BackendError;

    #[test]
    fn every_type_has_elements_of_its_size() {
        for dtype in DType::ALL {
            let size: Result<_, BackendError> = with_element!(dtype, E => Ok(size_of::<E>()));
            assert_eq!(size.unwrap(), dtype.size(), "{dtype}");
            let number: Result<(), BackendError> = with_element!(numbers dtype, E => {
                let _: Option<E> = None;
                Ok(())
            });
            assert_eq!(number.is_ok(), dtype != DType::Bool, "{dtype}");
            let float: Result<(), BackendError> = with_element!(floats dtype, E => {
                let _: Option<E> = None;
                Ok(())
            });
            assert_eq!(float.is_ok(), dtype.is_float(), "{dtype}");
        }
    }
}
