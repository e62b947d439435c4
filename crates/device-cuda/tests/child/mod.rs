//! Test programs that run once more in a process of their own, on the simulated driver of `tests/simulated_driver`.

use std::env;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

const CHILD: &str = "DEVICE_CUDA_TEST_CHILD";

/// Whether this process is one that [`program`] has prepared.
pub(crate) fn is_this() -> bool {
    env::var_os(CHILD).is_some()
}

/// The simulated driver, which is built as an example, beside this program.
pub(crate) fn simulated_driver() -> PathBuf {
    let program = env::current_exe().expect("the test has a file");
    let profile = program.parent().and_then(Path::parent).expect("it lies in target/<profile>/deps");
    let library = profile.join("examples").join("libcuda.so");
    assert!(
        library.is_file(),
        "{} is not there; `cargo build -p device-cuda --example cuda` makes it, and so does `cargo test`",
        library.display()
    );
    library
}

/// This program, to be run with the driver's library looked for in `folder` first, and without what the environment
/// says to CUDA.
pub(crate) fn program(folder: &Path) -> Command {
    let mut command = Command::new(env::current_exe().expect("the test has a file"));
    let before = env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
    let folders =
        [folder.as_os_str().to_owned()].into_iter().chain(Some(before).filter(|path| !path.is_empty()));
    command
        .env("LD_LIBRARY_PATH", folders.collect::<Vec<_>>().join(OsStr::new(":")))
        .env(CHILD, "1")
        .env("RUST_BACKTRACE", "0")
        .env_remove("CUDA_VISIBLE_DEVICES")
        .env_remove("SIMULATED_CUDA_INIT")
        .env_remove("SIMULATED_CUDA_FAULT");
    command
}
