//! The backend `cuda` in a file.

device_plugin::export!(device_cuda::CUDA);
