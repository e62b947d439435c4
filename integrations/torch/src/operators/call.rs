//! A call of an operator: its arguments, and how it is run.

use device_kernels::{Argument, ArgumentRef, DType, Layout, OperandRef, Operator, Planned, Scalar, run_ref};
use device_registry::Buffer;
use smallvec::SmallVec;

use crate::failure::Failure;
use crate::memory;
use crate::streams;

/// An argument.
#[derive(Clone, Copy)]
pub(crate) enum Value<'a> {
    None,
    Tensor(Tensor<'a>),
    Number(Scalar),
    Ints(&'a [i64]),
    Text(&'a str),
    /// A list of tensors, some of which may be absent.
    Tensors(&'a [Option<Tensor<'a>>]),
    /// One that no operator here has, such as a complex number.
    Other,
}

/// A tensor, as PyTorch describes it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tensor<'a> {
    /// PyTorch's number of its type.
    pub(crate) dtype: i32,
    /// The index of its device; negative for a tensor of the CPU.
    pub(crate) device: i32,
    /// The address of its first element.
    pub(crate) data: usize,
    pub(crate) sizes: &'a [i64],
    pub(crate) strides: &'a [i64],
}

/// Makes a tensor on a device: the index, PyTorch's number of the type, sizes, and strides of other than
/// contiguous elements. It is a result if the last argument says so, and else lives as long as the call. With
/// a negative index, there is no tensor.
pub(crate) type Empty<'a> =
    &'a dyn Fn(i32, i32, &[i64], Option<&[i64]>, bool) -> Result<Option<Tensor<'a>>, Failure>;

/// An operator's arguments.
pub(crate) struct Call<'a> {
    pub(crate) values: &'a [Value<'a>],
    pub(crate) empty: Empty<'a>,
    /// Draws a seed from the generator of the call.
    pub(crate) seed: &'a dyn Fn() -> Result<u64, Failure>,
}

/// A tensor whose elements kernels know.
#[derive(Clone, Debug)]
pub(crate) struct Array {
    pub(crate) device: usize,
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

/// The types that PyTorch and kernels both have, by PyTorch's numbers: `c10/core/ScalarType.h`.
const TYPES: [(i32, DType); 9] = [
    (0, DType::U8),
    (3, DType::I32),
    (4, DType::I64),
    (5, DType::F16),
    (6, DType::F32),
    (7, DType::F64),
    (11, DType::Bool),
    (15, DType::BF16),
    (28, DType::U32),
];

fn dtype_of(number: i32) -> Result<DType, Failure> {
    let found = TYPES.iter().find(|(other, _)| *other == number);
    found.map(|(_, dtype)| *dtype).ok_or_else(|| Failure::declined("no kernel has its type"))
}

/// PyTorch's number of a type.
pub(crate) fn number_of(dtype: DType) -> Result<i32, Failure> {
    let found = TYPES.iter().find(|(_, other)| *other == dtype);
    found.map(|(number, _)| *number).ok_or_else(|| Failure::declined("PyTorch has no such type"))
}

fn declined<T>(why: &str) -> Result<T, Failure> {
    Err(Failure::declined(why))
}

/// Whether the elements lie one after the other.
fn is_contiguous(tensor: &Tensor<'_>) -> bool {
    let mut next = 1;
    tensor.sizes.iter().zip(tensor.strides).rev().all(|(&size, &stride)| {
        let fits = size == 1 || stride == next;
        next *= size;
        fits
    })
}

/// A tensor with its memory, as PyTorch describes it: enough to call a kernel, and less than an array, which
/// has a checked layout.
struct Found<'a> {
    device: usize,
    dtype: DType,
    shape: &'a [usize],
    strides: &'a [isize],
    /// Where its first element is, in elements.
    offset: usize,
    buffer: Buffer,
}

impl<'a> Found<'a> {
    fn of(tensor: Tensor<'a>) -> Result<Self, Failure> {
        let Ok(device) = usize::try_from(tensor.device) else { return declined("a tensor is on the CPU") };
        let dtype = dtype_of(tensor.dtype)?;
        // No size is negative.
        let shape: &[usize] = bytemuck::cast_slice(tensor.sizes);
        let (buffer, offset) = if shape.contains(&0) {
            (memory::empty(device)?, 0)
        } else {
            let place = memory::find(tensor.data)?;
            if !place.offset.is_multiple_of(dtype.size()) {
                return declined("its first element is between two elements of its memory");
            }
            (place.buffer, place.offset / dtype.size())
        };
        Ok(Self { device, dtype, shape, strides: bytemuck::cast_slice(tensor.strides), offset, buffer })
    }

