//! The graphics interfaces that are searched for adapters, and the reason if none has one.

use std::env;
use std::fmt::Write;

use crate::ready::ready;
use device_registry::backend::{LoadFailure, path_variable};
use wgpu::{Backends, Instance, InstanceDescriptor, InstanceFlags};

/// wgpu's own variable.
const CHOICE: &str = "WGPU_BACKEND";

/// The default. OpenGL would list most adapters a second time, and its drivers print.
const DEFAULT: Backends = Backends::VULKAN.union(Backends::METAL).union(Backends::DX12);

/// The interfaces that can be chosen, with the names that messages show.
const NAMES: [(&str, Backends); 4] = [
    ("vulkan", Backends::VULKAN),
    ("metal", Backends::METAL),
    ("dx12", Backends::DX12),
    ("gl", Backends::GL),
];

/// The variables that name drivers to Vulkan's loader.
const DRIVERS: [&str; 3] = ["VK_DRIVER_FILES", "VK_ICD_FILENAMES", "VK_ADD_DRIVER_FILES"];

/// The interfaces that are searched.
pub(crate) struct Apis {
    searched: Backends,
    chosen: bool,
}

impl Apis {
    /// # Errors
    ///
    /// Names the variable, the part of it that is invalid, and the values that are valid. *Unavailable* if
    /// this system has none of the chosen interfaces.
    pub(crate) fn from_env() -> Result<Self, LoadFailure> {
        // An empty variable counts as not set, like the registry's variables.
        match env::var_os(CHOICE).filter(|value| !value.is_empty()) {
            None => Ok(Self { searched: DEFAULT, chosen: false }),
            Some(value) => Self::from_list(&value.to_string_lossy()),
        }
    }

    fn from_list(list: &str) -> Result<Self, LoadFailure> {
        let here = Instance::enabled_backend_features();
        let known = NAMES.iter().fold(Backends::empty(), |all, (_, api)| all | *api);
        let mut searched = Backends::empty();
        for name in list.split(',') {
            // wgpu's own parser knows aliases as well.
            let api = Backends::from_comma_list(name) & known;
            if api.is_empty() {
                return Err(LoadFailure::new(format_args!(
                    "invalid value `{list}` of {CHOICE}: expected a list of {1}, separated by commas, found `{0}`",
                    name.trim(),
                    names(known),
                )));
            }
            searched |= api;
        }
        if (searched & here).is_empty() {
            return Err(LoadFailure::unavailable(format_args!(
                "{CHOICE} is `{list}`, which this system does not have: expected one of {}",
                names(here & known),
            )));
        }
        Ok(Self { searched, chosen: true })
    }

    /// All adapters of these interfaces, with their instance. `None` if there is no adapter.
    pub(crate) fn adapters(&self) -> Option<(Instance, Vec<wgpu::Adapter>)> {
        // Without any interface `Instance::new` panics.
        if Instance::enabled_backend_features().is_empty() {
            return None;
        }
        for name in DRIVERS {
            // Vulkan's loader silently ignores them there.
            if let Err(elevated) = path_variable(name) {
                log::warn!("{name} is ignored: {elevated}");
            }
        }
        let mut descriptor = InstanceDescriptor::new_without_display_handle();
        descriptor.backends = self.searched;
        // The default of a debug build turns the interfaces' validation layers on as well. Only this flag
        // keeps an indirect dispatch within the limits.
        descriptor.flags = InstanceFlags::VALIDATION_INDIRECT_CALL.with_env();
        let instance = Instance::new(descriptor);
        let adapters =
            ready(instance.enumerate_adapters(self.searched)).filter(|adapters| !adapters.is_empty())?;
        Some((instance, adapters))
    }

