//! One call of a kernel: its tensors, and the operators of device-kernels that it enqueues.

use std::ptr;
use std::sync::Arc;

use device_kernels::{ArgumentRef, DType, Layout, OperandRef, Operator, Scalar, run_ref};
use device_registry::Buffer;
use ort_sys::{OrtKernelContext, OrtValue};
use smallvec::SmallVec;

use crate::abi::{TypeNumber, as_type};
use crate::api::Api;
use crate::failure::Failure;
use crate::node;
use crate::place::Place;
use crate::stream::{self, RunStream};
use crate::transfer::{self, found};

/// The sizes of an array.
pub(crate) type Shape = SmallVec<[usize; 8]>;

/// An array in memory of the device.
#[derive(Clone, Debug)]
pub(crate) struct Array {
    pub(crate) dtype: DType,
    pub(crate) layout: Layout,
    buffer: Buffer,
}

/// What an operator works on.
#[derive(Clone, Debug)]
pub(crate) enum Input {
    Array(Array),
    Scalar(Scalar),
}

impl From<&Array> for Input {
    fn from(array: &Array) -> Self {
        Self::Array(array.clone())
    }
}

impl From<Array> for Input {
    fn from(array: Array) -> Self {
        Self::Array(array)
    }
}

impl From<f64> for Input {
    fn from(value: f64) -> Self {
        Self::Scalar(value.into())
    }
}

impl Input {
    fn operand(&self) -> OperandRef<'_> {
        match self {
            Self::Array(array) => array.operand(),
            Self::Scalar(scalar) => OperandRef { argument: ArgumentRef::Scalar(*scalar), buffer: None },
        }
    }
}

impl Array {
    pub(crate) fn shape(&self) -> &[usize] {
        self.layout.shape()
    }

    pub(crate) fn rank(&self) -> usize {
        self.layout.rank()
    }

    /// The same elements in another layout.
    pub(crate) fn with_layout(&self, layout: Layout) -> Self {
        Self { layout, ..self.clone() }
    }

    /// The same elements with another shape.
    pub(crate) fn reshaped(&self, shape: impl AsRef<[usize]>) -> Result<Self, Failure> {
        Ok(self.with_layout(self.layout.reshape(shape)?))
    }

    /// The elements as an array of another shape, which repeats them.
    pub(crate) fn broadcast_to(&self, shape: impl AsRef<[usize]>) -> Result<Self, Failure> {
        Ok(self.with_layout(self.layout.broadcast_to(shape)?))
    }

    /// Whether both are the same elements in the same memory.
    pub(crate) fn is(&self, other: &Self) -> bool {
        self.layout == other.layout
            && self.buffer.offset() == other.buffer.offset()
            && self.buffer.shares_memory(&other.buffer)
    }

    pub(crate) fn operand(&self) -> OperandRef<'_> {
        let argument = ArgumentRef::Array {
            dtype: self.dtype,
            shape: self.layout.shape(),
            strides: Some(self.layout.strides()),
            offset: self.layout.offset(),
        };
        OperandRef { argument, buffer: Some(&self.buffer) }
    }
}

/// One call of a kernel.
pub(crate) struct Context {
    pub(crate) api: Api,
    pub(crate) place: &'static Place,
    context: *mut OrtKernelContext,
    /// How many inputs there are, those that are left out included.
    pub(crate) input_count: usize,
    stream: Arc<RunStream>,
}

impl Context {
    /// # Safety
    ///
    /// `context` is alive as long as this is used.
    pub(crate) unsafe fn new(
        api: Api,
        place: &'static Place,
        context: *mut OrtKernelContext,
    ) -> Result<Self, Failure> {
        let mut handle = ptr::null_mut();
        let mut input_count = 0;
        // SAFETY: the context is alive, and its stream is one that this library has made for the device.
        let stream = unsafe {
            api.check((api.ort.KernelContext_GetGPUComputeStream)(context, &raw mut handle))?;
            api.check((api.ort.KernelContext_GetInputCount)(context, &raw mut input_count))?;
            stream::of_handle(handle)
        };
        let stream = stream.ok_or_else(|| Failure::new("ONNX Runtime has made no stream for the run"))?;
        Ok(Self { api, place, context, input_count, stream: stream.clone() })
    }

