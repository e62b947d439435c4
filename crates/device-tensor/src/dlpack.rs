//! Tensors from and to DLPack, without a copy where the memory is the host's.

use std::ptr::{self, NonNull};

use device_registry::backend::HostMemory;
use device_registry::{Buffer, HostBuffer};
use dlpark::ffi::{DLDataType, DLDataTypeCode, DLDevice, DLDeviceType};
use dlpark::metadata::Dynamic;
use dlpark::{DlpackFlags, Managed, ManagedTensorBase, versioned};

use crate::{DType, Tensor, TensorError, data, shape};

impl Tensor {
    /// A tensor on `cpu` of the elements of a DLPack tensor of the host.
    ///
    /// It shares their memory if they lie next to each other in the order of the shape, and releases it when
    /// the last user of the tensor's [buffer](Self::buffer) is dropped, on any thread. Elements in another
    /// order, and those that the producer has marked as read-only, are copied, and the memory is released at
    /// once: a kernel may write to any tensor.
    ///
    /// ```
    /// use device_tensor::Tensor;
    /// use device_tensor::dlpark::allocation::dynamic;
    /// use device_tensor::dlpark::{ffi::DLManagedTensorVersioned, versioned};
    /// use device_tensor::ndarray::array;
    ///
    /// let array = Box::new(array![[1_i32, 2], [3, 4]]);
    /// let made: dynamic::Initialized<DLManagedTensorVersioned> = array.try_into()?;
    /// // SAFETY: the conversion has set all fields by the array, which the DLPack tensor owns.
    /// let made: versioned::Dlpack = unsafe { made.finish() };
    /// // SAFETY: nothing else has the array.
    /// let x = unsafe { Tensor::from_dlpack(made) }?;
    /// assert_eq!(x.to_string(), "tensor([[1, 2],\n        [3, 4]])");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// - [`TensorError::Dlpack`] if the DLPack tensor is of another device, has elements of a type that no
    ///   [`DType`] is, or contradicts itself.
    /// - [`TensorError::TooLarge`], [`TensorError::HostMemory`] and [`TensorError::Device`].
    ///
    /// # Safety
    ///
    /// The pointer of the DLPack tensor leads to initialised elements, as many as its shape and strides say.
    /// They stay there until its deleter runs. Meanwhile other code uses them only as [*Access by
    /// pointers*](HostMemory#access-by-pointers) says.
    pub unsafe fn from_dlpack<M>(source: Managed<M>) -> Result<Self, TensorError>
    where
        M: ManagedTensorBase + 'static,
    {
        let view = source.validate().map_err(refused)?;
        let device = view.device();
        if !matches!(device.device_type, DLDeviceType::CPU | DLDeviceType::CUDAHOST | DLDeviceType::ROCMHOST)
        {
            return Err(refused(format_args!(
                "expected memory of the host (DLPack's device 1), found device {} of type {}: copy it to the host \
                 first",
                device.device_id, device.device_type.0
            )));
        }
        let dtype = dtype_of(view.dtype())?;
        let shape = view.shape().iter().map(|&len| usize::try_from(len));
        let shape: Vec<usize> = shape.collect::<Result<_, _>>().map_err(refused)?;
        let len = shape::len(&shape, dtype)?;
        if len == 0 {
            return Self::from_buffer(Buffer::from_host_memory(HostBuffer::from([]).into())?, shape, dtype);
        }
        let strides = view.strides_or_compact().map_err(refused)?;
        // SAFETY: the caller promises that the pointer leads to the elements.
        let start = unsafe { view.offset_bytes_ptr() }.map_err(refused)?;
        let start = NonNull::new(start.cast_mut()).ok_or_else(|| refused("the pointer is null"))?;
        let bytes = len * dtype.size();
        let is_shared = is_dense(&shape, &strides) && !source.flags().contains(DlpackFlags::READ_ONLY);
        let memory = if is_shared {
            // SAFETY: the caller promises that there are `len` initialised elements until the deleter runs,
            // which is when the owner is dropped, and who else uses them. `shape::len` has checked the bytes.
            unsafe { HostMemory::from_raw_parts(start, bytes, source) }
        } else {
            // SAFETY: the caller promises that there are elements where shape and strides say.
            let copy = unsafe { copied(start, &shape, &strides, dtype, len) }?;
            drop(source);
            HostBuffer::from(copy).into()
        };
        Self::from_buffer(Buffer::from_host_memory(memory)?, shape, dtype)
    }

    /// A DLPack tensor that shares the memory, for consumers that only read: it is marked as read-only, as
    /// tensors do not change. It keeps the memory until it is dropped. Waits for all work of the device.
    ///
    /// A consumer does not know of streams. Work that writes to the tensor's [buffer](Self::buffer) is in
    /// order with it only as [*Access by pointers*](HostMemory#access-by-pointers) says. To read through the
    /// pointer is `unsafe`, so this is not.
    ///
    /// ```
    /// use device_registry::Device;
    /// use device_tensor::Tensor;
    /// use device_tensor::dlpark::TryFromDlpack;
    /// use device_tensor::ndarray::{ArrayViewD, array};
    ///
    /// let x = Tensor::new([[1, 2], [3, 4]], Device::cpu())?;
    /// let shared = x.to_dlpack()?;
    /// // SAFETY: no work writes to the tensor.
    /// let view: ArrayViewD<i32> = unsafe { TryFromDlpack::try_from_dlpack(&shared, ()) }?;
    /// assert_eq!(view, array![[1, 2], [3, 4]].into_dyn());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`TensorError::Dlpack`] if the memory is not the host's: [`to`](Self::to) copies the tensor to `cpu`.
    /// [`TensorError::Device`] if work of the device has failed, or it is lost or closed.
    pub fn to_dlpack(&self) -> Result<versioned::Dlpack, TensorError> {
        self.export(DlpackFlags::READ_ONLY)
    }

