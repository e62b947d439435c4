//! Lists the checks that catch a defect, to help add one to the table.

use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use std::{env, thread};

use device_conformance::checks;

use crate::child::{self, Fate};
use crate::defect::Defect;
use crate::twin::TWINS;

/// The broken twins to survey: a comma-separated list of `TWIN:DEFECT`.
const SURVEY: &str = "DEVICE_CONFORMANCE_BROKEN_SURVEY";

/// Runs all checks on each of the broken twins, and prints the checks that do not pass.
pub(crate) fn main() -> Option<ExitCode> {
    let list = env::var(SURVEY).ok()?;
    let mut tasks = Vec::new();
    for one in list.split(',') {
        let (twin, defect) = one.split_once(':').unwrap_or((one, ""));
        let twin = TWINS.into_iter().find(|of| of.name == twin);
        let (Some(twin), Some(defect)) = (twin, Defect::of_name(defect)) else {
            eprintln!(
                "error: invalid {SURVEY}: expected `TWIN:DEFECT`, such as `sound:short_writes`, found `{one}`"
            );
            return Some(ExitCode::FAILURE);
        };
        tasks.extend(checks().map(|check| (twin, defect, check)));
    }
    let (next, printing) = (AtomicUsize::new(0), Mutex::new(()));
    let work = || {
        while let Some(&(twin, defect, check)) = tasks.get(next.fetch_add(1, Ordering::Relaxed)) {
            let fate = child::run(twin, defect, check, Duration::from_secs(3));
            let _alone = printing.lock();
            match fate {
                Ok(Fate::Passed | Fate::Unsupported(_)) => {}
                Ok(fate) => println!("{} {} {}: {fate:?}", twin.name, defect.name(), check.name()),
                Err(error) => eprintln!("error: cannot start a child: {error}"),
            }
        }
    };
    thread::scope(|scope| (0..6).for_each(|_| drop(scope.spawn(work))));
    Some(ExitCode::SUCCESS)
}
