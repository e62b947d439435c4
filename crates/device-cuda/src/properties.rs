//! What the driver says of a device, asked without a context.

use std::ffi::{CStr, c_char};

use cudarc::driver::sys::{CUdevice, CUdevice_attribute, CUuuid};
use device_registry::backend::{BackendError, DeviceKind, DeviceProperties, DeviceUuid};

use crate::context;
use crate::library::Functions;

/// Properties of the device with this ordinal; `version` is the driver's.
pub(crate) fn properties(
    cuda: &Functions,
    ordinal: usize,
    version: &str,
) -> Result<DeviceProperties, BackendError> {
    let device = context::device(cuda, ordinal)?;
    let kind = match attribute(cuda, device, CUdevice_attribute::CU_DEVICE_ATTRIBUTE_INTEGRATED)? {
        0 => DeviceKind::Gpu,
        _ => DeviceKind::IntegratedGpu,
    };
    let concurrent = attribute(cuda, device, CUdevice_attribute::CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS)?;
    let mut total = 0;
    // SAFETY: the device is the driver's, and the place is there.
    unsafe { cuda.cuDeviceTotalMem_v2(&mut total, device) }?;
    // SAFETY: the buffer has the length that is told.
    let name = text(|text, len| Ok(unsafe { cuda.cuDeviceGetName(text, len, device) }?))?;
    let properties = DeviceProperties::new(name)
        .with_vendor("NVIDIA")
        .with_kind(kind)
        .with_driver(version)
        .with_total_memory(total as u64)
        .with_uuid(uuid(cuda, device)?)
        .with_concurrent_streams(concurrent != 0)
        .with_pinned_memory(true);
    // SAFETY: the buffer has the length that is told.
    let address = text(|text, len| Ok(unsafe { cuda.cuDeviceGetPCIBusId(text, len, device) }?))?;
    Ok(match address.parse() {
        Ok(address) => properties.with_pci(address),
        Err(error) => {
            log::warn!("`cuda:{ordinal}` has a PCI address of an unknown form: {error}");
            properties
        }
    })
}

/// The newest version of CUDA that the driver offers, which stands for its own here: this interface does not tell that.
pub(crate) fn version(cuda: &Functions) -> Result<String, BackendError> {
    let mut version = 0;
    // SAFETY: the place is there.
    unsafe { cuda.cuDriverGetVersion(&mut version) }?;
    Ok(format!("CUDA {}.{}", version / 1000, version % 1000 / 10))
}

fn attribute(cuda: &Functions, device: CUdevice, attribute: CUdevice_attribute) -> Result<i32, BackendError> {
    let mut value = 0;
    // SAFETY: the device is the driver's, and the place is there.
    unsafe { cuda.cuDeviceGetAttribute(&mut value, attribute, device) }?;
    Ok(value)
}

/// The second version of this function tells parts of a card apart (MIG), which the first does not.
fn uuid(cuda: &Functions, device: CUdevice) -> Result<DeviceUuid, BackendError> {
    let mut uuid = CUuuid { bytes: [0; 16] };
    // SAFETY: the device is the driver's, and the place is there.
    unsafe { cuda.cuDeviceGetUuid_v2(&mut uuid, device) }?;
    Ok(DeviceUuid::from_bytes(uuid.bytes.map(|byte| byte as u8)))
}

/// A text that the driver writes into a buffer of this length, with a zero at its end.
fn text(write: impl FnOnce(*mut c_char, i32) -> Result<(), BackendError>) -> Result<String, BackendError> {
    let mut buffer = [0_u8; 256];
    write(buffer.as_mut_ptr().cast(), buffer.len() as i32)?;
    let text = CStr::from_bytes_until_nul(&buffer)
        .map_err(|_| BackendError::other("the driver wrote a text without an end"))?;
    Ok(text.to_string_lossy().into_owned())
}
