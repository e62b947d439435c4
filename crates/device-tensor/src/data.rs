//! What a tensor can be made from.

use crate::{Element, TensorError};

/// Host data with a shape: a scalar, an array, a slice, a vector, or an array of those.
///
/// The trait is sealed: it is there to be named in bounds.
pub trait Data: Rows {}

impl<D: Rows + ?Sized> Data for D {}

/// Data as rows of data; a scalar has none.
pub trait Rows {
    /// What it is made of in the end.
    type Element: Element;

    /// The length of each dimension, outermost first.
    fn shape(&self) -> Result<Vec<usize>, TensorError>;

    /// Appends all elements, the last dimension's next to each other.
    fn append_to(&self, elements: &mut Vec<Self::Element>);
}

// One by one: an `impl` for all elements would leave no room for one for references.
macro_rules! scalars {
    ($($ty:ty),*) => {$(
        impl Rows for $ty {
            type Element = $ty;

            fn shape(&self) -> Result<Vec<usize>, TensorError> {
                Ok(Vec::new())
            }

            fn append_to(&self, elements: &mut Vec<$ty>) {
                elements.push(*self);
            }
        }
    )*};
}

scalars!(bool, u8, i8, i16, i32, i64);

impl<T: Element> Rows for [T] {
    type Element = T;

    fn shape(&self) -> Result<Vec<usize>, TensorError> {
        Ok(vec![self.len()])
    }

    fn append_to(&self, elements: &mut Vec<T>) {
        elements.extend_from_slice(self);
    }
}

impl<T: Element> Rows for Vec<T> {
    type Element = T;

    fn shape(&self) -> Result<Vec<usize>, TensorError> {
        self[..].shape()
    }

    fn append_to(&self, elements: &mut Vec<T>) {
        self[..].append_to(elements);
    }
}

impl<R: Rows, const N: usize> Rows for [R; N] {
    type Element = R::Element;

    fn shape(&self) -> Result<Vec<usize>, TensorError> {
        let mut shape = vec![N];
        if let Some((first, rest)) = self.split_first() {
            let first = first.shape()?;
            for (row, other) in (1..).zip(rest) {
                let other = other.shape()?;
                if other != first {
                    return Err(TensorError::Ragged { first, row, other });
                }
            }
            shape.extend(first);
        }
        Ok(shape)
    }

    fn append_to(&self, elements: &mut Vec<R::Element>) {
        for row in self {
            row.append_to(elements);
        }
    }
}

impl<R: Rows + ?Sized> Rows for &R {
    type Element = R::Element;

    fn shape(&self) -> Result<Vec<usize>, TensorError> {
        (**self).shape()
    }

    fn append_to(&self, elements: &mut Vec<R::Element>) {
        (**self).append_to(elements);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flat<R: Rows>(data: R) -> (Vec<usize>, Vec<R::Element>) {
        let mut elements = Vec::new();
        data.append_to(&mut elements);
        (data.shape().unwrap(), elements)
    }

    #[test]
    fn scalars_arrays_slices_and_vectors_have_their_shapes() {
        assert_eq!(flat(7_u8), (vec![], vec![7]));
        assert_eq!(flat([1, 2, 3]), (vec![3], vec![1, 2, 3]));
        assert_eq!(flat(&[true, false][..]), (vec![2], vec![true, false]));
        assert_eq!(flat(vec![1_i64, 2]), (vec![2], vec![1, 2]));
        assert_eq!(flat(&vec![1_i64, 2]), (vec![2], vec![1, 2]));
        assert_eq!(flat([0_i8; 0]), (vec![0], vec![]));
    }

    #[test]
    fn nested_arrays_are_laid_out_row_by_row() {
        assert_eq!(flat([[1, 2, 3], [4, 5, 6]]), (vec![2, 3], vec![1, 2, 3, 4, 5, 6]));
        assert_eq!(flat([[[1], [2]], [[3], [4]]]), (vec![2, 2, 1], vec![1, 2, 3, 4]));
    }

    #[test]
    fn rows_of_different_lengths_are_an_error_that_names_the_row() {
        let rows = [&[1, 2][..], &[3], &[4, 5, 6]];
        let error = rows.shape().unwrap_err();
        assert_eq!(
            error.to_string(),
            "rows of different shapes make no tensor: row 0 has shape [2] and row 1 has shape [1]"
        );
    }
}
