//! The tensor.

use std::ops::Range;

use device_registry::{Buffer, Device};
use ndarray::{ArrayD, IxDyn};

use crate::data::{self, Data};
use crate::{DType, Element, TensorError, shape};

/// Elements of one type in the memory of one device, in any number of dimensions.
///
/// A tensor is immutable, and a clone shares its memory. Any thread may use it; functions that move bytes are
/// blocking calls. `Display` prints it as PyTorch does (see [the crate](crate)), for which it reads the shown
/// elements from the device. If the device returns an error, it prints that error in place of the elements.
///
/// ```
/// use device_registry::device;
/// use device_tensor::{DType, Tensor};
///
/// let x = Tensor::new([[1, 2, 3], [4, 5, 6]], device("cpu")?)?;
/// assert_eq!((x.shape(), x.dtype()), (&[2, 3][..], DType::I32));
/// assert_eq!(x.to_string(), "tensor([[1, 2, 3],\n        [4, 5, 6]])");
/// # Ok::<(), device_tensor::TensorError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Tensor {
    buffer: Buffer,
    dtype: DType,
    shape: Vec<usize>,
}

impl Tensor {
    /// A tensor on `device` with the elements and the shape of `data`. It opens the device at its first use,
    /// and blocks until the device has the elements.
    ///
    /// ```
    /// # use device_registry::Device;
    /// # use device_tensor::Tensor;
    /// use device_tensor::ndarray::array;
    ///
    /// let rows = vec![vec![1_i64, 2, 3], vec![4, 5, 6]];
    /// assert_eq!(Tensor::new(&rows, Device::cpu())?.shape(), [2, 3]);
    /// let columns = array![[1_i64, 4], [2, 5], [3, 6]];
    /// assert_eq!(Tensor::new(columns.t(), Device::cpu())?.to_vec::<i64>()?, rows.concat());
    /// # Ok::<(), device_tensor::TensorError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// - [`TensorError::Ragged`] if rows of `data` have different shapes.
    /// - [`TensorError::TooLarge`] if it has more bytes than can be addressed.
    /// - [`TensorError::HostMemory`] if its elements are not contiguous, and the host has no memory to lay
    ///   them out.
    /// - [`TensorError::Device`] if the device cannot be used or does not have enough memory.
    pub fn new<D: Data>(data: D, device: Device) -> Result<Self, TensorError> {
        let shape = data.first_shape();
        let dtype = D::Element::DTYPE;
        let len = shape::len(&shape, dtype)?;
        let elements = data::elements(&data, &shape, len)?;
        let bytes: &[u8] = bytemuck::cast_slice(&elements);
        let buffer = device.allocate(bytes.len())?;
        buffer.write(0, bytes)?;
        Ok(Self { buffer, dtype, shape })
    }

    /// A tensor that shares the bytes of a buffer, such as the output of a kernel. It runs nothing on the
    /// device.
    ///
    /// The last dimension's elements lie next to each other, in the byte order of the host.
    ///
    /// ```
    /// use device_registry::device;
    /// use device_tensor::{DType, Tensor};
    ///
    /// let buffer = device("cpu")?.allocate(12)?;
    /// buffer.write(0, &[1_i32, 2, 3].map(i32::to_ne_bytes).concat())?;
    /// let x = Tensor::from_buffer(buffer, [3], DType::I32)?;
    /// assert_eq!(x.to_string(), "tensor([1, 2, 3])");
    /// # Ok::<(), device_tensor::TensorError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`TensorError::WrongLength`] if the buffer has more or fewer bytes than a tensor of this shape and
    /// dtype, or [`TensorError::TooLarge`].
    pub fn from_buffer(
        buffer: Buffer,
        shape: impl Into<Vec<usize>>,
        dtype: DType,
    ) -> Result<Self, TensorError> {
        let shape = shape.into();
        let expected = shape::len(&shape, dtype)? * dtype.size();
        if buffer.len() != expected {
            return Err(TensorError::WrongLength { shape, dtype, expected, found: buffer.len() });
        }
        Ok(Self { buffer, dtype, shape })
    }

