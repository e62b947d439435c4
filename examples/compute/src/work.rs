//! The computations and their operands.

use std::fmt;
use std::time::Duration;

use device_registry::{Buffer, Device, DeviceError, HostBuffer, Stream};

use crate::error::Error;
use crate::kernels::{Kernels, Shape, bytes};
use crate::measure::{self, Time};

/// An `f32` holds every integer from -2^24 to 2^24.
const LARGEST_EXACT: u32 = 1 << 24;

/// The most products that can be added up exactly: each is at least 1.
pub(crate) const MOST_TERMS: u32 = LARGEST_EXACT;

/// The largest operand, in magnitude, with which the sum of this many products is exact: 8, or less for long
/// sums.
///
/// A product of two operands up to `m` is an integer up to `m * m`, so that the sum of any of the `terms`
/// products is an integer up to `terms * m * m`. That is at most 2^24 here, and an `f32` holds it: nothing is
/// rounded on the way.
///
/// # Errors
///
/// [`Error::TooManyTerms`] if not even ones are small enough.
pub(crate) fn largest_operand(terms: u32) -> Result<u32, Error> {
    let exact = |largest: &u32| u64::from(terms) * u64::from(largest * largest) <= u64::from(LARGEST_EXACT);
    [8, 4, 2, 1].into_iter().find(exact).ok_or(Error::TooManyTerms { terms })
}

/// One of the two things that are computed.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Work {
    Add { len: u32 },
    Matmul(Shape),
}

impl Work {
    /// The elements of both operands and of the result.
    fn lens(self) -> [u32; 3] {
        match self {
            Self::Add { len } => [len; 3],
            Self::Matmul(shape) => shape.lens(),
        }
    }

    /// How fast it is that takes `time`.
    pub(crate) fn rate(self, time: Duration) -> Rate {
        let (amount, unit) = match self {
            // Two are read and one is written.
            Self::Add { len } => (3.0 * f64::from(len) * 4.0, "GB/s"),
            Self::Matmul(shape) => {
                let [rows, inner, columns] = [shape.rows(), shape.inner(), shape.columns()].map(f64::from);
                (2.0 * rows * inner * columns, "GFLOP/s")
            }
        };
        Rate { amount, time, unit }
    }

    /// How many products, at most, are added up for an element of the result. (To add two numbers is no more
    /// than to add up two products.)
    fn terms(self) -> u32 {
        match self {
            Self::Add { .. } => 2,
            Self::Matmul(shape) => shape.inner(),
        }
    }

    /// The operands, the same every time: integers so small that the result is exact, in whatever order it is
    /// added up, with products rounded or not. None is zero, so that no term can be left out.
    ///
    /// # Errors
    ///
    /// [`Error::TooManyTerms`]
    pub(crate) fn operands(self) -> Result<Operands, Error> {
        let largest = largest_operand(self.terms())?;
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let mut number = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            // The lower bits repeat themselves soon.
            let bits = (state >> 40) as u32;
            let size = (bits % largest + 1) as f32;
            if bits & (1 << 23) == 0 { size } else { -size }
        };
        let [a, b, _] = self.lens();
        Ok(Operands([floats(bytes(a), &mut number)?, floats(bytes(b), &mut number)?]))
    }

    /// Memory for it on a device, and a stream to do it in.
    pub(crate) fn place(self, device: Device) -> Result<Place, Error> {
        let [a, b, result] = self.lens().map(|len| device.allocate(bytes(len)));
        let (a, b, result) = (a?, b?, result?);
        Ok(Place { work: self, stream: device.create_stream()?, a, b, result })
    }
}

impl fmt::Display for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Add { len } => write!(f, "add {len} + {len} elements"),
            Self::Matmul(shape) => {
                let inner = shape.inner();
                write!(f, "matmul {} x {inner} by {inner} x {}", shape.rows(), shape.columns())
            }
        }
    }
}

