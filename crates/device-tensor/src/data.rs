//! Host data that a tensor can be made from.

use std::borrow::Cow;

use half::{bf16, f16};
use ndarray::{ArrayBase, ArrayRef, Dimension};

use crate::dtype::for_each_dtype;
use crate::shape::Ragged;
use crate::{Element, TensorError};

/// Host data with a shape: a scalar, an [`ndarray`] array, or rows of data in arrays, slices and vectors.
///
/// It may be nested in any way, with references anywhere: `Vec<Vec<f32>>`, `[&[u8]; 2]`, `&[[i32; 3]]`.
/// Arrays of [`ndarray`] may have any kind, dimension and order in memory: transposed, sliced, reversed and
/// broadcast arrays give their elements in logical order. Without rows, the type determines the shape as far
/// as it can: `Vec::<[f32; 3]>::new()` has the shape `[0, 3]`.
///
/// The trait is sealed: use it in bounds.
#[diagnostic::on_unimplemented(
    message = "a tensor cannot be made from `{Self}`",
    note = "its elements are `bool`, `u8`, `i8`, `i16`, `i32`, `i64`, `f16`, `bf16`, `f32` or `f64`; they may be in arrays, \
            slices and vectors, nested in any way, and in arrays of `ndarray`"
)]
pub trait Data: Rows {}

impl<D: Rows + ?Sized> Data for D {}

/// Data as rows of data; a scalar has none.
// The same message: for nested data, the compiler names this trait.
#[diagnostic::on_unimplemented(
    message = "a tensor cannot be made from `{Self}`",
    note = "its elements are `bool`, `u8`, `i8`, `i16`, `i32`, `i64`, `f16`, `bf16`, `f32` or `f64`; they may be in arrays, \
            slices and vectors, nested in any way, and in arrays of `ndarray`"
)]
pub trait Rows {
    /// The type of the innermost values.
    type Element: Element;

    /// Whether the type determines the shape, so that no two rows can differ.
    const FIXED: bool;

    /// The shape as far as the type says it; a length that it does not say is 0.
    fn shape_of_none() -> Vec<usize>;

    /// The length of each dimension, outermost first, judged by the first row of each.
    fn first_shape(&self) -> Vec<usize>;

    /// All elements, if they lie next to each other and no row can differ.
    fn contiguous(&self) -> Option<&[Self::Element]>;

    /// All elements of `rows`, if they lie next to each other.
    fn contiguous_rows(rows: &[Self]) -> Option<&[Self::Element]>
    where
        Self: Sized,
    {
        let _ = rows;
        None
    }

    /// Appends all elements, the last dimension's next to each other, if the shape of each row is as in
    /// `shape`.
    fn append_to(&self, shape: &[usize], elements: &mut Vec<Self::Element>) -> Result<(), Ragged>;
}

/// All elements of `data` in logical order, borrowed if they are in this order in memory.
///
/// `shape` is the shape of its first rows, and `len` is its number of elements, which was checked.
pub(crate) fn elements<'a, D: Data + ?Sized>(
    data: &'a D,
    shape: &[usize],
    len: usize,
) -> Result<Cow<'a, [D::Element]>, TensorError> {
    if let Some(elements) = data.contiguous() {
        return Ok(elements.into());
    }
    let mut elements = reserve(len)?;
    data.append_to(shape, &mut elements).map_err(|ragged| ragged.in_data_of(shape))?;
    Ok(elements.into())
}

/// An empty vector with room for `len` elements.
pub(crate) fn reserve<T>(len: usize) -> Result<Vec<T>, TensorError> {
    let mut elements = Vec::new();
    match elements.try_reserve_exact(len) {
        Ok(()) => Ok(elements),
        Err(_) => Err(TensorError::HostMemory { bytes: len.saturating_mul(size_of::<T>()) }),
    }
}

// One by one: an `impl` for all elements would leave no room for one for references.
macro_rules! scalars {
    (other: $_:ident($bool:ident) $_doc:literal; numbers: $($variant:ident($ty:ident) $doc:literal;)*) => {
        scalars!($bool, $($ty),*);
    };
    ($($ty:ty),*) => {$(
        impl Rows for $ty {
            type Element = $ty;

            const FIXED: bool = true;

            fn shape_of_none() -> Vec<usize> {
                Vec::new()
            }

            fn first_shape(&self) -> Vec<usize> {
                Vec::new()
            }

            fn contiguous(&self) -> Option<&[$ty]> {
                Some(std::slice::from_ref(self))
            }

            fn contiguous_rows(scalars: &[$ty]) -> Option<&[$ty]> {
                Some(scalars)
            }

            fn append_to(&self, _: &[usize], elements: &mut Vec<$ty>) -> Result<(), Ragged> {
                elements.push(*self);
                Ok(())
            }
        }
    )*};
}

for_each_dtype!(scalars);

impl<R: Rows> Rows for [R] {
    type Element = R::Element;

    const FIXED: bool = false;

