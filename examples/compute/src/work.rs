//! The two computations, with operands that no device rounds, so that results are compared to the bit.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use device_registry::{DeviceError, HostBuffer};

use crate::error::Error;

/// An `f32` holds every integer up to 2^24. So this many products, each at least 1, have an exact sum.
const LARGEST_EXACT: u32 = 1 << 24;

/// The functions that each language has.
#[cfg(any(feature = "cuda", feature = "opencl-kernels", feature = "wgpu"))]
pub(crate) const FUNCTIONS: [&std::ffi::CStr; 2] = [c"add", c"matmul"];

/// One of the two things that are computed, on `f32` and by rows.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Work {
    /// `sum[i] = a[i] + b[i]`, with `len` elements.
    Add { len: u32 },
    /// `product = a * b`.
    Matmul(Shape),
}

/// The sides of the matrices of a product: M x K times K x N. Each matrix has elements, and no more than
/// kernels can count. K is at most [`LARGEST_EXACT`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub(crate) rows: u32,
    pub(crate) inner: u32,
    pub(crate) columns: u32,
}

impl FromStr for Shape {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let numbers = text.split('x').map(|number| number.parse().ok().filter(|&number| number > 0));
        let [rows, inner, columns] = match numbers.collect::<Option<Vec<u32>>>().as_deref() {
            Some(&[side]) => [side; 3],
            Some(&[rows, inner, columns]) => [rows, inner, columns],
            _ => {
                let most = u32::MAX;
                return Err(format!("expected one number from 1 to {most}, or three such as 30x20x10"));
            }
        };
        let matrices = [(rows, inner), (inner, columns), (rows, columns)];
        if matrices.iter().any(|&(m, n)| m.checked_mul(n).is_none()) {
            return Err(format!("a matrix has at most {} elements, for kernels count in 32 bits", u32::MAX));
        }
        if inner > LARGEST_EXACT {
            return Err(format!(
                "of more than {LARGEST_EXACT} products no `f32` is sure to hold the exact sum"
            ));
        }
        Ok(Self { rows, inner, columns })
    }
}

impl Work {
    /// Its function, and the numbers that this takes after the three arrays: first the length of the result.
    #[cfg(any(feature = "cuda", feature = "opencl-kernels", feature = "wgpu"))]
    pub(crate) fn call(self) -> (&'static std::ffi::CStr, Vec<u32>) {
        match self {
            Self::Add { len } => (FUNCTIONS[0], vec![len]),
            Self::Matmul(Shape { rows, inner, columns }) => {
                (FUNCTIONS[1], vec![rows * columns, inner, columns])
            }
        }
    }

    /// The bytes of both operands and of the result.
    pub(crate) fn sizes(self) -> [usize; 3] {
        let lens = match self {
            Self::Add { len } => [len; 3],
            Self::Matmul(Shape { rows, inner, columns }) => [rows * inner, inner * columns, rows * columns],
        };
        // Where `usize` has 32 bits, some are more than there can be: no device has so many.
        lens.map(|len| (len as usize).saturating_mul(size_of::<f32>()))
    }

    /// How fast it is: the bytes that are read and written, or the operations, by the time.
    pub(crate) fn rate(self, time: Duration) -> String {
        let (amount, unit) = match self {
            Self::Add { len } => (3.0 * f64::from(len) * 4.0, "GB/s"),
            Self::Matmul(Shape { rows, inner, columns }) => {
                (2.0 * [rows, inner, columns].map(f64::from).iter().product::<f64>(), "GFLOP/s")
            }
        };
        match time.is_zero() {
            true => format!("too short for a rate in {unit}"),
            false => format!("{:.3} {unit}", amount / time.as_secs_f64() / 1e9),
        }
    }

    /// The operands, the same every time: integers of which no sum is rounded, in whatever order it is added
    /// up. None is zero, so that no term can be left out.
    pub(crate) fn operands(self) -> Result<[HostBuffer; 2], Error> {
        let terms = match self {
            // Two numbers are no more than two products.
            Self::Add { .. } => 2,
            Self::Matmul(shape) => shape.inner,
        };
        // The sum of any of the products is an integer up to `terms * largest * largest`.
        let largest = [8, 4, 2].into_iter().find(|m| m * m <= LARGEST_EXACT / terms).unwrap_or(1);
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let mut number = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            // The lower bits repeat themselves soon.
            let bits = (state >> 40) as u32;
            let size = (bits % largest + 1) as f32;
            if bits & (1 << 23) == 0 { size } else { -size }
        };
        let mut operand = |size| {
            let mut bytes = HostBuffer::zeroed(size).map_err(DeviceError::Host)?;
            bytes.as_chunks_mut().0.iter_mut().for_each(|element| *element = number().to_ne_bytes());
            Ok::<_, Error>(bytes)
        };
        let [a, b, _] = self.sizes();
        Ok([operand(a)?, operand(b)?])
    }
}

impl fmt::Display for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Add { len } => write!(f, "add {len} + {len} elements"),
            Self::Matmul(Shape { rows, inner, columns }) => {
                write!(f, "matmul {rows} x {inner} by {inner} x {columns}")
            }
        }
    }
}

/// The elements of a vector, or of a matrix by rows.
pub(crate) fn elements(bytes: &[u8]) -> impl ExactSizeIterator<Item = f32> {
    bytes.as_chunks().0.iter().map(|bytes| f32::from_ne_bytes(*bytes))
}

/// Compares a device's result with the cpu's, of the same length.
///
/// # Errors
///
/// [`Error::Wrong`] with the first element that differs.
pub(crate) fn compare(result: &[u8], expected: &[u8]) -> Result<(), Error> {
    // NaN equals no number.
    let pairs = elements(result).zip(elements(expected)).enumerate();
    let mut wrong = pairs.filter(|(_, (found, expected))| found != expected);
    match wrong.next() {
        None => Ok(()),
        Some((index, (found, expected))) => {
            let count = 1 + wrong.count();
            Err(Error::Wrong { index, found, expected, count, len: elements(result).len() })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operands_are_integers_of_either_sign_never_zero_and_have_exact_sums() {
        for (size, largest) in [
            ("1x100x1", 8.0),
            ("1x262144x1", 8.0),
            ("1x262145x1", 4.0),
            ("1x2000000x1", 2.0),
            ("1x16777216x1", 1.0),
        ] {
            for numbers in &Work::Matmul(size.parse().unwrap()).operands().unwrap() {
                let sizes = || elements(numbers).map(f32::abs);
                assert!(elements(numbers).all(|number| number.fract() == 0.0), "{size}");
                assert_eq!(sizes().fold(0.0, f32::max), largest, "{size}");
                assert_eq!(sizes().fold(largest, f32::min), 1.0, "{size}");
                assert!(elements(numbers).any(|number| number < 0.0), "{size}");
                assert!(elements(numbers).any(|number| number > 0.0), "{size}");
            }
        }
    }

    #[test]
    fn a_result_that_differs_in_one_bit_or_is_no_finite_number_is_wrong() {
        let bytes = |numbers: [f32; 3]| numbers.map(f32::to_ne_bytes).concat();
        let expected = bytes([1.0, 0.0, -16_777_216.0]);
        // There is one zero, whatever its sign.
        compare(&bytes([1.0, -0.0, -16_777_216.0]), &expected).unwrap();
        for wrong in [1.0 + f32::EPSILON, f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            let error = compare(&bytes([wrong, 0.0, -16_777_215.0]), &expected).unwrap_err();
            assert!(matches!(error, Error::Wrong { index: 0, count: 2, len: 3, .. }), "{error}");
        }
    }
}
