//! The environment of tests that run once more in their own process.

use device_conformance::process::Environment;

/// Without the machine's variables that choose an OpenCL.
pub(crate) const CHILD: Environment = Environment::without(&["OPENCL_*", "OCL_ICD_*", "POCL_CACHE_DIR"]);
