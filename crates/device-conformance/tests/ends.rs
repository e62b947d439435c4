//! The suite on a backend that ends its process, hangs or does nothing: none of that is green, and the report
//! is complete.

use std::io::{self, BufRead, Write};
use std::process::{Command, ExitCode, Stdio, abort, exit};
use std::sync::Arc;
use std::time::Duration;
use std::{env, thread};

use device_conformance::Suite;
use device_registry::backend::{
    AllocateOptions, Backend, BackendDescriptor, BackendError, DeviceDriver, DeviceProperties, HostMemory,
    LoadFailure, Memory, MemoryInfo, OpenedDevice, Span, open_windows,
};
use device_registry::backends;
use libtest_mimic::{Arguments, Failed, Trial};

/// Makes this program the suite on a backend. Holds its defect.
const DEFECT: &str = "DEVICE_CONFORMANCE_ENDS";
/// Set by the suite where checks run.
const WORKER: &str = "DEVICE_CONFORMANCE_WORKER";

/// The check that the defects are about.
const CHECK: &str = "ends:0::memory::round_trip";
/// How a process ends that aborts.
const ABORTED: &str = if cfg!(unix) { "ended with signal: 6" } else { "ended with exit code: " };

/// Another one.
const OTHER: &str = "ends:0::memory::large";

device_registry::autoload!();

fn main() -> ExitCode {
    match env::var(DEFECT) {
        Ok(defect) => suite(&defect),
        Err(_) => libtest_mimic::run(&Arguments::from_args(), trials()).exit_code(),
    }
}

fn is(defect: &str) -> bool {
    env::var(DEFECT).is_ok_and(|of| of == defect)
}

fn suite(defect: &str) -> ExitCode {
    static ENDS: BackendDescriptor = BackendDescriptor::new("ends", load);
    backends().register(&ENDS).expect("it is the only one of this name");
    let mut suite = Suite::new().backend("ends").backend("cpu");
    suite = match defect {
        "hangs in load" => suite.time_limit(Duration::from_millis(50)),
        "does not reply" => suite.time_limit(Duration::from_millis(100)),
        "speaks" => suite.after_each(|| Err("the layer spoke".to_owned())),
        "panics after each" => suite.after_each(|| panic!("the layer panicked")),
        "hangs after each" => suite.time_limit(Duration::from_millis(100)).after_each(|| {
            loop {
                thread::park();
            }
        }),
        "supports nothing" => suite.unsupported("ends:0::*", "it is new"),
        "crash is expected" | "reads wrong bytes as expected" => suite.expected_failure(CHECK, "it crashes"),
        _ => suite,
    };
    let is_worker = env::var_os(WORKER).is_some();
    if is_worker && let Some(replies) = replies(defect) {
        return pretend(replies);
    }
    let code = suite.run();
    if is_worker && (is("ends badly") || reads_wrong_bytes()) {
        exit(7);
    }
    code
}

/// What a process of the checks replies in place of the suite: to the load, and to the check.
fn replies(defect: &str) -> Option<[&'static str; 2]> {
    match defect {
        "exits after its reply" => Some(["1\tdevices\tends:0\n", "2\tpassed\t\t\n"]),
        "tears a reply" => Some(["1\tdevices\tends:0\n", "2\tpassed\tacme: ready\n"]),
        "mistakes a number" => Some(["1\tdevices\tends:0\n", "12\tpassed\t\t\n"]),
        "does not reply" => Some(["1\tdevices\tends:0\n", "\tbegins\t1\t`ends:0` read\n"]),
        _ => None,
    }
}

/// Ends well after the last reply, but was not asked to. If that reply is not whole, hangs.
fn pretend(replies: [&str; 2]) -> ExitCode {
    for (reply, _request) in replies.iter().zip(io::stdin().lock().lines()) {
        print!("\ndevice-conformance reply:{reply}");
        io::stdout().flush().expect("it is a pipe");
    }
    while !is("exits after its reply") {
        thread::park();
    }
    ExitCode::SUCCESS
}

