//! The exit codes of the command.

/// No problems.
pub(super) const FINE: u8 = 0;

/// Problems were found, or there is no manifest to print.
pub(super) const PROBLEMS: u8 = 1;

/// The arguments are wrong.
pub(super) const USAGE_ERROR: u8 = 2;
