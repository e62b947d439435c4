//! Shapes: how many elements they have, and which row has the wrong one.

use crate::{DType, TensorError};

/// The number of elements of a tensor of this shape, if its bytes can be addressed.
///
/// Lengths that are too large together are an error even beside a length of zero, as for Rust's arrays.
pub(crate) fn len(shape: &[usize], dtype: DType) -> Result<usize, TensorError> {
    let lengths = shape.iter().copied().filter(|len| *len != 0);
    if lengths.clone().fold(dtype.size(), usize::saturating_mul) > isize::MAX as usize {
        return Err(TensorError::TooLarge { shape: shape.to_vec(), dtype });
    }
    Ok(if shape.contains(&0) { 0 } else { lengths.product() })
}

/// A row whose shape differs from the first.
pub struct Ragged {
    /// Which row of the data, innermost first.
    path: Vec<usize>,
    shape: Vec<usize>,
}

impl Ragged {
    /// This row itself, which has this shape.
    pub(crate) fn new(shape: Vec<usize>) -> Self {
        Self { path: Vec::new(), shape }
    }

    /// Adds the row around it.
    pub(crate) fn in_row(mut self, row: usize) -> Self {
        self.path.push(row);
        self
    }

    /// The error for data whose first rows have this shape.
    pub(crate) fn in_data_of(mut self, shape: &[usize]) -> TensorError {
        self.path.reverse();
        let first = shape[self.path.len()..].to_vec();
        TensorError::Ragged { first, row: self.path, other: self.shape }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scalar_is_one_element_and_a_length_of_zero_is_none() {
        assert_eq!(len(&[], DType::I64).unwrap(), 1);
        assert_eq!(len(&[2, 3], DType::I64).unwrap(), 6);
        assert_eq!(len(&[2, 0, 3], DType::I64).unwrap(), 0);
    }

    #[test]
    fn bytes_that_cannot_be_addressed_are_an_error() {
        let most = isize::MAX as usize;
        // Its square overflows to zero.
        let root = 1 << (usize::BITS / 2);
        assert_eq!(len(&[most], DType::U8).unwrap(), most);
        assert_eq!(len(&[most / 8], DType::I64).unwrap(), most / 8);
        for (shape, dtype) in [
            (&[most + 1][..], DType::U8),
            (&[most / 8 + 1], DType::I64),
            (&[root, root], DType::U8),
            (&[0, root, root], DType::U8),
        ] {
            assert!(matches!(len(shape, dtype), Err(TensorError::TooLarge { .. })), "{shape:?}");
        }
    }
}