fn reads_wrong_bytes() -> bool {
    is("reads wrong bytes") || is("reads wrong bytes as expected")
}

fn load() -> Result<Box<dyn Backend>, LoadFailure> {
    if is("exits in load") {
        exit(0);
    }
    while is("hangs in load") {
        thread::park();
    }
    Ok(Box::new(Ends))
}

struct Ends;

impl Backend for Ends {
    fn device_count(&self) -> Result<usize, BackendError> {
        Ok(if is("has no devices") { 0 } else { 1 })
    }

    fn properties(&self, _ordinal: usize) -> Result<DeviceProperties, BackendError> {
        Ok(DeviceProperties::new("a device that ends"))
    }

    fn open(&self, _ordinal: usize) -> Result<OpenedDevice, BackendError> {
        Ok(OpenedDevice::new(self, EndsDevice))
    }
}

struct EndsDevice;

impl DeviceDriver for EndsDevice {
    fn memory_info(&self) -> Result<MemoryInfo, BackendError> {
        Ok(MemoryInfo::unknown())
    }

    fn allocate(&self, options: &AllocateOptions) -> Result<Arc<dyn Memory>, BackendError> {
        Ok(Arc::new(HostMemory::zeroed(options.len)?))
    }

    fn write(&self, destination: &Span, source: &[u8]) -> Result<(), BackendError> {
        let memory = destination.memory_as::<HostMemory>()?;
        memory.write(destination.range())?.copy_from_slice(source);
        Ok(())
    }

    fn read(&self, source: &Span, destination: &mut [u8]) -> Result<(), BackendError> {
        // The thread of a check has its name.
        if thread::current().name() == Some(CHECK) {
            if is("crashes") || is("crash is expected") {
                abort();
            }
            if is("exits") {
                exit(0);
            }
            if is("crashes among others") && env::var(WORKER).is_ok_and(|kind| kind == "shared") {
                abort();
            }
        }
        let memory = source.memory_as::<HostMemory>()?;
        destination.copy_from_slice(&memory.read(source.range())?);
        if thread::current().name() == Some(CHECK) && reads_wrong_bytes() {
            destination.fill(0);
        }
        Ok(())
    }

    fn copy(&self, source: &Span, destination: &Span) -> Result<(), BackendError> {
        let (from, to) = (source.memory_as::<HostMemory>()?, destination.memory_as::<HostMemory>()?);
        let ([from], [mut to]) = open_windows([(from, source.range())], [(to, destination.range())])?;
        to.copy_from_slice(&from);
        Ok(())
    }
}