    /// The stream of the run.
    pub(crate) fn stream(&self) -> &RunStream {
        &self.stream
    }

    /// An input, if it is given.
    pub(crate) fn value(&self, at: usize) -> Result<Option<*const OrtValue>, Failure> {
        if at >= self.input_count {
            return Ok(None);
        }
        let mut value = ptr::null();
        // SAFETY: the context is alive, and there is room for a pointer.
        let status = unsafe { (self.api.ort.KernelContext_GetInput)(self.context, at, &raw mut value) };
        self.api.check(status)?;
        Ok((!value.is_null()).then_some(value))
    }

    /// How many outputs there are.
    pub(crate) fn output_count(&self) -> Result<usize, Failure> {
        let mut count = 0;
        // SAFETY: the context is alive.
        let status = unsafe { (self.api.ort.KernelContext_GetOutputCount)(self.context, &raw mut count) };
        self.api.check(status)?;
        Ok(count)
    }

    /// The shape of an input, wherever its elements are.
    pub(crate) fn shape_of_input(&self, at: usize) -> Result<Shape, Failure> {
        match self.value(at)? {
            Some(value) => self.shape_of(value),
            None => Err(Failure::new(format_args!("input {at} is left out"))),
        }
    }

    /// Writes integers to an output in memory of the host.
    pub(crate) fn write_on_host(&self, at: usize, shape: &[usize], numbers: &[i64]) -> Result<(), Failure> {
        let value = self.output_value(at, shape)?;
        let mut data = ptr::null_mut();
        // SAFETY: the output is alive, in memory of the host, and has as many integers.
        unsafe {
            self.api.check((self.api.ort.GetTensorMutableData)(value, &raw mut data))?;
            ptr::copy_nonoverlapping(numbers.as_ptr(), data.cast::<i64>(), numbers.len());
        }
        Ok(())
    }

    /// The shape of a tensor.
    pub(crate) fn shape_of(&self, value: *const OrtValue) -> Result<Shape, Failure> {
        // SAFETY: the runtime's values are alive during the call.
        unsafe { type_and_shape(self.api, value) }.map(|(_, shape)| shape)
    }

    /// An input in memory of the device.
    pub(crate) fn array(&self, at: usize) -> Result<Array, Failure> {
        let value = self.value(at)?.ok_or_else(|| Failure::new(format_args!("input {at} is left out")))?;
        // SAFETY: the runtime's values are alive during the call.
        unsafe { array_of(self.api, self.place, value) }
    }

    /// An input in memory of the device, if it is given.
    pub(crate) fn optional(&self, at: usize) -> Result<Option<Array>, Failure> {
        match self.value(at)? {
            // SAFETY: see `array`.
            Some(value) => unsafe { array_of(self.api, self.place, value).map(Some) },
            None => Ok(None),
        }
    }

    /// The elements of an input as numbers, if it is given. An input that the kernel wants on the host may be
    /// on the device all the same, and is read then.
    pub(crate) fn numbers(&self, at: usize) -> Result<Option<Vec<f64>>, Failure> {
        let Some(value) = self.value(at)? else { return Ok(None) };
        // SAFETY: the value is alive.
        let memory = unsafe { (self.api.ep.Value_GetMemoryDevice)(value) };
        // SAFETY: its description lives as long as it does.
        let on_host = unsafe { (self.api.ep.MemoryDevice_GetDeviceType)(memory) } == 0;
        let numbers = if on_host {
            // SAFETY: it is a tensor of the host.
            unsafe { node::elements(self.api, value) }.map(|(_, numbers)| numbers)
        } else {
            // SAFETY: it is alive.
            let array = unsafe { array_of(self.api, self.place, value)? };
            Some(self.read(&array)?)
        };
        numbers
            .map(Some)
            .ok_or_else(|| Failure::new(format_args!("input {at} is of a type that is not read")))
    }

