//! The suite that every backend passes.

device_registry::autoload!();

fn main() -> std::process::ExitCode {
    device_conformance::Suite::new().backend("{{backend}}").run()
}
