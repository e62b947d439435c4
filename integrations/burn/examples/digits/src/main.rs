//! `digits --device STRING`: train, evaluate on the held-out digits, draw the loss curve, save the network.

use std::error::Error;
use std::path::{self, Path};
use std::process::ExitCode;

use burn::module::Module;
use device_plugin::Plugins;
use digits::args::{self, Command};
use digits::data::Digits;
use digits::training::{BATCH_SIZE, Options};
use digits::{curve, evaluation, training};

device_registry::autoload!();

fn main() -> ExitCode {
    let run =
        args::parse(std::env::args_os().skip(1)).map_err(Into::into).and_then(|command| match command {
            Command::Help => {
                print!("{}", args::HELP);
                Ok(())
            }
            Command::Train { device, plugins, trace, options } => {
                run(&device, plugins.as_deref(), trace.as_deref(), &options)
            }
        });
    match run {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            report(&*error);
            ExitCode::FAILURE
        }
    }
}

fn run(
    name: &str,
    plugins: Option<&Path>,
    trace: Option<&Path>,
    options: &Options,
) -> Result<(), Box<dyn Error>> {
    let begin = |file: &Path| {
        device_trace::write_to(file).map_err(|error| format!("cannot write `{}`: {error}", file.display()))
    };
    let trace_of_all = trace.map(begin).transpose()?;
    if let Some(folder) = plugins {
        println!("{}", Plugins::new().folder(path::absolute(folder)?).install()?);
    }
    // The only line that decides where everything below runs.
    let device = device_burn::device(name)?;

    let (training, held_out) = Digits::load()?.split();
    println!("{} digits to train on, on {name}", training.as_slice().len());
    let trained = training::train(options, training, held_out.clone(), &device)?;
    let accuracy = evaluation::accuracy(&trained.network, &held_out, BATCH_SIZE, &device)?;
    println!("accuracy on {} held-out digits: {accuracy}", accuracy.total);

    let picture = options.output.join("loss.svg");
    curve::write(&picture, &trained.losses)?;
    let model = options.output.join("model.bpk");
    trained.network.save_file(&model)?;
    println!("wrote {} and {}", picture.display(), model.display());
    if let Some(file) = trace {
        drop(trace_of_all);
        println!("wrote {}, which `devices trace` reads", file.display());
    }

    println!("{}", device_burn::counts(name)?);
    Ok(())
}

fn report(error: &dyn Error) {
    eprint!("error: {error}");
    let mut source = error.source();
    while let Some(cause) = source {
        eprint!(": {cause}");
        source = cause.source();
    }
    eprintln!();
}
