//! The dimensions that a loop runs over, with the strides of each array.

use std::fmt::Write;

use smallvec::SmallVec;

use super::index;

/// The most arrays that one loop has, unless it is an expression's.
pub(crate) const ARRAYS: usize = 4;

/// One dimension, of a loop with so many arrays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DimOf<const N: usize> {
    pub(crate) size: i64,
    pub(crate) strides: [i64; N],
}

/// The dimensions of a loop over so many arrays, the innermost last. None has one element.
#[derive(Clone, Debug)]
pub(crate) struct SpaceOf<const N: usize> {
    pub(crate) dims: SmallVec<[DimOf<N>; 8]>,
    /// Where each array has its first element.
    pub(crate) offsets: [i64; N],
}

/// A dimension of all loops, but not of expressions.
pub(crate) type Dim = DimOf<ARRAYS>;

/// The dimensions of all loops, but not of expressions.
pub(crate) type Space = SpaceOf<ARRAYS>;

impl<const N: usize> SpaceOf<N> {
    /// The dimensions of `shape`, with the strides and the offset of each array.
    pub(crate) fn new(shape: &[usize], arrays: &[(&[isize], usize)]) -> Option<Self> {
        let dims = shape.iter().enumerate().filter(|(_, size)| **size != 1).map(|(dim, &size)| {
            let mut strides = [0; N];
            for (stride, (of_array, _)) in strides.iter_mut().zip(arrays) {
                *stride = index(of_array[dim])?;
            }
            Some(DimOf { size: index(size)?, strides })
        });
        let mut offsets = [0; N];
        for (offset, (_, of_array)) in offsets.iter_mut().zip(arrays) {
            *offset = index(*of_array)?;
        }
        Some(Self { dims: dims.collect::<Option<_>>()?, offsets })
    }

    /// Brings the dimensions into the order of an array, the smallest stride last, with its strides positive.
    /// It is for loops whose order does not matter.
    pub(crate) fn sort(mut self, array: usize) -> Self {
        for dim in &mut self.dims {
            if dim.strides[array] < 0 {
                for (offset, stride) in self.offsets.iter_mut().zip(&mut dim.strides) {
                    *offset += (dim.size - 1) * *stride;
                    *stride = -*stride;
                }
            }
        }
        self.dims.sort_by_key(|dim| std::cmp::Reverse(dim.strides[array]));
        self
    }

    /// Makes one dimension of neighbours that each array steps over evenly.
    pub(crate) fn merge(mut self) -> Self {
        let mut merged = SmallVec::<[DimOf<N>; 8]>::new();
        for dim in self.dims {
            if let Some(last) = merged.last_mut()
                && (0..N).all(|array| last.strides[array] == dim.strides[array] * dim.size)
            {
                *last = DimOf { size: last.size * dim.size, strides: dim.strides };
            } else {
                merged.push(dim);
            }
        }
        self.dims = merged;
        self
    }

    /// The number of elements.
    pub(crate) fn len(&self) -> i64 {
        self.dims.iter().map(|dim| dim.size).product()
    }

    pub(crate) fn rank(&self) -> usize {
        self.dims.len()
    }

    /// The numbers of [`names`].
    pub(crate) fn indices(&self, arrays: &[usize]) -> impl Iterator<Item = i64> {
        let strides = arrays.iter().flat_map(|&array| self.dims.iter().map(move |dim| dim.strides[array]));
        self.dims.iter().map(|dim| dim.size).chain(strides)
    }
}

/// The names of sizes and strides that kernels have as parameters: `n0`, `n1`, then `s0_0` for the stride of
/// array 0 in dimension 0. `prefix` keeps two spaces apart.
pub(crate) fn names(prefix: &str, rank: usize, arrays: &[usize]) -> impl Iterator<Item = String> {
    let strides =
        arrays.iter().flat_map(move |array| (0..rank).map(move |dim| format!("{prefix}s{array}_{dim}")));
    (0..rank).map(move |dim| format!("{prefix}n{dim}")).chain(strides)
}

/// Statements that declare the index `j0` and on in each dimension for the number `linear` of an element.
pub(crate) fn decode(prefix: &str, rank: usize, linear: &str) -> String {
    let mut text = String::new();
    let _ = writeln!(text, "    Index {prefix}rest = {linear};");
    for dim in (1..rank).rev() {
        let _ = writeln!(text, "    Index {prefix}j{dim} = {prefix}rest % {prefix}n{dim};");
        let _ = writeln!(text, "    {prefix}rest /= {prefix}n{dim};");
    }
    if rank > 0 {
        let _ = writeln!(text, "    Index {prefix}j0 = {prefix}rest;");
    }
    text
}

/// Where an array has the element of the indices, from its first one on: `j0 * s0_0 + j1 * s0_1`, or `0`.
pub(crate) fn place(prefix: &str, rank: usize, array: usize) -> String {
    let terms: Vec<String> =
        (0..rank).map(|dim| format!("{prefix}j{dim} * {prefix}s{array}_{dim}")).collect();
    if terms.is_empty() { "0".to_owned() } else { terms.join(" + ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dims(space: &Space) -> Vec<(i64, i64, i64)> {
        space.dims.iter().map(|dim| (dim.size, dim.strides[0], dim.strides[1])).collect()
    }

    #[test]
    fn neighbours_that_all_arrays_step_over_evenly_become_one_dimension() {
        let space = Space::new(&[2, 3, 1, 4], &[(&[12, 4, 9, 1], 5), (&[24, 8, 0, 2], 0)]).unwrap().merge();
        assert_eq!(dims(&space), [(24, 1, 2)]);
        let broadcast = Space::new(&[2, 3, 4], &[(&[12, 4, 1], 0), (&[0, 4, 1], 0)]).unwrap().merge();
        assert_eq!(dims(&broadcast), [(2, 12, 0), (12, 1, 1)]);
    }

    #[test]
    fn sorting_turns_a_reversed_transposed_array_into_a_line() {
        // Array 1 is [3, 2] with strides [-1, 3] from place 2 on, and array 0 the same.
        let space = Space::new(&[3, 2], &[(&[-1, 3], 2), (&[-1, 3], 2)]).unwrap().sort(1).merge();
        assert_eq!(dims(&space), [(6, 1, 1)]);
        assert_eq!(space.offsets[..2], [0, 0]);
    }

    #[test]
    fn an_array_of_one_element_has_no_dimension() {
        let space = Space::new(&[1, 1], &[(&[7, 7], 3)]).unwrap().merge();
        assert_eq!((space.rank(), space.len(), space.offsets[0]), (0, 1, 3));
    }
}