    /// The elements of an input as integers, if it is given.
    pub(crate) fn integers(&self, at: usize) -> Result<Option<Vec<i64>>, Failure> {
        let numbers = self.numbers(at)?;
        Ok(numbers.map(|numbers| numbers.into_iter().map(|number| number as i64).collect()))
    }

    /// Reads an array, after all work before it.
    fn read(&self, array: &Array) -> Result<Vec<f64>, Failure> {
        // The kernels convert: there is one type to read.
        let copy = self.scratch(DType::F64, array.shape())?;
        self.run(Operator::Copy, &[array.into()], &[&copy])?;
        self.stream.synchronize()?;
        let mut bytes = vec![0; copy.buffer.len()];
        copy.buffer.read(0, &mut bytes)?;
        Ok(bytes
            .chunks_exact(8)
            .map(|bytes| f64::from_ne_bytes(bytes.try_into().unwrap_or_default()))
            .collect())
    }

    /// An output, which is made with this shape.
    pub(crate) fn output(&self, at: usize, shape: &[usize]) -> Result<Array, Failure> {
        let value = self.output_value(at, shape)?;
        // SAFETY: the runtime's values are alive during the call.
        unsafe { array_of(self.api, self.place, value) }
    }

    /// An output as ONNX Runtime's value.
    pub(crate) fn output_value(&self, at: usize, shape: &[usize]) -> Result<*mut OrtValue, Failure> {
        let sizes: SmallVec<[i64; 8]> = shape.iter().map(|&size| size as i64).collect();
        let mut value = ptr::null_mut();
        // SAFETY: the context is alive, and there is room for a pointer.
        self.api.check(unsafe {
            (self.api.ort.KernelContext_GetOutput)(
                self.context,
                at,
                sizes.as_ptr(),
                sizes.len(),
                &raw mut value,
            )
        })?;
        if value.is_null() {
            return Err(Failure::new(format_args!("output {at} was not made")));
        }
        Ok(value)
    }

    /// A new array that is needed during the call. Its memory goes back when all work that uses it is done.
    pub(crate) fn scratch(&self, dtype: DType, shape: &[usize]) -> Result<Array, Failure> {
        let layout = Layout::contiguous(shape)?;
        let buffer = self.stream.allocate(layout.len() * dtype.size())?;
        Ok(Array { dtype, layout, buffer })
    }

    /// A new array of numbers that the host has, as `f64` if that is the type, and else as `f32`.
    pub(crate) fn uploaded_floats(&self, numbers: &[f64], dtype: DType) -> Result<Array, Failure> {
        if dtype == DType::F64 {
            let bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_ne_bytes()).collect();
            return self.uploaded(DType::F64, numbers.len(), bytes);
        }
        let bytes: Vec<u8> = numbers.iter().flat_map(|&number| (number as f32).to_ne_bytes()).collect();
        self.uploaded(DType::F32, numbers.len(), bytes)
    }

    /// A new array of integers that the host has.
    pub(crate) fn uploaded_integers(&self, numbers: &[i64]) -> Result<Array, Failure> {
        let bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_ne_bytes()).collect();
        self.uploaded(DType::I64, numbers.len(), bytes)
    }

    fn uploaded(&self, dtype: DType, len: usize, bytes: Vec<u8>) -> Result<Array, Failure> {
        let array = self.scratch(dtype, &[len])?;
        self.stream.enqueue(|stream| stream.write(&array.buffer, 0, bytes))?;
        Ok(array)
    }

    /// The array with elements of a type.
    pub(crate) fn converted(&self, array: Array, dtype: DType) -> Result<Array, Failure> {
        if array.dtype == dtype {
            return Ok(array);
        }
        let converted = self.scratch(dtype, array.shape())?;
        self.run(Operator::Copy, &[array.into()], &[&converted])?;
        Ok(converted)
    }

    /// Copies elements to an output, which has as many.
    pub(crate) fn copy(&self, from: &Array, to: &Array) -> Result<(), Failure> {
        self.run(Operator::Copy, &[from.into()], &[to])
    }

    /// Copies the input to the output, of which one is in memory of the host.
    pub(crate) fn copy_between_host_and_device(&self) -> Result<(), Failure> {
        let source = self.value(0)?.ok_or_else(|| Failure::new("a copy of nothing"))?;
        let shape = self.shape_of(source)?;
        transfer::copy(self.api, source, self.output_value(0, &shape)?, Some(&self.stream))
    }

    /// Enqueues an operator of device-kernels.
    pub(crate) fn run(
        &self,
        operator: impl Into<Operator>,
        inputs: &[Input],
        outputs: &[&Array],
    ) -> Result<(), Failure> {
        let inputs: SmallVec<[_; 3]> = inputs.iter().map(Input::operand).collect();
        let outputs: SmallVec<[_; 2]> = outputs.iter().map(|output| output.operand()).collect();
        self.stream.enqueue(|stream| run_ref(stream, operator, &inputs, &outputs))
    }
}

