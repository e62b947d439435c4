//! Installing: where a program's plugins lie, and what becomes of their manifests.

mod error;
pub(crate) mod examine;
mod places;
mod plugins;
mod report;

pub use self::error::InstallError;
pub use self::plugins::Plugins;
pub use self::report::{InstallReport, Skipped};
