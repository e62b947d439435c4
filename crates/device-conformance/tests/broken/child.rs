//! Runs one check on one broken backend, in its own process, because a broken backend may hang or crash.

use std::process::{Command, ExitCode, exit};
use std::thread;
use std::time::Duration;
use std::{env, io};

use device_conformance::{Check, Outcome, checks, process};

use crate::PATIENCE;
use crate::defect::Defect;
use crate::twin::{TWINS, Twin};

/// Makes this program a child. Holds its task: twin, defect, check, and the time limit in seconds.
const CHILD: &str = "DEVICE_CONFORMANCE_BROKEN_CHILD";

/// How long a child may run after the time limit of its check.
const GRACE: Duration = Duration::from_secs(20);

/// The outcome of a check in a child.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    Passed,
    /// With its message.
    Failed(String),
    /// It exceeded its time limit.
    Hung,
    Unsupported(String),
    /// The process ended without an outcome. Holds its standard error.
    Crashed(String),
}

/// Runs a check in a child.
pub(crate) fn run(twin: &Twin, defect: Defect, check: &Check, limit: Duration) -> io::Result<Fate> {
    let task = format!("{} {} {} {}", twin.name, defect.name(), check.name(), limit.as_secs_f64());
    let output = Command::new(env::current_exe()?).env(CHILD, task).output()?;
    let said = String::from_utf8_lossy(&output.stdout);
    let (verdict, message) = said.split_once('\n').unwrap_or((&said, ""));
    Ok(match verdict {
        "passed" => Fate::Passed,
        "hung" => Fate::Hung,
        "failed" => Fate::Failed(message.trim_end().to_owned()),
        "unsupported" => Fate::Unsupported(message.trim_end().to_owned()),
        _ => Fate::Crashed(format!("{}\n{}", output.status, String::from_utf8_lossy(&output.stderr))),
    })
}

/// Runs the task of this process, if it is a child, and prints the outcome.
pub(crate) fn main() -> Option<ExitCode> {
    let task = env::var(CHILD).ok()?;
    let [twin, defect, check, limit] = task.split(' ').collect::<Vec<_>>()[..] else { return None };
    let twin = TWINS.into_iter().find(|of| of.name == twin)?;
    let check = checks().find(|of| of.name() == check)?;
    let limit = Duration::from_secs_f64(limit.parse().ok()?);
    Defect::of_name(defect)?.appear();
    thread::spawn(move || {
        thread::sleep(limit + GRACE);
        eprintln!("the process exceeded its time limit");
        exit(3);
    });
    let device = twin.device();
    match check.run(device, limit) {
        Outcome::Passed => println!("passed"),
        Outcome::Failed(message) if message.starts_with("it exceeded the time limit of") => println!("hung"),
        Outcome::Failed(message) => println!("failed\n{message}"),
        Outcome::Unsupported(reason) => println!("unsupported\n{reason}"),
    }
    // Does not wait for a thread that hangs.
    exit(0)
}

/// Runs a check that has started this process by the name of its test in the suite. The check itself prints
/// its outcome for the parent.
pub(crate) fn of_a_check() -> Option<ExitCode> {
    let test = env::args().nth(1).filter(|_| process::is_child())?;
    let (device, check) = test.split_once("::")?;
    let twin = TWINS.into_iter().find(|twin| twin.device().resolve().to_string() == device)?;
    let outcome = checks().find(|of| of.name() == check)?.run(twin.device(), PATIENCE);
    Some(if let Outcome::Failed(_) = outcome { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}
