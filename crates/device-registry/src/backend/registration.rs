//! The group of backends: backend crates register in it, and devices look them up in it by name.

use crate::backend::Backend;
use crate::cpu;

/// A backend as constant data: its name, its package, and the function that loads it.
///
/// A backend crate declares one in an [`entry_points!`](crate::backend::entry_points) block at its root and
/// registers it in [`BACKENDS`].
pub type BackendDescriptor = entry_points::EntryPoint<dyn Backend>;

/// This crate's own backends. Their names cannot be taken, overridden or disabled.
static BUILT_IN: [BackendDescriptor; 1] = [BackendDescriptor::new(cpu::NAME, cpu::load)
    .in_package(env!("CARGO_PKG_NAME"), env!("CARGO_PKG_VERSION"))];

/// Words that may get a meaning in device strings in a later version; see the grammar of
/// [`Device`](crate::Device).
pub(crate) const RESERVED: &[&str] = &["auto", "default", "all", "none"];

/// The variables that the crates of this repository read, to notice misspelt ones; `_*` stands for a group's
/// variables. A test looks for others in the sources.
const VARIABLES: [&str; 41] = [
    "DEVICE_BACKEND_*",
    "DEVICE_BURN_DEVICE",
    "DEVICE_BURN_ENGINES_*",
    "DEVICE_BURN_FALLBACK",
    "DEVICE_BURN_FUSION",
    "DEVICE_BURN_KERNELS",
    "DEVICE_CONFIG",
    "DEVICE_CONFORMANCE_CASES",
    "DEVICE_CONFORMANCE_REQUIRE",
    "DEVICE_CONFORMANCE_SEED",
    "DEVICE_CONFORMANCE_TIME_LIMIT",
    "DEVICE_CUDA_CUBLASLT",
    "DEVICE_CUDA_LIBRARIES",
    "DEVICE_CUDA_NVRTC",
    "DEVICE_DEFAULT",
    "DEVICE_FILE_GROUPS_*",
    "DEVICE_FLIGHT_RECORDER",
    "DEVICE_KERNELS_*",
    "DEVICE_LAUNCH_AT_ONCE",
    "DEVICE_MEMORY_REUSE",
    "DEVICE_OBSERVERS_*",
    "DEVICE_OPERATORS_*",
    "DEVICE_ORT",
    "DEVICE_ORT_AUTOLOAD",
    "DEVICE_ORT_FALLBACK",
    "DEVICE_ORT_FEATURES",
    "DEVICE_ORT_LIBRARY",
    "DEVICE_ORT_PLUGINS",
    "DEVICE_PLUGINS",
    "DEVICE_PROGRAM_CACHE",
    "DEVICE_TORCH",
    "DEVICE_TORCH_BUILD_FOR",
    "DEVICE_TORCH_CXXFLAGS",
    "DEVICE_TORCH_FALLBACK",
    "DEVICE_TORCH_FEATURES",
    "DEVICE_TORCH_NAME",
    "DEVICE_TORCH_PLUGINS",
    "DEVICE_TRACE",
    "DEVICE_TRACE_MEGABYTES",
    "DEVICE_TRACE_ON_OOM",
    "DEVICE_VALIDATE",
];

entry_points::group! {
    /// The distributed slice that backend crates register in.
    ///
    /// The attribute in an [`entry_points!`](crate::backend::entry_points) block names it. It contains only
    /// the backends that linkme has collected; [`backends()`] has every registered backend, the switches and
    /// the states.
    pub static BACKENDS: [BackendDescriptor];

    /// The group `device.backends`: every backend of this program, by name.
    ///
    /// Listing it runs no backend's code. Variables with the prefix `DEVICE_BACKEND` switch backends on and
    /// off: see [`Switches`](crate::registry::Switches).
    ///
    /// ```
    /// let cpu = device_registry::backends().get("cpu").expect("built in");
    /// assert_eq!(cpu.package(), Some("device-registry"));
    /// println!("{}", device_registry::backends().report());
    /// ```
    ///
    /// A program sets options of a backend before it uses the backend, and a user sets them in the variable
    /// `DEVICE_BACKEND_OPTIONS='netmem.servers=10.0.0.1:1,10.0.0.2:1;openreg.devices=4'`. Where both set an
    /// option, the program takes precedence: see [`Group::set_option`](crate::registry::Group::set_option).
    ///
    /// ```
    /// use device_registry::backend::{Backend, BackendDescriptor, LoadFailure, OptionSpec, Options};
    /// use device_registry::backends;
    ///
    /// // A backend crate has an `entry_points!` block instead.
    /// static NETMEM: BackendDescriptor = BackendDescriptor::with_options(
    ///     "netmem",
    ///     load,
    ///     &[OptionSpec::new("servers", "addresses of the servers, separated by commas")],
    /// );
    ///
    /// fn load(options: &Options) -> Result<Box<dyn Backend>, LoadFailure> {
    ///     let servers = options.get("servers").unwrap_or("127.0.0.1:4501");
    ///     Err(LoadFailure::unavailable(format_args!("no server answers at {servers}")))
    /// }
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// backends().register(&NETMEM)?;
    /// backends().set_option("netmem", "servers", "10.0.0.1:4501")?;
    /// let error = device_registry::device("netmem")?.allocate(1).unwrap_err();
    /// assert!(error.to_string().ends_with("is unavailable: no server answers at 10.0.0.1:4501"));
    /// # Ok(())
    /// # }
    /// ```
    pub fn backends() -> Group<dyn Backend> {
        entry_points::Group::new("device.backends")
            .noun("backend")
            .switches("DEVICE_BACKEND")
            .variables(&VARIABLES)
            .built_in(&BUILT_IN)
            .reserved(RESERVED)
            .autoload_line("device_registry::autoload!();")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::LoadFailure;

    fn load() -> Result<Box<dyn Backend>, LoadFailure> {
        unreachable!("the group refuses both descriptors")
    }

    #[test]
    fn a_reserved_word_cannot_be_registered() {
        static AUTO: BackendDescriptor = BackendDescriptor::new("auto", load);
        assert!(backends().register(&AUTO).is_err());
    }

    #[test]
    fn the_name_of_the_built_in_backend_cannot_be_taken() {
        static CPU: BackendDescriptor = BackendDescriptor::new("cpu", load);
        assert!(backends().register(&CPU).is_err());
        assert!(backends().register_override(&CPU).is_err());
        assert!(backends().load("cpu").is_ok());
    }
}
