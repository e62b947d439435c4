#![doc = include_str!("../README.md")]
#![cfg_attr(docsrs, feature(doc_cfg))]
#![forbid(unsafe_code)]

use device_host_kernels::HostKernels;
use device_kernels::{KERNEL_SETS, KernelSet, KernelSetDescriptor};
use device_openreg::OpenRegMemory;
use device_registry::backend::LoadFailure;

device_kernels::entry_points! {
    /// The kernels of `openreg`.
    #[distributed_slice(KERNEL_SETS)]
    pub static OPENREG_KERNELS: KernelSetDescriptor = KernelSetDescriptor::new("openreg", load);
}

fn load() -> Result<Box<dyn KernelSet>, LoadFailure> {
    Ok(Box::new(HostKernels::new(|span| span.memory_as::<OpenRegMemory>()?.bytes())))
}
