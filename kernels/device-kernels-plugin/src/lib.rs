#![doc = include_str!("../README.md")]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod abi;
mod call;
mod export;
#[cfg(all(test, unix))]
mod header;
#[cfg(feature = "load")]
mod load;

pub use export::KernelSetInFile;

#[cfg(feature = "load")]
device_kernels::entry_points! {
    /// Kernel sets in files: `device_plugin::Plugins::install` finds them beside backends.
    #[distributed_slice(device_plugin::group::FILE_GROUPS)]
    pub static KERNELS_IN_FILES: device_plugin::group::FileGroupDescriptor =
        device_plugin::group::FileGroupDescriptor::new("device_kernels", || Ok(Box::new(load::KernelsInFiles)));
}
