//! The backend `opencl` in a file.

device_plugin::export!(device_opencl::OPENCL);
