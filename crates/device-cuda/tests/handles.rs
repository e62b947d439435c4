//! Native handles by their kinds.

use std::ptr;

use device_conformance::{device_or_skip, process};
use device_cuda::cudarc::driver::sys::{CUdevice, CUresult, cuDeviceGet};
use device_cuda::{CudaDevice, CudaMemory, CudaStream};
use device_registry::backend::BackendErrorKind;

mod child;

device_registry::autoload!();

/// On the GPU of this machine, and on the simulated driver.
#[test]
fn each_kind_is_the_handle_of_its_type() {
    const TEST: &str = "each_kind_is_the_handle_of_its_type";
    if let Some(device) = device_or_skip("cuda") {
        let (stream, buffer) = (device.create_stream().unwrap(), device.allocate(4096).unwrap());
        let part = buffer.slice(256..512).unwrap();
        let launched = stream.launch(&[&part], |launch| {
            let span = launch.spans()[0].as_ref().expect("the part has bytes");
            let pointer = span.memory_as::<CudaMemory>()?.pointer();
            assert_eq!(
                span.native_handle("cuda.CUdeviceptr")?,
                pointer,
                "it is the handle of the whole memory"
            );
            let typed = launch.stream_as::<CudaStream>()?.stream();
            assert_eq!(launch.native_stream("cuda.CUstream")?, typed.addr() as u64);
            let typed = launch.driver_as::<CudaDevice>()?;
            let native = launch.native_device();
            assert_eq!(native.handle("cuda.CUcontext")?, typed.context().addr() as u64);
            let mut found: CUdevice = -1;
            // SAFETY: `found` is a place for a device, and the driver is initialised while a device is open.
            let result = unsafe { cuDeviceGet(ptr::from_mut(&mut found), typed.ordinal() as i32) };
            assert_eq!(result, CUresult::CUDA_SUCCESS);
            assert_eq!(native.handle("cuda.CUdevice")?, found as u64);

            let missing = [
                span.native_handle("cuda.CUstream"),
                launch.native_stream("cuda.CUdeviceptr"),
                native.handle("cuda.CUdeviceptr"),
                native.handle("CUcontext"),
            ];
            for missing in missing {
                assert_eq!(missing.unwrap_err().kind(), BackendErrorKind::Unsupported);
            }
            Ok(())
        });
        launched.unwrap();
        let context = device.with_driver(|device: &CudaDevice| Ok(device.context().addr())).unwrap();
        assert_eq!(device.native_handle("cuda.CUcontext").unwrap(), context as u64);
    }
    if cfg!(target_os = "linux") && !process::is_child() {
        child::passes(TEST, Some(&child::simulated()), &[("DEVICE_CONFORMANCE_REQUIRE", "cuda")]);
    }
}