    fn operand(&self) -> OperandRef<'_> {
        let dtype = self.dtype;
        let shape = self.shape;
        let strides = Some(self.strides);
        let offset = self.offset;
        OperandRef {
            argument: ArgumentRef::Array { dtype, shape, strides, offset },
            buffer: Some(&self.buffer),
        }
    }
}

impl Array {
    pub(crate) fn of(tensor: Tensor<'_>) -> Result<Self, Failure> {
        let Found { device, dtype, shape, strides, offset, buffer } = Found::of(tensor)?;
        let layout = if offset == 0 && is_contiguous(&tensor) {
            Layout::contiguous(shape)
        } else {
            Layout::strided(shape, strides, offset)
        };
        let layout = layout.map_err(Failure::declined)?;
        Ok(Self { device, dtype, layout, buffer })
    }

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
        Ok(self.with_layout(self.layout.reshape(shape).map_err(Failure::declined)?))
    }

    /// Whether the two have a byte of memory in common, or could have one.
    pub(crate) fn shares_memory(&self, other: &Self) -> bool {
        self.buffer.shares_memory(&other.buffer)
    }

    /// A dimension as PyTorch gives it, which counts from the end where it is negative.
    pub(crate) fn dim(&self, dim: i64) -> Result<usize, Failure> {
        let rank = self.rank() as i64;
        let from_start = if dim < 0 { dim + rank } else { dim };
        if (0..rank).contains(&from_start) {
            Ok(from_start as usize)
        } else {
            declined("it is of no dimension")
        }
    }

    fn operand(&self) -> OperandRef<'_> {
        let shape = self.layout.shape();
        let strides = Some(self.layout.strides());
        let dtype = self.dtype;
        let offset = self.layout.offset();
        OperandRef {
            argument: ArgumentRef::Array { dtype, shape, strides, offset },
            buffer: Some(&self.buffer),
        }
    }
}

/// The dimensions from the innermost, whose stride is the least, outwards. One that repeats its elements,
/// with a stride of 0, stays where it is, as in PyTorch.
fn inner_first(strides: &[isize]) -> SmallVec<[usize; 8]> {
    let mut dims: SmallVec<[usize; 8]> = (0..strides.len()).rev().collect();
    for end in 1..dims.len() {
        let mut place = end;
        for other in (0..end).rev() {
            let inner = strides[dims[other]];
            let outer = strides[dims[place]];
            if inner == 0 || outer == 0 {
                continue;
            }
            if inner <= outer {
                break;
            }
            dims.swap(other, place);
            place = other;
        }
    }
    dims
}

/// The type in which several operators after one another compute, so that halves are rounded once.
pub(crate) fn wide(dtype: DType) -> DType {
    if dtype.is_float() && dtype.size() == 2 { DType::F32 } else { dtype }
}

impl From<Array> for Input {
    fn from(array: Array) -> Self {
        Self::Array(array)
    }
}

impl From<&Array> for Input {
    fn from(array: &Array) -> Self {
        Self::Array(array.clone())
    }
}

impl From<Scalar> for Input {
    fn from(scalar: Scalar) -> Self {
        Self::Scalar(scalar)
    }
}

impl From<f64> for Input {
    fn from(number: f64) -> Self {
        Self::Scalar(Scalar::Float(number))
    }
}

impl Input {
    fn operand(&self) -> OperandRef<'_> {
        match self {
            Self::Array(array) => array.operand(),
            Self::Scalar(scalar) => OperandRef { argument: ArgumentRef::Scalar(*scalar), buffer: None },
        }
    }

    pub(crate) fn array(&self) -> Option<&Array> {
        match self {
            Self::Array(array) => Some(array),
            Self::Scalar(_) => None,
        }
    }
}

/// The shape that all can be broadcast to.
pub(crate) fn broadcast<'a>(shapes: impl Iterator<Item = &'a [usize]>) -> Result<Shape, Failure> {
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
                return declined("its shapes cannot be broadcast");
            }
        }
    }
    Ok(all)
}

/// The sizes of an array.
pub(crate) type Shape = SmallVec<[usize; 8]>;

