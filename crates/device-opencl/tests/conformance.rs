//! The suite, on the devices of `opencl`, which offer fault injection here. The suite over all backends runs
//! without it.

device_registry::autoload!();

fn main() -> std::process::ExitCode {
    if let Err(error) = device_registry::backends().set_option("opencl", "faults", "1") {
        eprintln!("{error}");
        return std::process::ExitCode::FAILURE;
    }
    device_conformance::Suite::new().backend("opencl").run()
}
