//! burn's own engines on the open devices of backends: the group that they register in.
//!
//! burn has engines for some hardware, with kernels, fusion and autotune of its own. A crate such as
//! `device-burn-wgpu` registers one for a backend, by a line in Cargo.toml. [`device`](crate::device) then
//! gives burn's own device on the registry's device. Without such a crate the registry's own way is taken:
//! kernel sets, and the CPU for the rest.

use std::fmt;

use burn_tensor::Device;
use device_registry::backend::BackendError;
use entry_points::{Entry, EntryPoint, LoadError};

use crate::Error;

/// Registers an engine, with [`ENGINES`](static@ENGINES) as the group.
#[doc(inline)]
pub use entry_points::entry_points;

/// One of burn's own engines, for the devices of one backend.
pub trait Engine: Send + Sync {
    /// What computes, for reports: `wgpu of burn 0.22.1`, for example.
    fn name(&self) -> &str;

    /// burn's own device on a registered one, which has its index and is open.
    ///
    /// Returns the same device at each call, until the registered one is opened again: burn tells devices
    /// apart by number, and an engine that is set up twice is two devices.
    ///
    /// # Errors
    ///
    /// Why the engine cannot use the device. The caller adds the names of the device and of the engine to it.
    fn device(&self, device: device_registry::Device) -> Result<Device, BackendError>;
}

/// An engine as constant data: the name of its backend, the package that it comes from, and how to load it.
///
/// ```
/// use device_burn::engines::{ENGINES, Engine, EngineDescriptor};
/// use device_registry::backend::{BackendError, LoadFailure};
///
/// device_burn::engines::entry_points! {
///     /// burn's engine for the devices of `acme`.
///     #[distributed_slice(ENGINES)]
///     pub static ACME: EngineDescriptor = EngineDescriptor::new("acme", load);
/// }
///
/// fn load() -> Result<Box<dyn Engine>, LoadFailure> {
///     Ok(Box::new(Acme))
/// }
///
/// struct Acme;
///
/// impl Engine for Acme {
///     fn name(&self) -> &str {
///         "acme of burn 0.22.1"
///     }
///
///     fn device(&self, device: device_registry::Device) -> Result<burn::tensor::Device, BackendError> {
///         todo!("set burn's engine up on the handles of {device}, or find the one that is")
///     }
/// }
/// # fn main() {}
/// ```
pub type EngineDescriptor = EntryPoint<dyn Engine>;

entry_points::group! {
    /// The distributed slice that engines register in.
    pub static ENGINES: [EngineDescriptor];

    /// The group `burn.engines`: every burn engine in this program that computes on registered devices.
    /// Variables with the prefix `DEVICE_BURN_ENGINES` switch its entries on and off:
    /// `DEVICE_BURN_ENGINES_DISABLE=wgpu` gives the registry's own way for the devices of `wgpu`.
    ///
    /// An entry has the name of its backend.
    pub fn engines() -> Group<dyn Engine> {
        entry_points::Group::new("burn.engines")
            .noun("engine")
            .switches("DEVICE_BURN_ENGINES")
            .autoload_line("device_registry::autoload!();")
    }
}

/// The engine of a backend that is linked and switched on.
#[derive(Clone, Copy)]
pub struct LinkedEngine {
    entry: Entry<dyn Engine>,
    engine: &'static dyn Engine,
}

impl LinkedEngine {
    /// The engine for the devices of a backend, if one is linked and switched on.
    ///
    /// # Errors
    ///
    /// If an engine is linked and does not load, or if two packages offer one.
    pub(crate) fn of(backend: &str) -> Result<Option<Self>, LoadError> {
        let Some(entry) = engines().get(backend) else { return Ok(None) };
        match entry.load() {
            Ok(engine) => Ok(Some(Self { entry, engine })),
            Err(LoadError::Disabled { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// burn's own device on `device`.
    pub(crate) fn device(self, device: device_registry::Device) -> Result<Device, Error> {
        self.engine.device(device).map_err(|source| Error::Engine { device, engine: self, source })
    }
}

/// The engine's name for itself and its package: `wgpu of burn 0.22.1 (device-burn-wgpu 0.1.0)`.
impl fmt::Display for LinkedEngine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.engine.name())?;
        if let (Some(package), Some(version)) = (self.entry.package(), self.entry.version()) {
            write!(f, " ({package} {version})")?;
        }
        Ok(())
    }
}

impl fmt::Debug for LinkedEngine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LinkedEngine({self})")
    }
}
