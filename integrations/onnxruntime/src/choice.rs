//! Which devices programs are offered.

use std::collections::BTreeSet;
use std::env;
use std::sync::OnceLock;

use device_registry::backend::path_variable;
use device_registry::{Device, DeviceKind, ErrorChain, backends, device, device_count};
use parking_lot::Mutex;

/// The variable that names the backends.
const VARIABLE: &str = "DEVICE_ORT";
/// The variable that names a folder with backends and kernels in files.
const PLUGINS: &str = "DEVICE_ORT_PLUGINS";
/// The variable that says whether nodes may be left to other providers.
const FALLBACK: &str = "DEVICE_ORT_FALLBACK";

/// The backends that the program itself has added.
static ADDED: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

/// Offers a backend, whatever `DEVICE_ORT` lists.
#[cfg(feature = "ort")]
pub(crate) fn add(name: &str) -> Result<(), String> {
    names()?;
    let backend = backends().usable(name).map_err(|error| ErrorChain::new(&error).to_string())?;
    ADDED.lock().insert(backend.name().to_owned());
    Ok(())
}

/// The names of the offered backends: what `DEVICE_ORT` lists, in its order, or else all but `cpu`. Loads
/// none.
pub(crate) fn names() -> Result<Vec<String>, String> {
    static NOTES: OnceLock<Result<(), String>> = OnceLock::new();
    NOTES.get_or_init(install).clone()?;
    let mut names: Vec<String> = Vec::new();
    let Some(list) = variable(VARIABLE)? else {
        let added = ADDED.lock();
        let is_offered = |name: &str| name != "cpu" || added.contains(name);
        let usable = backends().iter().filter(|backend| backend.is_usable() && is_offered(backend.name()));
        return Ok(usable.map(|backend| backend.name().to_owned()).collect());
    };
    for name in list.split(',').map(str::trim) {
        let wrong = |error: &dyn std::fmt::Display| format!("{VARIABLE} is `{list}`: {error}");
        let backend = backends().usable(name).map_err(|error| wrong(&ErrorChain::new(&error)))?;
        if names.iter().any(|other| other == backend.name()) {
            return Err(wrong(&format_args!("`{name}` is there twice")));
        }
        names.push(backend.name().to_owned());
    }
    for name in &*ADDED.lock() {
        if !names.contains(name) {
            names.push(name.clone());
        }
    }
    Ok(names)
}

/// The offered devices of a backend. Simulated ones are offered only where `DEVICE_ORT` names their backend,
/// as ONNX Runtime's policies take any device that is listed. Loads the backend and opens nothing.
pub(crate) fn devices_of(backend: &str) -> Result<Vec<Device>, String> {
    let in_words = |error: device_registry::DeviceError| ErrorChain::new(&error).to_string();
    let is_named = variable(VARIABLE)?.is_some() || ADDED.lock().contains(backend);
    let mut devices = Vec::new();
    for index in 0..device_count(backend).map_err(in_words)? {
        let device = device(&format!("{backend}:{index}")).map_err(in_words)?;
        let kind = device.properties().map_err(in_words)?.kind;
        if is_named || kind != DeviceKind::Simulated {
            devices.push(device);
        }
    }
    Ok(devices)
}

/// Whether nodes may be left to other providers. The error says what the variable has to be.
pub(crate) fn may_fall_back() -> Result<bool, String> {
    match variable(FALLBACK)?.as_deref() {
        None | Some("allow") => Ok(true),
        Some("deny") => Ok(false),
        Some(other) => Err(format!("{FALLBACK} is `{other}`: expected `allow` or `deny`")),
    }
}

/// The value of a variable that is set to some text.
fn variable(name: &str) -> Result<Option<String>, String> {
    match env::var(name) {
        Ok(text) if text.trim().is_empty() => Ok(None),
        Ok(text) => Ok(Some(text)),
        Err(env::VarError::NotPresent) => Ok(None),
        Err(env::VarError::NotUnicode(_)) => Err(format!("{name} is not Unicode")),
    }
}

/// Installs the backends and kernels of the folder that `DEVICE_ORT_PLUGINS` names.
#[cfg(feature = "plugins")]
fn install() -> Result<(), String> {
    let folder = path_variable(PLUGINS).map_err(|error| format!("{PLUGINS} is ignored: {error}"))?;
    let Some(folder) = folder.filter(|folder| !folder.is_empty()) else { return Ok(()) };
    let wrong = |error: &dyn std::fmt::Display| format!("{PLUGINS} is `{}`: {error}", folder.display());
    let path = std::path::absolute(&folder).map_err(|error| wrong(&error))?;
    let report = device_plugin::Plugins::new().folder(path).install();
    let report = report.map_err(|error| wrong(&ErrorChain::new(&error)))?;
    if report.skipped().is_empty() && !report.installed().is_empty() { Ok(()) } else { Err(wrong(&report)) }
}

#[cfg(not(feature = "plugins"))]
fn install() -> Result<(), String> {
    match path_variable(PLUGINS) {
        Ok(None) => Ok(()),
        _ => {
            Err(format!("{PLUGINS} is set, and this build has no loader of files: its feature is `plugins`"))
        }
    }
}