    /// The reason if there is no adapter: what was tried, and what to do.
    pub(crate) fn why_there_is_none(&self) -> String {
        let here = self.searched & Instance::enabled_backend_features();
        let mut why = format!("no adapter was found through {}", names(here));
        // Writing to a string cannot fail.
        if self.chosen {
            let _ = write!(why, ", which {CHOICE} chooses");
        }
        if here.contains(Backends::VULKAN) {
            if let Some(missing) = missing_loader() {
                let _ = write!(why, "; Vulkan's loader cannot be opened ({missing})");
            }
            for name in DRIVERS {
                let _ = match path_variable(name) {
                    Ok(Some(value)) => write!(why, "; {name} is `{}`", value.to_string_lossy()),
                    Ok(None) => Ok(()),
                    Err(elevated) => write!(why, "; {name} is ignored: {elevated}"),
                };
            }
        }
        why + what_to_install()
    }
}

/// What to install on this system.
fn what_to_install() -> &'static str {
    if cfg!(target_vendor = "apple") {
        "; Metal needs a GPU that macOS supports"
    } else if cfg!(windows) {
        "; install the driver of the GPU's maker"
    } else {
        "; install the driver of the GPU's maker, or Mesa's, which also has one for the cpu (Debian: \
         `mesa-vulkan-drivers` and `libvulkan1`, Fedora: `mesa-vulkan-drivers` and `vulkan-loader`)"
    }
}

/// Why the library of Vulkan's loader cannot be opened, with its name. `None` if it can be.
#[cfg(any(windows, target_os = "linux", target_os = "android", target_os = "freebsd"))]
fn missing_loader() -> Option<String> {
    // SAFETY: opening and closing the library runs the initialisers of Vulkan's loader, which make no demands
    // of the program; wgpu has just opened it as well. No function of it is called, and nothing of it is
    // kept.
    let entry = unsafe { ash::Entry::load() };
    entry.err().map(|error| error.to_string())
}

#[cfg(not(any(windows, target_os = "linux", target_os = "android", target_os = "freebsd")))]
fn missing_loader() -> Option<String> {
    None
}

/// The names of interfaces, as the variable has them.
fn names(apis: Backends) -> String {
    let names: Vec<_> =
        NAMES.iter().filter(|(_, api)| apis.contains(*api)).map(|(name, _)| format!("`{name}`")).collect();
    if names.is_empty() { "nothing".into() } else { names.join(", ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn searched(list: &str) -> Backends {
        Apis::from_list(list).map(|apis| apis.searched).unwrap()
    }

    #[test]
    fn a_list_is_read_as_wgpu_reads_it() {
        let here = Instance::enabled_backend_features();
        if here.contains(Backends::VULKAN) {
            assert_eq!(searched("vulkan"), Backends::VULKAN);
            assert_eq!(searched(" VK, gl"), Backends::VULKAN | Backends::GL);
            assert_eq!(searched("vulkan,metal,d3d12"), DEFAULT);
        }
    }

    #[test]
    fn an_invalid_name_is_an_error_that_lists_the_valid_ones() {
        for (list, wrong) in [("nonsense", "nonsense"), ("", ""), ("vulkan,", ""), ("vulkan,cuda", "cuda")] {
            let error = Apis::from_list(list).err().unwrap();
            assert!(!error.is_unavailable());
            let expected = format!(
                "invalid value `{list}` of WGPU_BACKEND: expected a list of `vulkan`, `metal`, `dx12`, `gl`, separated by \
                 commas, found `{wrong}`"
            );
            assert_eq!(error.to_string(), expected);
        }
    }

    /// wgpu knows them, but they are not hardware.
    #[test]
    fn other_interfaces_of_wgpu_are_invalid() {
        for list in ["webgpu", "noop"] {
            assert!(Apis::from_list(list).err().unwrap().to_string().starts_with("invalid value"));
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn an_interface_of_another_system_is_unavailable() {
        let error = Apis::from_list("metal").err().unwrap();
        assert!(error.is_unavailable());
        assert_eq!(
            error.to_string(),
            "WGPU_BACKEND is `metal`, which this system does not have: expected one of `vulkan`, `gl`"
        );
    }
}
