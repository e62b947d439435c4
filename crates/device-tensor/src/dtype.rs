//! What a tensor's elements are.

use std::fmt;

use half::{bf16, f16};

use crate::{Data, TensorError, data};

/// The type of a tensor's elements. `Display` gives the name of the Rust type.
///
/// ```
/// use device_tensor::DType;
///
/// assert_eq!(DType::I32.to_string(), "i32");
/// assert_eq!(DType::I32.size(), 4);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DType {
    /// `bool`, one byte each.
    Bool,
    /// `u8`.
    U8,
    /// `i8`.
    I8,
    /// `i16`.
    I16,
    /// `i32`.
    I32,
    /// `i64`.
    I64,
    /// [`half::f16`](crate::f16), the IEEE 754 `binary16`.
    F16,
    /// [`half::bf16`](crate::bf16): an `f32` without the lower half of its bits.
    BF16,
    /// `f32`.
    F32,
    /// `f64`.
    F64,
}

impl DType {
    /// The size of one element in bytes.
    #[must_use]
    pub fn size(self) -> usize {
        match self {
            Self::Bool | Self::U8 | Self::I8 => 1,
            Self::I16 | Self::F16 | Self::BF16 => 2,
            Self::I32 | Self::F32 => 4,
            Self::I64 | Self::F64 => 8,
        }
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Bool => "bool",
            Self::U8 => "u8",
            Self::I8 => "i8",
            Self::I16 => "i16",
            Self::I32 => "i32",
            Self::I64 => "i64",
            Self::F16 => "f16",
            Self::BF16 => "bf16",
            Self::F32 => "f32",
            Self::F64 => "f64",
        })
    }
}

/// A Rust type that can be an element of a tensor.
///
/// Device memory holds elements in the byte order of the host. An element is [`Data`] too, a scalar, so that code for
/// all of them can make tensors. The trait is sealed: a dtype is more than its bytes.
#[diagnostic::on_unimplemented(
    message = "no tensor has elements of type `{Self}`",
    note = "they are `bool`, `u8`, `i8`, `i16`, `i32`, `i64`, `f16`, `bf16`, `f32` or `f64`"
)]
pub trait Element: Copy + fmt::Debug + PartialEq + Data<Element = Self> + sealed::Stored + 'static {
    /// The same type as a value.
    const DTYPE: DType;
}

pub(crate) mod sealed {
    use crate::TensorError;

    /// An element as the bytes in device memory.
    pub trait Stored: bytemuck::NoUninit {
        /// A type of the same size that any bytes are a value of.
        type Bits: bytemuck::Pod;

        fn from_bits(bits: Vec<Self::Bits>) -> Result<Vec<Self>, TensorError>;
    }
}

macro_rules! numbers {
    ($($ty:ty => $dtype:ident,)*) => {$(
        impl Element for $ty {
            const DTYPE: DType = DType::$dtype;
        }

        impl sealed::Stored for $ty {
            type Bits = Self;

            fn from_bits(bits: Vec<Self>) -> Result<Vec<Self>, TensorError> {
                Ok(bits)
            }
        }
    )*};
}

numbers! {
    u8 => U8,
    i8 => I8,
    i16 => I16,
    i32 => I32,
    i64 => I64,
    f16 => F16,
    bf16 => BF16,
    f32 => F32,
    f64 => F64,
}

impl Element for bool {
    const DTYPE: DType = DType::Bool;
}

impl sealed::Stored for bool {
    type Bits = u8;

    fn from_bits(bits: Vec<u8>) -> Result<Vec<Self>, TensorError> {
        let mut elements = data::reserve(bits.len())?;
        // A device may have written any byte; all but zero are true.
        elements.extend(bits.into_iter().map(|byte| byte != 0));
        Ok(elements)
    }
}

#[cfg(test)]
mod tests {
    use super::sealed::Stored;
    use super::*;

    #[test]
    fn a_dtype_is_the_rust_type() {
        fn check<T: Element>() {
            assert_eq!(T::DTYPE.size(), size_of::<T>());
            assert_eq!(T::DTYPE.size(), size_of::<T::Bits>());
            assert_eq!(Some(T::DTYPE.to_string().as_str()), std::any::type_name::<T>().rsplit("::").next());
        }
        check::<bool>();
        check::<u8>();
        check::<i8>();
        check::<i16>();
        check::<i32>();
        check::<i64>();
        check::<f16>();
        check::<bf16>();
        check::<f32>();
        check::<f64>();
    }

    #[test]
    fn every_byte_but_zero_is_true() {
        assert_eq!(bool::from_bits(vec![0, 1, 2, 128, 255]).unwrap(), [false, true, true, true, true]);
    }
}
