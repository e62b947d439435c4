//! Which checks catch a defect: for whoever adds one.

use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use std::{env, thread};

use device_conformance::checks;

use crate::child::{self, Fate};
use crate::defect::Defect;
use crate::twin::TWINS;

/// The variable with what is asked: `TWIN:DEFECT`, and more of them behind commas.
const SURVEY: &str = "DEVICE_CONFORMANCE_BROKEN_SURVEY";

/// Runs all checks on each of the broken twins, and prints those that do not pass.
pub(crate) fn main() -> Option<ExitCode> {
    let asked = env::var(SURVEY).ok()?;
    let mut tasks = Vec::new();
    for one in asked.split(',') {
        let (twin, defect) = one.split_once(':').unwrap_or((one, ""));
        let twin = TWINS.into_iter().find(|of| of.name == twin);
        let (Some(twin), Some(defect)) = (twin, Defect::of_name(defect)) else {
            eprintln!(
                "error: {SURVEY} is to be `TWIN:DEFECT`, such as `sound:short_writes`, and has `{one}`"
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
                Err(error) => eprintln!("error: no process for a child: {error}"),
            }
        }
    };
    thread::scope(|scope| (0..6).for_each(|_| drop(scope.spawn(work))));
    Some(ExitCode::SUCCESS)
}
