#![doc = include_str!("../README.md")]
#![deny(unsafe_code)]

mod arguments;
mod bench;
mod doctor;
mod info;
mod kernels;
mod list;
mod output;
#[cfg(feature = "files")]
mod plugin;
mod shell;
mod test;
mod trace;

use std::ffi::OsString;
use std::io;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};

use clap::{CommandFactory, FromArgMatches};
use device_config::{Config, ConfigReport};
use device_registry::registry::State;
use device_registry::{DeviceError, ErrorChain, activity};

pub use crate::kernels::{
    KERNEL_BENCHMARKS, KernelBenchmark, KernelBenchmarkDescriptor, KernelError, Timer, kernel_benchmarks,
};

use crate::arguments::{Arguments, Command};
use crate::output::Output;

/// Whether it is this crate's own program, which has no Cargo.toml of the user's.
static IS_INSTALLED: AtomicBool = AtomicBool::new(false);

/// Not public API: [`run`] for this crate's own program.
#[doc(hidden)]
pub fn run_installed(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    IS_INSTALLED.store(true, Ordering::Relaxed);
    run(arguments)
}

/// Runs the command with a program's arguments, the program's name first, and prints to standard output and
/// standard error. It returns when the command is done, which for `test` and `bench` takes minutes.
///
/// The program's `main` calls it before it prints, starts threads, or uses a device, and returns its result:
/// `test` starts the program once more, in processes that may crash.
///
/// The exit code is 0 if all is well, 1 if the device that the arguments name cannot be used, a check fails
/// or `doctor` finds a problem, 2 if the arguments or what they lead to are wrong, and 130 if Ctrl-C has
/// ended a benchmark, which prints what it has measured.
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let arguments: Vec<OsString> = arguments.into_iter().collect();
    #[cfg(feature = "files")]
    if arguments.get(1).is_some_and(|first| first == device_plugin::tool::CHILD) {
        // The process that started it notices a failure.
        let is_written = device_plugin::tool::child(arguments.into_iter().skip(2)).is_ok();
        return if is_written { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    }
    if arguments.get(1).is_some_and(|first| first == doctor::open::CHILD) {
        return doctor::open::child(&arguments[2..]);
    }
    let parsed = Arguments::command()
        .try_get_matches_from(arguments)
        .and_then(|matches| Arguments::from_arg_matches(&matches));
    let arguments = match parsed {
        Ok(arguments) => arguments,
        Err(error) => {
            let _ = error.print();
            return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(USAGE));
        }
    };
    // The doctor has them among the problems.
    let is_doctor = matches!(arguments.command, Some(Command::Doctor(_)));
    let warns = !is_doctor && !device_conformance::Suite::has_started_this_process();
    let ended = execute(arguments);
    if warns {
        warn_of_observers();
    }
    match ended {
        Ok(code) => code,
        // A closed pipe is the reader's way to end the command.
        Err(Failure::Output(error)) if error.kind() == io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(failure) => {
            let message = output::outside(&failure);
            anstream::eprintln!("{} {message}", output::styled(output::RED, "error:"));
            ExitCode::from(failure.code())
        }
    }
}

/// Says which observers of this process could not begin, such as a trace whose file cannot be written: the
/// command has no logger.
fn warn_of_observers() {
    for row in activity::observers().report().rows() {
        if let State::Failed { cause, .. } = &row.state {
            let message = output::outside(cause.messages().join(": "));
            anstream::eprintln!("{} {message}", output::styled(output::YELLOW, "warning:"));
        }
    }
}

/// The arguments are wrong.
const USAGE: u8 = 2;

/// Why the command ended early.
enum Failure {
    Device(DeviceError),
    /// A file, a folder or an option is wrong.
    Usage(String),
    /// What was asked for cannot be done.
    Other(String),
    Output(io::Error),
}

