//! DLPack: what a producer may get wrong, what is shared, and when it is released.

#![cfg(feature = "dlpack")]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use device_registry::Device;
use device_tensor::dlpark::allocation::dynamic;
use device_tensor::dlpark::ffi::{
    DLDataType, DLDataTypeCode, DLDevice, DLDeviceType, DLManagedTensor, DLManagedTensorVersioned,
};
use device_tensor::dlpark::metadata::Dynamic;
use device_tensor::dlpark::{DlpackFlags, Managed, ManagedTensorBase, TryFromDlpack, versioned};
use device_tensor::ndarray::{ArrayD, ArrayViewD, IxDyn, array};
use device_tensor::{Data, Element, Tensor, TensorError, bf16, f16};

/// Counts how often it was released.
struct Owner {
    elements: Vec<i32>,
    released: Arc<AtomicUsize>,
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.released.fetch_add(1, Ordering::SeqCst);
    }
}

/// A DLPack tensor of 0, 1, 2 and so on, which `change` makes a bad one, and how often it was released.
fn made<M: ManagedTensorBase>(
    shape: &[i64],
    strides: &[i64],
    change: impl FnOnce(&mut dynamic::Initialized<M>),
) -> (Managed<M>, Arc<AtomicUsize>) {
    let released = Arc::new(AtomicUsize::new(0));
    let mut owner = Box::new(Owner { elements: (0..24).collect(), released: Arc::clone(&released) });
    let start = owner.elements.as_mut_ptr();
    // SAFETY: nothing is borrowed.
    let prepared = unsafe { Dynamic::new(shape, strides).prepare_unchecked_as::<M>() };
    let mut tensor = prepared.unwrap().initialize(owner);
    tensor.set_data(start.cast()).set_device(DLDevice::CPU).set_dtype(DLDataType::I32);
    change(&mut tensor);
    // SAFETY: its mistake is the subject of the test, which reads nothing if the tensor is refused.
    (unsafe { tensor.finish() }, released)
}

fn versioned(
    shape: &[i64],
    strides: &[i64],
    change: impl FnOnce(&mut dynamic::Initialized<DLManagedTensorVersioned>),
) -> (versioned::Dlpack, Arc<AtomicUsize>) {
    made(shape, strides, change)
}

/// Imports a tensor, whose elements are there if the import does not refuse it.
fn import<M: ManagedTensorBase + 'static>(tensor: Managed<M>) -> Result<Tensor, TensorError> {
    // SAFETY: `made` owns 24 elements, which nothing else uses.
    unsafe { Tensor::from_dlpack(tensor) }
}

/// The address of a tensor's first element.
fn address(tensor: &Tensor) -> usize {
    let span = tensor.buffer().span().unwrap();
    let (memory, range) = span.on_host().unwrap();
    memory.as_ptr().addr().get() + range.start
}

fn count(counter: &AtomicUsize) -> usize {
    counter.load(Ordering::SeqCst)
}

#[test]
fn a_tensor_that_contradicts_itself_is_an_error_and_is_released() {
    let huge = i64::MAX / 2;
    let cases: [(&str, (versioned::Dlpack, Arc<AtomicUsize>)); 10] = [
        (
            "null",
            versioned(&[2], &[1], |tensor| {
                tensor.set_data(std::ptr::null_mut());
            }),
        ),
        ("shape dimension 1 is negative: -3", versioned(&[2, -3], &[3, 1], |_| ())),
        ("ndim is negative: -1", versioned(&[2], &[1], |tensor| tensor.tensor_mut().ndim = -1)),
        ("overflows", versioned(&[huge, huge], &[1, 1], |_| ())),
        ("more bytes than can be addressed", versioned(&[0, i64::MAX, 4], &[1, 1, 1], |_| ())),
        ("lead further than can be addressed", versioned(&[2, 2], &[i64::MAX, 1], |_| ())),
        ("lead further than can be addressed", versioned(&[2, 2], &[i64::MIN, i64::MIN], |_| ())),
        (
            "overflows address space",
            versioned(&[2], &[1], |tensor| {
                tensor.set_byte_offset(u64::MAX);
            }),
        ),
        (
            "shape pointer is null",
            versioned(&[2], &[1], |tensor| tensor.tensor_mut().shape = std::ptr::null_mut()),
        ),
        (
            "requires explicit strides",
            versioned(&[2], &[1], |tensor| {
                tensor.tensor_mut().strides = std::ptr::null_mut();
            }),
        ),
    ];
    for (expected, (tensor, released)) in cases {
        let error = import(tensor).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
        assert_eq!(count(&released), 1, "{error}");
    }
}

