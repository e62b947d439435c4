//! Structs that may grow: each begins with its size.

use std::fmt;
use std::ptr;

/// A struct of a C header that may grow at its end: it begins with its size.
///
/// # Safety
///
/// The type is `repr(C)`, and its first field is `struct_size: usize`. Any bits are values of the others:
/// they are integers, pointers, nullable pointers of functions, and structs of these.
pub unsafe trait Table: Copy {
    /// Zeros, except for its size.
    const ZEROED: Self = {
        let mut table = std::mem::MaybeUninit::<Self>::zeroed();
        // SAFETY: the implementer promises that the first field is the size, and that zeros are values of the
        // others.
        unsafe {
            table.as_mut_ptr().cast::<usize>().write(size_of::<Self>());
            table.assume_init()
        }
    };
}

// Not public API. For structs of C headers.
/// Implements [`Table`] for structs that are `repr(C)` and begin with `struct_size`, and whose other fields
/// are integers, pointers, nullable pointers of functions, and structs of these.
#[doc(hidden)]
#[macro_export]
macro_rules! __tables {
    ($($name:ident)*) => {$(
        // SAFETY: it is `repr(C)` and begins with `struct_size`. Zeros are values of the other fields: of
        // integers, pointers and nullable pointers of functions.
        unsafe impl $crate::interface::Table for $name {}
    )*};
}

/// Why a table of the other side cannot be read, in words that follow its name: *is null*.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TableError {
    /// There is none.
    Null,
    /// Its `struct_size`, which no table can have.
    Size(usize),
}

/// Copies a table of the other side: no more than it has, and zeros for the rest.
///
/// # Errors
///
/// If the pointer is null, or the size is invalid.
///
/// # Safety
///
/// If the pointer is not null, it is valid for reads of `struct_size` bytes, if that is the size of a table
/// at all, and of the size itself.
pub unsafe fn take<T: Table>(table: *const T) -> Result<T, TableError> {
    if table.is_null() {
        return Err(TableError::Null);
    }
    // SAFETY: the caller promises that the size can be read, and it is the first field. It may be unaligned,
    // by mistake.
    let size = unsafe { table.cast::<usize>().read_unaligned() };
    if size <= size_of::<usize>() || size % align_of::<usize>() != 0 || size > isize::MAX as usize {
        return Err(TableError::Size(size));
    }
    let mut copy = std::mem::MaybeUninit::<T>::zeroed();
    // SAFETY: the caller promises that `size` bytes can be read, `copy` has room for its own size, and the
    // two are apart.
    unsafe {
        ptr::copy_nonoverlapping(table.cast::<u8>(), copy.as_mut_ptr().cast(), size.min(size_of::<T>()));
    }
    // SAFETY: `Table` promises that zeros are valid. The bytes that were copied are the other side's fields
    // of these types: integers, pointers and nullable pointers of functions.
    Ok(unsafe { copy.assume_init() })
}

/// Writes a table to a place of the other side: no more than that has room for. Its size stays the other
/// side's.
///
/// # Errors
///
/// If the place is null, or its size is invalid.
///
/// # Safety
///
/// If the place is not null, its size can be read, and as many bytes can be written, if that is the size of a
/// table at all.
pub unsafe fn put<T: Table>(place: *mut T, table: T) -> Result<(), TableError> {
    if place.is_null() {
        return Err(TableError::Null);
    }
    // SAFETY: the caller promises that the size can be read, and it is the first field. It may be unaligned,
    // by mistake.
    let size = unsafe { place.cast::<usize>().read_unaligned() };
    if size <= size_of::<usize>() || size % align_of::<usize>() != 0 || size > isize::MAX as usize {
        return Err(TableError::Size(size));
    }
    let skipped = size_of::<usize>();
    let len = size.min(size_of::<T>()) - skipped;
    // SAFETY: `table` has the bytes, and the caller promises that the place has room for `size` bytes.
    unsafe {
        let from = ptr::from_ref(&table).cast::<u8>().add(skipped);
        let to = place.cast::<u8>().add(skipped);
        ptr::copy_nonoverlapping(from, to, len);
    }
    Ok(())
}

impl fmt::Display for TableError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Null => f.write_str("is null"),
            Self::Size(size) => write!(
                f,
                "has a `struct_size` of {size}, which no table can have: expected the size of the struct in bytes, as by `sizeof`"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::abi::{DeviceApi, MemoryInfo};

    #[test]
    fn a_longer_table_is_cut_and_a_shorter_one_is_filled_with_zeros() {
        #[repr(C)]
        struct Longer(MemoryInfo, u64);
        let info = MemoryInfo { struct_size: size_of::<Longer>(), total: 5, free: 6 };
        let longer = Longer(info, 7);
        // SAFETY: the table has the size that it states.
        let taken = unsafe { take(ptr::from_ref(&longer).cast::<MemoryInfo>()) }.unwrap();
        assert_eq!((taken.total, taken.free), (5, 6));
        #[repr(C)]
        struct Shorter(usize, u64);
        let shorter = Shorter(size_of::<Shorter>(), 5);
        // SAFETY: the table has the size that it states.
        let taken = unsafe { take(ptr::from_ref(&shorter).cast::<MemoryInfo>()) }.unwrap();
        assert_eq!((taken.total, taken.free), (5, 0));
    }

    #[test]
    fn a_table_of_zeros_has_its_size() {
        let MemoryInfo { struct_size, total, free } = MemoryInfo::ZEROED;
        assert_eq!((struct_size, total, free), (size_of::<MemoryInfo>(), 0, 0));
    }

    #[test]
    fn a_size_that_no_table_has_is_an_error() {
        let word = size_of::<usize>();
        let odd = [word + 1, word + word / 2, 2 * word - 1, 2 * word + 1];
        for size in [0, 1, word, isize::MAX as usize + 1, usize::MAX].into_iter().chain(odd) {
            let table = [size, 0, 0];
            // SAFETY: only the size is read.
            let error = unsafe { take(table.as_ptr().cast::<MemoryInfo>()) }.unwrap_err();
            assert_eq!(error, TableError::Size(size));
        }
        // SAFETY: a null pointer is not read.
        assert_eq!(unsafe { take(ptr::null::<DeviceApi>()) }.err(), Some(TableError::Null));
    }
}