fn trials() -> Vec<Trial> {
    vec![
        Trial::test("a_crash_names_its_check_and_the_call_and_the_other_checks_run", || {
            crashes("crashes", ABORTED)
        }),
        Trial::test("an_exit_names_its_check_and_the_call_and_the_other_checks_run", || {
            crashes("exits", "ended with exit ")
        }),
        Trial::test("a_crash_that_does_not_happen_again_is_red", crashes_among_others),
        Trial::test("a_crash_that_is_expected_is_an_expected_failure", crash_is_expected),
        Trial::test("a_process_that_ends_badly_after_the_last_check_is_red", || {
            let run = Run::of("ends badly", &["memory::"])?;
            run.expect(false, &["test result: ok", "ended with exit ", "7, after the last check"])
        }),
        Trial::test("an_exit_in_load_fails_that_backend_alone", || {
            let run = Run::of("exits in load", &["devices"])?;
            run.expect(
                false,
                &["test ends::devices ", "its process ended with exit ", "while it was loaded"],
            )?;
            Run::of("exits in load", &["cpu::memory::"])?.expect(true, &["test cpu::memory::round_trip "])
        }),
        Trial::test("a_load_that_hangs_fails_that_backend_alone", || {
            let run = Run::of("hangs in load", &["devices"])?;
            run.expect(false, &["test ends::devices ", "exceeded the time limit of 300ms"])
        }),
        Trial::test("a_backend_without_devices_is_red", || {
            let run = Run::of("has no devices", &["devices"])?;
            run.expect(false, &["test ends::devices ", "it counts 0 devices", "help: "])
        }),
        Trial::test("a_device_that_supports_nothing_is_red", || {
            let run = Run::of("supports nothing", &["ends:0"])?;
            run.expect(false, &["test result: ok", "all checks are unsupported on `ends:0`"])
        }),
        Trial::test("what_is_reported_after_a_check_fails_it", || {
            let run = Run::of("speaks", &[CHECK, "--exact"])?;
            run.expect(false, &["test ends:0::memory::round_trip ", "after it: the layer spoke"])
        }),
        Trial::test("a_panic_after_a_check_fails_it", || {
            for process in ["shared", "own", "here"] {
                let run = Run::with("panics after each", &[CHECK, "--exact"], Some(process))?;
                let panic = "the function of `Suite::after_each` panicked: the layer panicked";
                run.expect(false, &["test ends:0::memory::round_trip ", panic, " 1 failed"])?;
            }
            Ok(())
        }),
        Trial::test("a_function_after_a_check_that_hangs_fails_that_check_and_others_run", || {
            for process in ["shared", "own", "here"] {
                let run = Run::with("hangs after each", &["memory::"], Some(process))?;
                let hang = "the function of `Suite::after_each` exceeded the time limit of ";
                let ends = ["test ends:0::memory::round_trip ", "test ends:0::memory::large ", hang];
                run.expect(false, &ends)?;
            }
            Ok(())
        }),
        Trial::test("a_check_that_fails_in_a_process_that_ends_badly_keeps_its_message", || {
            let own = |defect| Run::with(defect, &[CHECK, "--exact"], Some("own"));
            let (failure, end) = ("to pass: a read returns", "and its process ended with exit ");
            own("reads wrong bytes")?
                .expect(false, &["expected byte", failure, end, "7, after the check"])?;
            let run = own("reads wrong bytes as expected")?;
            run.expect(false, &["ignored (expected failure: it crashes; ", end, "7, after the check)"])
        }),
        Trial::test("a_process_that_ends_well_without_having_been_asked_to_is_red", || {
            let run = Run::with("exits after its reply", &[CHECK, "--exact"], Some("own"))?;
            run.expect(
                false,
                &["its process ended with exit ", "0, which it was not asked for, after the check"],
            )
        }),
        Trial::test("a_torn_reply_is_red_and_ends_its_process", || {
            for (defect, reply) in
                [("tears a reply", "2\tpassed\tacme: ready"), ("mistakes a number", "12\tpassed")]
            {
                let run = Run::with(defect, &[CHECK, "--exact"], Some("own"))?;
                run.expect(false, &["its process ended with ", "after a torn reply", reply])?;
            }
            Ok(())
        }),
        Trial::test("a_process_that_does_not_reply_is_red_and_is_ended", || {
            let run = Run::with("does not reply", &[CHECK, "--exact"], Some("own"))?;
            let after = ", after it had not replied for 6s; under way: `ends:0` read";
            run.expect(false, &[CHECK, "its process ended with ", after, "to pass: "])
        }),
        Trial::test("a_process_that_takes_itself_for_a_worker_is_red", || {
            for (value, message) in
                [("x", "invalid DEVICE_CONFORMANCE_WORKER: `x`"), ("shared", "no request")]
            {
                let run = Run::of_command(Run::command("crashes", &[])?.env(WORKER, value))?;
                run.expect(false, &["error: ", message, "help: unset it"])?;
            }
            Ok(())
        }),
        Trial::test("each_check_runs_in_a_process_of_its_own_on_request", || {
            let run = Run::with("crashes among others", &["memory::round_trip"], Some("own"))?;
            run.expect(true, &["test result: ok. 2 passed"])
        }),
        Trial::test("all_checks_run_in_this_process_on_request", || {
            let run = Run::with("crashes among others", &["memory::round_trip"], Some("here"))?;
            run.expect(true, &["test result: ok. 2 passed"])
        }),
        Trial::test("a_filter_that_matches_nothing_passes", || {
            Run::of("crashes", &["no_such_check"])?.expect(true, &["test result: ok. 0 passed"])
        }),
    ]
}