#[test]
fn elements_of_other_types_are_refused_by_name() {
    let other = [
        (DLDataType::U16, "found uint (code 1) of 16 bits in 1 lanes"),
        (DLDataType::C64, "found complex (code 5) of 64 bits in 1 lanes"),
        (DLDataType::F4E2M1FN, "found another type (code 17) of 4 bits in 1 lanes"),
        (DLDataType::new(DLDataTypeCode::FLOAT, 32, 4), "found float (code 2) of 32 bits in 4 lanes"),
        (DLDataType::new(DLDataTypeCode::BOOL, 1, 1), "found bool (code 6) of 1 bits in 1 lanes"),
        (DLDataType::new(DLDataTypeCode::INT, 32, 0), "lane count must be greater than zero"),
    ];
    for (dtype, expected) in other {
        let (tensor, released) = versioned(&[2], &[1], |tensor| {
            tensor.set_dtype(dtype);
        });
        let error = import(tensor).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
        assert_eq!(count(&released), 1);
    }
}

#[test]
fn memory_of_other_devices_is_refused_and_pinned_memory_is_the_hosts() {
    for other in [DLDevice::cuda(1), DLDevice { device_type: DLDeviceType::EXTDEV, device_id: 0 }] {
        let (tensor, _) = versioned(&[2], &[1], |tensor| {
            tensor.set_device(other);
        });
        let error = import(tensor).unwrap_err().to_string();
        assert!(error.contains("expected memory of the host (DLPack's device 1), found device"), "{error}");
    }
    let pinned = DLDevice { device_type: DLDeviceType::CUDAHOST, device_id: 0 };
    let (tensor, _) = versioned(&[2], &[1], |tensor| {
        tensor.set_device(pinned);
    });
    assert_eq!(import(tensor).unwrap().to_vec::<i32>().unwrap(), [0, 1]);
}

#[test]
fn elements_in_order_are_shared_and_released_once() {
    fn check<M: ManagedTensorBase + 'static>() {
        // The stride of a dimension of one element may be anything.
        let (tensor, released) = made::<M>(&[2, 1, 3], &[3, -7, 1], |tensor| {
            tensor.set_byte_offset(8);
        });
        // SAFETY: the tensor is not changed meanwhile.
        let first = unsafe { tensor.tensor() }.data.addr() + 8;
        let x = import(tensor).unwrap();
        assert_eq!((address(&x), x.shape()), (first, &[2, 1, 3][..]));
        assert_eq!(x.to_vec::<i32>().unwrap(), [2, 3, 4, 5, 6, 7]);
        let again = x.clone();
        drop(x);
        assert_eq!(count(&released), 0);
        std::thread::spawn(move || drop(again)).join().unwrap();
        assert_eq!(count(&released), 1);
    }
    check::<DLManagedTensorVersioned>();
    check::<DLManagedTensor>();
}

