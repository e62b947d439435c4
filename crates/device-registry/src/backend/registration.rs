//! The group of backends: backend crates register in it, and devices look them up in it by name.

use crate::backend::Backend;
use crate::cpu;

/// A backend as constant data: its name, its package, and the function that loads it.
///
/// A backend crate declares one in an [`entry_points!`](crate::backend::entry_points) block at its root and registers it
/// in [`BACKENDS`].
pub type BackendDescriptor = entry_points::EntryPoint<dyn Backend>;

/// Backends of this crate itself. Their names cannot be taken, overridden or disabled.
static BUILT_IN: [BackendDescriptor; 1] = [BackendDescriptor::new(cpu::NAME, cpu::load)
    .in_package(env!("CARGO_PKG_NAME"), env!("CARGO_PKG_VERSION"))];

/// Words that a later version may give a meaning in a device string; see the grammar of [`Device`](crate::Device).
pub(crate) const RESERVED: &[&str] = &["auto", "default", "all", "none"];

entry_points::group! {
    /// The distributed slice that backend crates register in.
    ///
    /// The attribute in an [`entry_points!`](crate::backend::entry_points) block names it. It contains only the backends
    /// that linkme has collected; [`backends()`] has those of every way of registration, the switches and the states.
    pub static BACKENDS: [BackendDescriptor];

    /// The group `device.backends`: every backend of this program, by name.
    ///
    /// Listing it runs no backend's code. Variables with the prefix `DEVICE_BACKEND` switch backends on and off:
    /// see [`Switches`](crate::registry::Switches).
    ///
    /// ```
    /// let cpu = device_registry::backends().get("cpu").expect("built in");
    /// assert_eq!(cpu.package(), Some("device-registry"));
    /// println!("{}", device_registry::backends().report());
    /// ```
    pub fn backends() -> Group<dyn Backend> {
        entry_points::Group::new("device.backends")
            .noun("backend")
            .switches("DEVICE_BACKEND")
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
