//! Sorting along a dimension.
//!
//! Elements are sorted by their bits: as unsigned integers of their size, which a few operations on the bits
//! bring into the order of the type. So no element loses a bit, and NaN and both zeros have their places.

use device_kernels::{DType, Layout};
use device_registry::backend::BackendError;
use rayon::prelude::*;

use crate::arrays::{Array, PARALLEL, write_all};
use crate::element::{Compute as _, Element};
use crate::threads::on_all;

/// Bits of an element, as an unsigned integer.
pub(crate) trait Bits: Element<Compute = Self> + Ord {
    /// The bits whose unsigned order is the order of the type, or the opposite one if `descending`.
    fn to_key(self, kind: Kind, descending: bool) -> Self;

    /// The bits of an element by its key.
    fn of_key(key: Self, kind: Kind, descending: bool) -> Self;
}

/// What bits stand for.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Kind {
    Unsigned,
    Signed,
    Float,
}

impl Kind {
    pub(crate) fn of(dtype: DType) -> Self {
        match dtype {
            _ if dtype.is_float() => Self::Float,
            DType::I32 | DType::I64 => Self::Signed,
            _ => Self::Unsigned,
        }
    }
}

macro_rules! bits {
    ($($ty:ident),*) => {$(
        impl Bits for $ty {
            fn to_key(self, kind: Kind, descending: bool) -> Self {
                const SIGN: $ty = 1 << ($ty::BITS - 1);
                let key = match kind {
                    Kind::Unsigned => self,
                    Kind::Signed => self ^ SIGN,
                    // The negative number with the larger bits is the smaller one.
                    Kind::Float if self & SIGN != 0 => !self,
                    Kind::Float => self | SIGN,
                };
                if descending { !key } else { key }
            }

            fn of_key(key: Self, kind: Kind, descending: bool) -> Self {
                const SIGN: $ty = 1 << ($ty::BITS - 1);
                let key = if descending { !key } else { key };
                match kind {
                    Kind::Unsigned => key,
                    Kind::Signed => key ^ SIGN,
                    Kind::Float if key & SIGN != 0 => key ^ SIGN,
                    Kind::Float => !key,
                }
            }
        }
    )*};
}

bits!(u8, u16, u32, u64);

/// How rows are sorted.
#[derive(Clone, Copy)]
pub(crate) struct Order {
    pub(crate) dim: usize,
    pub(crate) descending: bool,
    pub(crate) kind: Kind,
}

/// Writes the elements in order.
pub(crate) fn values<B: Bits>(
    order: Order,
    (input, layout): (&[u8], &Layout),
    (out, out_layout): (&mut [u8], &Layout),
) -> Result<(), BackendError> {
    let Order { kind, descending, .. } = order;
    let array = Array::<B>::new(input, &order.inside(layout)?);
    let elements = array.to_contiguous()?;
    let mut keys = Vec::new();
    let bytes = (elements.len() as u64).saturating_mul(size_of::<B>() as u64);
    keys.try_reserve_exact(elements.len()).map_err(|_| BackendError::out_of_memory(bytes, None))?;
    keys.extend_from_slice(&elements);
    let len = layout.shape()[order.dim];
    let count = out_layout.shape()[order.dim];
    let sort = |row: &mut [B]| {
        row.iter_mut().for_each(|bits| *bits = bits.to_key(kind, descending));
        sort_first(row, count);
    };
    for_each_row(&mut keys, len, sort);
    write_all::<B>(out, &order.inside(out_layout)?, |out| {
        for (out, row) in out.chunks_mut(count).zip(keys.chunks(len)) {
            out.iter_mut().zip(row).for_each(|(out, key)| *out = B::of_key(*key, kind, descending));
        }
    });
    Ok(())
}

/// Writes the indices of the elements in order, and the elements into `values` if there is such an output.
pub(crate) fn indices<B: Bits, I: Element>(
    order: Order,
    (input, layout): (&[u8], &Layout),
    values: Option<(&mut [u8], &Layout)>,
    (out, out_layout): (&mut [u8], &Layout),
) -> Result<(), BackendError> {
    let Order { kind, descending, .. } = order;
    let array = Array::<B>::new(input, &order.inside(layout)?);
    let elements = array.to_contiguous()?;
    let len = layout.shape()[order.dim];
    let count = out_layout.shape()[order.dim];
    let mut keys = Vec::new();
    let bytes = (elements.len() as u64).saturating_mul(size_of::<Key<B>>() as u64);
    keys.try_reserve_exact(elements.len()).map_err(|_| BackendError::out_of_memory(bytes, None))?;
    for row in elements.chunks(len) {
        let key = |(index, bits): (usize, &B)| Key { key: bits.to_key(kind, descending), index };
        keys.extend(row.iter().enumerate().map(key));
    }
    for_each_row(&mut keys, len, |row| sort_first(row, count));
    let rows = || keys.chunks(len);
    if let Some((values, values_layout)) = values {
        write_all::<B>(values, &order.inside(values_layout)?, |out| {
            for (out, row) in out.chunks_mut(count).zip(rows()) {
                out.iter_mut().zip(row).for_each(|(out, key)| *out = B::of_key(key.key, kind, descending));
            }
        });
    }
    write_all::<I>(out, &order.inside(out_layout)?, |out| {
        for (out, row) in out.chunks_mut(count).zip(rows()) {
            out.iter_mut().zip(row).for_each(|(out, key)| *out = I::Compute::from_i64(key.index as i64));
        }
    });
    Ok(())
}

/// The key of an element, and its index in the row: that makes equal elements differ, so that they keep the
/// row's order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Key<B> {
    key: B,
    index: usize,
}

impl Order {
    /// The layout with the dimension as the last one, so that rows lie one after the other.
    fn inside(self, layout: &Layout) -> Result<Layout, BackendError> {
        let others = (0..layout.rank()).filter(|&dim| dim != self.dim);
        let dims: Vec<usize> = others.chain([self.dim]).collect();
        layout.permute(dims).map_err(BackendError::invalid)
    }
}

/// Sorts so many of the first elements, and leaves the others behind them.
fn sort_first<T: Ord + Send>(row: &mut [T], count: usize) {
    let mut first = row;
    if count < first.len() {
        first.select_nth_unstable(count);
        first = &mut first[..count];
    }
    if first.len() >= PARALLEL {
        first.par_sort_unstable();
    } else {
        first.sort_unstable();
    }
}

/// Calls `sort` with each row, on several threads if there are many elements.
fn for_each_row<T: Send>(keys: &mut [T], len: usize, sort: impl Fn(&mut [T]) + Sync + Send) {
    if keys.len() < PARALLEL {
        keys.chunks_mut(len).for_each(sort);
    } else {
        on_all(|| keys.par_chunks_mut(len).for_each(sort));
    }
}

/// The unsigned integer with the bits of an element.
macro_rules! with_bits {
    ($dtype:expr, $B:ident => $body:expr) => {
        match $dtype.size() {
            1 => {
                type $B = u8;
                $body
            }
            2 => {
                type $B = u16;
                $body
            }
            4 => {
                type $B = u32;
                $body
            }
            8 => {
                type $B = u64;
                $body
            }
            _ => Err(crate::unsupported($dtype)),
        }
    };
}
pub(crate) use with_bits;
