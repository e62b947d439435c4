//! The types of elements.

use std::fmt;

/// The type of an array's elements. `Display` gives its usual name, such as `f32`.
///
/// `device_tensor::DType` is another type: that crate stores elements that no kernel computes with, and knows
/// no kernels.
///
/// ```
/// use device_kernels::DType;
///
/// assert_eq!(DType::BF16.to_string(), "bf16");
/// assert_eq!(DType::BF16.size(), 2);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum DType {
    /// IEEE 754 `binary32`.
    F32,
    /// IEEE 754 `binary16`.
    F16,
    /// An `f32` without the lower half of its bits.
    BF16,
    /// IEEE 754 `binary64`.
    F64,
    /// A signed integer of 32 bits.
    I32,
    /// A signed integer of 64 bits.
    I64,
    /// An unsigned integer of 8 bits.
    U8,
    /// An unsigned integer of 32 bits.
    U32,
    /// One byte: 0 is false, and 1 is true. Kernels read any other value as true, and write only these two.
    Bool,
}

impl DType {
    /// All types.
    pub const ALL: [Self; 9] =
        [Self::F32, Self::F16, Self::BF16, Self::F64, Self::I32, Self::I64, Self::U8, Self::U32, Self::Bool];

    /// The size of one element in bytes.
    #[must_use]
    pub const fn size(self) -> usize {
        match self {
            Self::U8 | Self::Bool => 1,
            Self::F16 | Self::BF16 => 2,
            Self::F32 | Self::I32 | Self::U32 => 4,
            Self::F64 | Self::I64 => 8,
        }
    }

    /// Whether elements are floating-point numbers.
    #[must_use]
    pub const fn is_float(self) -> bool {
        matches!(self, Self::F32 | Self::F16 | Self::BF16 | Self::F64)
    }

    /// Whether elements are integers. Booleans are not.
    #[must_use]
    pub const fn is_integer(self) -> bool {
        self.integers().is_some()
    }

    /// The least and the greatest integer of the type; `None` if its elements are no integers.
    #[must_use]
    pub const fn integers(self) -> Option<(i128, i128)> {
        match self {
            Self::I32 => Some((i32::MIN as i128, i32::MAX as i128)),
            Self::I64 => Some((i64::MIN as i128, i64::MAX as i128)),
            Self::U8 => Some((0, u8::MAX as i128)),
            Self::U32 => Some((0, u32::MAX as i128)),
            Self::F32 | Self::F16 | Self::BF16 | Self::F64 | Self::Bool => None,
        }
    }

    /// Whether elements can be indices: `i32`, `i64` and `u32`.
    #[must_use]
    pub const fn is_index(self) -> bool {
        matches!(self, Self::I32 | Self::I64 | Self::U32)
    }

    /// The name, as `Display` prints it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::F16 => "f16",
            Self::BF16 => "bf16",
            Self::F64 => "f64",
            Self::I32 => "i32",
            Self::I64 => "i64",
            Self::U8 => "u8",
            Self::U32 => "u32",
            Self::Bool => "bool",
        }
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A set of types.
///
/// ```
/// use device_kernels::{DType, DTypes};
///
/// let types = DTypes::from([DType::F32, DType::I32]);
/// assert!(types.contains(DType::I32) && !types.contains(DType::U8));
/// assert_eq!(types.to_string(), "f32, i32");
/// assert_eq!(DTypes::ALL.to_string(), "all types");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DTypes(u32);

impl DTypes {
    /// All types.
    pub const ALL: Self = Self((1 << DType::ALL.len()) - 1);

    /// Whether a type is one of them.
    #[must_use]
    pub const fn contains(self, dtype: DType) -> bool {
        self.0 & (1 << dtype as u32) != 0
    }

    /// The types, in the order of [`DType::ALL`].
    pub fn iter(self) -> impl Iterator<Item = DType> {
        DType::ALL.into_iter().filter(move |&dtype| self.contains(dtype))
    }

    /// All of them but one.
    #[must_use]
    pub const fn without(self, dtype: DType) -> Self {
        Self(self.0 & !(1 << dtype as u32))
    }
}

impl<const N: usize> From<[DType; N]> for DTypes {
    fn from(dtypes: [DType; N]) -> Self {
        dtypes.into_iter().collect()
    }
}

impl FromIterator<DType> for DTypes {
    fn from_iter<I: IntoIterator<Item = DType>>(dtypes: I) -> Self {
        Self(dtypes.into_iter().fold(0, |set, dtype| set | 1 << dtype as u32))
    }
}

impl fmt::Display for DTypes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Self::ALL {
            return f.write_str("all types");
        }
        let names: Vec<_> = self.iter().map(DType::name).collect();
        f.write_str(&names.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use std::iter::successors;

    use super::*;

    /// The type after another one in [`DType::ALL`]. A new type must be added here to compile.
    fn next(dtype: DType) -> Option<DType> {
        match dtype {
            DType::F32 => Some(DType::F16),
            DType::F16 => Some(DType::BF16),
            DType::BF16 => Some(DType::F64),
            DType::F64 => Some(DType::I32),
            DType::I32 => Some(DType::I64),
            DType::I64 => Some(DType::U8),
            DType::U8 => Some(DType::U32),
            DType::U32 => Some(DType::Bool),
            DType::Bool => None,
        }
    }

    #[test]
    fn all_types_are_listed() {
        assert_eq!(successors(Some(DType::F32), |dtype| next(*dtype)).collect::<Vec<_>>(), DType::ALL);
    }

    #[test]
    fn a_type_is_of_one_kind() {
        for dtype in DType::ALL {
            let kinds = [dtype.is_float(), dtype.is_integer(), dtype == DType::Bool];
            assert_eq!(kinds.into_iter().filter(|is| *is).count(), 1, "{dtype}");
        }
    }
}
