//! A process with more rights than its user does not start a driver that would open what a variable names.
#![cfg(target_os = "linux")]

use device_conformance::process;
use device_registry::backends;

device_registry::autoload!();

#[test]
fn an_elevated_process_starts_no_driver_that_would_obey_its_user() {
    if process::is_child() {
        if process::is_elevated() {
            println!("{}", backends().load("cuda").map(drop).unwrap_err());
        }
        return;
    }
    let test = "an_elevated_process_starts_no_driver_that_would_obey_its_user";
    for name in [
        "CUDA_INJECTION64_PATH",
        "CUDA_INJECTION32_PATH",
        "CUDA_CACHE_PATH",
        "CUDA_MPS_PIPE_DIRECTORY",
        "CUDA_MPS_LOG_DIRECTORY",
    ] {
        let Some(output) = process::again_elevated(test, |child| child.env(name, "/nonexistent")) else {
            return;
        };
        let printed = String::from_utf8_lossy(&output.stdout);
        let expected =
            format!("CUDA is not used while {name} is set: this process has more rights than its user");
        assert!(printed.contains(&expected), "{printed}");
    }
}
