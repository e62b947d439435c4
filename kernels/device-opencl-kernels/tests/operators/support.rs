//! Arrays of numbers on the device, and how they are compared.

use device_kernels::{DType, Layout, Operand, Operator, run};
use device_registry::{Buffer, Device, Stream};
use half::{bf16, f16};

/// The device, or `None` where there is none.
pub(crate) fn device() -> Option<Device> {
    device_opencl_kernels::plan_groups(crate::GROUPS);
    device_conformance::device_or_skip("opencl")
}

/// Elements of a buffer, with a layout. Numbers are `f64` on the host; all that tests use of `i64` fit.
pub(crate) struct Array {
    pub(crate) dtype: DType,
    pub(crate) layout: Layout,
    pub(crate) buffer: Buffer,
}

pub(crate) fn bytes(dtype: DType, values: &[f64]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for &value in values {
        match dtype {
            DType::F32 => bytes.extend((value as f32).to_ne_bytes()),
            DType::F16 => bytes.extend(
                nearest(value, f16::from_f64(value).to_bits(), |bits| f16::from_bits(bits).to_f64())
                    .to_ne_bytes(),
            ),
            DType::BF16 => bytes.extend(
                nearest(value, bf16::from_f64(value).to_bits(), |bits| bf16::from_bits(bits).to_f64())
                    .to_ne_bytes(),
            ),
            DType::F64 => bytes.extend(value.to_ne_bytes()),
            DType::I32 => bytes.extend((value as i32).to_ne_bytes()),
            DType::I64 => bytes.extend((value as i64).to_ne_bytes()),
            DType::U32 => bytes.extend((value as u32).to_ne_bytes()),
            DType::U8 | DType::Bool => bytes.push(value as u8),
            _ => unreachable!("an unknown type"),
        }
    }
    bytes
}

/// The bits of the nearest number, among a first try and its neighbours: `half` may round to `f32`
/// first.
fn nearest(value: f64, first: u16, number: fn(u16) -> f64) -> u16 {
    if !number(first).is_finite() {
        return first;
    }
    let error = |bits: u16| (number(bits) - value).abs();
    let neighbours = [first.wrapping_sub(1), first.wrapping_add(1)].into_iter();
    neighbours.fold(first, |best, other| if error(other) < error(best) { other } else { best })
}

pub(crate) fn numbers(dtype: DType, bytes: &[u8]) -> Vec<f64> {
    bytes
        .chunks_exact(dtype.size())
        .map(|bytes| match dtype {
            DType::F32 => f32::from_ne_bytes(bytes.try_into().unwrap()).into(),
            DType::F16 => f16::from_ne_bytes(bytes.try_into().unwrap()).to_f64(),
            DType::BF16 => bf16::from_ne_bytes(bytes.try_into().unwrap()).to_f64(),
            DType::F64 => f64::from_ne_bytes(bytes.try_into().unwrap()),
            DType::I32 => i32::from_ne_bytes(bytes.try_into().unwrap()).into(),
            DType::I64 => i64::from_ne_bytes(bytes.try_into().unwrap()) as f64,
            DType::U32 => u32::from_ne_bytes(bytes.try_into().unwrap()).into(),
            _ => bytes[0].into(),
        })
        .collect()
}

/// The number as the nearest of a type.
pub(crate) fn rounded(dtype: DType, value: f64) -> f64 {
    numbers(dtype, &bytes(dtype, &[value]))[0]
}

impl Array {
    pub(crate) fn new(device: Device, dtype: DType, shape: &[usize], values: &[f64]) -> Self {
        let layout = Layout::contiguous(shape).unwrap();
        assert_eq!(layout.len(), values.len());
        Self::with_layout(device, dtype, layout, values)
    }

    /// An array in a buffer with these elements.
    pub(crate) fn with_layout(device: Device, dtype: DType, layout: Layout, elements: &[f64]) -> Self {
        let bytes = bytes(dtype, elements);
        let buffer = device.allocate(bytes.len()).unwrap();
        buffer.write(0, &bytes).unwrap();
        Self { dtype, layout, buffer }
    }

    /// An array of sevens, which a test overwrites.
    pub(crate) fn sevens(device: Device, dtype: DType, shape: &[usize]) -> Self {
        let len = shape.iter().product();
        Self::new(device, dtype, shape, &vec![if dtype == DType::Bool { 1.0 } else { 7.0 }; len])
    }

