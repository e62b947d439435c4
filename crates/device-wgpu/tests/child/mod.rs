//! The environment of tests that run once more in their own process.

use device_conformance::process::Environment;

/// Without the machine's variables that choose drivers. A Mesa layer prints messages where there is no
/// desktop, unless `NODEVICE_SELECT` is set.
pub(crate) const CHILD: Environment =
    Environment::without(&["WGPU_BACKEND", "VK_ICD_FILENAMES", "VK_DRIVER_FILES", "VK_ADD_DRIVER_FILES"])
        .with(&[("NODEVICE_SELECT", "1")]);