#[test]
fn elements_in_another_order_are_copied() {
    type Case = (&'static [i64], &'static [i64], u64, &'static [i32]);
    let cases: [Case; 5] = [
        (&[2, 3], &[1, 2], 0, &[0, 2, 4, 1, 3, 5]),
        (&[3], &[-2], 16, &[4, 2, 0]),
        (&[2, 2], &[0, 1], 4, &[1, 2, 1, 2]),
        (&[2, 2, 2], &[12, -1, 3], 4, &[1, 4, 0, 3, 13, 16, 12, 15]),
        (&[1, 3, 1], &[i64::MAX, 7, i64::MIN], 0, &[0, 7, 14]),
    ];
    for (shape, strides, offset, expected) in cases {
        let (tensor, released) = versioned(shape, strides, |tensor| {
            tensor.set_byte_offset(offset);
        });
        let x = import(tensor).unwrap();
        assert_eq!((x.to_vec::<i32>().unwrap(), count(&released)), (expected.to_vec(), 1), "{strides:?}");
    }
}

#[test]
fn memory_that_must_not_be_written_is_copied() {
    let read_only = |tensor: &mut dynamic::Initialized<_>| {
        tensor.set_flags(DlpackFlags::READ_ONLY).unwrap();
    };
    let (tensor, released) = versioned(&[2, 2], &[2, 1], read_only);
    // SAFETY: the tensor is not changed meanwhile.
    let first = unsafe { tensor.tensor() }.data.addr();
    let x = import(tensor).unwrap();
    assert_ne!(address(&x), first);
    assert_eq!((x.to_vec::<i32>().unwrap(), count(&released)), (vec![0, 1, 2, 3], 1));
}

#[test]
fn tensors_without_dimensions_or_elements_are_valid() {
    let (tensor, released) = versioned(&[], &[], |_| ());
    assert_eq!(import(tensor).unwrap().item::<i32>().unwrap(), 0);
    assert_eq!(count(&released), 1);
    let null = |tensor: &mut dynamic::Initialized<_>| {
        tensor.set_data(std::ptr::null_mut());
    };
    let (tensor, released) = versioned(&[2, 0], &[0, 1], null);
    let x = import(tensor).unwrap();
    assert_eq!((x.shape(), count(&released)), (&[2, 0][..], 1));
    assert_eq!(import(x.to_dlpack().unwrap()).unwrap().shape(), [2, 0]);
}

#[test]
fn every_dtype_makes_the_round_trip_without_a_copy() {
    fn check<T: Element + Data>(elements: [T; 2]) {
        let x = Tensor::new(elements, Device::cpu()).unwrap();
        let first = address(&x);
        let again = import(x.into_dlpack().unwrap()).unwrap();
        assert_eq!((again.dtype(), address(&again)), (T::DTYPE, first));
        assert_eq!(again.to_vec::<T>().unwrap(), elements);
    }
    check([true, false]);
    check([1_u8, 255]);
    check([-1_i8, 2]);
    check([-1_i16, 2]);
    check([-1_i32, 2]);
    check([i64::MIN, 2]);
    check([0.5_f32, 2.]);
    check([0.5_f64, 2.]);
    check([f16::ONE, f16::MAX]);
    check([bf16::ONE, bf16::MAX]);
}

#[test]
fn an_array_reads_a_tensor_where_it_is_and_keeps_its_memory() {
    let x = Tensor::new([[1.5_f32, 2.], [3., 4.]], Device::cpu()).unwrap();
    let (first, shared) = (address(&x), x.to_dlpack().unwrap());
    assert_eq!(shared.flags(), DlpackFlags::READ_ONLY);
    drop(x);
    // SAFETY: no work writes to the tensor.
    let view = unsafe { ArrayViewD::<f32>::try_from_dlpack(&shared, ()) }.unwrap();
    assert_eq!((view.as_ptr().addr(), view.view()), (first, array![[1.5, 2.], [3., 4.]].into_dyn().view()));
}

#[test]
fn an_array_becomes_a_tensor_where_it_is() {
    let array = ArrayD::from_shape_fn(IxDyn(&[2, 3]), |at| (10 * at[0] + at[1]) as i64);
    let first = array.as_ptr().addr();
    let tensor: dynamic::Initialized<DLManagedTensorVersioned> = Box::new(array).try_into().unwrap();
    // SAFETY: the conversion has set all fields by the array, which the DLPack tensor owns.
    let x = import(unsafe { tensor.finish() }).unwrap();
    assert_eq!(address(&x), first);
    assert_eq!(x.to_vec::<i64>().unwrap(), [0, 1, 2, 10, 11, 12]);
}
