//! Numbers in place of native handles, and native handles of others.

use std::sync::{Arc, OnceLock};

use device_kernels::{Call, DType, Layout, Unary, kernel_sets};
use device_registry::backend::{
    AllocateOptions, BackendDescriptor, BackendError, DeviceDriver, DeviceProperties, Memory, MemoryInfo,
    OpenedDevice, Span,
};
use device_registry::{Device, backends, device};

use crate::{Test, hostile_backend, refused, victims};

pub(crate) fn tests() -> Vec<Test> {
    vec![
        ("numbers_of_a_safe_backend_are_no_handles", numbers),
        ("handles_of_another_backends_memory_are_not_passed_on", passed_on),
    ]
}

static NUMBERS: BackendDescriptor = BackendDescriptor::new("numbers", || Ok(Box::new(Numbers)));

struct Numbers;

hostile_backend!(Numbers, 1, |_ordinal| Ok(DeviceProperties::new("numbers")), |this, _ordinal| Ok(
    OpenedDevice::new(this, NumbersDevice)
));

struct NumbersDevice;

/// A small span of another backend, whose handle it returns, or none.
struct NumbersMemory(Option<Span>);

impl Memory for NumbersMemory {
    fn native_handle(&self, kind: &str) -> Option<u64> {
        match &self.0 {
            Some(span) => span.memory().native_handle(kind),
            None => Some(0x4141_4141),
        }
    }
}

impl DeviceDriver for NumbersDevice {
    fn native_handle(&self, _kind: &str) -> Option<u64> {
        Some(0x4141_4141_4141)
    }

    fn memory_info(&self) -> Result<MemoryInfo, BackendError> {
        Ok(MemoryInfo::unknown())
    }

    /// The length chooses whose memory it passes on.
    fn allocate(&self, options: &AllocateOptions) -> Result<Arc<dyn Memory>, BackendError> {
        let victims = SPANS.get_or_init(Vec::new);
        Ok(Arc::new(NumbersMemory(victims.get(options.len >> 12).cloned())))
    }
}

/// A few bytes of each other backend.
static SPANS: OnceLock<Vec<Span>> = OnceLock::new();

fn numbers_device() -> Device {
    SPANS.get_or_init(|| victims().iter().filter_map(|victim| victim.allocate(4).unwrap().span()).collect());
    backends().register(&NUMBERS).unwrap();
    device("numbers").unwrap()
}

const KINDS: [&str; 6] = [
    "opencl.cl_mem",
    "opencl.cl_context",
    "opencl.cl_device_id",
    "opencl.cl_command_queue",
    "openreg.address",
    "host.pointer",
];

/// Asserts that a buffer of the device and the device itself have no handles, and that no kernel runs on
/// them.
fn refused_by_all(device: Device, len: usize) {
    let buffer = device.allocate(len).unwrap();
    let out = device.allocate(len).unwrap();
    let span = buffer.span().expect("it has bytes");
    for kind in KINDS {
        refused(device.native_handle(kind), "does not declare native handles");
        refused(span.native_handle(kind), "does not declare native handles");
    }
    let layout = Layout::contiguous([4]).unwrap();
    let call = Call::new(Unary::Neg, &[(DType::F32, layout).into()], &[(DType::F32, layout).into()]).unwrap();
    for name in kernel_sets().names() {
        let set = kernel_sets().load(name).unwrap();
        let _ = set.supports(device, &call);
        let stream = device.create_stream().unwrap();
        let call = call.clone();
        let launched = stream.launch(&[&buffer, &out], move |launch| set.launch(&call, launch));
        let outcome = launched.and_then(|()| stream.synchronize());
        // Each kernel set says it in its own words.
        refused(outcome, "numbers:0");
    }
}

fn numbers() {
    // Beyond the last of the others.
    refused_by_all(numbers_device(), 100 << 12);
}

fn passed_on() {
    let device = numbers_device();
    for other in 0..SPANS.get().expect("they are there").len() {
        refused_by_all(device, other << 12 | 64);
    }
}