/// An amount of work by the time that it took.
pub(crate) struct Rate {
    amount: f64,
    time: Duration,
    unit: &'static str,
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.time.is_zero() {
            write!(f, "too short for a rate in {}", self.unit)
        } else {
            write!(f, "{:.3} {}", self.amount / self.time.as_secs_f64() / 1e9, self.unit)
        }
    }
}

/// Two vectors, or two matrices by rows, on the host.
pub(crate) struct Operands([HostBuffer; 2]);

/// Where work is done on a device.
pub(crate) struct Place {
    work: Work,
    stream: Stream,
    a: Buffer,
    b: Buffer,
    result: Buffer,
}

impl Place {
    /// Does it once, and returns the result.
    pub(crate) fn compute(&self, operands: &Operands, kernels: &Kernels) -> Result<HostBuffer, Error> {
        self.write(operands)?;
        self.launch(kernels)?;
        self.read()
    }

    /// Does it several times. The time is the kernel's, without the copies to and from the device.
    pub(crate) fn measure(
        &self,
        operands: &Operands,
        kernels: &Kernels,
        runs: u16,
    ) -> Result<(HostBuffer, Time), Error> {
        self.write(operands)?;
        let time = measure::median(&self.stream, runs, || self.launch(kernels))?;
        Ok((self.read()?, time))
    }

    fn write(&self, Operands([a, b]): &Operands) -> Result<(), Error> {
        self.a.write(0, a)?;
        self.b.write(0, b)?;
        // An element that no kernel writes is not to look like one.
        Ok(self.result.fill(.., &f32::NAN.to_ne_bytes())?)
    }

    fn launch(&self, kernels: &Kernels) -> Result<(), Error> {
        let buffers = [&self.a, &self.b, &self.result];
        match self.work {
            Work::Add { .. } => kernels.add(&self.stream, buffers),
            Work::Matmul(shape) => kernels.matmul(&self.stream, buffers, shape),
        }
    }

    fn read(&self) -> Result<HostBuffer, Error> {
        Ok(self.stream.read(&self.result, ..)?.wait()?)
    }
}

/// This many bytes of numbers.
fn floats(len: usize, mut number: impl FnMut() -> f32) -> Result<HostBuffer, Error> {
    let mut numbers = HostBuffer::zeroed(len).map_err(DeviceError::Host)?;
    numbers.as_chunks_mut().0.iter_mut().for_each(|element| *element = number().to_ne_bytes());
    Ok(numbers)
}

/// The elements of a vector, or of a matrix by rows.
pub(crate) fn elements(numbers: &[u8]) -> impl ExactSizeIterator<Item = f32> {
    numbers.as_chunks().0.iter().map(|bytes| f32::from_ne_bytes(*bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_sum_of_products_is_exact() {
        for (terms, largest) in [(1, 8), (2, 8), (1 << 18, 8), ((1 << 18) + 1, 4), (1 << 20, 4), (1 << 24, 1)]
        {
            assert_eq!(largest_operand(terms).unwrap(), largest, "{terms}");
        }
        for terms in [MOST_TERMS + 1, u32::MAX] {
            assert!(matches!(largest_operand(terms), Err(Error::TooManyTerms { .. })), "{terms}");
        }
    }

    #[test]
    fn operands_are_integers_of_either_sign_and_never_zero() {
        for (inner, largest) in [(100, 8.0), (300_000, 4.0), (2_000_000, 2.0)] {
            let Operands(operands) = Work::Matmul(Shape::new(1, inner, 1).unwrap()).operands().unwrap();
            for numbers in &operands {
                let sizes = || elements(numbers).map(f32::abs);
                assert!(elements(numbers).all(|number| number.fract() == 0.0 && number != 0.0));
                assert_eq!(sizes().fold(0.0, f32::max), largest);
                assert_eq!(sizes().fold(largest, f32::min), 1.0);
                assert!(elements(numbers).any(|number| number < 0.0));
                assert!(elements(numbers).any(|number| number > 0.0));
            }
        }
    }
}
