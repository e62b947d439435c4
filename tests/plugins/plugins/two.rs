//! The backends `openreg` and `cuda` in one file.

device_plugin::export!(device_openreg::OPENREG, device_cuda::CUDA);
