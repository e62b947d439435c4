//! The library of the package host-decoder, which is a dev-dependency.

use std::env;
use std::path::PathBuf;

/// Where cargo puts it: beside the programs of the tests.
pub(crate) fn file() -> PathBuf {
    let program = env::current_exe().expect("the system knows this program");
    program.with_file_name(format!("{}host_decoder{}", env::consts::DLL_PREFIX, env::consts::DLL_SUFFIX))
}