    pub(crate) fn operand(&self) -> Operand<'_> {
        Operand::with_layout(&self.buffer, self.dtype, self.layout)
    }

    /// The elements in the order of their indices.
    pub(crate) fn read(&self, stream: &Stream) -> Vec<f64> {
        let elements = self.read_buffer(stream);
        places(&self.layout).into_iter().map(|place| elements[place]).collect()
    }

    /// All elements of the buffer.
    pub(crate) fn read_buffer(&self, stream: &Stream) -> Vec<f64> {
        let read = stream.read(&self.buffer, ..).unwrap().wait().unwrap();
        numbers(self.dtype, &read)
    }
}

/// Where the elements of a layout are, in the order of their indices.
pub(crate) fn places(layout: &Layout) -> Vec<usize> {
    indices(layout.shape()).iter().map(|index| place(layout, index)).collect()
}

/// Where the element of an index is.
pub(crate) fn place(layout: &Layout, index: &[usize]) -> usize {
    let steps = index.iter().zip(layout.strides()).map(|(&index, &stride)| index as isize * stride);
    (layout.offset() as isize + steps.sum::<isize>()) as usize
}

/// All indices of a shape, in order.
pub(crate) fn indices(shape: &[usize]) -> Vec<Vec<usize>> {
    let mut all = vec![Vec::new()];
    for &size in shape {
        all = all.iter().flat_map(|index| (0..size).map(|last| [&index[..], &[last]].concat())).collect();
    }
    all
}

/// Runs an operator in a new stream, and reads the first output.
pub(crate) fn compute(
    device: Device,
    operator: impl Into<Operator>,
    inputs: &[Operand<'_>],
    outputs: &[&Array],
) -> Vec<f64> {
    let stream = device.create_stream().unwrap();
    let operands: Vec<Operand<'_>> = outputs.iter().map(|output| output.operand()).collect();
    run(&stream, operator, inputs, &operands).unwrap_or_else(|error| panic!("{}", chain(&error)));
    outputs[0].read(&stream)
}

/// An error with its sources.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text += &format!(": {error}");
        source = error.source();
    }
    text
}

/// Compares numbers, with an error of so many times the type's own.
pub(crate) fn assert_close(dtype: DType, found: &[f64], expected: &[f64], times: f64) {
    let epsilon = match dtype {
        DType::F32 => f64::from(f32::EPSILON),
        DType::F16 => 1.0 / 1024.0,
        DType::BF16 => 1.0 / 128.0,
        DType::F64 => f64::EPSILON,
        _ => 0.0,
    };
    assert_eq!(found.len(), expected.len());
    for (place, (&found, &expected)) in found.iter().zip(expected).enumerate() {
        let error = (found - expected).abs();
        let close = found == expected
            || (found.is_nan() && expected.is_nan())
            || error <= times * epsilon * expected.abs().max(1e-2);
        assert!(close, "{dtype} at {place}: found {found}, expected {expected}");
    }
}

/// Numbers from -1 to 1 that look random.
pub(crate) fn noise(len: usize, seed: u64) -> Vec<f64> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    (0..len)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 40) as f64 / f64::from(1 << 23) - 1.0
        })
        .collect()
}

/// Numbers of a type: floats from -4 to 4, integers from -20 to 20 or from 0 to 40.
pub(crate) fn values(dtype: DType, len: usize, seed: u64) -> Vec<f64> {
    let noise = noise(len, seed);
    let value = |noise: f64| match dtype {
        DType::Bool => f64::from(u8::from(noise > 0.0)),
        DType::U8 | DType::U32 => (noise * 20.0).round() + 20.0,
        DType::I32 | DType::I64 => (noise * 20.0).round(),
        _ => rounded(dtype, noise * 4.0),
    };
    noise.into_iter().map(value).collect()
}

/// The types among these that the device computes with: not every device has doubles.
pub(crate) fn those_of<const N: usize>(dtypes: [DType; N]) -> impl Iterator<Item = DType> {
    let native = |device: Device| device.properties().expect("it is there").is_native_dtype("f64");
    let doubles = device().and_then(native) != Some(false);
    dtypes.into_iter().filter(move |dtype| doubles || *dtype != DType::F64)
}

pub(crate) const FLOATS: [DType; 4] = [DType::F32, DType::F16, DType::BF16, DType::F64];
pub(crate) const NUMBERS: [DType; 8] =
    [DType::F32, DType::F16, DType::BF16, DType::F64, DType::I32, DType::I64, DType::U8, DType::U32];
