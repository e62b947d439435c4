//! The suite, on the devices of `opencl`.

device_registry::autoload!();

fn main() -> std::process::ExitCode {
    device_conformance::Suite::new().backend("opencl").run()
}
