//! Small projects that are written, built and run: what Cargo, rustc, linkers and other build tools make of a
//! registration.
//!
//! `cargo test --workspace` leaves them out, as they call Cargo again: `cargo test -p device-registry-tests
//! --test builds` runs the quick ones, and with `-- --ignored` the slow ones, and those that need tools.

device_registry::autoload!();

mod build_tools;
mod c_programs;
mod codec;
mod costs;
mod custom_backend;
mod linking;
mod lints;
mod macro_errors;
mod platforms;
mod processors;
mod profiles;
mod quickstart;
mod templates;
mod ten_minutes;
mod two_versions;
mod windows_plugins;