impl Failure {
    fn code(&self) -> u8 {
        match self {
            Self::Usage(_) | Self::Device(DeviceError::Syntax(_) | DeviceError::DefaultSelection { .. }) => {
                USAGE
            }
            _ => 1,
        }
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Device(error @ DeviceError::UnknownBackend(unknown))
                if IS_INSTALLED.load(Ordering::Relaxed) =>
            {
                let text = error.to_string();
                let (first, _) = text.split_once('\n').unwrap_or((&text, ""));
                f.write_str(first)?;
                // What was meant stands there.
                if first.ends_with('?') {
                    return Ok(());
                }
                // What `autoload!` links is for the author of a program.
                let table = unknown.table().to_string();
                let of_users = table.lines().filter(|line| !line.starts_with("note: `autoload!`"));
                of_users.into_iter().try_for_each(|line| write!(f, "\n{line}"))?;
                f.write_str(
                    "\nhint: this command has the backends of the features that it was built with, and those in files: \
                     `--plugins FOLDER`, or the variable DEVICE_PLUGINS",
                )
            }
            Self::Device(error) => ErrorChain::new(error).fmt(f),
            Self::Usage(message) | Self::Other(message) => f.write_str(message),
            Self::Output(error) => write!(f, "cannot write: {error}"),
        }
    }
}

impl From<DeviceError> for Failure {
    fn from(error: DeviceError) -> Self {
        Self::Device(error)
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Output(error)
    }
}

fn execute(arguments: Arguments) -> Result<ExitCode, Failure> {
    let configuration = configure(&arguments)?;
    let command = arguments.command.unwrap_or(Command::List(arguments.format));
    let format = match &command {
        Command::List(format) | Command::Doctor(format) | Command::Info { format, .. } => Some(format),
        Command::Bench(bench) => Some(&bench.format),
        Command::Test(test) => Some(&test.format),
        _ => None,
    };
    if format.is_none() && arguments.format.json {
        return Err(Failure::Usage(
            "only the list, `info`, `doctor`, `test` and `bench` print JSON".to_owned(),
        ));
    }
    let mut output = Output::new(arguments.format.json || format.is_some_and(|format| format.json));
    if !matches!(command, Command::Doctor(_))
        && let Err(error) = &configuration
    {
        return Err(Failure::Usage(error.to_string()));
    }
    match command {
        Command::List(_) => list::run(&mut output),
        Command::Info { device, .. } => info::run(device.as_deref(), &mut output),
        Command::Doctor(_) => doctor::run(&configuration, &mut output),
        Command::Test(test) => test::run(&test, &mut output),
        Command::Bench(bench) => bench::run(&bench, &mut output),
        Command::Trace(arguments) => trace::run(&arguments, &mut output),
        Command::Memory(arguments) => trace::memory(&arguments, &mut output),
        Command::Completions { shell } => shell::completions(shell),
        Command::Man => shell::manual(),
        #[cfg(feature = "files")]
        Command::Plugin(arguments) => plugin::run(arguments),
    }
}

/// Loads the configuration file, if there is one, and makes the backends in files known. What is wrong with
/// the file is the inner error, which the doctor shows.
fn configure(arguments: &Arguments) -> Result<Result<ConfigReport, device_config::Error>, Failure> {
    let mut config = Config::new();
    if let Some(file) = &arguments.config {
        config = config.file(file);
    }
    #[cfg(feature = "files")]
    {
        let Some(plugins) = plugins(arguments)? else { return Ok(config.load()) };
        let report = config.plugins(plugins.clone()).load();
        if report.is_err() {
            plugins.install().map_err(|error| Failure::Usage(error.to_string()))?;
        }
        Ok(report)
    }
    #[cfg(not(feature = "files"))]
    Ok(config.load())
}

/// The folders of the variable and of the arguments, if there are any.
#[cfg(feature = "files")]
fn plugins(arguments: &Arguments) -> Result<Option<device_plugin::Plugins>, Failure> {
    let by_variable = std::env::var_os(arguments::PLUGINS).is_some();
    if arguments.plugins.is_empty() && !by_variable {
        // Else each report would say that no folder was searched.
        return Ok(None);
    }
    let mut plugins = device_plugin::Plugins::new();
    if by_variable {
        plugins = plugins.variable(arguments::PLUGINS);
    }
    for folder in &arguments.plugins {
        let folder = std::path::absolute(folder)
            .map_err(|error| Failure::Usage(format!("--plugins {}: {error}", folder.display())))?;
        plugins = plugins.folder(folder);
    }
    Ok(Some(plugins))
}