    /// The memory of the elements, for kernels. A kernel that writes here changes every clone of the tensor.
    #[must_use]
    pub fn buffer(&self) -> &Buffer {
        &self.buffer
    }

    /// The memory of the elements, without the tensor.
    #[must_use]
    pub fn into_buffer(self) -> Buffer {
        self.buffer
    }

    /// The device, with its index.
    #[must_use]
    pub fn device(&self) -> Device {
        self.buffer.device()
    }

    /// The type of the elements.
    #[must_use]
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// The length of each dimension, outermost first. A scalar has none.
    #[must_use]
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// The number of elements.
    #[must_use]
    pub fn len(&self) -> usize {
        self.buffer.len() / self.dtype.size()
    }

    /// Whether there are no elements.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The same tensor on `device`: a copy, or a clone if it is on that device already. Blocks until the
    /// device has the elements.
    ///
    /// # Errors
    ///
    /// If the device cannot be used or does not have enough memory.
    pub fn to(&self, device: Device) -> Result<Self, TensorError> {
        if device.resolve() == self.device() {
            return Ok(self.clone());
        }
        let buffer = device.allocate(self.buffer.len())?;
        buffer.copy_from(&self.buffer)?;
        Ok(Self { buffer, ..self.clone() })
    }

    /// All elements on the host, the last dimension's next to each other. Blocks until the host has them.
    ///
    /// For `bool`, every byte other than zero is `true`, as a device may write any byte.
    ///
    /// ```
    /// # use device_registry::Device;
    /// # use device_tensor::Tensor;
    /// let x = Tensor::new([[true, false], [false, true]], Device::cpu())?;
    /// assert_eq!(x.to_vec::<bool>()?, [true, false, false, true]);
    /// assert!(x.to_vec::<u8>().is_err());
    /// # Ok::<(), device_tensor::TensorError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`TensorError::WrongDType`] if the elements are not of type `T`, or if the host has no memory for them
    /// or the device cannot be read.
    pub fn to_vec<T: Element>(&self) -> Result<Vec<T>, TensorError> {
        self.read(std::slice::from_ref(&(0..self.len())))
    }

    /// All elements as an array on the host, of the same shape and in standard order.
    ///
    /// ```
    /// # use device_registry::Device;
    /// # use device_tensor::Tensor;
    /// use device_tensor::ndarray::array;
    ///
    /// let x = Tensor::new([[1, 2], [3, 4]], Device::cpu())?;
    /// assert_eq!(x.to_ndarray::<i32>()?, array![[1, 2], [3, 4]].into_dyn());
    /// # Ok::<(), device_tensor::TensorError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The errors of [`to_vec`](Self::to_vec).
    pub fn to_ndarray<T: Element>(&self) -> Result<ArrayD<T>, TensorError> {
        let too_large = |_| TensorError::TooLarge { shape: self.shape.clone(), dtype: self.dtype };
        // It never is: such a tensor cannot be made.
        ArrayD::from_shape_vec(IxDyn(&self.shape), self.to_vec()?).map_err(too_large)
    }

    /// The only element, whatever the number of dimensions.
    ///
    /// ```
    /// # use device_registry::Device;
    /// # use device_tensor::Tensor;
    /// assert_eq!(Tensor::new(2.5, Device::cpu())?.item::<f64>()?, 2.5);
    /// assert_eq!(Tensor::new([[7]], Device::cpu())?.item::<i32>()?, 7);
    /// assert!(Tensor::new([1, 2], Device::cpu())?.item::<i32>().is_err());
    /// # Ok::<(), device_tensor::TensorError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`TensorError::NotOneElement`] if there are none or more than one, and the errors of
    /// [`to_vec`](Self::to_vec).
    pub fn item<T: Element>(&self) -> Result<T, TensorError> {
        let not_one = || TensorError::NotOneElement { shape: self.shape.clone() };
        if self.len() != 1 {
            return Err(not_one());
        }
        self.to_vec()?.pop().ok_or_else(not_one)
    }

