//! The backend: which devices there are, and how one is opened.

use std::sync::OnceLock;

use device_registry::backend::{
    Backend, BackendError, DeviceProperties, LossReporter, OpenedDevice, Version,
};
use parking_lot::Mutex;

use crate::context::Context;
use crate::device::OpenClDriver;
use crate::error::OpenClError;
use crate::faults::Faults;
use crate::functions;
use crate::functions::OpenClFunctions;
use crate::properties::{self, Facts};
use crate::sys::*;

/// The kinds of devices that programs can be compiled for. Custom devices only have built-in kernels.
const KINDS: cl_device_type = CL_DEVICE_TYPE_GPU | CL_DEVICE_TYPE_ACCELERATOR | CL_DEVICE_TYPE_CPU;

/// The first version with fills, markers and barriers.
const OLDEST: Version = Version::new(1, 2);

pub(crate) struct OpenCl {
    functions: &'static OpenClFunctions,
    /// In the loader's order.
    platforms: Vec<Platform>,
    /// In the order of their ordinals. Each query lists the devices until one finds any; from then on an
    /// ordinal is one device.
    devices: OnceLock<Vec<Found>>,
    /// Held while devices are listed: PoCL returns no devices to a thread whose query overlaps with another
    /// thread's first.
    listing: Mutex<()>,
    /// Whether tests requested fault injection.
    offers_faults: bool,
}

struct Platform(cl_platform_id);

/// A device that was listed. It is not open.
struct Found {
    id: DeviceId,
    platform: cl_platform_id,
    platform_name: String,
    facts: OnceLock<Facts>,
}

#[derive(Clone, Copy)]
struct DeviceId(cl_device_id);

// SAFETY: platforms are never freed, and OpenCL's functions take a platform on any thread.
unsafe impl Send for Platform {}
// SAFETY: OpenCL's functions may be called for one platform from several threads at once.
unsafe impl Sync for Platform {}
// SAFETY: devices that are not parts of others are never freed, and OpenCL's functions take them on any
// thread.
unsafe impl Send for Found {}
// SAFETY: OpenCL's functions may be called for one device from several threads at once.
unsafe impl Sync for Found {}

impl OpenCl {
    /// The platforms come from the loader that has the functions.
    pub(crate) fn new(
        functions: &'static OpenClFunctions,
        platforms: Vec<cl_platform_id>,
        offers_faults: bool,
    ) -> Self {
        let platforms = platforms.into_iter().map(Platform).collect();
        Self { functions, platforms, devices: OnceLock::new(), listing: Mutex::default(), offers_faults }
    }

    fn devices(&self) -> Result<&[Found], BackendError> {
        if let Some(devices) = self.devices.get() {
            return Ok(devices);
        }
        let _listing = self.listing.lock();
        match self.devices.get() {
            Some(devices) => Ok(devices),
            None => {
                let listed = list(self.functions, &self.platforms)?;
                Ok(self.devices.get_or_init(|| listed))
            }
        }
    }

    fn device(&self, ordinal: usize) -> Result<&Found, BackendError> {
        let devices = self.devices()?;
        let count = devices.len();
        devices.get(ordinal).ok_or_else(|| {
            BackendError::invalid(format_args!(
                "no device has the ordinal {ordinal}: there are {count} devices"
            ))
        })
    }
}

/// All devices, of which there is at least one: sorted by the names of their platforms, as the loader's order
/// is a directory's, and within a platform in its own order. Platforms of one name are sorted by vendor
/// and version.
fn list(functions: &'static OpenClFunctions, platforms: &[Platform]) -> Result<Vec<Found>, BackendError> {
    let mut listed = Vec::new();
    let mut failure = None;
    for &Platform(platform) in platforms {
        // SAFETY: the loader listed the platform, and platforms are never freed.
        let text = |what| unsafe { properties::platform_text(functions, platform, what) }.unwrap_or_default();
        let order = [CL_PLATFORM_NAME, CL_PLATFORM_VENDOR, CL_PLATFORM_VERSION].map(text);
        // SAFETY: the loader listed the platform, and `list` passes a place together with its length.
        let devices = functions::list(|len, place, count| unsafe {
            functions.clGetDeviceIDs(platform, KINDS, len, place, count)
        });
        match devices {
            Ok(devices) => listed.push((order, platform, devices)),
            Err(error) if error.status() == Some(CL_DEVICE_NOT_FOUND) => {
                listed.push((order, platform, Vec::new()));
            }
            Err(error) => {
                // One broken driver does not hide the others.
                let error = error.own();
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

/// The error if there are platforms, but none has a device. A setting is the likely cause.
fn no_device<'a>(platforms: impl Iterator<Item = &'a str>) -> BackendError {
    let platforms: Vec<_> = platforms.map(|name| format!("`{name}`")).collect();
    BackendError::unavailable(format_args!(
        "no OpenCL platform has a device that programs can be compiled for: found {}; check the platform's own variables, \
         such as POCL_DEVICES or RUSTICL_ENABLE, the permissions of device files, and that its cache folder is writable",
        platforms.join(", ")
    ))
}

impl Found {
    fn facts(&self, functions: &'static OpenClFunctions) -> Result<&Facts, BackendError> {
        if let Some(facts) = self.facts.get() {
            return Ok(facts);
        }
        // SAFETY: its platform listed the device, which is no part of another and so never freed.
        let facts = unsafe { Facts::query(functions, &self.platform_name, self.id.0) };
        let facts = facts.map_err(OpenClError::own)?;
        Ok(self.facts.get_or_init(|| facts))
    }
}

impl Backend for OpenCl {
    fn device_count(&self) -> Result<usize, BackendError> {
        self.devices().map(<[_]>::len)
    }

    fn properties(&self, ordinal: usize) -> Result<DeviceProperties, BackendError> {
        Ok(self.device(ordinal)?.facts(self.functions)?.properties.clone())
    }

    fn open(&self, ordinal: usize) -> Result<OpenedDevice, BackendError> {
        let found = self.device(ordinal)?;
        let facts = found.facts(self.functions)?;
        if facts.version < OLDEST {
            return Err(BackendError::unsupported(format_args!(
                "expected OpenCL 1.2 or newer, found OpenCL {}: fills, markers and barriers need 1.2",
                facts.version
            )));
        }
        // SAFETY: its platform listed the device, which is no part of another and so never freed.
        if !unsafe { properties::is_available(self.functions, found.id.0) }.map_err(OpenClError::own)? {
            return Err(BackendError::unavailable("the driver reports the device as not available now"));
        }
        // SAFETY: the platform listed the device, which is not part of another; neither is ever freed.
        let context = unsafe { Context::new(self.functions, ordinal, found.platform, found.id.0) }?;
        let reporter = LossReporter::new();
        let faults = if self.offers_faults { Faults::new(&reporter) } else { Faults::default() };
        let opened =
            OpenedDevice::new(self, OpenClDriver::new(context, facts, faults)).with_loss_reporter(reporter);
        // SAFETY: device, memory and streams return the kinds of `handles` only, each for the object that
        // they own, which lives as long as they do. A device of OpenCL is never freed.
        Ok(unsafe { opened.with_native_handles() })
    }
}
