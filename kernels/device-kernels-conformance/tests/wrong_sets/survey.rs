//! Which checks each defect fails, to write a row of the table with:
//! `DEVICE_KERNELS_WRONG_SURVEY=NanIsLess cargo test -p device-kernels-conformance --test wrong_sets`.

use std::env;
use std::process::ExitCode;

use device_kernels_conformance::{Outcome, checks};

use crate::outcome;
use crate::wrong::Wrong;

const SURVEY: &str = "DEVICE_KERNELS_WRONG_SURVEY";

/// Prints the checks that fail, if the variable names a defect.
pub(crate) fn main() -> Option<ExitCode> {
    let of = env::var(SURVEY).ok().filter(|of| !of.is_empty())?;
    for &wrong in Wrong::ALL.iter().filter(|wrong| of == format!("{wrong:?}")) {
        let fails = |name: &str| matches!(outcome(Some(wrong), name), Ok(Outcome::Failed(_)));
        let failed: Vec<_> =
            checks().iter().map(|check| check.name().to_owned()).filter(|name| fails(name)).collect();
        println!("{wrong:?}: {}", failed.join(" "));
    }
    Some(ExitCode::SUCCESS)
}