fn crashes(defect: &str, status: &str) -> Result<(), Failed> {
    let run = Run::of(defect, &["memory::"])?;
    let call = format!("under way: `ends:0` read, on `{CHECK}`");
    run.expect(
        false,
        &[status, &call, "to pass: a read returns the written bytes", "test result: FAILED", " 1 failed"],
    )?;
    run.expect_line(&["test ", CHECK, " ... FAILED"])?;
    run.expect_line(&["test ", OTHER, " ... ok"])?;
    run.expect_line(&["test ", "cpu::memory::round_trip", " ... ok"])?;
    run.expect_line(&["ends:0 ", " 1 ", " 0"])
}

fn crashes_among_others() -> Result<(), Failed> {
    let run = Run::of("crashes among others", &["memory::"])?;
    run.expect(false, &["test result: ok", "error: the process of the checks ", ABORTED, CHECK])?;
    run.expect_line(&["test ", CHECK, " ... ok"])
}

fn crash_is_expected() -> Result<(), Failed> {
    let run = Run::of("crash is expected", &["memory::"])?;
    run.expect(true, &["test result: ok"])?;
    run.expect_line(&["test ", CHECK, " ... ignored (expected failure: it crashes)"])
}

/// A run of the suite: whether it was green, and all that it printed.
struct Run {
    is_green: bool,
    printed: String,
}

impl Run {
    fn of(defect: &str, arguments: &[&str]) -> Result<Self, Failed> {
        Self::with(defect, arguments, None)
    }

    fn with(defect: &str, arguments: &[&str], process: Option<&str>) -> Result<Self, Failed> {
        let mut command = Self::command(defect, arguments)?;
        Self::of_command(command.envs(process.map(|process| ("DEVICE_CONFORMANCE_PROCESS", process))))
    }

    /// In an environment without the variables of the suite that runs this test.
    fn command(defect: &str, arguments: &[&str]) -> Result<Command, Failed> {
        let mut command = Command::new(env::current_exe()?);
        command.env_remove(WORKER).env_remove("DEVICE_CONFORMANCE_PROCESS");
        command.env(DEFECT, defect).args(arguments);
        Ok(command)
    }

    fn of_command(command: &mut Command) -> Result<Self, Failed> {
        let output = command.stdin(Stdio::null()).output()?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let printed = text(&output.stdout) + &text(&output.stderr);
        Ok(Self { is_green: output.status.success(), printed })
    }

    /// An error unless the run is green or red, and has printed these texts in this order.
    fn expect(&self, is_green: bool, texts: &[&str]) -> Result<(), Failed> {
        let has_all =
            texts.iter().try_fold(&*self.printed, |rest, text| Some(rest.split_once(text)?.1)).is_some();
        if self.is_green == is_green && has_all {
            return Ok(());
        }
        let color = if is_green { "green" } else { "red" };
        Err(format!("expected a run that is {color}, with {texts:?}: {}", self.printed).into())
    }

    /// An error unless a line has these texts, in this order.
    fn expect_line(&self, texts: &[&str]) -> Result<(), Failed> {
        let has_all =
            |line: &str| texts.iter().try_fold(line, |rest, text| Some(rest.split_once(text)?.1)).is_some();
        if self.printed.lines().any(has_all) {
            return Ok(());
        }
        Err(format!("expected a line with {texts:?}: {}", self.printed).into())
    }
}
