//! Which of the interfaces to GPUs are asked for adapters, and what to say if none has one.

use std::env;
use std::fmt::Write;

use crate::ready::ready;
use device_registry::backend::LoadFailure;
use wgpu::{Backends, Instance, InstanceDescriptor, InstanceFlags};

/// wgpu's own variable.
const CHOICE: &str = "WGPU_BACKEND";

/// Without a choice. OpenGL shows most adapters a second time, and its drivers print.
const DEFAULT: Backends = Backends::VULKAN.union(Backends::METAL).union(Backends::DX12);

/// What can be chosen: the name that is shown, and what it is.
const NAMES: [(&str, Backends); 4] = [
    ("vulkan", Backends::VULKAN),
    ("metal", Backends::METAL),
    ("dx12", Backends::DX12),
    ("gl", Backends::GL),
];

/// The variables by which Vulkan's loader is told which drivers there are.
const DRIVERS: [&str; 3] = ["VK_DRIVER_FILES", "VK_ICD_FILENAMES", "VK_ADD_DRIVER_FILES"];

/// The interfaces that are asked.
pub(crate) struct Apis {
    asked: Backends,
    chosen: bool,
}

impl Apis {
    /// # Errors
    ///
    /// The variable, what in it means nothing, and what is allowed. *Unavailable* if what it asks for does not exist on
    /// this system.
    pub(crate) fn from_env() -> Result<Self, LoadFailure> {
        // Empty is as good as not set, as with the registry's variables.
        match env::var_os(CHOICE).filter(|value| !value.is_empty()) {
            None => Ok(Self { asked: DEFAULT, chosen: false }),
            Some(value) => Self::from_list(&value.to_string_lossy()),
        }
    }

    fn from_list(list: &str) -> Result<Self, LoadFailure> {
        let here = Instance::enabled_backend_features();
        let known = NAMES.iter().fold(Backends::empty(), |all, (_, api)| all | *api);
        let mut asked = Backends::empty();
        for name in list.split(',') {
            // By wgpu's own reading, so that its aliases are known too.
            let api = Backends::from_comma_list(name) & known;
            if api.is_empty() {
                return Err(LoadFailure::new(format_args!(
                    "{CHOICE} is `{list}`, in which `{}` means nothing: it has to be a list of {}, separated by commas",
                    name.trim(),
                    names(known),
                )));
            }
            asked |= api;
        }
        if (asked & here).is_empty() {
            return Err(LoadFailure::unavailable(format_args!(
                "{CHOICE} is `{list}`, which this system does not have; it has {}",
                names(here & known),
            )));
        }
        Ok(Self { asked, chosen: true })
    }

    /// All adapters of these interfaces.
    pub(crate) fn adapters(&self) -> Vec<wgpu::Adapter> {
        // `Instance::new` panics where there can be none.
        if Instance::enabled_backend_features().is_empty() {
            return Vec::new();
        }
        let mut descriptor = InstanceDescriptor::new_without_display_handle();
        descriptor.backends = self.asked;
        // Not its default, which in a debug build has the validation layers of the interfaces as well. What is left
        // keeps an indirect dispatch within the limits.
        descriptor.flags = InstanceFlags::VALIDATION_INDIRECT_CALL.with_env();
        let instance = Instance::new(descriptor);
        ready(instance.enumerate_adapters(self.asked)).unwrap_or_default()
    }

    /// What to say if there is no adapter: what was tried, and what to do.
    pub(crate) fn why_there_is_none(&self) -> String {
        let here = self.asked & Instance::enabled_backend_features();
        let mut why = format!("no adapter was found by {}", names(here));
        // Writing to a string cannot fail.
        if self.chosen {
            let _ = write!(why, ", which {CHOICE} asks for");
        }
        if here.contains(Backends::VULKAN) {
            if let Some(missing) = missing_loader() {
                let _ = write!(why, "; Vulkan's loader cannot be opened ({missing})");
            }
            for name in DRIVERS {
                if let Some(value) = env::var_os(name) {
                    let _ = write!(why, "; {name} is `{}`", value.to_string_lossy());
                }
            }
        }
        why + what_to_install()
    }
}

/// What a person installs, by system.
fn what_to_install() -> &'static str {
    if cfg!(target_vendor = "apple") {
        "; Metal needs a GPU that macOS supports"
    } else if cfg!(windows) {
        "; install the driver of the GPU's maker"
    } else {
        "; install the driver of the GPU's maker, or Mesa's, which has one for the cpu as well (Debian: \
         `mesa-vulkan-drivers` and `libvulkan1`, Fedora: `mesa-vulkan-drivers` and `vulkan-loader`)"
    }
}

/// Why the library of Vulkan's loader cannot be opened, with its name. `None` if it can be.
#[cfg(any(windows, target_os = "linux", target_os = "android", target_os = "freebsd"))]
fn missing_loader() -> Option<String> {
    // SAFETY: it is the library that wgpu has just tried to open itself, with what it runs when it is opened and closed.
    // Nothing of it is kept, and no function called.
    let entry = unsafe { ash::Entry::load() };
    entry.err().map(|error| error.to_string())
}

#[cfg(not(any(windows, target_os = "linux", target_os = "android", target_os = "freebsd")))]
fn missing_loader() -> Option<String> {
    None
}

/// As they are written in the variable.
fn names(apis: Backends) -> String {
    let names: Vec<_> =
        NAMES.iter().filter(|(_, api)| apis.contains(*api)).map(|(name, _)| format!("`{name}`")).collect();
    match names.is_empty() {
        true => "nothing".into(),
        false => names.join(", "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(list: &str) -> Backends {
        Apis::from_list(list).map(|apis| apis.asked).unwrap()
    }

    #[test]
    fn a_list_is_read_as_wgpu_reads_it() {
        let here = Instance::enabled_backend_features();
        if here.contains(Backends::VULKAN) {
            assert_eq!(asked("vulkan"), Backends::VULKAN);
            assert_eq!(asked(" VK, gl"), Backends::VULKAN | Backends::GL);
            assert_eq!(asked("vulkan,metal,d3d12"), DEFAULT);
        }
    }

    #[test]
    fn what_means_nothing_is_an_error_that_lists_what_does() {
        for (list, wrong) in [("nonsense", "nonsense"), ("", ""), ("vulkan,", ""), ("vulkan,cuda", "cuda")] {
            let error = Apis::from_list(list).err().unwrap();
            assert!(!error.is_unavailable());
            let expected = format!("WGPU_BACKEND is `{list}`, in which `{wrong}` means nothing");
            assert!(error.to_string().starts_with(&expected), "{error}");
            assert!(error.to_string().contains("`vulkan`, `metal`, `dx12`, `gl`"), "{error}");
        }
    }

    /// They are of wgpu, but no hardware's.
    #[test]
    fn what_wgpu_knows_beside_the_four_is_refused_too() {
        for list in ["webgpu", "noop"] {
            assert!(Apis::from_list(list).err().unwrap().to_string().contains("means nothing"));
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn what_is_of_another_system_is_unavailable() {
        let error = Apis::from_list("metal").err().unwrap();
        assert!(error.is_unavailable());
        assert_eq!(
            error.to_string(),
            "WGPU_BACKEND is `metal`, which this system does not have; it has `vulkan`, `gl`"
        );
    }
}
