//! burn's `Device` by a device string, and what was counted for it.

use burn_tensor::Device;
use device_burn_backend::{Counts, Fallback, Fusion, KernelUse, RegistryClient, RegistryDevice};

use crate::Error;
use crate::engines::LinkedEngine;

/// burn's own device for a device string, such as `"openreg:0"`. Opens the device, so that a mistake is an
/// error here.
///
/// If one of burn's own [engines](crate::engines) is linked for the backend and switched on, it computes;
/// [`engine_of`] says whether. It then fails or computes: nothing else is tried.
///
/// ```
/// use burn::tensor::Tensor;
/// # use device_openreg as _;
///
/// let device = device_burn::device("openreg:0")?;
/// let sum = Tensor::<1>::from_floats([1.0, 2.0], &device) + 1.0;
/// assert_eq!(sum.into_data().try_to_vec::<f32>()?, [2.0, 3.0]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
///
/// What [`device_registry::device`] returns, a failure to open the device, [`Error::Variable`], and an
/// engine's errors.
pub fn device(text: &str) -> Result<Device, Error> {
    let device = device_registry::device(text)?.resolve();
    if let Some(engine) = engine(device)? {
        // An invalid variable is an error on every device.
        check_variables()?;
        device.open()?;
        return engine.device(device);
    }
    #[cfg(feature = "patch")]
    return crate::patch::device(text);
    #[cfg(all(feature = "loopback", not(feature = "patch")))]
    return crate::loopback::device(text);
    #[cfg(feature = "group")]
    return crate::group::device(text);
    #[cfg(not(any(feature = "group", feature = "loopback", feature = "patch")))]
    return Err(Error::NoDoor { device });
}

/// The burn engine that computes on a device, or `None` for the registry's own way. Opens nothing.
///
/// ```
/// # use device_openreg as _;
/// if let Some(engine) = device_burn::engine_of("openreg:0")? {
///     println!("{engine}");
/// }
/// # Ok::<(), device_burn::Error>(())
/// ```
///
/// # Errors
///
/// What [`device_registry::device`] returns, and [`Error::Engines`].
pub fn engine_of(text: &str) -> Result<Option<LinkedEngine>, Error> {
    engine(device_registry::device(text)?)
}

fn engine(device: device_registry::Device) -> Result<Option<LinkedEngine>, Error> {
    LinkedEngine::of(device.name()).map_err(Error::Engines)
}

#[cfg(not(any(feature = "engine", feature = "group", feature = "loopback", feature = "patch")))]
compile_error!(
    "device-burn needs one of its features: `patch`, with a `[patch]` line, or `loopback`; with burn 0.23, `group`"
);

/// The variables of the environment that every operation needs.
fn check_variables() -> Result<(), Error> {
    Fallback::current()?;
    KernelUse::current()?;
    Fusion::current()?;
    Ok(())
}

/// The device for burn's traits, after what can be wrong with it.
#[cfg(any(feature = "group", feature = "loopback", feature = "patch"))]
pub(crate) fn usable(device: device_registry::Device) -> Result<RegistryDevice, Error> {
    check_variables()?;
    let device = RegistryDevice::new(device)?;
    device.device().open()?;
    Ok(device)
}

/// The device strings of all devices that can be used now. Opens none of them.
///
/// Backends that do not load or have no devices are left out: [`device_registry::devices`] has their reasons.
/// burn's own `Device::enumerate` lists `cpu` only, as burn has one constant for the patch.
#[must_use]
pub fn devices() -> Vec<String> {
    device_registry::devices()
        .filter_map(|(_, devices)| devices.ok())
        .flatten()
        .map(|device| device.to_string())
        .collect()
}

/// What happened to the operations of a device in this process: which ran on it, and which fell back to the
/// CPU.
///
/// The operations that this thread has left waiting run first: see [`Fusion`]. What nothing needs is not
/// counted.
///
/// Where a burn engine computes, [`Counts::engine`] names it. Its operations are not counted.
///
/// # Errors
///
/// What [`device_registry::device`] returns, and [`Error::Engines`].
pub fn counts(text: &str) -> Result<Counts, Error> {
    let mut counts = client(text)?.counts();
    counts.engine = engine_of(text)?.map(|engine| engine.to_string());
    Ok(counts)
}

/// Begins to count from zero.
///
/// # Errors
///
/// What [`device_registry::device`] returns.
pub fn reset_counts(text: &str) -> Result<(), Error> {
    client(text)?.reset_counts();
    Ok(())
}

fn client(text: &str) -> Result<RegistryClient, Error> {
    Ok(RegistryClient::of(RegistryDevice::new(device_registry::device(text)?)?))
}
