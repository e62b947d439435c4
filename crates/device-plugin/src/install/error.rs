//! The error of a program that names an invalid place for plugins.

use std::path::PathBuf;

use entry_points::message::{shown, shown_path};

/// A mistake in the program, which [`Plugins::install`](crate::Plugins::install) returns before it reads any
/// folder. Mistakes in folders and manifests are in the [`InstallReport`](crate::InstallReport).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InstallError {
    /// [`folder`](crate::Plugins::folder) with a path that depends on the current directory.
    #[error(
        "the folder `{}` of plugins is relative; expected an absolute path, or `Plugins::beside_program`",
        shown_path(.0)
    )]
    RelativeFolder(PathBuf),
    /// [`beside_program`](crate::Plugins::beside_program) with a path that is not relative to the program.
    #[error("`beside_program(\"{}\")` is not relative; expected a path such as `backends`, or `Plugins::folder`", shown_path(.0))]
    NotBesideProgram(PathBuf),
    /// [`variable`](crate::Plugins::variable) with a name that no variable can have.
    #[error("`variable(\"{}\")` is not the name of a variable; expected a name such as `MYAPP_BACKENDS`", shown(.0))]
    VariableName(String),
}
