//! What is computed, and from what.

use std::fmt;
use std::time::Duration;

use device_registry::{Buffer, Device, DeviceError, HostBuffer, Stream};

use crate::error::Error;
use crate::kernels::{Kernels, Shape, bytes};
use crate::measure::{self, Time};

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

    /// How many roundings, at most, come one after the other on the way to an element of the result.
    pub(crate) fn roundings(self) -> u32 {
        match self {
            Self::Add { .. } => 1,
            // A product, and the additions of the others to it.
            Self::Matmul(shape) => shape.inner,
        }
    }

    /// How fast it is that takes `time`.
    pub(crate) fn rate(self, time: Duration) -> Rate {
        let (amount, unit) = match self {
            // Two are read and one is written.
            Self::Add { len } => (3.0 * f64::from(len) * 4.0, "GB/s"),
            Self::Matmul(Shape { rows, inner, columns, .. }) => {
                (2.0 * f64::from(rows) * f64::from(inner) * f64::from(columns), "GFLOP/s")
            }
        };
        Rate { amount, time, unit }
    }

    /// The operands: numbers between -1 and 1, the same every time.
    pub(crate) fn operands(self) -> Result<Operands, Error> {
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let mut number = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            // The upper 24 bits, as many as an `f32` holds.
            ((state >> 40) as f32 - (1 << 23) as f32) / (1 << 23) as f32
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
            Self::Matmul(Shape { rows, inner, columns, .. }) => {
                write!(f, "matmul {rows} x {inner} by {inner} x {columns}")
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
        match self.time.is_zero() {
            true => write!(f, "too short for a rate in {}", self.unit),
            false => write!(f, "{:.3} {}", self.amount / self.time.as_secs_f64() / 1e9, self.unit),
        }
    }
}

/// Two vectors, or two matrices by rows, on the host.
pub(crate) struct Operands([HostBuffer; 2]);

impl Operands {
    /// The same with all numbers positive. What comes of them says how large the numbers are that are added up for each
    /// element, and thereby how much rounding can do.
    pub(crate) fn magnitudes(&self) -> Result<Self, Error> {
        let positive = |operand: &HostBuffer| {
            let mut numbers = elements(operand).map(f32::abs);
            floats(operand.len(), || numbers.next().unwrap_or_default())
        };
        let [a, b] = &self.0;
        Ok(Self([positive(a)?, positive(b)?]))
    }
}

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

    /// Does it several times. The time is that of the kernel without the copies to and from the device.
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

/// So many bytes of numbers.
fn floats(len: usize, mut number: impl FnMut() -> f32) -> Result<HostBuffer, Error> {
    let mut numbers = HostBuffer::zeroed(len).map_err(DeviceError::from)?;
    numbers.as_chunks_mut().0.iter_mut().for_each(|element| *element = number().to_ne_bytes());
    Ok(numbers)
}

/// The elements of a vector, or of a matrix by rows.
pub(crate) fn elements(numbers: &[u8]) -> impl ExactSizeIterator<Item = f32> {
    numbers.as_chunks().0.iter().map(|bytes| f32::from_ne_bytes(*bytes))
}
