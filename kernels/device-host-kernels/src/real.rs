//! Floating-point numbers that are computed in, and their products of matrices.

use std::ops::{Add, AddAssign, Div, Mul, Sub};

use crate::functions::Number;

/// `f32` and `f64`.
pub(crate) trait Real:
    Number + Add<Output = Self> + AddAssign + Sub<Output = Self> + Mul<Output = Self> + Div<Output = Self>
{
    fn ln(self) -> Self;
    fn from_len(len: usize) -> Self;
    fn to_f64(self) -> f64;
}

macro_rules! reals {
    ($($ty:ident),*) => {$(
        impl Real for $ty {
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

    #[cfg(any(test, not(feature = "gemm")))]
    fn place(self, row: usize, column: usize) -> usize {
        (self.start as isize + row as isize * self.row + column as isize * self.column) as usize
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
    #[cfg(not(feature = "gemm"))]
    {
        let _ = threads;
        simple([m, n, k], (a, a_matrix), (b, b_matrix), (out, out_matrix), adds);
    }
    #[cfg(feature = "gemm")]
    let parallelism = match threads {
        Threads::All => gemm::Parallelism::Rayon(0),
        Threads::One => gemm::Parallelism::None,
    };
    #[cfg(feature = "gemm")]
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
            C::from_len(1),
            C::from_len(1),
            false,
            false,
            false,
            parallelism,
        );
    }
}

/// [`multiply`] on this thread, by loops: a tenth of the speed, without the crates of `gemm`.
#[cfg(any(test, not(feature = "gemm")))]
fn simple<C: Real>(
    [m, n, k]: [usize; 3],
    (a, a_matrix): (&[C], Matrix),
    (b, b_matrix): (&[C], Matrix),
    (out, out_matrix): (&mut [C], Matrix),
    adds: bool,
) {
    for row in 0..m {
        if !adds {
            (0..n).for_each(|column| out[out_matrix.place(row, column)] = C::from_len(0));
        }
        for inner in 0..k {
            let factor = a[a_matrix.place(row, inner)];
            if b_matrix.column == 1 && out_matrix.column == 1 {
                // Rows without gaps, which the compiler makes vectors of.
                let b = &b[b_matrix.place(inner, 0)..][..n];
                let out = &mut out[out_matrix.place(row, 0)..][..n];
                out.iter_mut().zip(b).for_each(|(out, b)| *out += factor * *b);
            } else {
                for column in 0..n {
                    out[out_matrix.place(row, column)] += factor * b[b_matrix.place(inner, column)];
                }
            }
        }
    }
}

#[cfg(all(test, feature = "gemm"))]
mod tests {
    use super::*;

    #[test]
    fn loops_have_the_products_of_gemm() {
        let (m, n, k) = (5, 7, 9);
        let numbers = |len: usize| (0..len).map(|x| (x % 11) as f64 - 4.0).collect::<Vec<_>>();
        let (a, b) = (numbers(m * k), numbers(k * n));
        let backwards = Matrix { start: n - 1, row: n as isize, column: -1 };
        for adds in [false, true] {
            for a_matrix in [Matrix::by_rows(0, k), Matrix::by_rows(0, m).transposed()] {
                for b_matrix in [Matrix::by_rows(0, n), Matrix::by_rows(0, k).transposed(), backwards] {
                    for out_matrix in [Matrix::by_rows(0, n), Matrix::by_rows(0, m).transposed(), backwards] {
                        let (mut one, mut other) = (numbers(m * n), numbers(m * n));
                        let sizes = [m, n, k];
                        simple(sizes, (&a, a_matrix), (&b, b_matrix), (&mut one, out_matrix), adds);
                        let out = (&mut other[..], out_matrix);
                        multiply(sizes, (&a, a_matrix), (&b, b_matrix), out, adds, Threads::One);
                        // Sums of small whole numbers are exact.
                        assert_eq!(one, other, "{adds} {:?}", (a_matrix.row, b_matrix.row, out_matrix.row));
                    }
                }
            }
        }
    }
}
