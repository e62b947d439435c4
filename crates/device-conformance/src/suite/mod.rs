//! The suite that a test program runs.

mod builder;
mod device_under_test;
mod hangs;
mod host;
mod plan;
mod trials;
mod wire;
mod worker;
mod workers;

use std::ffi::OsString;
use std::io::IsTerminal;
use std::process::ExitCode;
use std::sync::Arc;

use libtest_mimic::Arguments;
use parking_lot::Mutex;

pub use self::builder::Suite;
use self::host::Host;
use self::plan::Plan;
use self::workers::Workers;
use crate::checks::checks;
use crate::environment::{self, Processes};
use crate::harness::conclude;
use crate::programs;
use crate::subprocess;
use crate::summary::Summary;

/// Tests every device of every linked backend. A shorthand for [`Suite::new`] and [`Suite::run`].
///
/// It takes the arguments that `cargo test` passes on behind `--`.
#[must_use = "return it from `main`, or failures are lost"]
pub fn run() -> ExitCode {
    Suite::new().run()
}

impl Suite {
    /// Runs the suite as a test program, with the program's arguments, and prints a table at the end.
    ///
    /// The checks run in a process that this one starts: this program once more, with the same arguments. So
    /// `main` runs in both, and must not print before this call.
    ///
    /// The exit code is a failure if any test that the filters select fails. Whatever the filters select, it
    /// is also a failure if a backend that `DEVICE_CONFORMANCE_REQUIRE` lists cannot be tested, if a pattern
    /// matches no check, if there is nothing to test, or if a process of the checks ends by itself. But a
    /// crash while a backend is loaded fails only the test `<backend>::devices`, like any other error of that
    /// backend, and a filter may not select it.
    #[must_use = "return it from `main`, or failures are lost"]
    pub fn run(self) -> ExitCode {
        self.run_with(std::env::args_os())
    }

    /// [`run`](Self::run) with other arguments, the program's name first: for a program that has arguments of
    /// its own. The processes of the checks are still started with all of the program's own arguments, and
    /// `main` must get there with these.
    #[must_use = "return it from `main`, or failures are lost"]
    pub fn run_with(self, arguments: impl IntoIterator<Item: Into<OsString> + Clone>) -> ExitCode {
        self.try_run(arguments).unwrap_or_else(|message| {
            eprintln!("error: {message}");
            ExitCode::FAILURE
        })
    }

    /// Whether a suite has started this process for its checks: the program reports nothing of its own there.
    #[must_use]
    pub fn has_started_this_process() -> bool {
        subprocess::is_one() || environment::worker().is_ok_and(|worker| worker.is_some())
    }

    fn try_run(
        mut self,
        arguments: impl IntoIterator<Item: Into<OsString> + Clone>,
    ) -> Result<ExitCode, String> {
        let own = subprocess::begin_suite();
        let processes = environment::processes()?.unwrap_or(Processes::Shared);
        self.time_limit = environment::time_limit()?.unwrap_or(self.time_limit);
        programs::settings()?;
        let suite = Arc::new(self);
        if let Some(worker) = environment::worker()? {
            return worker::serve(&suite, worker).map(|()| ExitCode::SUCCESS);
        }
        let arguments = match own {
            Some(own) => Arguments::from_iter(own),
            None => Arguments::from_iter(arguments),
        };
        let host = Arc::new(match processes {
            // A check runs this program once more for itself: that is its own process.
            Processes::Here => Host::here(&suite),
            Processes::Shared | Processes::Own if subprocess::is_one() => Host::here(&suite),
            Processes::Shared => Host::Workers(Workers::new(&suite, false)),
            Processes::Own => Host::Workers(Workers::new(&suite, true)),
        });
        let summary = Arc::new(Mutex::new(Summary::default()));
        let mut plan = Plan::new(&suite, &host, &suite.required(), &summary);
        if std::io::stdout().is_terminal() {
            plan.number(&arguments);
        }
        let Plan { trials, mut problems } = plan;
        let conclusion = libtest_mimic::run(&arguments, trials);
        problems.extend(host.end());
        let ran = conclusion.num_passed + conclusion.num_failed + conclusion.num_ignored;
        // A backend that cannot be tested is the reason itself.
        if suite.some_check && ran == 0 && !arguments.list && problems.is_empty() {
            let filtered = conclusion.num_filtered_out;
            problems.push(format!("none of the {filtered} tests is selected; `--list` lists them"));
        }
        let summary = summary.lock();
        problems.extend(
            summary
                .untested(checks().count())
                .map(|device| format!("all checks are unsupported on `{device}`, so nothing was tested")),
        );
        Ok(conclude(&arguments, &conclusion, &*summary, &problems))
    }
}