    fn shape_of_none() -> Vec<usize> {
        [vec![0], R::shape_of_none()].concat()
    }

    fn first_shape(&self) -> Vec<usize> {
        [vec![self.len()], self.first().map_or_else(R::shape_of_none, R::first_shape)].concat()
    }

    fn contiguous(&self) -> Option<&[R::Element]> {
        R::contiguous_rows(self)
    }

    fn append_to(&self, shape: &[usize], elements: &mut Vec<R::Element>) -> Result<(), Ragged> {
        let Some((_, row_shape)) = shape.split_first().filter(|(len, _)| **len == self.len()) else {
            return Err(Ragged::new(self.first_shape()));
        };
        if let Some(all) = self.contiguous() {
            elements.extend_from_slice(all);
        } else if !(R::FIXED && row_shape.contains(&0)) {
            for (at, row) in self.iter().enumerate() {
                row.append_to(row_shape, elements).map_err(|ragged| ragged.in_row(at))?;
            }
        }
        Ok(())
    }
}

impl<R: Rows, const N: usize> Rows for [R; N] {
    type Element = R::Element;

    const FIXED: bool = R::FIXED || N == 0;

    fn shape_of_none() -> Vec<usize> {
        [vec![N], R::shape_of_none()].concat()
    }

    fn first_shape(&self) -> Vec<usize> {
        self.as_slice().first_shape()
    }

    fn contiguous(&self) -> Option<&[R::Element]> {
        self.as_slice().contiguous()
    }

    fn contiguous_rows(rows: &[Self]) -> Option<&[R::Element]> {
        // The number of elements does not overflow, even if an element has no size: the shape is checked
        // before.
        R::contiguous_rows(rows.as_flattened())
    }

    fn append_to(&self, shape: &[usize], elements: &mut Vec<R::Element>) -> Result<(), Ragged> {
        self.as_slice().append_to(shape, elements)
    }
}

/// Implements the traits for types that dereference to other data.
macro_rules! lenders {
    ($([$($generics:tt)*] $ty:ty => $lent:ty;)*) => {$(
        impl<$($generics)*> Rows for $ty {
            type Element = <$lent as Rows>::Element;

            const FIXED: bool = <$lent>::FIXED;

            fn shape_of_none() -> Vec<usize> {
                <$lent>::shape_of_none()
            }

            fn first_shape(&self) -> Vec<usize> {
                <$lent>::first_shape(self)
            }

            fn contiguous(&self) -> Option<&[Self::Element]> {
                <$lent>::contiguous(self)
            }

            fn append_to(&self, shape: &[usize], elements: &mut Vec<Self::Element>) -> Result<(), Ragged> {
                <$lent>::append_to(self, shape, elements)
            }
        }
    )*};
}

lenders! {
    [R: Rows + ?Sized] &R => R;
    [R: Rows] Vec<R> => [R];
    [S: ndarray::Data<Elem: Element>, D: Dimension] ArrayBase<S, D> => ArrayRef<S::Elem, D>;
}

impl<T: Element, D: Dimension> Rows for ArrayRef<T, D> {
    type Element = T;

    const FIXED: bool = false;

    fn shape_of_none() -> Vec<usize> {
        vec![0; D::NDIM.unwrap_or(0)]
    }

    fn first_shape(&self) -> Vec<usize> {
        self.shape().to_vec()
    }

    fn contiguous(&self) -> Option<&[T]> {
        self.as_slice()
    }

