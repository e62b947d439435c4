//! A kernel set of four kernels for `openreg`, with which most of a program's operations fall back: the tests
//! that count what runs where have both.

use device_host_kernels::HostKernels;
use device_kernels::{Call, Coverage, DType, KERNEL_SETS, KernelSet, KernelSetDescriptor};
use device_openreg::OpenRegMemory;
use device_registry::Device;
use device_registry::backend::{BackendError, Launch, LoadFailure};

device_kernels::entry_points! {
    /// Sum, difference, product and quotient of `f32` without gaps.
    #[distributed_slice(KERNEL_SETS)]
    pub static FEW_KERNELS: KernelSetDescriptor = KernelSetDescriptor::new("openreg", load);
}

fn load() -> Result<Box<dyn KernelSet>, LoadFailure> {
    Ok(Box::new(Few(HostKernels::new(|span| span.memory_as::<OpenRegMemory>()?.bytes()))))
}

struct Few(HostKernels);

impl KernelSet for Few {
    fn coverage(&self, _device: Device) -> Vec<Coverage> {
        let row = |name| Coverage::of(name).dtypes([DType::F32]).contiguous().arrays_only();
        ["add", "sub", "mul", "div"].map(row).into()
    }

    fn launch_name(&self, call: &Call) -> Option<&'static str> {
        (call.operator().name() == "div").then_some("div of a few")
    }

    fn launch(&self, call: &Call, launch: &Launch<'_>) -> Result<(), BackendError> {
        self.0.launch(call, launch)
    }
}
