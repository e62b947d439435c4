//! Training on several devices, by burn's strategies.

mod common;

use std::sync::{LazyLock, Mutex};

use burn::data::dataloader::split::split_dataloader;
use burn::module::Module;
use burn::nn::loss::CrossEntropyLossConfig;
use burn::optim::{AdamConfig, GradientsAccumulator, GradientsParams};
use burn::tensor::Device;
use device_registry::backends;
use digits::batch::DigitBatch;
use digits::data::Digits;
use digits::devices;
use digits::model::Network;
use digits::training::{LEARNING_RATE, Options, Strategy, loader, train};

device_registry::autoload!();

/// Enough devices that each test has its own.
static EIGHT: LazyLock<()> =
    LazyLock::new(|| backends().set_option("openreg", "devices", "8").expect("the backend is not in use"));

/// Each test seeds the random numbers of `cpu`.
static ALONE: Mutex<()> = Mutex::new(());

fn options(test: &str, strategy: Strategy) -> Options {
    // With dropout, each device would leave out other features.
    Options { strategy, dropout: 0.0, ..common::options(test, 1) }
}

fn open(names: &[&str], strategy: Strategy) -> Vec<Device> {
    LazyLock::force(&EIGHT);
    let names: Vec<String> = names.iter().map(ToString::to_string).collect();
    devices::open(&names, strategy, None).unwrap().into_iter().map(|(_, device)| device).collect()
}

/// What a training on several devices gives: its losses, and the scores of the held-out digits.
fn on_devices(test: &str, names: &[&str], strategy: Strategy) -> (Vec<f64>, Vec<f32>) {
    let (training, held_out) = Digits::load().unwrap().split();
    let devices = open(names, strategy);
    let trained = train(&options(test, strategy), training, held_out, &devices).unwrap();
    (trained.losses, scores(&trained.network, &devices[0]))
}

fn scores(network: &Network, device: &Device) -> Vec<f32> {
    let (_, held_out) = Digits::load().unwrap().split();
    let batches = loader(held_out, None, device);
    let scores = |batch: DigitBatch| network.forward(batch.images).into_data().try_to_vec::<f32>().unwrap();
    batches.iter().flat_map(|batch| scores(batch.unwrap())).collect()
}

/// The losses of each step by size: which device is the first to say its own varies.
fn in_steps(losses: &[f64], devices: usize) -> Vec<f64> {
    let mut losses = losses.to_vec();
    losses.chunks_exact_mut(devices).for_each(|step| step.sort_by(f64::total_cmp));
    losses
}

/// The same training by a plain loop on one device: each step has the batches of all, and `weight` times the
/// sum of their gradients.
fn on_one_device(parts: usize, weight: f64) -> (Vec<f64>, Vec<f32>) {
    let (digits, _) = Digits::load().unwrap().split();
    let [device] = &open(&["cpu"], Strategy::Main)[..] else { panic!("one device") };
    let seed = options("one_device", Strategy::Main).seed;
    device.seed(seed);
    let device = device.clone().autodiff();
    let mut network = Network::new(&device, 0.0);
    let mut optimizer = AdamConfig::new().init();

    let loaders = split_dataloader(loader(digits, Some(seed), &device), &vec![device.clone(); parts]);
    let mut batches: Vec<_> = loaders.iter().map(|loader| loader.iter()).collect();
    let mut losses = Vec::new();
    loop {
        let step: Vec<_> =
            batches.iter_mut().filter_map(|batches| batches.next()).map(Result::unwrap).collect();
        if step.is_empty() {
            return (losses, scores(&network.valid(), &device.inner()));
        }
        let mut gradients = GradientsAccumulator::new();
        for batch in step {
            let scores = network.forward(batch.images);
            let loss = CrossEntropyLossConfig::new().init(&device).forward(scores, batch.labels);
            losses.push(f64::from(loss.clone().into_scalar::<f32>()));
            gradients.accumulate(&network, GradientsParams::from_grads((loss * weight).backward(), &network));
        }
        network = optimizer.step(LEARNING_RATE, network, gradients.grads());
    }
}

#[track_caller]
fn assert_equal<T: Into<f64> + Copy>(found: &[T], expected: &[T]) {
    assert_eq!(found.len(), expected.len());
    for (place, (found, expected)) in found.iter().zip(expected).enumerate() {
        let (found, expected) = ((*found).into(), (*expected).into());
        assert!((found - expected).abs() < 1e-3, "{place}: {found}, expected {expected}");
    }
}

#[test]
fn several_devices_have_the_losses_of_one() {
    let _alone = ALONE.lock();
    for (test, names, strategy) in [
        ("main", &["openreg:0", "openreg:1"][..], Strategy::Main),
        // Devices of two backends.
        ("sharded", &["openreg:0", "cpu"], Strategy::Sharded),
        ("four", &["openreg:0", "openreg:1", "openreg:2", "openreg:3"], Strategy::Main),
    ] {
        let (losses, scores) = on_devices(test, names, strategy);
        let one = on_one_device(names.len(), 1.0);
        assert_equal(&in_steps(&losses, names.len()), &in_steps(&one.0, names.len()));
        assert_equal(&scores, &one.1);
    }
}

#[cfg(not(feature = "burn-0-23"))]
#[test]
fn data_parallel_devices_train_the_network_of_one_with_the_average_of_the_gradients() {
    let _alone = ALONE.lock();
    // burn's losses come in no order here, and the last step's may be missing.
    let (_, scores) = on_devices("ddp", &["openreg:4", "openreg:5"], Strategy::Ddp);
    assert_equal(&scores, &on_one_device(2, 0.5).1);
}

#[cfg(feature = "burn-0-23")]
#[test]
fn what_burn_0_23_does_not_have_is_an_error() {
    LazyLock::force(&EIGHT);
    for (name, expected) in [("cpu", "no `ddp` for `cpu`"), ("ws://127.0.0.1:3000", "burn 0.22")] {
        let error = devices::open(&[name.to_owned()], Strategy::Ddp, None).unwrap_err();
        assert!(error.to_string().contains(expected), "{error}");
    }
}

#[cfg(not(feature = "burn-0-23"))]
#[test]
fn devices_that_a_strategy_does_not_have_and_a_server_without_its_token_are_errors() {
    let error = |names: &[&str], strategy| {
        let names: Vec<String> = names.iter().map(ToString::to_string).collect();
        devices::open(&names, strategy, None).unwrap_err().to_string()
    };
    assert!(error(&["ws://127.0.0.1:3000"], Strategy::Main).contains("--token-file"));
    let mixed = error(&["cpu", "ws://127.0.0.1:3000"], Strategy::Ddp);
    assert!(mixed.contains("all devices are of one server"), "{mixed}");
    let twice = error(&["cpu", "cpu:0"], Strategy::Ddp);
    assert!(twice.contains("`cpu:0` is there twice"), "{twice}");
}
