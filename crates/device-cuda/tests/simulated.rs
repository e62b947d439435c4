//! The suite on the **simulated** driver of `tests/simulated_driver`, which is no hardware: it shows that the
//! backend keeps to the interface as the reference describes it, the strict simulation being its judge.
//! `tests/conformance.rs` runs the same suite on the GPUs of this machine.

device_registry::autoload!();

#[cfg(target_os = "linux")]
mod child;

use device_conformance::process;

#[cfg(not(target_os = "linux"))]
fn main() {
    eprintln!("skipped: the simulated driver is found by LD_LIBRARY_PATH, which is Linux's");
}

#[cfg(target_os = "linux")]
fn main() -> std::process::ExitCode {
    if process::is_child() {
        return run();
    }
    let mut again = child::program(Some(&child::simulated()));
    // Nothing passes by skipping.
    again.args(std::env::args_os().skip(1)).env("DEVICE_CONFORMANCE_REQUIRE", "cuda");
    let status = again.status().expect("it starts");
    match status.code() {
        Some(0) => std::process::ExitCode::SUCCESS,
        Some(_) => std::process::ExitCode::FAILURE,
        None => {
            eprintln!("the suite on the simulated driver ended by a signal: {status}");
            std::process::ExitCode::FAILURE
        }
    }
}

#[cfg(target_os = "linux")]
fn run() -> std::process::ExitCode {
    let properties = device_registry::device("cuda").and_then(|device| device.properties());
    let properties = properties.expect("the driver is there");
    assert_eq!(properties.name, "Simulated CUDA device");
    let attribute = |name| properties.attributes.get(name).map(ToString::to_string);
    // 1 GHz, twice, of 256 bits.
    assert_eq!(attribute("memory_bandwidth_bytes_per_second").as_deref(), Some("64000000000"));
    assert_eq!(attribute("l2_cache_bytes"), None, "this driver does not know it");
    eprintln!("note: each `cuda` below is a device of the simulated driver, and no hardware");
    device_conformance::Suite::new().backend("cuda").run()
}
