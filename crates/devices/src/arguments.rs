//! The arguments of the command.

use std::path::PathBuf;
#[cfg(feature = "files")]
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use clap_complete::Shell;

/// The variable with folders of backends in files.
#[cfg(feature = "files")]
pub(crate) const PLUGINS: &str = "DEVICE_PLUGINS";

/// Lists, describes, tests and measures the devices that this program can use.
///
/// A program has the backends that are linked into it, and those in the files that it finds.
#[derive(Debug, Parser)]
#[command(version, propagate_version = true, after_help = EXIT_CODES)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
    #[command(flatten)]
    pub(crate) format: Format,
    /// Reads a configuration file, in place of the one that the variable DEVICE_CONFIG names
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Adds the backends in the files of a folder; the variable DEVICE_PLUGINS has more folders
    #[cfg(feature = "files")]
    #[arg(long, global = true, value_name = "FOLDER")]
    pub(crate) plugins: Vec<PathBuf>,
}

/// How the commands print that can do so as data.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct Format {
    /// Prints one JSON document
    #[arg(long)]
    pub(crate) json: bool,
}

const EXIT_CODES: &str = "\
A list of devices is in the order of preference, such as `cuda,opencl:gpu,cpu` or `*:gpu(free)`.
The exit code is 0 if all is well, 1 if the device that the arguments name cannot be used, a check
fails or `doctor` finds a problem, 2 if the arguments are wrong, and 130 after Ctrl-C.";

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Lists all backends and devices, with the reason for each that cannot be used; the default
    List(Format),
    /// Describes devices: their properties, limits and memory; opens them
    Info {
        /// A device, `auto`, or a list for its first that is available; by default each that is present
        device: Option<String>,
        #[command(flatten)]
        format: Format,
    },
    /// Looks for what is wrong: switches, files, drivers, hardware that no backend serves. For bug reports
    Doctor(Format),
    /// Runs the conformance suite on a device, in processes that may crash
    Test(Test),
    /// Measures bandwidths and latencies
    Bench(Bench),
    /// Says what a trace has: time by kernel and copy, idle streams, waits of the host, memory
    Trace(TraceArguments),
    /// Lists what lived in the memory of devices when the most was allocated, and at the end of a trace
    Memory(MemoryArguments),
    /// Prints the completions of a shell, which its startup file or its folder of completions has
    Completions { shell: Shell },
    /// Prints the manual page of this command, for `man`
    Man,
    /// Checks libraries with backends, and writes their manifests
    #[cfg(feature = "files")]
    #[command(subcommand)]
    Plugin(Plugin),
}

/// `devices plugin`. Libraries are opened in a process of their own, with all rights of this one.
#[cfg(feature = "files")]
#[derive(Debug, Subcommand)]
pub(crate) enum Plugin {
    /// Says what is in libraries with backends, and what is wrong with them and their manifests
    Check {
        /// Libraries, manifests, or folders with manifests
        #[arg(required = true, value_name = "FILE")]
        files: Vec<PathBuf>,
        #[command(flatten)]
        opening: Opening,
    },
    /// Prints the manifest of a library
    Manifest {
        /// The library
        #[arg(value_name = "FILE")]
        file: PathBuf,
        /// What device strings call the backend; by default, what the library calls it
        #[arg(long, value_parser = device_plugin::tool::name)]
        name: Option<String>,
        /// What the manifest is for, such as device.kernels; by default, a backend
        #[arg(long)]
        group: Option<String>,
        /// The entry of a library that has several
        #[arg(long)]
        entry: Option<String>,
        /// Puts the digest of the library into the manifest
        #[arg(long)]
        sha256: bool,
        #[command(flatten)]
        opening: Opening,
    },
}

/// Which libraries are opened.
#[cfg(feature = "files")]
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct Opening {
    /// Also opens files that other users can change
    #[arg(long)]
    pub(crate) trust_any_owner: bool,
    /// How long a library may take
    #[arg(long, value_name = "SECONDS", default_value = "30", value_parser = device_plugin::tool::seconds)]
    pub(crate) time_limit: Duration,
}

/// `devices test`
#[derive(Args, Debug)]
pub(crate) struct Test {
    /// A device, or the name of a backend for all of its devices
    pub(crate) device: String,
    /// Writes the verdicts to a file, in the XML of JUnit, which CI systems read
    #[arg(long, value_name = "FILE")]
    pub(crate) junit: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) format: Format,
    /// Arguments of the test harness: filters, `--list`, `--skip PATTERN`, `--test-threads N`
    #[arg(last = true)]
    pub(crate) harness: Vec<String>,
}