    /// Like [`to_dlpack`](Self::to_dlpack), for a consumer that may write. Clones of the tensor share the
    /// memory, and change with it.
    ///
    /// # Errors
    ///
    /// The errors of [`to_dlpack`](Self::to_dlpack).
    pub fn into_dlpack(self) -> Result<versioned::Dlpack, TensorError> {
        self.export(DlpackFlags::empty())
    }

    fn export(&self, flags: DlpackFlags) -> Result<versioned::Dlpack, TensorError> {
        self.device().synchronize()?;
        let span = self.buffer().span();
        let start = match &span {
            None => ptr::null_mut(),
            Some(span) => {
                let (memory, range) = span.on_host().map_err(|_| {
                    refused(format_args!(
                        "expected memory of the host, found a tensor on `{}`: copy it with \
                         `tensor.to(Device::cpu())`",
                        self.device()
                    ))
                })?;
                memory.as_ptr().as_ptr().wrapping_add(range.start)
            }
        };
        let metadata = Dynamic::compact(self.shape().to_vec());
        let mut made = metadata.initialize(Box::new(span)).map_err(refused)?;
        made.set_data(start.cast()).set_device(DLDevice::CPU).set_dtype(descriptor(self.dtype()));
        made.set_flags(flags).map_err(refused)?;
        // SAFETY: the span keeps the memory, in which the elements lie in the order of the shape. The strides
        // are set, and the flags do not say that it is a copy.
        Ok(unsafe { made.finish() })
    }
}

fn refused(reason: impl ToString) -> TensorError {
    TensorError::Dlpack { reason: reason.to_string() }
}

/// DLPack's name of a dtype.
fn descriptor(dtype: DType) -> DLDataType {
    match dtype {
        DType::Bool => DLDataType::BOOL,
        DType::U8 => DLDataType::U8,
        DType::I8 => DLDataType::I8,
        DType::I16 => DLDataType::I16,
        DType::I32 => DLDataType::I32,
        DType::I64 => DLDataType::I64,
        DType::F16 => DLDataType::F16,
        DType::BF16 => DLDataType::BF16,
        DType::F32 => DLDataType::F32,
        DType::F64 => DLDataType::F64,
    }
}

fn dtype_of(found: DLDataType) -> Result<DType, TensorError> {
    let known = DType::ALL.iter().find(|dtype| descriptor(**dtype).matches(found));
    known.copied().ok_or_else(|| {
        let kind = match found.code {
            DLDataTypeCode::INT => "int",
            DLDataTypeCode::UINT => "uint",
            DLDataTypeCode::FLOAT => "float",
            DLDataTypeCode::BFLOAT => "bfloat",
            DLDataTypeCode::COMPLEX => "complex",
            DLDataTypeCode::BOOL => "bool",
            _ => "another type",
        };
        let names: Vec<_> = DType::ALL.iter().map(DType::to_string).collect();
        refused(format_args!(
            "expected elements of one of the types {}, found {kind} (code {}) of {} bits in {} lanes",
            names.join(", "),
            found.code.0,
            found.bits,
            found.lanes
        ))
    })
}

/// Whether the elements lie next to each other in the order of the shape. The stride of a dimension of one
/// element is never used, and may be anything.
fn is_dense(shape: &[usize], strides: &[i64]) -> bool {
    let mut expected = 1;
    shape.iter().zip(strides).rev().all(|(&len, &stride)| {
        let fits = len == 1 || usize::try_from(stride) == Ok(expected);
        expected *= len;
        fits
    })
}

/// The bytes of `len` elements in the order of the shape.
///
/// # Safety
///
/// There are initialised elements where the shape, which has `len` elements, and the strides say.
unsafe fn copied(
    start: NonNull<u8>,
    shape: &[usize],
    strides: &[i64],
    dtype: DType,
    len: usize,
) -> Result<Vec<u8>, TensorError> {
    let size = dtype.size();
    // The bytes from one element to the next in each dimension that has a next one.
    let far = || refused(format_args!("the strides {strides:?} lead further than can be addressed"));
    let mut steps = Vec::with_capacity(shape.len());
    let mut reach = 0_i128;
    for (&len, &stride) in shape.iter().zip(strides) {
        let step = if len > 1 { i128::from(stride) * size as i128 } else { 0 };
        reach =
            step.abs().checked_mul(len as i128 - 1).and_then(|far| reach.checked_add(far)).ok_or_else(far)?;
        if reach > isize::MAX as i128 {
            return Err(far());
        }
        steps.push(step as isize);
    }
    let mut bytes: Vec<u8> = data::reserve(len * size)?;
    let mut index = vec![0; shape.len()];
    let mut offset = 0_isize;
    for _ in 0..len {
        // SAFETY: the caller promises an element there, and the bytes of an element are initialised.
        bytes.extend_from_slice(unsafe {
            std::slice::from_raw_parts(start.as_ptr().wrapping_offset(offset), size)
        });
        for axis in (0..shape.len()).rev() {
            index[axis] += 1;
            if index[axis] < shape[axis] {
                offset += steps[axis];
                break;
            }
            index[axis] = 0;
            offset -= steps[axis] * (shape[axis] as isize - 1);
        }
    }
    Ok(bytes)
}
