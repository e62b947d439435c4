//! `programs`: times training programs of burn on registered devices.

use std::error::Error;
use std::process::ExitCode;

use programs::args::{Command, Options, help, parse};
use programs::busy::Busy;
use programs::rounds::{FLEX, Place, measure};
use programs::table;

// Links the backends of Cargo.toml.
device_registry::autoload!();

/// How many threads `--loaded` is.
const BUSY_THREADS: usize = 2;

fn main() -> ExitCode {
    let command = match parse(std::env::args_os().skip(1)) {
        Ok(command) => command,
        Err(error) => {
            eprintln!("error: {error}; `programs --help` lists the options");
            return ExitCode::from(2);
        }
    };
    let result = match command {
        Command::Help => {
            print!("{}", help());
            Ok(())
        }
        Command::Measure(options) => run(&options),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {}", device_registry::ErrorChain::new(&*error));
            ExitCode::FAILURE
        }
    }
}

fn run(options: &Options) -> Result<(), Box<dyn Error>> {
    let mut places = vec![Place::open(FLEX)?];
    for name in &options.devices {
        places.push(Place::open(name)?);
    }
    let _busy = options.loaded.then(|| Busy::start(BUSY_THREADS));
    let load = if options.loaded { format!(", beside {BUSY_THREADS} busy threads") } else { String::new() };
    println!("one epoch, or one operation: medians of {} rounds in turns{load}; beside Flex", options.rounds);
    println!("{}", table::header(&places));
    let mut all = Vec::new();
    for case in &options.cases {
        let measured = measure(case, options.size, &places, options.rounds.get())?;
        println!("{}", table::times(case, &measured));
        all.push((*case, measured));
    }
    println!(
        "\noperations: by kernels / by the CPU engine instead / views / by the CPU engine for want of a kernel"
    );
    println!("{}", table::header(&places));
    for (case, measured) in &all {
        println!("{}", table::counts(case, measured));
    }
    for (case, measured) in &all {
        for (place, measured) in places.iter().zip(measured) {
            let Some(counts) = &measured.counts else { continue };
            if let Some(line) = table::fallbacks(case, place, counts) {
                println!("{line}");
            }
            if options.counts {
                println!("\n`{}`: {counts}", case.name);
            }
        }
    }
    Ok(())
}
