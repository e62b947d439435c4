//! `openreg` and its kernels in one file.

device_plugin::export!(
    device_openreg::OPENREG;
    device_kernels_plugin::KernelSetInFile(&device_openreg_kernels::OPENREG_KERNELS),
);
