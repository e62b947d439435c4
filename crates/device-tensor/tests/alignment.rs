//! Tensors on a device that copies whole blocks of bytes, each much larger than an element.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};

use device_registry::backend::{
    AllocateOptions, Backend, BackendDescriptor, BackendError, DeviceDriver, DeviceProperties, HostMemory,
    Memory, MemoryInfo, OpenedDevice, Span, open_windows,
};
use device_registry::{Device, backends, device};
use device_tensor::{Element, Tensor, bf16, f16};

/// Copies are multiples of it, except at the end of a buffer.
const BLOCK: usize = 64;

/// Each device counts the bytes that are read from it, so that each test has one of its own.
static DEVICES: LazyLock<[Device; 2]> = LazyLock::new(|| {
    static DESCRIPTOR: BackendDescriptor = BackendDescriptor::new("blocks", || Ok(Box::new(Blocks)));
    backends().register(&DESCRIPTOR).unwrap();
    ["blocks:0", "blocks:1"].map(|name| device(name).unwrap())
});

static READ: [AtomicUsize; 2] = [const { AtomicUsize::new(0) }; 2];

struct Blocks;

impl Backend for Blocks {
    fn device_count(&self) -> Result<usize, BackendError> {
        Ok(READ.len())
    }

    fn properties(&self, _ordinal: usize) -> Result<DeviceProperties, BackendError> {
        Ok(DeviceProperties::new("blocks").with_copy_alignment(BLOCK))
    }

    fn open(&self, ordinal: usize) -> Result<OpenedDevice, BackendError> {
        Ok(OpenedDevice::new(self, BlocksDevice { ordinal }))
    }
}

struct BlocksDevice {
    ordinal: usize,
}

struct Bytes(HostMemory);

impl Memory for Bytes {}

// The core refuses ranges that are not aligned as the properties say.
impl DeviceDriver for BlocksDevice {
    fn memory_info(&self) -> Result<MemoryInfo, BackendError> {
        Ok(MemoryInfo::unknown())
    }

    fn allocate(&self, options: &AllocateOptions) -> Result<Arc<dyn Memory>, BackendError> {
        Ok(Arc::new(Bytes(HostMemory::zeroed(options.len)?)))
    }

    fn write(&self, destination: &Span, source: &[u8]) -> Result<(), BackendError> {
        let memory: &Bytes = destination.memory_as()?;
        memory.0.write(destination.range())?.copy_from_slice(source);
        Ok(())
    }

    fn read(&self, source: &Span, destination: &mut [u8]) -> Result<(), BackendError> {
        READ[self.ordinal].fetch_add(destination.len(), Ordering::Relaxed);
        let memory: &Bytes = source.memory_as()?;
        destination.copy_from_slice(&memory.0.read(source.range())?);
        Ok(())
    }

    fn copy(&self, source: &Span, destination: &Span) -> Result<(), BackendError> {
        let (from, to): (&Bytes, &Bytes) = (source.memory_as()?, destination.memory_as()?);
        let ([from], [mut to]) = open_windows([(&from.0, source.range())], [(&to.0, destination.range())])?;
        to.copy_from_slice(&from);
        Ok(())
    }
}

/// The elements that a tensor prints, without what it says of its device and dtype.
fn printed(tensor: &Tensor) -> String {
    let text = tensor.to_string();
    let end = text.rfind(']').unwrap_or_else(|| panic!("it prints no elements: {text}"));
    text[..=end].to_owned()
}

fn prints_as_on_the_cpu<T: Element>(element: fn(usize) -> T) {
    // The edges of a vector, and the corners of a matrix whose rows begin anywhere in a block.
    for shape in [vec![1001], vec![1003], vec![4096], vec![7, 201], vec![3, 5, 333]] {
        let elements = (0..shape.iter().product()).map(element).collect();
        let array = device_tensor::ndarray::ArrayD::from_shape_vec(shape.clone(), elements).unwrap();
        let here = Tensor::new(array, Device::cpu()).unwrap();
        let there = here.to(DEVICES[0]).unwrap();
        assert_eq!(printed(&there), printed(&here), "{shape:?} of {}", T::DTYPE);
    }
}

#[test]
fn elements_that_are_smaller_than_what_the_device_copies_are_printed() {
    prints_as_on_the_cpu(|at| at % 3 == 0);
    prints_as_on_the_cpu(|at| at as u8);
    prints_as_on_the_cpu(|at| at as i8);
    prints_as_on_the_cpu(|at| at as i16);
    prints_as_on_the_cpu(|at| at as i32);
    prints_as_on_the_cpu(|at| at as i64);
    prints_as_on_the_cpu(|at| f16::from_f64(at as f64));
    prints_as_on_the_cpu(|at| bf16::from_f64(at as f64));
    prints_as_on_the_cpu(|at| at as f32 / 4.0);
    prints_as_on_the_cpu(|at| at as f64 / 4.0);
}

#[test]
fn only_the_blocks_of_the_elements_that_are_shown_are_read() {
    let tensor = Tensor::new(vec![7_u8; 1 << 20], DEVICES[1]).unwrap();
    assert_eq!(printed(&tensor), "tensor([7, 7, 7,  ..., 7, 7, 7]");
    assert_eq!(READ[1].load(Ordering::Relaxed), 2 * BLOCK, "one at the start and one at the end");
}
