//! Training with the devices of a server among several.

#[allow(dead_code, reason = "for the other tests of the server")]
mod process;

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use burn::tensor::Device;
use device_registry::ErrorChain;
use digits::data::Digits;
use digits::devices;
use digits::training::{Options, Strategy, TrainError, Trained, train};
use process::{Folder, server};

device_registry::autoload!();

/// Without dropout: each device would leave out other features.
fn run(folder: &Folder, epochs: usize, devices: &[(&str, Device)]) -> Result<Trained, TrainError> {
    let (training, held_out) = Digits::load().unwrap().split();
    let options = Options {
        epochs: NonZeroUsize::new(epochs).unwrap(),
        seed: 1,
        dropout: 0.0,
        output: PathBuf::from(folder.path("output")),
        resume: false,
        strategy: Strategy::Main,
    };
    let devices: Vec<_> = devices.iter().map(|(_, device)| device.clone()).collect();
    train(&options, training, held_out, &devices)
}

/// The losses of each step by size: which device is the first to say its own varies.
fn losses_of(trained: &Trained) -> Vec<f64> {
    trained.losses.as_chunks::<2>().0.iter().flat_map(|[a, b]| [a.min(*b), a.max(*b)]).collect()
}

#[test]
fn a_device_of_a_server_and_one_of_this_process_have_the_losses_of_two_of_this_process() {
    let folder = Folder::new();
    let server = server(&folder, "openreg:1");
    let token = folder.token("token");
    let [mixed, local] = [&*server.url, "openreg:1"].map(|second| {
        let names = ["openreg:0", second].map(str::to_owned);
        let devices = devices::open(&names, Strategy::Main, Some(Path::new(&token))).unwrap();
        losses_of(&run(&folder, 1, &devices).unwrap())
    });
    assert_eq!(mixed.len(), local.len());
    let differ = |(a, b): (&f64, &f64)| (a - b).abs() > 1e-4;
    assert_eq!(mixed.iter().zip(&local).position(differ), None, "{mixed:?}\n{local:?}");
}

#[test]
fn a_server_that_is_killed_ends_the_training_with_an_error_that_names_it() {
    let folder = Folder::new();
    let mut server = server(&folder, "openreg:0,openreg:1");
    let token = folder.token("token");
    // Not a device of the other test, which seeds its random numbers.
    let names = ["cpu".to_owned(), server.url.clone()];
    let devices = devices::open(&names, Strategy::Main, Some(Path::new(&token))).unwrap();
    assert_eq!(devices.len(), 3);
    let error = thread::scope(|scope| {
        let training = scope.spawn(|| run(&folder, 1000, &devices).unwrap_err());
        thread::sleep(Duration::from_secs(2));
        server.process.kill();
        training.join().unwrap()
    });
    let text = ErrorChain::new(&*devices::name_the_lost(error, &devices)).to_string();
    assert!(text.starts_with(&format!("lost {}: ", server.url)), "{text}");
}
