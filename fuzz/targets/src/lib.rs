//! The bodies of the fuzz targets: functions that take any bytes, and panic where the code under test is
//! wrong.
//!
//! `fuzz_targets/` hands them libFuzzer's inputs, and `tests/corpus.rs` the corpus. `../README.md` says what
//! each of them checks and how its inputs are written.

#![forbid(unsafe_code)]

mod device_list;
mod device_string;
mod openreg_settings;
mod program;
mod switches;
mod tensor;

pub use crate::device_list::device_list;
pub use crate::device_string::device_string;
pub use crate::openreg_settings::openreg_settings;
pub use crate::program::program;
pub use crate::switches::switches;
pub use crate::tensor::tensor;

device_registry::autoload!();

/// The body of a target.
pub type Body = fn(&[u8]);

/// Every target by its name, which its folder in the corpus and its file in `fuzz_targets/` also have.
pub const TARGETS: &[(&str, Body)] = &[
    ("device_list", device_list),
    ("device_string", device_string),
    ("openreg_settings", openreg_settings),
    ("program", program),
    ("switches", switches),
    ("tensor", tensor),
];

/// Panics unless a message is fit to be shown: there is one, and no text from outside can write to a terminal
/// with it.
fn check_message(message: &str) {
    assert!(!message.trim().is_empty(), "an error has a message");
    let raw = message.chars().find(|&c| c.is_control() && c != '\n');
    assert!(raw.is_none(), "a message has text that is not escaped: {message:?}");
}