impl<'a> Call<'a> {
    pub(crate) fn value(&self, place: usize) -> Value<'a> {
        self.values.get(place).copied().unwrap_or(Value::None)
    }

    /// A tensor on a device.
    pub(crate) fn array(&self, place: usize) -> Result<Array, Failure> {
        match self.value(place) {
            Value::Tensor(tensor) => Array::of(tensor),
            _ => declined("an argument is no tensor of a device"),
        }
    }

    /// A tensor on a device, if there is one.
    pub(crate) fn optional(&self, place: usize) -> Result<Option<Array>, Failure> {
        match self.value(place) {
            Value::None => Ok(None),
            _ => self.array(place).map(Some),
        }
    }

    /// A tensor on a device, or a number.
    pub(crate) fn input(&self, place: usize) -> Result<Input, Failure> {
        match self.value(place) {
            Value::Number(number) => Ok(Input::Scalar(number)),
            _ => self.array(place).map(Input::Array),
        }
    }

    /// The last argument but `before`, which is for a result.
    pub(crate) fn out(&self, before: usize) -> Result<Array, Failure> {
        self.array(self.values.len().wrapping_sub(1 + before))
    }

    pub(crate) fn is_none(&self, place: usize) -> bool {
        matches!(self.value(place), Value::None)
    }

    pub(crate) fn scalar(&self, place: usize) -> Result<Scalar, Failure> {
        match self.value(place) {
            Value::Number(number) => Ok(number),
            _ => declined("an argument is no number"),
        }
    }

    /// Whether an argument is a number with this value.
    pub(crate) fn is(&self, place: usize, value: f64) -> bool {
        self.scalar(place).is_ok_and(|number| number.as_f64() == value)
    }

    pub(crate) fn int(&self, place: usize) -> Result<i64, Failure> {
        self.scalar(place).map(Scalar::as_i64)
    }

    pub(crate) fn bool(&self, place: usize) -> Result<bool, Failure> {
        self.scalar(place).map(Scalar::as_bool)
    }

    pub(crate) fn ints(&self, place: usize) -> Result<&'a [i64], Failure> {
        match self.value(place) {
            Value::Ints(ints) => Ok(ints),
            Value::None => Ok(&[]),
            _ => declined("an argument is no list of integers"),
        }
    }

    pub(crate) fn text(&self, place: usize) -> Option<&'a str> {
        match self.value(place) {
            Value::Text(text) => Some(text),
            _ => None,
        }
    }

    /// A new contiguous tensor, which is a result of the call.
    pub(crate) fn result(&self, like: &Array, dtype: DType, shape: &[usize]) -> Result<Array, Failure> {
        self.make(like, dtype, shape, None, true)
    }

    /// A new tensor whose dimensions lie in memory in the same order as in `like`, which has as many: with
    /// channels last, say. It is a result of the call.
    pub(crate) fn result_in_order(
        &self,
        like: &Array,
        dtype: DType,
        shape: &[usize],
    ) -> Result<Array, Failure> {
        if like.layout.is_contiguous() || like.rank() != shape.len() {
            return self.result(like, dtype, shape);
        }
        let mut order = inner_first(like.layout.strides());
        order.reverse();
        self.result_in(like, dtype, shape, &order)
    }

    /// A new tensor, whose dimensions lie in memory as `order` lists them, from the outermost to the
    /// innermost one; contiguous without a list. It is a result of the call.
    pub(crate) fn result_in(
        &self,
        like: &Array,
        dtype: DType,
        shape: &[usize],
        order: &[usize],
    ) -> Result<Array, Failure> {
        if order.is_empty() {
            return self.result(like, dtype, shape);
        }
        if order.len() != shape.len() {
            return declined("the order of its dimensions is for another shape");
        }
        let mut strides: SmallVec<[i64; 8]> = SmallVec::from_elem(1, shape.len());
        let mut next = 1;
        for &dim in order.iter().rev() {
            strides[dim] = next;
            next *= shape[dim].max(1) as i64;
        }
        self.make(like, dtype, shape, Some(&strides), true)
    }

    /// A new tensor that is needed during the call.
    pub(crate) fn scratch(&self, like: &Array, dtype: DType, shape: &[usize]) -> Result<Array, Failure> {
        self.make(like, dtype, shape, None, false)
    }

    fn make(
        &self,
        like: &Array,
        dtype: DType,
        shape: &[usize],
        strides: Option<&[i64]>,
        result: bool,
    ) -> Result<Array, Failure> {
        let sizes: SmallVec<[i64; 8]> = shape.iter().map(|&size| size as i64).collect();
        match (self.empty)(like.device as i32, number_of(dtype)?, &sizes, strides, result)? {
            Some(tensor) => Array::of(tensor),
            None => Err(Failure::new("a tensor was not made")),
        }
    }

    /// A result that the caller has not asked for.
    pub(crate) fn no_result(&self) -> Result<(), Failure> {
        (self.empty)(-1, 0, &[], None, true).map(|_| ())
    }

    /// The input with elements of a type. A number stays as it is, as kernels convert it.
    pub(crate) fn converted(&self, input: Input, dtype: DType) -> Result<Input, Failure> {
        match input {
            Input::Array(array) if array.dtype != dtype => {
                let converted = self.scratch(&array, dtype, array.shape())?;
                self.run(Operator::Copy, &[array.into()], &[&converted])?;
                Ok(converted.into())
            }
            input => Ok(input),
        }
    }

    /// A tensor that lies as its shape says: itself, or a copy.
    pub(crate) fn contiguous(&self, array: Array) -> Result<Array, Failure> {
        if array.layout.is_contiguous() {
            return Ok(array);
        }
        let copy = self.scratch(&array, array.dtype, array.shape())?;
        self.run(Operator::Copy, &[array.into()], &[&copy])?;
        Ok(copy)
    }

    /// A seed from the call's generator, or else the device's.
    pub(crate) fn seed(&self) -> Result<u64, Failure> {
        (self.seed)()
    }

    /// Declines unless a kernel has an operator without inputs for this output.
    pub(crate) fn check_supported(&self, operator: Operator, out: &Array) -> Result<(), Failure> {
        let output = Argument::Array(out.dtype, out.layout);
        let device = streams::current(out.device)?.device();
        Planned::of(device, operator, &[], &[ArgumentRef::from(&output)])?;
        Ok(())
    }

    /// Enqueues an operator whose inputs are of a wider type than its output, or of the same.
    pub(crate) fn run_narrowing(
        &self,
        operator: impl Into<Operator>,
        inputs: &[Input],
        output: &Array,
    ) -> Result<(), Failure> {
        let wide = inputs.iter().find_map(Input::array).map_or(output.dtype, |array| array.dtype);
        if wide == output.dtype {
            return self.run(operator, inputs, &[output]);
        }
        let computed = self.scratch(output, wide, output.shape())?;
        self.run(operator, inputs, &[&computed])?;
        self.run(Operator::Copy, &[computed.into()], &[output])
    }

    /// Enqueues an operator in the current stream of its device.
    pub(crate) fn run(
        &self,
        operator: impl Into<Operator>,
        inputs: &[Input],
        outputs: &[&Array],
    ) -> Result<(), Failure> {
        let Some(device) = outputs.first().map(|output| output.device) else { return declined("no output") };
        let arrays = inputs.iter().filter_map(Input::array).chain(outputs.iter().copied());
        if arrays.into_iter().any(|array| array.device != device) {
            // The CPU finds the same, and says which.
            return declined("its tensors are on several devices");
        }
        let operator = operator.into();
        if operator.is_elementwise() && operator != Operator::Copy {
            // An output that has another shape becomes the right one on the CPU.
            let shapes = inputs.iter().filter_map(Input::array).map(Array::shape);
            if *broadcast(shapes)? != *outputs[0].shape() {
                return declined("its output has another shape");
            }
        }
        let inputs: SmallVec<[_; 3]> = inputs.iter().map(Input::operand).collect();
        let outputs: SmallVec<[_; 2]> = outputs.iter().map(|output| output.operand()).collect();
        Ok(run_ref(streams::current(device)?, operator, &inputs, &outputs)?)
    }

    /// Enqueues an operator on elements, if its `inputs` are tensors of the shape and type of its output, on
    /// one device: most are, and a small one is the faster for it. Else returns `false`.
    pub(crate) fn run_alike(&self, operator: Operator, inputs: usize) -> Result<bool, Failure> {
        let Some(Value::Tensor(output)) = self.values.last() else { return Ok(false) };
        let mut found = SmallVec::<[Found<'_>; 2]>::new();
        for value in self.values.iter().take(inputs) {
            match value {
                Value::Tensor(tensor)
                    if (tensor.dtype, tensor.device, tensor.sizes)
                        == (output.dtype, output.device, output.sizes) =>
                {
                    found.push(Found::of(*tensor)?);
                }
                _ => return Ok(false),
            }
        }
        let output = Found::of(*output)?;
        let inputs: SmallVec<[_; 2]> = found.iter().map(Found::operand).collect();
        run_ref(streams::current(output.device)?, operator, &inputs, &[output.operand()])?;
        Ok(true)
    }
}
