//! The environment of tests that run once more in their own process.

use device_conformance::process::Environment;

/// Without variables of openreg.
pub(crate) const CHILD: Environment = Environment::without(&["OPENREG_*", "DEVICE_BACKEND_OPTIONS"]);
