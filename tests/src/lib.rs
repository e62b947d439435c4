//! Shared by the tests across crates: [`Project`], a small Cargo project that a test writes, builds and runs,
//! [`platform`], what builds it for other systems, and [`files`], the files of this repository.
//!
//! Whether a crate is linked is decided by Cargo, rustc and the linker together, so nothing less than a real
//! project shows it. The tests in `tests/tests` that need none use the workspace's crates directly.

pub mod platform;
mod project;
mod tree;

/// The code in the repository's README.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
pub struct Readme;

/// The recipes for real devices.
#[cfg(doctest)]
#[doc = include_str!("../../docs/hardware.md")]
pub struct Hardware;

pub use crate::project::{LIST, Outcome, Project, artifacts, files_in, run, workspace};
pub use crate::tree::files;