/// `devices bench`
#[derive(Args, Debug)]
pub(crate) struct Bench {
    /// The devices; by default each that is present. Several are measured with copies between them
    #[arg(value_name = "DEVICE")]
    pub(crate) devices: Vec<String>,
    /// The largest number of bytes that is copied, such as 64M
    #[arg(long, value_name = "BYTES", default_value = "64M", value_parser = bytes)]
    pub(crate) largest: usize,
    /// Measures kernels in place of copies, in a program that links a benchmark of them, as `devices-kernels`
    #[arg(long)]
    pub(crate) kernels: bool,
    /// Writes the measurements to a file, as rows with commas
    #[arg(long, value_name = "FILE")]
    pub(crate) csv: Option<PathBuf>,
    /// Writes a chart of the bandwidths to a file, as SVG
    #[arg(long, value_name = "FILE", value_parser = svg)]
    pub(crate) chart: Option<PathBuf>,
    /// Measures nothing, and compares two files that `--json` has written
    #[arg(long, num_args = 2, value_names = ["BEFORE", "AFTER"], conflicts_with_all = ["devices", "csv", "chart", "largest", "kernels"])]
    pub(crate) compare: Vec<PathBuf>,
    /// With `--compare`, ends with 1 if a measurement takes more than so many times as long, such as 1.3
    #[arg(long, value_name = "RATIO", value_parser = ratio)]
    pub(crate) fail_above: Option<f64>,
    #[command(flatten)]
    pub(crate) format: Format,
}

/// A number above 0.
fn ratio(text: &str) -> Result<f64, String> {
    let ratio = text.parse().ok().filter(|ratio: &f64| ratio.is_finite() && *ratio > 0.0);
    ratio.ok_or_else(|| "expected a number above 0, such as 1.3".to_owned())
}

/// `devices memory`
#[derive(Args, Debug)]
pub(crate) struct MemoryArguments {
    /// A file that a program has written with DEVICE_TRACE=FILE
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
}

/// `devices trace`
#[derive(Args, Debug)]
pub(crate) struct TraceArguments {
    /// A file that a program has written with DEVICE_TRACE=FILE
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// Writes a page for browsers instead, with a timeline to zoom and memory over time
    #[arg(long, value_name = "PAGE")]
    pub(crate) html: Option<PathBuf>,
}

/// The path of a chart.
fn svg(text: &str) -> Result<PathBuf, String> {
    let path = PathBuf::from(text);
    let is_svg = path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("svg"));
    is_svg.then_some(path).ok_or_else(|| "a chart is SVG: expected a name that ends in .svg".to_owned())
}

/// A number of bytes, perhaps with `K`, `M` or `G` for powers of 1024.
fn bytes(text: &str) -> Result<usize, String> {
    let (digits, unit) = text.split_at(text.trim_end_matches(|c: char| c.is_ascii_alphabetic()).len());
    let shift = match &*unit.to_ascii_lowercase() {
        "" => Some(0),
        "k" | "kib" => Some(10),
        "m" | "mib" => Some(20),
        "g" | "gib" => Some(30),
        _ => None,
    };
    let expected = "expected a whole number of bytes, perhaps with K, M or G for powers of 1024";
    let (number, shift) = digits.parse::<usize>().ok().zip(shift).ok_or(expected)?;
    let bytes = number.checked_mul(1 << shift).filter(|bytes| isize::try_from(*bytes).is_ok());
    match bytes {
        Some(bytes) if bytes >= SMALLEST => Ok(bytes),
        Some(_) => Err(format!("expected at least {SMALLEST} bytes")),
        None => Err("expected no more than a machine can have".to_owned()),
    }
}

/// The smallest length that the benchmarks copy.
pub(crate) const SMALLEST: usize = 4096;

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_definition_is_sound() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn bytes_have_units() {
        for (text, expected) in
            [("4096", 4096), ("4K", 4096), ("64M", 64 << 20), ("1g", 1 << 30), ("64KiB", 64 << 10)]
        {
            assert_eq!(bytes(text), Ok(expected));
        }
        for text in
            ["", "K", "1T", "1KB", "0.5G", "-1", "4095", "99999999999999999999", "18446744073709551615K", "é"]
        {
            assert!(bytes(text).is_err(), "{text}");
        }
    }
}
