//! A model's parameters and an optimizer's state, saved from one device and loaded on another.

use std::sync::{Mutex, MutexGuard, PoisonError};

use burn::module::Module;
use burn::nn::{BatchNorm, BatchNormConfig, Linear, LinearConfig};
use burn::optim::{AdamConfig, GradientsParams};
use burn::tensor::{Bytes, Device, Distribution, Tensor, TensorData, activation};
use burn_store::{ModuleSnapshot, SafetensorsStore};
use device_burn_tests as _;

device_registry::autoload!();

const DEVICES: [&str; 4] = ["cpu", "openreg:0", "openreg:1", "mycpu:0"];

fn device(text: &str) -> Device {
    if text == "flex" { Device::flex() } else { device_burn::device(text).unwrap() }
}

#[derive(Module, Debug)]
struct Network {
    first: Linear,
    norm: BatchNorm,
    second: Linear,
}

impl Network {
    fn new(device: &Device) -> Self {
        Self {
            first: LinearConfig::new(3, 8).init(device),
            norm: BatchNormConfig::new(8).init(device),
            second: LinearConfig::new(8, 2).init(device),
        }
    }

    fn forward(&self, x: Tensor<2>) -> Tensor<2> {
        let x = activation::relu(self.norm.forward(self.first.forward(x)));
        self.second.forward(x)
    }
}

fn input(device: &Device) -> Tensor<2> {
    Tensor::from_data([[0.5, -1.0, 2.0], [1.5, 0.25, -0.75], [0.0, 3.0, 1.0], [-2.0, 1.0, 0.125]], device)
}

fn output(network: &Network, device: &Device) -> TensorData {
    network.forward(input(device)).into_data()
}

/// A network whose parameters a kernel has written: of a sum, only the device has the bytes.
fn network(seed: u64, device: &Device) -> Network {
    device.seed(seed);
    let mut network = Network::new(device);
    let noise = Tensor::<2>::random([3, 8], Distribution::Default, device);
    network.first.weight = network.first.weight.map(|weight| weight + noise.clone());
    network
}

/// One test at a time: the generator of a device is one for the process, and burn draws parameters at their
/// first use.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

#[test]
fn a_model_saved_from_one_device_computes_the_same_on_another() {
    let _alone = alone();
    let first = device(DEVICES[0]);
    let of_first = output(&network(7, &first), &first);
    for from_name in DEVICES {
        let from = device(from_name);
        let saved = network(7, &from);
        let expected = output(&saved, &from);
        assert_eq!(expected, of_first, "a seed gives another network on {from_name}");
        let mut store = SafetensorsStore::from_bytes(None);
        saved.save_into(&mut store).unwrap();
        let bytes = store.get_bytes().unwrap();
        for to_name in DEVICES.into_iter().chain(["flex"]) {
            let to = device(to_name);
            let mut loaded = network(8, &to);
            assert_ne!(output(&loaded, &to), expected, "the parameters are the same before they are loaded");
            let mut store = SafetensorsStore::from_bytes(Some(bytes.clone()));
            let result = loaded.load_from(&mut store).unwrap();
            assert!(result.missing.is_empty() && result.errors.is_empty(), "{result}");
            assert_eq!(loaded.first.weight.val().device(), to);
            assert_eq!(output(&loaded, &to), expected, "from {from_name} to {to_name}");
        }
    }
}

#[test]
fn a_model_moves_to_another_device_with_its_outputs() {
    let _alone = alone();
    for (from, to) in
        [("openreg:0", "cpu"), ("cpu", "openreg:1"), ("openreg:1", "mycpu:0"), ("mycpu:0", "flex")]
    {
        let (from, to) = (device(from), device(to));
        let network = network(7, &from);
        let expected = output(&network, &from);
        assert_eq!(output(&network.to_device(&to), &to), expected, "{from:?} to {to:?}");
    }
}

/// Trains for some steps, and returns the network and the optimizer's state as bytes.
fn train(network: Network, state: Option<Bytes>, steps: usize, device: &Device) -> (Network, Bytes) {
    let device = &device.clone().autodiff();
    let mut network = network.train();
    let mut optimizer = AdamConfig::new().init();
    if let Some(state) = state {
        optimizer = optimizer.from_bytes(state).unwrap();
    }
    for _ in 0..steps {
        let loss = (network.forward(input(device)) - 1.0).square().mean();
        let gradients = GradientsParams::from_grads(loss.backward(), &network);
        network = optimizer.step(0.05, network, gradients);
    }
    (network.valid(), optimizer.into_bytes().unwrap())
}

#[test]
fn a_training_continues_on_another_device_as_if_it_had_not_moved() {
    let _alone = alone();
    let first = device("openreg:0");
    let start = network(7, &first);
    let (half, state) = train(start.clone(), None, 3, &first);
    let (whole, _) = train(half.clone(), Some(state.clone()), 3, &first);
    let expected = output(&whole, &first);
    let (without_state, _) = train(half.clone(), None, 3, &first);
    assert_ne!(output(&without_state, &first), expected, "the optimizer's state changes nothing");
    for name in ["cpu", "openreg:1", "mycpu:0", "flex"] {
        let second = device(name);
        let moved = half.clone().to_device(&second);
        let (moved, _) = train(moved, Some(state.clone()), 3, &second);
        assert_eq!(output(&moved, &second), expected, "{name}");
    }
    // The same as without a stop.
    let (unbroken, _) = train(start, None, 6, &first);
    assert_eq!(output(&unbroken, &first), expected);
}
