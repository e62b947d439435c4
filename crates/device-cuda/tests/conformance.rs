//! The suite, on every NVIDIA GPU of this machine; skipped where there is none.

device_registry::autoload!();

fn main() -> std::process::ExitCode {
    device_conformance::Suite::new().backend("cuda").run()
}
