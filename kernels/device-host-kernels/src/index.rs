//! Operators with indices.

use device_kernels::{Layout, Update};
use device_registry::backend::BackendError;
use rayon::prelude::*;

use crate::arrays::{Array, PARALLEL, write_all, write_some, zeros};
use crate::element::Element;
use crate::functions::Number;
use crate::reduce::around;
use crate::threads::on_all;

/// How new values are written to elements that were there.
pub(crate) type Put<C> = fn(&mut C, C);

/// How a number is written.
pub(crate) fn put<C: Number>(update: Update) -> Result<Put<C>, BackendError> {
    match update {
        Update::Replace => Ok(|old, new| *old = new),
        Update::Add => Ok(|old, new| *old = old.sum(new)),
        other => Err(crate::unsupported(other)),
    }
}

/// How a boolean is written.
pub(crate) fn put_bool(update: Update) -> Result<Put<bool>, BackendError> {
    match update {
        Update::Replace => Ok(|old, new| *old = new),
        other => Err(crate::unsupported(other)),
    }
}

/// Indices that were checked.
pub(crate) struct Indices(Vec<usize>);

impl Indices {
    /// The indices of an array.
    ///
    /// # Errors
    ///
    /// If one is outside a dimension of `size` elements.
    pub(crate) fn new<I: Element<Compute: Number>>(
        bytes: &[u8],
        layout: &Layout,
        size: usize,
    ) -> Result<Self, BackendError> {
        let array = Array::<I>::new(bytes, layout);
        let elements = array.to_contiguous()?;
        let mut numbers = zeros::<i64>(elements.len())?;
        I::Compute::convert::<i64>()(&elements, &mut numbers);
        let index = |&number: &i64| {
            usize::try_from(number).ok().filter(|&index| index < size).ok_or_else(|| {
                BackendError::invalid(format_args!("index {number} is out of range for {size} elements"))
            })
        };
        numbers.iter().map(index).collect::<Result<_, _>>().map(Self)
    }

    pub(crate) fn as_slice(&self) -> &[usize] {
        &self.0
    }
}

/// Gathers, with an index for each element.
pub(crate) fn gather<E: Element>(
    dim: usize,
    (input, layout): (&[u8], &Layout),
    (indices, index_layout): (&Indices, &Layout),
    (out, out_layout): (&mut [u8], &Layout),
) -> Result<(), BackendError> {
    let array = Array::<E>::new(input, layout);
    let elements = array.to_contiguous()?;
    let places = Rows::new(index_layout.shape(), layout.shape(), dim);
    write_all::<E>(out, out_layout, |out| {
        let gather = |(number, out): (usize, &mut E::Compute)| {
            *out = elements[places.place(number, indices.0[number])];
        };
        if out.len() < PARALLEL {
            out.iter_mut().enumerate().for_each(gather);
        } else {
            on_all(|| out.par_iter_mut().enumerate().for_each(gather));
        }
    });
    Ok(())
}

/// Scatters, with an index for each value. The values are written in their order.
pub(crate) fn scatter<E: Element>(
    dim: usize,
    put: Put<E::Compute>,
    (indices, index_layout): (&Indices, &Layout),
    (values, values_layout): (&[u8], &Layout),
    (out, out_layout): (&mut [u8], &Layout),
) -> Result<(), BackendError> {
    let array = Array::<E>::new(values, values_layout);
    let values = array.to_contiguous()?;
    let places = Rows::new(index_layout.shape(), out_layout.shape(), dim);
    update::<E>(out, out_layout, |out, changed| {
        for (number, value) in values.iter().enumerate() {
            let place = places.place(number, indices.0[number]);
            put(&mut out[place], *value);
            changed[place] = true;
        }
    })
}

/// Selects, with an index for each part.
pub(crate) fn index_select<E: Element>(
    dim: usize,
    (input, layout): (&[u8], &Layout),
    indices: &Indices,
    (out, out_layout): (&mut [u8], &Layout),
) -> Result<(), BackendError> {
    let array = Array::<E>::new(input, layout);
    let elements = array.to_contiguous()?;
    let (_, size, inner) = around(layout.shape(), dim);
    let count = indices.0.len();
    write_all::<E>(out, out_layout, |out| {
        let select = |(part, out): (usize, &mut [E::Compute])| {
            let start = (part / count * size + indices.0[part % count]) * inner;
            out.copy_from_slice(&elements[start..start + inner]);
        };
        if out.len() < PARALLEL {
            out.chunks_mut(inner).enumerate().for_each(select);
        } else {
            on_all(|| out.par_chunks_mut(inner).enumerate().for_each(select));
        }
    });
    Ok(())
}

/// Assigns, with an index for each part. The values are written in their order.
pub(crate) fn index_assign<E: Element>(
    dim: usize,
    put: Put<E::Compute>,
    indices: &Indices,
    (values, values_layout): (&[u8], &Layout),
    (out, out_layout): (&mut [u8], &Layout),
) -> Result<(), BackendError> {
    let array = Array::<E>::new(values, values_layout);
    let values = array.to_contiguous()?;
    let (_, size, inner) = around(out_layout.shape(), dim);
    let count = indices.0.len();
    update::<E>(out, out_layout, |out, changed| {
        for (part, values) in values.chunks(inner).enumerate() {
            let start = (part / count * size + indices.0[part % count]) * inner;
            out[start..start + inner].iter_mut().zip(values).for_each(|(old, new)| put(old, *new));
            changed[start..start + inner].fill(true);
        }
    })
}

/// Changes some elements of an array, and writes no others: `work` gets all elements, and marks those that it
/// changes.
fn update<E: Element>(
    bytes: &mut [u8],
    layout: &Layout,
    work: impl FnOnce(&mut [E::Compute], &mut [bool]),
) -> Result<(), BackendError> {
    let mut elements = Array::<E>::new(bytes, layout).to_contiguous()?.into_owned();
    let mut changed = zeros::<bool>(elements.len())?;
    work(&mut elements, &mut changed);
    write_some::<E>(bytes, layout, &elements, &changed);
    Ok(())
}

/// Where elements of an array are that is as large as another one, or larger.
struct Rows {
    /// The sizes of the smaller one, and the strides of the larger one, from the inside out.
    dims: Vec<(usize, usize)>,
    dim: usize,
}

impl Rows {
    fn new(small: &[usize], large: &[usize], dim: usize) -> Self {
        let mut stride = 1;
        let outwards = small.iter().zip(large).rev().map(|(&size, &of_large)| {
            let this = stride;
            stride *= of_large;
            (size, this)
        });
        Self { dims: outwards.collect(), dim: small.len() - 1 - dim }
    }

    /// The place in the larger array of the element `number` of the smaller one, with `index` in the
    /// dimension.
    fn place(&self, number: usize, index: usize) -> usize {
        let mut rest = number;
        let places = self.dims.iter().enumerate().map(|(dim, (size, stride))| {
            let own = rest % size;
            rest /= size;
            if dim == self.dim { index * stride } else { own * stride }
        });
        places.sum()
    }
}

/// The element type of indices.
macro_rules! with_index {
    ($dtype:expr, $I:ident => $body:expr) => {
        match $dtype {
            DType::I32 => {
                type $I = i32;
                $body
            }
            DType::I64 => {
                type $I = i64;
                $body
            }
            DType::U32 => {
                type $I = u32;
                $body
            }
            other => Err(crate::unsupported(other)),
        }
    };
}
pub(crate) use with_index;
