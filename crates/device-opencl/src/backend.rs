//! The backend: which devices there are, and how one is opened.

use std::sync::{Mutex, OnceLock, PoisonError};

use cl3::device::{CL_DEVICE_TYPE_ACCELERATOR, CL_DEVICE_TYPE_CPU, CL_DEVICE_TYPE_GPU};
use cl3::platform::{CL_PLATFORM_NAME, CL_PLATFORM_VENDOR, CL_PLATFORM_VERSION};
use cl3::types::{cl_device_id, cl_device_type, cl_platform_id};
use device_registry::backend::{Backend, BackendError, DeviceProperties, OpenedDevice};

use crate::device::Driver;
use crate::error::call_error;
use crate::properties::{self, Facts, Version};

/// All that programs can be compiled for. Custom devices have built-in kernels only.
const KINDS: cl_device_type = CL_DEVICE_TYPE_GPU | CL_DEVICE_TYPE_ACCELERATOR | CL_DEVICE_TYPE_CPU;

/// For fills, markers and barriers.
const OLDEST: Version = (1, 2);

pub(crate) struct OpenCl {
    /// In the loader's order.
    platforms: Vec<Platform>,
    /// In the order of their ordinals. Listed when somebody first asks, until there are some; from then on an ordinal is
    /// one device.
    devices: OnceLock<Vec<Found>>,
    /// Held while they are listed: PoCL has no devices for a thread that asks while another one's question is its first.
    listing: Mutex<()>,
}

struct Platform(cl_platform_id);

/// A device that is there, and not open.
struct Found {
    id: DeviceId,
    platform: cl_platform_id,
    platform_name: String,
    facts: OnceLock<Facts>,
}

#[derive(Clone, Copy)]
struct DeviceId(cl_device_id);

// SAFETY: platforms are never freed; and as all of OpenCL's functions, those that they are given to may be called from any
// thread.
unsafe impl Send for Platform {}
// SAFETY: OpenCL's functions may be called for one platform from several threads at once.
unsafe impl Sync for Platform {}
// SAFETY: devices that are not parts of others are never freed, and OpenCL's functions take them on any thread.
unsafe impl Send for Found {}
// SAFETY: OpenCL's functions may be called for one device from several threads at once.
unsafe impl Sync for Found {}

impl OpenCl {
    pub(crate) fn new(platforms: Vec<cl_platform_id>) -> Self {
        let platforms = platforms.into_iter().map(Platform).collect();
        Self { platforms, devices: OnceLock::new(), listing: Mutex::default() }
    }

    fn devices(&self) -> Result<&[Found], BackendError> {
        if let Some(devices) = self.devices.get() {
            return Ok(devices);
        }
        let _listing = self.listing.lock().unwrap_or_else(PoisonError::into_inner);
        match self.devices.get() {
            Some(devices) => Ok(devices),
            None => {
                let listed = list(&self.platforms)?;
                Ok(self.devices.get_or_init(|| listed))
            }
        }
    }

    fn device(&self, ordinal: usize) -> Result<&Found, BackendError> {
        let devices = self.devices()?;
        let count = devices.len();
        devices.get(ordinal).ok_or_else(|| {
            BackendError::invalid(format_args!("device {ordinal} was asked for, and there are {count}"))
        })
    }
}

/// All devices, of which there is at least one: sorted by the names of their platforms, as the loader's order is that of
/// a directory, and within a platform as it lists them. Platforms of one name are sorted by vendor and version.
fn list(platforms: &[Platform]) -> Result<Vec<Found>, BackendError> {
    let mut listed = Vec::new();
    let mut failure = None;
    for &Platform(platform) in platforms {
        let ask = |what| properties::platform_text(platform, what).unwrap_or_default();
        let order = [CL_PLATFORM_NAME, CL_PLATFORM_VENDOR, CL_PLATFORM_VERSION].map(ask);
        match cl3::device::get_device_ids(platform, KINDS) {
            Ok(devices) => listed.push((order, platform, devices)),
            Err(status) => {
                // A driver that is broken is no reason to do without the others.
                let error = call_error("clGetDeviceIDs", status);
                log::warn!("the OpenCL platform `{}` does not list its devices: {error}", order[0]);
                failure = Some(error);
            }
        }
    }
    listed.sort_by(|(left, ..), (right, ..)| left.cmp(right));
    let found = listed.iter().flat_map(|([platform_name, ..], platform, devices)| {
        let found = |&device| Found {
            id: DeviceId(device),
            platform: *platform,
            platform_name: platform_name.clone(),
            facts: OnceLock::new(),
        };
        devices.iter().map(found)
    });
    let found: Vec<_> = found.collect();
    match failure {
        _ if !found.is_empty() => Ok(found),
        Some(error) => Err(error),
        None => Err(no_device(listed.iter().map(|([name, ..], ..)| name.as_str()))),
    }
}

/// None at all is not what somebody has installed an OpenCL for.
fn no_device<'a>(platforms: impl Iterator<Item = &'a str>) -> BackendError {
    let platforms: Vec<_> = platforms.map(|name| format!("`{name}`")).collect();
    BackendError::unavailable(format_args!(
        "no platform of OpenCL has a device that programs can be compiled for: {}; a variable of their own, such as \
         POCL_DEVICES or RUSTICL_ENABLE, a device file that may not be opened, or a cache folder that cannot be written may \
         be the cause",
        platforms.join(", ")
    ))
}

impl Found {
    fn facts(&self) -> Result<&Facts, BackendError> {
        if let Some(facts) = self.facts.get() {
            return Ok(facts);
        }
        let facts = Facts::ask(&self.platform_name, self.id.0)
            .map_err(|status| call_error("clGetDeviceInfo", status))?;
        Ok(self.facts.get_or_init(|| facts))
    }
}

impl Backend for OpenCl {
    fn device_count(&self) -> Result<usize, BackendError> {
        self.devices().map(<[_]>::len)
    }

    fn properties(&self, ordinal: usize) -> Result<DeviceProperties, BackendError> {
        Ok(self.device(ordinal)?.facts()?.properties.clone())
    }

    fn open(&self, ordinal: usize) -> Result<OpenedDevice, BackendError> {
        let found = self.device(ordinal)?;
        let facts = found.facts()?;
        let (major, minor) = facts.version;
        if facts.version < OLDEST {
            return Err(BackendError::unsupported(format_args!(
                "a device of OpenCL {major}.{minor}: fills, markers and barriers need 1.2"
            )));
        }
        match properties::is_available(found.id.0) {
            Ok(true) => Ok(OpenedDevice::new(Driver::open(ordinal, found.platform, found.id.0, facts)?)),
            Ok(false) => {
                Err(BackendError::unavailable("the driver says that the device is not available now"))
            }
            Err(status) => Err(call_error("clGetDeviceInfo", status)),
        }
    }
}
