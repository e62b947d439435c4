#![doc = include_str!("../README.md")]
// Where docs.rs builds the docs, they show which feature an item needs.
#![cfg_attr(docsrs, feature(doc_cfg))]

mod abi;
mod chain;
mod export;
#[cfg(feature = "load")]
mod file;
#[cfg(feature = "load")]
pub mod group;
#[cfg(feature = "load")]
mod install;
pub mod interface;
#[cfg(feature = "load")]
mod load;
// Not public API. The command `devices plugin` is a call of it.
#[cfg(feature = "load")]
#[doc(hidden)]
pub mod tool;

#[cfg(feature = "load")]
pub use crate::file::manifest::Manifest;
#[cfg(feature = "load")]
pub use crate::install::{InstallError, InstallReport, Plugins, Skipped};
#[cfg(feature = "load")]
pub use crate::load::LoadedDevice;

// Not public API. Used by `export!`.
#[doc(hidden)]
pub mod __private {
    pub use crate::abi::{Host, Plugin, Report};
    pub use crate::export::{Exported, start};
}
