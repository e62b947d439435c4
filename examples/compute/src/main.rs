//! Multiplies two matrices and adds two vectors on any device that offers a kernel language; see README.md.

#![deny(unsafe_code)]

mod error;
pub mod kernels;
mod place;
mod work;

use std::error::Error;
use std::io::{self, Write, stdout};
use std::path::{self, PathBuf};
use std::process::ExitCode;

use clap::{Parser, value_parser};
use device_plugin::Plugins;
use device_registry::{Device, ErrorChain, Selection, backends, device_list};
use entry_points::EntryPoint;

use crate::kernels::{KERNELS, Kernels, Language, kernel_sets};
use crate::place::Place;
use crate::work::{Shape, Work};

// Links every backend in Cargo.toml. The kernels for them are modules of this crate.
device_registry::autoload!();

entry_points::entry_points! {
    #[distributed_slice(KERNELS)]
    static CPU: EntryPoint<Language> = EntryPoint::new("cpu", || Ok(Box::new(kernels::host::CPU)));

    #[distributed_slice(KERNELS)]
    static OPENREG: EntryPoint<Language> =
        EntryPoint::new("openreg", || Ok(Box::new(kernels::host::OPENREG)));

    #[cfg(feature = "opencl-kernels")]
    #[distributed_slice(KERNELS)]
    static OPENCL: EntryPoint<Language> =
        EntryPoint::new("opencl", || Ok(Box::new(kernels::opencl::LANGUAGE)));

    #[cfg(feature = "wgpu")]
    #[distributed_slice(KERNELS)]
    static WGPU: EntryPoint<Language> = EntryPoint::new("wgpu", || Ok(Box::new(kernels::wgpu::LANGUAGE)));

    #[cfg(feature = "cuda")]
    #[distributed_slice(KERNELS)]
    static CUDA: EntryPoint<Language> = EntryPoint::new("cuda", || Ok(Box::new(kernels::cuda::LANGUAGE)));
}

/// Multiplies two matrices and adds two vectors on a device, and compares with the cpu.
#[derive(Parser)]
#[command(version)]
struct Arguments {
    /// The device, such as `opencl` or `wgpu:1`, or a list such as `cuda,wgpu,opencl,cpu`, of which the first
    /// is taken that is there
    #[arg(long, value_name = "DEVICE", default_value = "cpu")]
    device: Selection,
    /// The matrices: N for two of N x N, or MxKxN for one of M x K and one of K x N
    #[arg(long, value_name = "SIZE", default_value = "512")]
    size: Shape,
    /// The length of the vectors
    #[arg(long, value_name = "N", default_value = "4194304", value_parser = value_parser!(u32).range(1..))]
    length: u32,
    /// How often each is measured
    #[arg(long, value_name = "N", default_value = "5", value_parser = value_parser!(u16).range(1..))]
    runs: u16,
    /// Kernels to compile in place of the built-in ones, in the language of the device: functions `add` and
    /// `matmul`
    #[arg(long, value_name = "FILE")]
    source: Option<PathBuf>,
    /// A folder with backends in files, each with its manifest. Their names are then devices like any other
    #[arg(long, value_name = "FOLDER")]
    plugins: Option<PathBuf>,
    /// Lists the devices there are, and which of them have kernels
    #[arg(long, conflicts_with_all = ["device", "size", "length", "runs", "source"])]
    list: bool,
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Not `eprintln!` and `println!`, which panic when the reader of a pipe has left.
            let _ = writeln!(io::stderr(), "error: {}", ErrorChain::new(&*error));
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Result<(), Box<dyn Error>> {
    // For example a mistyped switch. Its warning goes to `log`, and this program has no logger.
    for note in backends().report().notes().iter().chain(kernel_sets().report().notes()) {
        writeln!(io::stderr(), "note: {note}")?;
    }
    if let Some(folder) = &arguments.plugins {
        // Opens nothing: a library is opened when its device is used.
        let report = Plugins::new().folder(path::absolute(folder)?).install()?;
        for skipped in report.skipped() {
            writeln!(io::stderr(), "note: {skipped}")?;
        }
    }
    if arguments.list {
        return Ok(writeln!(stdout(), "{}\n{}", device_list(), kernel_sets().report())?);
    }
    // A device that is there is taken although it may have no kernels, which is an error then.
    let chosen = arguments.device.first_available()?;
    let mut out = stdout();
    for (text, reason) in &chosen.passed_over {
        // The first line only, without the table of all backends.
        writeln!(out, "not {text}: {}", reason.to_string().lines().next().unwrap_or_default())?;
    }
    let device = chosen.resolve();
    writeln!(out, "device {device}: {}", device.properties()?)?;

    let kernels = Kernels::compile(device, arguments.source.as_deref())?;
    writeln!(out, "kernels: {}", kernels.language)?;
    let cpu = Kernels::compile(Device::cpu(), None)?;
    for work in [Work::Add { len: arguments.length }, Work::Matmul(arguments.size)] {
        writeln!(out, "{work}")?;
        // Before anything is computed, as it may not fit.
        let place = Place::new(&kernels, work)?;
        let operands = work.operands()?;
        place.write(&operands)?;
        let (time, clock) = place.median(arguments.runs)?;
        let milliseconds = time.as_secs_f64() * 1e3;
        let runs = arguments.runs;
        writeln!(out, "  {milliseconds:.3} ms ({clock}; median of {runs}), {}", work.rate(time))?;
        if device.is_cpu() {
            writeln!(out, "  not compared: this is the cpu, with which the others are compared")?;
            continue;
        }
        let reference = Place::new(&cpu, work)?;
        reference.write(&operands)?;
        reference.launch()?;
        work::compare(&place.read()?, &reference.read()?)?;
        writeln!(out, "  as on the cpu, in every bit")?;
    }
    Ok(())
}