/// # Safety
///
/// `value` is alive.
unsafe fn type_and_shape(api: Api, value: *const OrtValue) -> Result<(TypeNumber, Shape), Failure> {
    let mut number: TypeNumber = 0;
    let mut sizes = ptr::null();
    let mut rank = 0;
    // SAFETY: see above; there is room for what is asked.
    unsafe {
        let get = api.ort.GetTensorElementTypeAndShapeDataReference;
        api.check(get(value, as_type(&mut number), &raw mut sizes, &raw mut rank))?;
        let sizes = if rank == 0 { &[] } else { std::slice::from_raw_parts(sizes, rank) };
        Ok((number, sizes.iter().map(|&size| size as usize).collect()))
    }
}

/// A tensor in memory of a device.
///
/// # Safety
///
/// `value` is alive.
pub(crate) unsafe fn array_of(api: Api, place: &Place, value: *const OrtValue) -> Result<Array, Failure> {
    // SAFETY: see above, here and below.
    let (number, shape) = unsafe { type_and_shape(api, value)? };
    let mut data = ptr::null();
    // SAFETY: there is room for a pointer.
    api.check(unsafe { (api.ort.GetTensorData)(value, &raw mut data) })?;
    let dtype = node::moved_as(number).ok_or_else(|| Failure::new("no kernel has its type"))?;
    let layout = Layout::contiguous(&shape)?;
    if layout.len() == 0 {
        return Ok(Array { dtype, layout, buffer: place.device.allocate(0)? });
    }
    let len = layout.len() * dtype.size();
    let buffer = match place.buffer(data as usize, len) {
        Some(found) => found?,
        None if data.is_null() => return Err(place.take_failure()),
        None => {
            let (other, ..) = found(data as usize)?;
            return Err(Failure::new(format_args!(
                "a tensor is on `{}`, and its kernel on `{}`",
                other.device, place.device
            )));
        }
    };
    Ok(Array { dtype, layout, buffer })
}

/// The shape that all can be broadcast to, by NumPy's rules.
pub(crate) fn broadcast<'a>(shapes: impl IntoIterator<Item = &'a [usize]>) -> Result<Shape, Failure> {
    let mut all = Shape::new();
    for shape in shapes {
        while all.len() < shape.len() {
            all.insert(0, 1);
        }
        let front = all.len() - shape.len();
        for (known, &size) in all[front..].iter_mut().zip(shape) {
            if *known == 1 {
                *known = size;
            } else if size != 1 && size != *known {
                return Err(Failure::new(format_args!("its shapes cannot be broadcast: {size} and {known}")));
            }
        }
    }
    Ok(all)
}

/// A dimension as ONNX gives it, which counts from the end where it is negative.
pub(crate) fn dim(dim: i64, rank: usize) -> Result<usize, Failure> {
    let from_start = if dim < 0 { dim + rank as i64 } else { dim };
    if (0..rank as i64).contains(&from_start) {
        Ok(from_start as usize)
    } else {
        Err(Failure::new(format_args!("an axis of {dim}, and {rank} dimensions")))
    }
}
