//! burn's engine, which finds a device by its ordinal and computes in the primary context, as the registry.

use burn_tensor::Device;
use device_burn::engines::Engine;
use device_cuda::CudaDevice;
use device_registry::backend::{BackendError, BackendErrorKind};

pub(crate) struct Cuda;

impl Engine for Cuda {
    fn name(&self) -> &str {
        "cuda of burn 0.22.1"
    }

    /// Waits for burn's work on the device, and so finds out whether it is lost.
    fn device(&self, device: device_registry::Device) -> Result<Device, BackendError> {
        // The registry has opened the device, so burn's engine finds the driver and the device.
        let ordinal = device.with_native(|native| Ok(CudaDevice::from_native(native)?.ordinal()));
        let ordinal = ordinal.map_err(|error| match error.kind() {
            Some(BackendErrorKind::Lost) => {
                BackendError::lost("burn's engine cannot compute").with_source(error)
            }
            _ => BackendError::other("it is not a device of CUDA's driver").with_source(error),
        })?;
        let on_it = Device::cuda(ordinal);
        on_it.sync().map_err(|error| BackendError::other("burn's engine failed").with_source(error))?;
        Ok(on_it)
    }
}