    /// Reads the elements of these ranges, one after the other. All ranges are inside.
    pub(crate) fn read<T: Element>(&self, ranges: &[Range<usize>]) -> Result<Vec<T>, TensorError> {
        if self.dtype != T::DTYPE {
            return Err(TensorError::WrongDType { expected: T::DTYPE, found: self.dtype });
        }
        let len = ranges.iter().map(Range::len).sum();
        let mut bits = data::reserve(len)?;
        bits.resize(len, bytemuck::Zeroable::zeroed());
        let mut rest: &mut [u8] = bytemuck::cast_slice_mut(&mut bits);
        for range in ranges {
            let size = self.dtype.size();
            let (part, after) = rest.split_at_mut(range.len() * size);
            self.read_bytes(range.start * size, part)?;
            rest = after;
        }
        T::from_bits(bits)
    }

    /// Reads the bytes from `start` on. A device copies ranges that are multiples of its alignment, or that
    /// reach the end of the buffer. For other ranges this reads the aligned range around them, and cuts it.
    fn read_bytes(&self, start: usize, destination: &mut [u8]) -> Result<(), TensorError> {
        let end = start + destination.len();
        let len = self.buffer.len();
        if start == 0 && end == len {
            return Ok(self.buffer.read(start, destination)?);
        }
        let alignment = self.device().properties()?.copy_alignment;
        let first = start / alignment * alignment;
        let last = end.checked_next_multiple_of(alignment).map_or(len, |last| last.min(len));
        if first == start && last == end {
            return Ok(self.buffer.read(start, destination)?);
        }
        let mut around = data::reserve(last - first)?;
        around.resize(last - first, 0);
        self.buffer.read(first, &mut around)?;
        destination.copy_from_slice(&around[start - first..end - first]);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_are_read_back_as_they_were_written() {
        let x = Tensor::new([[i64::MIN, -1], [0, i64::MAX]], Device::cpu()).unwrap();
        assert_eq!(x.shape(), [2, 2]);
        assert_eq!(x.to_vec::<i64>().unwrap(), [i64::MIN, -1, 0, i64::MAX]);
    }

    #[test]
    fn an_integer_literal_is_an_i32_as_everywhere_in_rust() {
        assert_eq!(Tensor::new([1, 2, 3], Device::cpu()).unwrap().dtype(), DType::I32);
        assert_eq!(Tensor::new(1, Device::cpu()).unwrap().shape(), [0_usize; 0]);
    }

    #[test]
    fn moving_to_the_device_that_it_is_on_copies_nothing() {
        let x = Tensor::new([1, 2], Device::cpu()).unwrap();
        let same = x.to(Device::cpu()).unwrap();
        let memory =
            |tensor: &Tensor| std::ptr::from_ref(tensor.buffer.span().unwrap().memory()).cast::<u8>();
        assert_eq!(memory(&x), memory(&same));
    }

    #[test]
    fn a_device_that_does_not_exist_is_an_error_of_the_device() {
        let device = Device::parse("cpu:3").unwrap();
        let error = Tensor::new([1], device).unwrap_err();
        assert!(error.to_string().contains("unknown device index 3: `cpu` has 1 device"), "{error}");
        assert!(Tensor::new([1], Device::cpu()).unwrap().to(device).is_err());
    }

    #[test]
    fn a_tensor_without_elements_is_valid() {
        let x = Tensor::new([0_i16; 0], Device::cpu()).unwrap();
        assert!(x.is_empty());
        assert_eq!(x.to_vec::<i16>().unwrap(), [0_i16; 0]);
    }
}
