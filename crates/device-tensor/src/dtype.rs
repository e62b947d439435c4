//! What a tensor's elements are.

use std::fmt;

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
}

impl DType {
    /// The size of one element in bytes.
    #[must_use]
    pub fn size(self) -> usize {
        match self {
            Self::Bool | Self::U8 | Self::I8 => 1,
            Self::I16 => 2,
            Self::I32 => 4,
            Self::I64 => 8,
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
        })
    }
}

/// A Rust type that can be an element of a tensor.
///
/// Device memory holds elements in the byte order of the host. The trait is sealed: a dtype is more than its bytes.
pub trait Element: Copy + fmt::Debug + PartialEq + sealed::Bytes + 'static {
    /// The same type as a value.
    const DTYPE: DType;
}

pub(crate) mod sealed {
    /// An element as the bytes in device memory.
    pub trait Bytes: Sized {
        fn append_to(self, bytes: &mut Vec<u8>);

        /// `bytes` has the length of one element.
        fn from_bytes(bytes: &[u8]) -> Self;
    }
}

macro_rules! integers {
    ($($ty:ty => $dtype:ident,)*) => {$(
        impl Element for $ty {
            const DTYPE: DType = DType::$dtype;
        }

        impl sealed::Bytes for $ty {
            fn append_to(self, bytes: &mut Vec<u8>) {
                bytes.extend_from_slice(&self.to_ne_bytes());
            }

            fn from_bytes(bytes: &[u8]) -> Self {
                let mut array = [0; size_of::<Self>()];
                array.copy_from_slice(bytes);
                Self::from_ne_bytes(array)
            }
        }
    )*};
}

integers! {
    u8 => U8,
    i8 => I8,
    i16 => I16,
    i32 => I32,
    i64 => I64,
}

impl Element for bool {
    const DTYPE: DType = DType::Bool;
}

impl sealed::Bytes for bool {
    fn append_to(self, bytes: &mut Vec<u8>) {
        bytes.push(self.into());
    }

    fn from_bytes(bytes: &[u8]) -> Self {
        // A device may have written any byte; all but zero are true.
        bytes.iter().any(|&byte| byte != 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round_trip<T: Element>(values: &[T]) {
        for &value in values {
            let mut bytes = Vec::new();
            value.append_to(&mut bytes);
            assert_eq!(bytes.len(), T::DTYPE.size());
            assert_eq!(T::from_bytes(&bytes), value);
        }
    }

    #[test]
    fn every_element_survives_its_bytes() {
        round_trip(&[0_u8, 255]);
        round_trip(&[i8::MIN, -1, i8::MAX]);
        round_trip(&[i16::MIN, -1, i16::MAX]);
        round_trip(&[i32::MIN, -1, i32::MAX]);
        round_trip(&[i64::MIN, -1, i64::MAX]);
        round_trip(&[false, true]);
    }
}
