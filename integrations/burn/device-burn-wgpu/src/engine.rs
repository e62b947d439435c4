//! burn's engine, set up once on each open device.

use std::collections::HashMap;

use burn_backend::Backend;
use burn_dispatch::Dispatch;
use burn_tensor::Device;
use burn_tensor::wgpu::{WgpuSetup, wgpu};
use device_burn::engines::Engine;
use device_registry::backend::{BackendError, BackendErrorKind};
use device_wgpu::WgpuDevice;
use parking_lot::Mutex;

/// The devices that the engine is set up on.
#[derive(Default)]
pub(crate) struct Wgpu(Mutex<HashMap<device_registry::Device, Opened>>);

struct Opened {
    /// The handle tells whether the registry has opened the device again since.
    handle: wgpu::Device,
    device: Device,
}

impl Engine for Wgpu {
    fn name(&self) -> &str {
        "wgpu of burn 0.22.1"
    }

    /// Waits for the work of the device, and so finds out whether it is lost.
    fn device(&self, device: device_registry::Device) -> Result<Device, BackendError> {
        // Held while burn's engine is set up, so that two threads do not make two engines. An engine that
        // panics is not in the map.
        let mut opened = self.0.lock();
        let setup = handles(device)?;
        if let Some(known) = opened.get(&device)
            && known.handle == setup.device
        {
            return Ok(known.device.clone());
        }
        let handle = setup.device.clone();
        let on_it = set_up(setup)?;
        opened.insert(device, Opened { handle, device: on_it.clone() });
        Ok(on_it)
    }
}

/// The handles of the open device, which from then on is shared.
fn handles(device: device_registry::Device) -> Result<WgpuSetup, BackendError> {
    let handles = |driver: &WgpuDevice| {
        driver.check()?;
        // burn keeps mapped memory of the device in the data that tensors return.
        driver.share();
        Ok(WgpuSetup {
            instance: driver.instance().clone(),
            adapter: driver.adapter().clone(),
            device: driver.device().clone(),
            queue: driver.queue().clone(),
            backend: driver.adapter().get_info().backend,
        })
    };
    device.with_driver(handles).map_err(|error| match error.kind() {
        Some(BackendErrorKind::Lost) => {
            BackendError::lost("reset it by `Device::reset`, and get burn's device again").with_source(error)
        }
        _ => BackendError::other("its handles cannot be used").with_source(error),
    })
}

/// Sets burn's engine up on a device. Done twice on one, it would be two devices for burn.
fn set_up(setup: WgpuSetup) -> Result<Device, BackendError> {
    let device = Device::wgpu_options().setup(setup).init().map_err(|error| {
        BackendError::other("burn's engine does not accept the device's handles").with_source(error)
    })?;
    // The other compilers are there by features of burn that another crate of the program may have turned on.
    let name = Dispatch::name(device.as_dispatch());
    if name.contains("<wgsl>") {
        Ok(device)
    } else {
        Err(BackendError::unsupported(format_args!(
            "burn compiles for `{name}`, which needs extensions that the registry does not open the device with: \
             turn off burn's features `vulkan` and `metal`"
        )))
    }
}
