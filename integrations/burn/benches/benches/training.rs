//! One epoch of `digits`, without its data loaders: forward, backward, Adam. Beside burn's CPU engine, in
//! turns.

use burn::data::dataloader::batcher::Batcher;
use burn::nn::loss::CrossEntropyLossConfig;
use burn::optim::{AdamConfig, GradientsParams};
use burn::tensor::Device;
use criterion::{Criterion, criterion_group, criterion_main};
use device_registry_benches::beside;
use digits::batch::DigitBatcher;
use digits::data::Digits;
use digits::model::Network;

device_registry::autoload!();

/// One epoch on a device, again at each call.
fn epoch(digits: &Digits, device: &Device) -> impl FnMut() {
    device.seed(1);
    let device = device.clone().autodiff();
    let mut network = Network::new(&device, 0.25);
    let mut optimizer = AdamConfig::new().init();
    let loss = CrossEntropyLossConfig::new().init(&device);
    move || {
        for batch in digits.as_slice().chunks(32) {
            let batch = DigitBatcher.batch(batch.to_vec(), &device);
            let loss = loss.forward(network.forward(batch.images), batch.labels);
            let gradients = GradientsParams::from_grads(loss.backward(), &network);
            network = optimizer.step(2e-3, network.clone(), gradients);
        }
        device.sync().unwrap();
    }
}

fn training(c: &mut Criterion) {
    let digits = Digits::load().unwrap();
    let mut group = c.benchmark_group("digits, one epoch");
    group.sample_size(10);
    for (name, device) in [
        ("cpu, kernels", device_burn::patch::device("cpu").unwrap()),
        ("openreg:0, fallback", device_burn::patch::device("openreg:0").unwrap()),
        ("cpu, kernels, loop-back", device_burn::loopback::device("cpu").unwrap()),
    ] {
        let flex = Device::flex();
        beside(&mut group, format!("{name}, beside flex"), epoch(&digits, &device), epoch(&digits, &flex));
    }
}

criterion_group!(benches, training);
criterion_main!(benches);
