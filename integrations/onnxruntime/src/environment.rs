//! For programs in Rust that use the crate `ort`.

use ort::device::Device;
use ort::environment::Environment;
use ort::{Error, Result};

use crate::choice;
use crate::registration::FACTORIES;
use crate::stub;

/// Registers the devices of this program's backends with an environment of ONNX Runtime: of those that
/// `DEVICE_ORT` lists, or else of all but `cpu` and simulated ones. They are in the process itself, so that
/// no library has to be shipped. It may be called again at any time.
///
/// It works on Linux on x86-64 and AArch64. On other systems, build the shared library of this crate, and
/// call [`Environment::register_ep_library`].
///
/// ```no_run
/// # fn main() -> ort::Result<()> {
/// use ort::session::Session;
///
/// let environment = ort::init().build()?;
/// device_ort::register(&environment)?;
/// let device = device_ort::device(&environment, "opencl:0")?;
/// let builder = Session::builder(&environment)?.with_devices([device], None)?;
/// # Ok(())
/// # }
/// ```
///
/// # Errors
///
/// If a variable is wrong, or ONNX Runtime refuses the registration. A backend that is unavailable has no
/// device, which is not an error.
pub fn register(environment: &Environment) -> Result<()> {
    for name in choice::names().map_err(Error::new)? {
        // What is unavailable is an error where a device of it is asked for.
        let Ok(devices) = choice::devices_of(&name) else { continue };
        let has = |device: &str| environment.devices().any(|other| other.ep().is_ok_and(|ep| ep == device));
        for (at, some) in devices.chunks(FACTORIES).enumerate() {
            if some.iter().all(|device| has(&device.to_string())) {
                continue;
            }
            let registration = if at == 0 { name.clone() } else { format!("{name}#{}", at * FACTORIES) };
            environment.register_ep_library(registration, stub::path().map_err(Error::new)?)?;
        }
    }
    Ok(())
}

/// Registers the devices of a backend, also of `cpu` and simulated ones, whatever `DEVICE_ORT` lists.
///
/// # Errors
///
/// As [`register`], and if there is no such backend, or it is unavailable.
pub fn register_backend(environment: &Environment, name: &str) -> Result<()> {
    choice::add(name).map_err(Error::new)?;
    choice::devices_of(name).map_err(Error::new)?;
    register(environment)
}

/// The device with this name, for [`SessionBuilder::with_devices`], which takes no device for an answer and
/// computes on the CPU then.
///
/// # Errors
///
/// If the environment has no such device. The error lists those that it has.
///
/// [`SessionBuilder::with_devices`]: ort::session::builder::SessionBuilder::with_devices
pub fn device<'e>(environment: &'e Environment, name: &str) -> Result<Device<'e>> {
    if let Some(device) = environment.devices().find(|device| device.ep().is_ok_and(|ep| ep == name)) {
        return Ok(device);
    }
    let all: Vec<&str> = environment.devices().filter_map(|device| device.ep().ok()).collect();
    let backend = name.split(':').next().unwrap_or(name);
    let why = match choice::devices_of(backend) {
        Err(why) => format!(": {why}"),
        Ok(_) => String::new(),
    };
    Err(Error::new(format!("`{name}` is no device of this environment, which has {}{why}", all.join(", "))))
}
