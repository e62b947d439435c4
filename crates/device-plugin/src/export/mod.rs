//! The side of the library: a backend of this crate's own kind behind the C interface.

pub(crate) mod backend;
mod bytes;
mod device;
mod event;
mod exported;
mod host;
pub(crate) mod launch;
pub(crate) mod report;
mod sources;
mod stream;

use device_registry::plugin;

use crate::abi::{self, Host, Plugin, Report, Str, Table};
use crate::export::exported::EXPORTED;
pub use crate::export::exported::{Exported, ExportedEntry};
use crate::export::report::guard;

/// Exports backends from a shared library.
///
/// It is the one line of a crate whose `crate-type` is `cdylib`. It names the descriptors, so that the linker
/// keeps their crates:
///
/// ```toml
/// [lib]
/// crate-type = ["cdylib"]
///
/// [dependencies]
/// device-plugin = { version = "0.1", default-features = false }
/// device-openreg = "0.1"
/// ```
///
/// ```
/// # mod device_openreg {
/// #     use device_registry::backend::{BackendDescriptor, LoadFailure};
/// #     pub static OPENREG: BackendDescriptor = BackendDescriptor::new("openreg", || Err(LoadFailure::new("")));
/// # }
/// device_plugin::export!(device_openreg::OPENREG);
/// # fn main() {}
/// ```
///
/// The library has a copy of `device-registry` of its own, in which only these backends and `cpu` exist. The
/// environment does not switch them: the program's switches count. What the backends log, and their panics,
/// reach the program.
///
/// A library that is built with `panic = "abort"` is a compile error, as a panic of the backend would end the
/// program.
///
/// Entries of [other groups](crate::interface), such as kernel sets, come behind a semicolon.
#[macro_export]
macro_rules! export {
    ($($descriptor:path),+ $(; $($entry:expr),+)? $(,)?) => {
        #[cfg(panic = "abort")]
        ::core::compile_error!(
            "a backend in a file needs `panic = \"unwind\"`: with \"abort\", its panics would end the program"
        );

        /// # Safety
        ///
        /// The caller keeps the rules of `device_plugin.h`.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn device_plugin_v0(
            host: *const $crate::__private::Host,
            report: *const $crate::__private::Report,
        ) -> *const $crate::__private::Plugin {
            static EXPORTED: $crate::__private::Exported = $crate::__private::Exported {
                descriptors: &[$(&$descriptor),+],
                entries: &[$($(&$entry),+)?],
                package: ::core::env!("CARGO_PKG_NAME"),
                version: ::core::env!("CARGO_PKG_VERSION"),
            };
            // SAFETY: the caller keeps the rules.
            unsafe { $crate::__private::start(&EXPORTED, host, report) }
        }
    };
}

// Not public API. Used by `export!`.
#[doc(hidden)]
/// # Safety
///
/// The pointers are as `device_plugin.h` says.
pub unsafe fn start(exported: &'static Exported, host: *const Host, report: *const Report) -> *const Plugin {
    let mut plugin = std::ptr::null();
    // SAFETY: the caller promises that `host` and `report` are valid.
    unsafe {
        guard(report, || {
            host::connect(host)?;
            EXPORTED.get_or_init(|| exported);
            // Entries of other groups may be loaded before their backend. If one fails, its `load` returns
            // the error.
            exported.descriptors.iter().for_each(|descriptor| drop(plugin::register(descriptor)));
            plugin = std::ptr::from_ref(describe(exported));
            Ok(())
        });
    }
    plugin
}

/// What the library tells the program of itself. It is never freed.
fn describe(exported: &'static Exported) -> &'static Plugin {
    let backends = exported.descriptors.iter().map(|descriptor| {
        let options = descriptor.options().iter().map(|option| (option.name(), option.description()));
        Described {
            group: abi::BACKENDS,
            name: descriptor.name(),
            package: descriptor.package(),
            version: descriptor.version(),
            options: options.collect(),
        }
    });
    let others = exported.entries.iter().map(|entry| Described {
        group: entry.group(),
        name: entry.name(),
        package: entry.package(),
        version: entry.version(),
        options: entry.options(),
    });
    let entries: Vec<&'static abi::Entry> =
        backends.chain(others).map(|described| entry(exported, &described)).collect();
    let entries: &'static [&'static abi::Entry] = entries.leak();
    Box::leak(Box::new(Plugin {
        major: abi::MAJOR,
        minor: abi::MINOR,
        entries: entries.as_ptr().cast(),
        entry_count: entries.len(),
        load: Some(backend::load),
        load_entry: (!exported.entries.is_empty()).then_some(backend::load_entry),
        ..Plugin::ZEROED
    }))
}

/// An entry, as the program has to know it.
struct Described {
    group: &'static str,
    name: &'static str,
    package: Option<&'static str>,
    version: Option<&'static str>,
    options: Vec<(&'static str, &'static str)>,
}

fn entry(exported: &Exported, described: &Described) -> &'static abi::Entry {
    let options = described.options.iter().map(|&(name, description)| -> &'static abi::OptionSpec {
        Box::leak(Box::new(abi::OptionSpec {
            name: Str::of(name),
            description: Str::of(description),
            ..abi::OptionSpec::ZEROED
        }))
    });
    let options: &'static [&'static abi::OptionSpec] = options.collect::<Vec<_>>().leak();
    Box::leak(Box::new(abi::Entry {
        group: Str::of(described.group),
        name: Str::of(described.name),
        package: Str::of(described.package.unwrap_or(exported.package)),
        version: Str::of(described.version.unwrap_or(exported.version)),
        options: options.as_ptr().cast(),
        option_count: options.len(),
        ..abi::Entry::ZEROED
    }))
}
