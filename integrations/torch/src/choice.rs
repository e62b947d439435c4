//! What the variables choose: the backends, and the name that PyTorch gets.
//!
//! Nothing is loaded for it, as every `import torch` asks.

use std::env;
use std::sync::OnceLock;

use device_registry::{DeviceError, ErrorChain, backends};

/// The name of several backends together.
const ALL: &str = "registry";

/// What `DEVICE_TORCH` and the variables beside it chose.
pub(crate) struct Choice {
    /// The name of the device in PyTorch, such as `openreg`.
    pub(crate) name: String,
    /// The backends, in the order of their devices.
    pub(crate) backends: Vec<&'static str>,
    /// What was skipped, which is a warning.
    pub(crate) notes: String,
}

/// The choice, which is made once.
pub(crate) fn choice() -> Result<&'static Choice, &'static str> {
    static CHOICE: OnceLock<Result<Choice, String>> = OnceLock::new();
    CHOICE.get_or_init(choose).as_ref().map_err(String::as_str)
}

fn choose() -> Result<Choice, String> {
    let notes = match variable("DEVICE_TORCH_PLUGINS")? {
        Some(folder) => install(&folder)?,
        None => String::new(),
    };
    let backends = match variable("DEVICE_TORCH")? {
        Some(list) => named(&list)?,
        None => others(),
    };
    let name = match (variable("DEVICE_TORCH_NAME")?, backends.as_slice()) {
        (Some(name), _) if is_name(&name) => name,
        (Some(name), _) => {
            return Err(format!(
                "DEVICE_TORCH_NAME is `{name}`, expected a letter, then letters, digits and `_`, as in `openreg`"
            ));
        }
        (None, [one]) => (*one).to_owned(),
        (None, _) => ALL.to_owned(),
    };
    Ok(Choice { name, backends, notes })
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

/// The backends of a list, such as `opencl,openreg`.
fn named(list: &str) -> Result<Vec<&'static str>, String> {
    let mut names = Vec::new();
    for name in list.split(',').map(str::trim) {
        let backend = backends().usable(name).map_err(|error| {
            format!("DEVICE_TORCH is `{list}`: {}", ErrorChain::new(&DeviceError::from(error)))
        })?;
        if backend.name() == "cpu" {
            return Err(format!("DEVICE_TORCH is `{list}`: PyTorch has a device `cpu` of its own"));
        }
        if names.contains(&backend.name()) {
            return Err(format!("DEVICE_TORCH is `{list}`: `{name}` is there twice"));
        }
        names.push(backend.name());
    }
    Ok(names)
}

/// All backends that are not disabled, except the CPU, which PyTorch has.
fn others() -> Vec<&'static str> {
    let usable = backends().iter().filter(|backend| backend.is_usable() && backend.name() != "cpu");
    usable.map(|backend| backend.name()).collect()
}

/// PyTorch makes Python's attributes of it, such as `torch.openreg` and `Tensor.is_openreg`.
fn is_name(name: &str) -> bool {
    name.starts_with(|first: char| first.is_ascii_alphabetic())
        && name.chars().all(|letter| letter.is_ascii_alphanumeric() || letter == '_')
}

/// Installs the backends and kernels of a folder, and returns what was skipped.
#[cfg(feature = "plugins")]
fn install(folder: &str) -> Result<String, String> {
    use device_plugin::Plugins;

    let wrong = |error: &dyn std::fmt::Display| format!("DEVICE_TORCH_PLUGINS is `{folder}`: {error}");
    let path = std::path::absolute(folder).map_err(|error| wrong(&error))?;
    // A folder that the user names is a choice, also where an attacker could have made it.
    let report = Plugins::new().folder(path).install().map_err(|error| wrong(&ErrorChain::new(&error)))?;
    if report.skipped().is_empty() && !report.installed().is_empty() {
        return Ok(String::new());
    }
    Ok(wrong(&report))
}

#[cfg(not(feature = "plugins"))]
fn install(folder: &str) -> Result<String, String> {
    Err(format!(
        "DEVICE_TORCH_PLUGINS is `{folder}`, and this build has no loader of files: its feature is `plugins`"
    ))
}
