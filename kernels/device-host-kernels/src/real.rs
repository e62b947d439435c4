//! Floating-point numbers that are computed in, and their products of matrices.

use std::ops::{Add, AddAssign, Div, Mul, Sub};

use gemm::Parallelism;

use crate::functions::Number;

/// `f32` and `f64`.
pub(crate) trait Real:
    Number + Add<Output = Self> + AddAssign + Sub<Output = Self> + Mul<Output = Self> + Div<Output = Self>
{
    const ONE: Self;

    fn ln(self) -> Self;
    fn from_len(len: usize) -> Self;
    fn to_f64(self) -> f64;
}

macro_rules! reals {
    ($($ty:ident),*) => {$(
        impl Real for $ty {
            const ONE: Self = 1.0;

            fn ln(self) -> Self {
                self.ln()
            }

            fn from_len(len: usize) -> Self {
                len as Self
            }

            fn to_f64(self) -> f64 {
                self.into()
            }
        }
    )*};
}

reals!(f32, f64);

/// A matrix in elements: where its first one is, and the distance of rows and of columns.
#[derive(Clone, Copy)]
pub(crate) struct Matrix {
    pub(crate) start: usize,
    pub(crate) row: isize,
    pub(crate) column: isize,
}

impl Matrix {
    /// A matrix by rows of `columns` elements.
    pub(crate) fn by_rows(start: usize, columns: usize) -> Self {
        Self { start, row: columns as isize, column: 1 }
    }

    pub(crate) fn transposed(self) -> Self {
        Self { row: self.column, column: self.row, ..self }
    }

    /// Whether all elements are among the first `len`.
    fn fits(self, rows: usize, columns: usize, len: usize) -> bool {
        let row = (rows - 1) as isize * self.row;
        let column = (columns - 1) as isize * self.column;
        let start = self.start as isize;
        let first = start + row.min(0) + column.min(0);
        let last = start + row.max(0) + column.max(0);
        first >= 0 && last < len as isize
    }
}

/// Whether a product is computed on this thread, or on all threads of the pool that calls it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Threads {
    One,
    All,
}

/// `out = a * b`, or `out += a * b` to add up: `m` rows, `n` columns, and `k` products for each element.
///
/// # Panics
///
/// Panics if a matrix is not inside its elements, or has none.
pub(crate) fn multiply<C: Real>(
    [m, n, k]: [usize; 3],
    (a, a_matrix): (&[C], Matrix),
    (b, b_matrix): (&[C], Matrix),
    (out, out_matrix): (&mut [C], Matrix),
    adds: bool,
    threads: Threads,
) {
    assert!(m > 0 && n > 0 && k > 0, "a matrix of no elements");
    assert!(a_matrix.fits(m, k, a.len()), "the first matrix is outside of its elements");
    assert!(b_matrix.fits(k, n, b.len()), "the second matrix is outside of its elements");
    assert!(out_matrix.fits(m, n, out.len()), "the product is outside of its elements");
    let parallelism = match threads {
        Threads::All => Parallelism::Rayon(0),
        Threads::One => Parallelism::None,
    };
    // SAFETY: each matrix lies in its slice, as was checked, and is initialised there; the slices are
    // borrowed for the call, the one that is written alone. `out` may be written twice at one place if its
    // strides repeat, on several threads, which callers exclude: outputs of calls have each element once.
    unsafe {
        gemm::gemm(
            m,
            n,
            k,
            out.as_mut_ptr().add(out_matrix.start),
            out_matrix.column,
            out_matrix.row,
            adds,
            a.as_ptr().add(a_matrix.start),
            a_matrix.column,
            a_matrix.row,
            b.as_ptr().add(b_matrix.start),
            b_matrix.column,
            b_matrix.row,
            C::ONE,
            C::ONE,
            false,
            false,
            false,
            parallelism,
        );
    }
}
