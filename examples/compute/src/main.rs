//! Multiplies two matrices and adds two vectors on any device that offers a kernel language; see README.md.

#![deny(unsafe_code)]

mod arguments;
mod check;
mod choice;
mod error;
pub mod kernels;
mod measure;
mod work;

use std::error::Error;
use std::io::{self, Write, stdout};
use std::path;
use std::process::ExitCode;

use clap::Parser;
use device_plugin::Plugins;
use device_registry::{Device, ErrorChain, backends, devices};
use entry_points::EntryPoint;

use crate::arguments::Arguments;
use crate::choice::choose;
use crate::kernels::{KERNELS, Kernels, Language, Text, kernel_sets};
use crate::work::Work;

// Links every backend in Cargo.toml. The kernels for them are modules of this crate.
device_registry::autoload!();

entry_points::entry_points! {
    #[distributed_slice(KERNELS)]
    static CPU: EntryPoint<dyn Language> = EntryPoint::new("cpu", kernels::host::cpu);

    #[distributed_slice(KERNELS)]
    static OPENREG: EntryPoint<dyn Language> = EntryPoint::new("openreg", kernels::host::openreg);

    #[cfg(feature = "opencl-kernels")]
    #[distributed_slice(KERNELS)]
    static OPENCL: EntryPoint<dyn Language> = EntryPoint::new("opencl", kernels::opencl::load);

    #[cfg(feature = "wgpu")]
    #[distributed_slice(KERNELS)]
    static WGPU: EntryPoint<dyn Language> = EntryPoint::new("wgpu", kernels::wgpu::load);

    #[cfg(feature = "cuda")]
    #[distributed_slice(KERNELS)]
    static CUDA: EntryPoint<dyn Language> = EntryPoint::new("cuda", kernels::cuda::load);
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
        return Ok(list()?);
    }
    let text = arguments.source.as_deref().map(Text::from_file).transpose()?;
    let (device, passed_over) = choose(&arguments.device)?;
    let mut out = stdout();
    for (text, reason) in passed_over {
        // The first line only; `--device` with that device alone prints all of them.
        writeln!(out, "not {text}: {}", reason.to_string().lines().next().unwrap_or_default())?;
    }
    writeln!(out, "device {device}: {}", device.properties()?)?;

    let kernels = Kernels::compile(device, text)?;
    writeln!(out, "kernels: {}", kernels.language())?;
    // The results are compared with the cpu's.
    let cpu = Kernels::compile(Device::cpu(), None)?;
    for work in [Work::Add { len: arguments.length }, Work::Matmul(arguments.size)] {
        writeln!(out, "{work}")?;
        // Before anything is computed, as it may not fit.
        let place = work.place(device)?;
        let operands = work.operands()?;
        let (result, time) = place.measure(&operands, &kernels, arguments.runs)?;
        writeln!(out, "  {}, {}", time, work.rate(time.median))?;
        if device.is_cpu() {
            writeln!(out, "  not compared: this is the cpu, with which the others are compared")?;
            continue;
        }
        let reference = work.place(Device::cpu())?;
        check::compare(&result, &reference.compute(&operands, &cpu)?)?;
        writeln!(out, "  as on the cpu, in every bit")?;
    }
    Ok(())
}

/// All devices, and what their kernels are written in. Loads each backend and opens no device.
fn list() -> io::Result<()> {
    let mut out = stdout();
    for (backend, devices) in devices() {
        let devices = match devices {
            Ok(devices) if devices.is_empty() => {
                writeln!(out, "{}: no devices", backend.name())?;
                continue;
            }
            Ok(devices) => devices,
            Err(error) => {
                writeln!(out, "{}: {}", backend.name(), indented(&error.to_string()))?;
                continue;
            }
        };
        match kernel_sets().load(backend.name()) {
            Ok(language) => writeln!(out, "{}: kernels in {}", backend.name(), language.name())?,
            Err(error) => {
                writeln!(out, "{}: no kernels: {}", backend.name(), indented(&error.to_string()))?;
            }
        }
        for device in devices {
            match device.properties() {
                Ok(properties) => writeln!(out, "  {device:<12}  {properties}")?,
                Err(error) => writeln!(out, "  {device:<12}  {}", indented(&error.to_string()))?,
            }
        }
    }
    Ok(())
}

/// A message of several lines as a part of a line.
fn indented(message: &str) -> String {
    message.replace('\n', "\n    ")
}
