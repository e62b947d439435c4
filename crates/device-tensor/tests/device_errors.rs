//! A tensor on a device that can be written to and not read.

use std::sync::{Arc, LazyLock};

use device_registry::backend::{
    AllocateOptions, Backend, BackendDescriptor, BackendError, DeviceDriver, DeviceProperties, Memory,
    MemoryInfo, OpenedDevice, Span,
};
use device_registry::{Device, backends, device};
use device_tensor::{Element, Tensor};

/// The only device of its backend, which has no index here.
static SINK: LazyLock<Device> = LazyLock::new(|| {
    static DESCRIPTOR: BackendDescriptor = BackendDescriptor::new("sink", || Ok(Box::new(Sink)));
    backends().register(&DESCRIPTOR).unwrap();
    device("sink").unwrap()
});

struct Sink;

impl Backend for Sink {
    fn device_count(&self) -> Result<usize, BackendError> {
        Ok(1)
    }

    fn properties(&self, _ordinal: usize) -> Result<DeviceProperties, BackendError> {
        Ok(DeviceProperties::new("sink"))
    }

    fn open(&self, _ordinal: usize) -> Result<OpenedDevice, BackendError> {
        Ok(OpenedDevice::new(self, Self))
    }
}

impl Memory for Sink {}

impl DeviceDriver for Sink {
    fn memory_info(&self) -> Result<MemoryInfo, BackendError> {
        Ok(MemoryInfo::unknown())
    }

    fn allocate(&self, _options: &AllocateOptions) -> Result<Arc<dyn Memory>, BackendError> {
        Ok(Arc::new(Self))
    }

    fn write(&self, _destination: &Span, _source: &[u8]) -> Result<(), BackendError> {
        Ok(())
    }

    fn read(&self, _source: &Span, _destination: &mut [u8]) -> Result<(), BackendError> {
        Err(BackendError::other("the bus timed out").with_source("the plug is out"))
    }

    fn copy(&self, source: &Span, _destination: &Span) -> Result<(), BackendError> {
        self.read(source, &mut [])
    }
}

fn on_sink<T: Element>(elements: [T; 2]) -> Tensor {
    Tensor::new(elements, *SINK).unwrap()
}

#[test]
fn an_error_of_the_device_is_printed_in_place_of_the_elements_and_always_with_the_dtype() {
    let printed = |dtype| {
        let error = "`sink:0`: read: the bus timed out";
        format!("tensor(<not readable: {error}>, device='sink:0',\n       dtype={dtype})")
    };
    assert_eq!(on_sink([0.5, 2.0]).to_string(), printed("f64"));
    assert_eq!(on_sink([1, 2]).to_string(), printed("i32"));
    assert_eq!(on_sink([true, false]).to_string(), printed("bool"));
}

#[test]
fn an_error_that_main_returns_prints_its_causes() {
    let error = on_sink([1, 2]).to_vec::<i32>().unwrap_err();
    assert_eq!(format!("{error:?}"), "`sink:0`: read: the bus timed out\ncaused by: the plug is out");
}

#[test]
fn moving_to_the_same_device_by_another_name_copies_nothing() {
    let x = on_sink([1, 2]);
    assert_ne!(x.device(), *SINK, "one has an index");
    assert_eq!(x.to(*SINK).unwrap().device(), x.device());
    assert!(x.to(Device::cpu()).is_err());
}

#[cfg(feature = "dlpack")]
#[test]
fn dlpack_of_memory_of_a_device_is_refused_with_the_way_to_the_host() {
    let error = on_sink([1, 2]).to_dlpack().err().unwrap().to_string();
    assert_eq!(
        error,
        "DLPack: expected memory of the host, found a tensor on `sink:0`: copy it with `tensor.to(Device::cpu())`"
    );
}