    fn append_to(&self, shape: &[usize], elements: &mut Vec<T>) -> Result<(), Ragged> {
        if self.shape() != shape {
            return Err(Ragged::new(self.shape().to_vec()));
        }
        if let Some(all) = self.as_slice() {
            // Not row by row: without elements there can be more rows than can be counted in a lifetime.
            elements.extend_from_slice(all);
            return Ok(());
        }
        for row in self.rows() {
            match row.to_slice() {
                Some(row) => elements.extend_from_slice(row),
                None => elements.extend(row),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use ndarray::{Array2, Array3, ArrayD, Axis, IxDyn, Slice, arr0, array};

    use super::*;

    fn flat<D: Data>(data: D) -> (Vec<usize>, Vec<D::Element>) {
        let shape = data.first_shape();
        let elements = elements(&data, &shape, shape.iter().product()).unwrap().into_owned();
        (shape, elements)
    }

    #[test]
    fn scalars_arrays_slices_and_vectors_have_their_shapes() {
        assert_eq!(flat(7_u8), (vec![], vec![7]));
        assert_eq!(flat([1, 2, 3]), (vec![3], vec![1, 2, 3]));
        assert_eq!(flat(&[true, false][..]), (vec![2], vec![true, false]));
        assert_eq!(flat(vec![1_i64, 2]), (vec![2], vec![1, 2]));
        assert_eq!(flat(&vec![1_i64, 2]), (vec![2], vec![1, 2]));
    }

    #[test]
    fn rows_of_any_kind_are_laid_out_one_after_the_other() {
        let expected = (vec![2, 3], vec![1, 2, 3, 4, 5, 6]);
        assert_eq!(flat([[1, 2, 3], [4, 5, 6]]), expected);
        assert_eq!(flat(vec![vec![1, 2, 3], vec![4, 5, 6]]), expected);
        assert_eq!(flat(vec![[1, 2, 3], [4, 5, 6]]), expected);
        assert_eq!(flat([&[1, 2, 3][..], &[4, 5, 6]]), expected);
        assert_eq!(flat(&[&vec![1, 2, 3], &vec![4, 5, 6]][..]), expected);
        assert_eq!(flat([&&array![1, 2, 3], &&array![4, 5, 6]]), expected);
        assert_eq!(flat([[[1], [2]], [[3], [4]]]), (vec![2, 2, 1], vec![1, 2, 3, 4]));
        assert_eq!(flat(vec![[vec![&1, &2]], [vec![&3, &4]]]), (vec![2, 1, 2], vec![1, 2, 3, 4]));
    }

    #[test]
    fn arrays_give_their_elements_in_logical_order() {
        let x = Array3::from_shape_fn((2, 3, 4), |(i, j, k)| (100 * i + 10 * j + k) as u8);
        assert_eq!(flat(&x).1, x.iter().copied().collect::<Vec<_>>());
        let transposed = array![[1, 2, 3], [4, 5, 6]].reversed_axes();
        assert_eq!(flat(&transposed), (vec![3, 2], vec![1, 4, 2, 5, 3, 6]));
        let every_other_row = x.slice_axis(Axis(1), Slice::from(..).step_by(-2));
        assert_eq!(flat(every_other_row.index_axis(Axis(2), 3)), (vec![2, 2], vec![23, 3, 123, 103]));
        assert_eq!(flat(array![1, 2].broadcast((2, 2)).unwrap()), (vec![2, 2], vec![1, 2, 1, 2]));
        let mut inverted = array![1, 2, 3].into_dyn().into_shared();
        inverted.invert_axis(Axis(0));
        assert_eq!(flat(inverted), (vec![3], vec![3, 2, 1]));
        assert_eq!(flat(arr0(true)), (vec![], vec![true]));
        assert_eq!(flat(ArrayD::<u8>::zeros(IxDyn(&[2, 0, 3]))), (vec![2, 0, 3], vec![]));
        assert_eq!(flat(Array2::<u8>::zeros((2, 0)).t()), (vec![0, 2], vec![]));
    }

    #[test]
    fn lengths_without_a_row_come_from_the_type_or_are_zero() {
        assert_eq!(flat([0_i8; 0]).0, [0]);
        assert_eq!(flat(Vec::<[i8; 3]>::new()).0, [0, 3]);
        assert_eq!(flat(Vec::<[[i8; 3]; 2]>::new()).0, [0, 2, 3]);
        assert_eq!(flat(Vec::<Vec<i8>>::new()).0, [0, 0]);
        assert_eq!(flat([[[0_i8; 0]; 3]; 2]).0, [2, 3, 0]);
        assert_eq!(flat(Vec::<Array2<i8>>::new()).0, [0, 0, 0]);
    }

    #[test]
    fn rows_without_size_are_not_counted_one_by_one() {
        const MANY: usize = isize::MAX as usize / 2;
        assert_eq!(flat([[[0_u8; 0]; MANY]; 2]).0, [2, MANY, 0]);
        assert_eq!(flat([[&[0_u8][..]; 0]; MANY]).0, [MANY, 0, 0]);
        let array = Array2::<u8>::zeros((1, 0));
        let array = array.broadcast((MANY, 0)).unwrap();
        assert_eq!(flat([array, array]).0, [2, MANY, 0]);
    }

    /// The error for data whose rows have different shapes.
    fn error_of<D: Data<Element: std::fmt::Debug>>(data: D) -> String {
        elements(&data, &data.first_shape(), 0).unwrap_err().to_string()
    }

    #[test]
    fn rows_of_different_shapes_are_an_error_that_says_where() {
        assert_eq!(
            error_of([&[1, 2][..], &[3], &[4, 5, 6]]),
            "rows of different shapes make no tensor: row [0] has shape [2] and row [1] has shape [1]"
        );
        assert_eq!(
            error_of(vec![vec![vec![1, 2], vec![3, 4]], vec![vec![5, 6], vec![7, 8, 9]]]),
            "rows of different shapes make no tensor: row [0, 0] has shape [2] and row [1, 1] has shape [3]"
        );
        assert_eq!(
            error_of(vec![vec![vec![1, 2]], vec![]]),
            "rows of different shapes make no tensor: row [0] has shape [1, 2] and row [1] has shape [0, 0]"
        );
        assert_eq!(
            error_of([array![[1, 2]].into_dyn(), array![1, 2].into_dyn()]),
            "rows of different shapes make no tensor: row [0] has shape [1, 2] and row [1] has shape [2]"
        );
    }
}
