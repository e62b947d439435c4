//! `digits --device STRING`, or `--devices` and a list: train, evaluate on the held-out digits, draw the loss
//! curve, save the network.

use std::error::Error;
use std::path::{self, Path};
use std::process::ExitCode;
use std::time::Duration;

use burn::module::Module;
use device_plugin::Plugins;
use device_registry::ErrorChain;
use digits::args::{self, Command};
use digits::data::Digits;
use digits::training::{BATCH_SIZE, Options};
use digits::{curve, devices, evaluation, training};

device_registry::autoload!();

/// How long a burn-serve may take for an answer. It answers while it computes.
const ANSWER: Duration = Duration::from_secs(30);

fn main() -> ExitCode {
    match start() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {}", ErrorChain::new(&*error));
            ExitCode::FAILURE
        }
    }
}

fn start() -> Result<(), Box<dyn Error + Send + Sync>> {
    match args::parse(std::env::args_os().skip(1))? {
        Command::Help => print!("{}", args::HELP),
        Command::Train { devices, token_file, plugins, trace, options } => {
            let servers: Vec<_> = devices.iter().filter(|name| devices::is_remote(name)).cloned().collect();
            // burn's client would wait forever for a server that is paused.
            burn_serve_client::watch(&servers, ANSWER, move || {
                run(&devices, token_file.as_deref(), plugins.as_deref(), trace.as_deref(), &options)
            })?;
        }
    }
    Ok(())
}

fn run(
    names: &[String],
    token_file: Option<&Path>,
    plugins: Option<&Path>,
    trace: Option<&Path>,
    options: &Options,
) -> Result<(), Box<dyn Error + Send + Sync>> {
    let begin = |file: &Path| {
        device_trace::write_to(file).map_err(|error| format!("cannot write `{}`: {error}", file.display()))
    };
    let trace_of_all = trace.map(begin).transpose()?;
    if let Some(folder) = plugins {
        println!("{}", Plugins::new().folder(path::absolute(folder)?).install()?);
    }
    // The only line that decides where everything below runs.
    let named = devices::open(names, options.strategy, token_file)?;
    let devices: Vec<_> = named.iter().map(|(_, device)| device.clone()).collect();

    let (training, held_out) = Digits::load()?.split();
    println!("{} digits to train on, on {}", training.as_slice().len(), names.join(", "));
    let trained = training::train(options, training, held_out.clone(), &devices)
        .map_err(|error| devices::name_the_lost(error, &named))?;
    let accuracy = evaluation::accuracy(&trained.network, &held_out, BATCH_SIZE, &devices[0])?;
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

    for name in names {
        if !devices::is_remote(name) {
            println!("{}", device_burn::counts(name)?);
            continue;
        }
        match burn_serve_client::counts(name, &devices::token(token_file)?, ANSWER) {
            Ok(counts) => print!("at {name}, since its start:\n{counts}"),
            // The training has ended well.
            Err(error) => eprintln!("no counts: {}", ErrorChain::new(&error)),
        }
    }
    Ok(())
}
