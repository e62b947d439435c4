//! The conformance suite over every linked backend: one test for each device and check, such as
//! `openreg:0::memory::round_trip`. A backend line in Cargo.toml adds its tests.

device_registry::autoload!();

fn main() -> std::process::ExitCode {
    device_conformance::run()
}
