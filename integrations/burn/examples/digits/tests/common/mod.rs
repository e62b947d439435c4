//! What the tests of this folder share.

use std::num::NonZeroUsize;
use std::path::PathBuf;

use burn::tensor::Device;
use digits::training::Options;

/// The device that the tests run on.
pub(crate) fn device() -> Device {
    device_burn::device("cpu").unwrap()
}

/// An empty output folder of its own for each test.
pub(crate) fn options(test: &str, epochs: usize) -> Options {
    let output = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(test);
    if output.exists() {
        std::fs::remove_dir_all(&output).unwrap();
    }
    Options { epochs: NonZeroUsize::new(epochs).unwrap(), seed: 1, output, resume: false }
}
