//! Broken backends, to prove that the suite catches them: correct backends, the twins, with one defect at a
//! time.
//!
//! There are two kinds of tests. `twins::CHECK` runs a check on all twins without a defect: it passes on at
//! least one, and fails on none. `DEFECT::caught_by::CHECK` runs a check on a twin with a defect, in a
//! process of its own, and expects it to fail. See `README.md` beside this file.

mod backend;
mod child;
mod defect;
mod device;
mod event;
mod faults;
mod misallocate;
mod misqueue;
mod mistransfer;
mod pool;
mod progress;
mod stream;
mod suite;
mod survey;
mod table;
mod transfer;
mod twin;
mod wrong;

use std::collections::BTreeSet;
use std::process::ExitCode;
use std::time::Duration;

use device_conformance::{Check, Outcome, checks};
use libtest_mimic::{Arguments, Failed, Trial};

use crate::child::Fate;
use crate::defect::Defect;
use crate::table::{Row, rows};
use crate::twin::TWINS;

/// The time limit of a check on a twin: far longer than it takes, even on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// The same of a check that has to fail. Some wait half of it for what never happens.
const OF_A_FAILURE: Duration = Duration::from_secs(20);

/// How often to try a check that has to fail. Some defects are races, which may not show on a busy machine.
const ATTEMPTS: usize = 5;

/// The time limit of a check that has to hang.
const IMPATIENCE: Duration = Duration::from_millis(1500);

fn main() -> ExitCode {
    if let Some(code) = child::main().or_else(child::of_a_check).or_else(suite::main).or_else(survey::main) {
        return code;
    }
    let mut arguments = Arguments::from_args();
    // Most tests spend their time waiting.
    arguments.test_threads.get_or_insert(12);
    let mut trials: Vec<_> = checks()
        .map(|check| Trial::test(format!("twins::{}", check.name()), move || passes_on_twins(check)))
        .collect();
    for row in rows() {
        trials.extend(row.checks.iter().map(|&check| {
            let name = format!("{}::caught_by::{check}", row.defect.name());
            Trial::test(name, move || is_caught(row, check))
        }));
    }
    trials.extend(suite::trials());
    trials.push(Trial::test("every_check_is_failed_by_a_defect", every_check_is_failed));
    trials.push(Trial::test("every_defect_is_caught", every_defect_is_caught));
    libtest_mimic::run(&arguments, trials).exit_code()
}

fn passes_on_twins(check: &'static Check) -> Result<(), Failed> {
    let mut passed = false;
    for twin in TWINS {
        match check.run(twin.device(), PATIENCE) {
            Outcome::Passed => passed = true,
            Outcome::Unsupported(_) => {}
            Outcome::Failed(message) => return Err(format!("on `{}`: {message}", twin.name).into()),
        }
    }
    if passed { Ok(()) } else { Err("expected the check to pass on a twin, and it passes on none".into()) }
}

fn is_caught(row: &Row, check: &str) -> Result<(), Failed> {
    let Some(check) = checks().find(|of| of.name() == check) else {
        return Err(format!("there is no check `{check}`").into());
    };
    let limit = if row.hangs { IMPATIENCE } else { OF_A_FAILURE };
    let mut fates = Vec::new();
    for _ in 0..ATTEMPTS {
        match child::run(row.twin, row.defect, check, limit)? {
            Fate::Failed(_) if !row.hangs => return Ok(()),
            Fate::Hung if row.hangs => return Ok(()),
            other => fates.push(other),
        }
    }
    let (expected, twin) = (if row.hangs { "hang" } else { "fail" }, row.twin.name);
    Err(format!("expected the check to {expected} on `{twin}` with this defect, got in turn: {fates:?}")
        .into())
}

fn every_check_is_failed() -> Result<(), Failed> {
    let failed: BTreeSet<_> = rows().flat_map(|row| row.checks.iter().copied()).collect();
    let others: Vec<_> = checks().map(Check::name).filter(|name| !failed.contains(name)).collect();
    if others.is_empty() {
        Ok(())
    } else {
        Err(format!("no defect makes these checks fail: {}", others.join(", ")).into())
    }
}

fn every_defect_is_caught() -> Result<(), Failed> {
    let caught: BTreeSet<_> = rows().map(|row| row.defect).collect();
    let others: Vec<_> = Defect::ALL.iter().filter(|defect| !caught.contains(defect)).collect();
    if others.is_empty() { Ok(()) } else { Err(format!("no check catches these defects: {others:?}").into()) }
}
