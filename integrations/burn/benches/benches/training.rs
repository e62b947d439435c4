//! Steps of the training of `digits`, without its data loaders: forward, backward, Adam.

use burn::data::dataloader::batcher::Batcher;
use burn::nn::loss::CrossEntropyLossConfig;
use burn::optim::{AdamConfig, GradientsParams};
use burn::tensor::Device;
use criterion::{Criterion, criterion_group, criterion_main};
use digits::batch::DigitBatcher;
use digits::data::Digits;
use digits::model::Network;

device_registry::autoload!();

fn training(c: &mut Criterion) {
    let digits = Digits::load().unwrap();
    let mut group = c.benchmark_group("digits, ten steps");
    group.sample_size(10);
    for (name, device) in [
        ("flex", Device::flex()),
        ("cpu, slot", device_burn::slot::device("cpu").unwrap()),
        ("openreg:0, slot, four kernels", device_burn::slot::device("openreg:0").unwrap()),
        ("cpu, loop-back", device_burn::loopback::device("cpu").unwrap()),
    ] {
        device.seed(1);
        let device = device.autodiff();
        let mut network = Network::new(&device);
        let mut optimizer = AdamConfig::new().init();
        let loss = CrossEntropyLossConfig::new().init(&device);
        group.bench_function(name, |bencher| {
            bencher.iter(|| {
                for batch in digits.as_slice().chunks(32).take(10) {
                    let batch = DigitBatcher.batch(batch.to_vec(), &device);
                    let loss = loss.forward(network.forward(batch.images), batch.labels);
                    let gradients = GradientsParams::from_grads(loss.backward(), &network);
                    network = optimizer.step(2e-3, network.clone(), gradients);
                }
                device.sync().unwrap();
            });
        });
    }
    group.finish();
}

criterion_group!(benches, training);
criterion_main!(benches);
