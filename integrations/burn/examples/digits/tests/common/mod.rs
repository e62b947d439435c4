//! What the tests of this folder share.

use std::num::NonZeroUsize;
use std::path::PathBuf;

use digits::training::{Options, Strategy};

/// An empty output folder of its own for each test.
pub(crate) fn options(test: &str, epochs: usize) -> Options {
    let output = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(test);
    // What an earlier run has left: a folder, or the file of one of the tests.
    if output.is_dir() {
        std::fs::remove_dir_all(&output).unwrap();
    } else if output.exists() {
        std::fs::remove_file(&output).unwrap();
    }
    Options {
        epochs: NonZeroUsize::new(epochs).unwrap(),
        seed: 1,
        dropout: 0.25,
        output,
        resume: false,
        strategy: Strategy::Main,
    }
}
