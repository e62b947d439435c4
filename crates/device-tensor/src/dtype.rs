//! The types of a tensor's elements.

use std::fmt;

use half::{bf16, f16};

use crate::{Data, TensorError, data};

/// The one list of dtypes: passes each variant with its Rust type and its documentation to a macro. The
/// `numbers` are the types for which every bit pattern is a value.
macro_rules! for_each_dtype {
    ($macro:ident) => {
        $macro! {
            other: Bool(bool) "`bool`, one byte each.";
            numbers:
            U8(u8) "`u8`.";
            I8(i8) "`i8`.";
            I16(i16) "`i16`.";
            I32(i32) "`i32`.";
            I64(i64) "`i64`.";
            F16(f16) "[`half::f16`](crate::f16), the IEEE 754 `binary16`.";
            BF16(bf16) "[`half::bf16`](crate::bf16): an `f32` without the lower half of its bits.";
            F32(f32) "`f32`.";
            F64(f64) "`f64`.";
        }
    };
}
pub(crate) use for_each_dtype;

macro_rules! dtypes {
    (other: $bool:ident($bool_ty:ident) $bool_doc:literal; numbers: $($variant:ident($ty:ident) $doc:literal;)*) => {
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
            #[doc = $bool_doc]
            $bool,
            $(#[doc = $doc] $variant,)*
        }

        impl DType {
            #[cfg(any(test, feature = "dlpack"))]
            pub(crate) const ALL: &[Self] = &[Self::$bool, $(Self::$variant,)*];

            /// The size of one element in bytes.
            #[must_use]
            pub fn size(self) -> usize {
                match self {
                    Self::$bool => size_of::<$bool_ty>(),
                    $(Self::$variant => size_of::<$ty>(),)*
                }
            }
        }

        impl fmt::Display for DType {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(match self {
                    Self::$bool => stringify!($bool_ty),
                    $(Self::$variant => stringify!($ty),)*
                })
            }
        }

        impl Element for $bool_ty {
            const DTYPE: DType = DType::$bool;
        }

        $(
            impl Element for $ty {
                const DTYPE: DType = DType::$variant;
            }

            impl sealed::Stored for $ty {
                type Bits = Self;

                fn from_bits(bits: Vec<Self>) -> Result<Vec<Self>, TensorError> {
                    Ok(bits)
                }
            }
        )*
    };
}

for_each_dtype!(dtypes);

/// A Rust type that can be an element of a tensor.
///
/// Device memory holds elements in the byte order of the host. An element is [`Data`] too, a scalar, so that
/// code for all of them can make tensors. The trait is sealed: a dtype is more than its bytes.
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
        /// A type of the same size for which any bytes are a value.
        type Bits: bytemuck::Pod;

        fn from_bits(bits: Vec<Self::Bits>) -> Result<Vec<Self>, TensorError>;
    }
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
        macro_rules! check_all {
            (other: $_:ident($bool:ident) $_doc:literal; numbers: $($variant:ident($ty:ident) $doc:literal;)*) => {
                check::<$bool>();
                $(check::<$ty>();)*
            };
        }
        for_each_dtype!(check_all);
    }

    #[test]
    fn every_byte_but_zero_is_true() {
        assert_eq!(bool::from_bits(vec![0, 1, 2, 128, 255]).unwrap(), [false, true, true, true, true]);
    }

    #[test]
    fn the_messages_for_other_types_list_every_dtype() {
        let notes = [include_str!("dtype.rs"), include_str!("data.rs")].map(|text| {
            let notes: Vec<_> =
                text.lines().filter(|line| line.trim_start().starts_with("note = \"")).collect();
            assert!(!notes.is_empty());
            notes
        });
        for note in notes.concat() {
            for dtype in DType::ALL {
                assert!(note.contains(&format!("`{dtype}`")), "{dtype} in {note}");
            }
        }
    }
}
