//! A kernel set of four kernels for `openreg`, with which most of a program's operations fall back: the tests
//! that count what runs where have both.

use device_host_kernels::HostKernels;
use device_kernels::{Binary, Call, DType, KERNEL_SETS, KernelSet, KernelSetDescriptor, Operator};
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
    fn supports(&self, _device: Device, call: &Call) -> bool {
        let four = [Binary::Add, Binary::Sub, Binary::Mul, Binary::Div].map(Operator::from);
        let arrays =
            |call: &Call| call.arrays().all(|(dtype, layout)| dtype == DType::F32 && layout.is_contiguous());
        four.contains(&call.operator()) && call.arrays().count() == 3 && arrays(call)
    }

    fn launch(&self, call: &Call, launch: &Launch<'_>) -> Result<(), BackendError> {
        self.0.launch(call, launch)
    }
}
