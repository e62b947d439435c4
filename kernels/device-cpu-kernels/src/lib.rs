#![doc = include_str!("../README.md")]
#![cfg_attr(docsrs, feature(doc_cfg))]
#![forbid(unsafe_code)]

use device_host_kernels::HostKernels;
use device_kernels::{KERNEL_SETS, KernelSet, KernelSetDescriptor};
use device_registry::backend::{HostMemory, LoadFailure};

device_kernels::entry_points! {
    /// The kernels of `cpu`.
    #[distributed_slice(KERNEL_SETS)]
    pub static CPU_KERNELS: KernelSetDescriptor = KernelSetDescriptor::new("cpu", load);
}

fn load() -> Result<Box<dyn KernelSet>, LoadFailure> {
    Ok(Box::new(HostKernels::new(|span| span.memory_as::<HostMemory>()).of_the_host()))
}
