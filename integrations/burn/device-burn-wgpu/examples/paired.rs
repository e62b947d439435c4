//! Training steps on the registry's device by burn's engine, and on burn's own wgpu device, by turns on the
//! same adapter: `cargo run --release -p device-burn-wgpu --example paired`.

use std::time::{Duration, Instant};

use burn::tensor::{Device, DeviceKind, Distribution, Tensor};

device_registry::autoload!();

const ROUNDS: usize = 5;
const STEPS: usize = 4;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let devices = [device_burn::device("wgpu:0")?, Device::wgpu(DeviceKind::DefaultDevice)];
    let identities = devices.each_ref().map(|device| device.identity().map(|identity| identity.name));
    println!("{identities:?}");
    // Kernels are compiled and tuned in the first round, which does not count.
    for device in &devices {
        round(device);
    }
    let mut times: Vec<[Duration; 2]> = (0..ROUNDS).map(|_| devices.each_ref().map(round)).collect();
    let median = |times: &mut Vec<[Duration; 2]>, which: usize| {
        times.sort_by_key(|pair| pair[which]);
        times[ROUNDS / 2][which]
    };
    let (engine, own) = (median(&mut times, 0), median(&mut times, 1));
    let ratio = engine.as_secs_f64() / own.as_secs_f64();
    println!(
        "{STEPS} steps: {engine:.2?} on the registry's device, {own:.2?} on burn's own: {ratio:.3} times"
    );
    Ok(())
}

/// Some steps of two layers, forward and backward, until their result is read.
fn round(device: &Device) -> Duration {
    let device = device.clone().autodiff();
    let random = |shape| Tensor::<2>::random(shape, Distribution::Default, &device);
    let (x, mut first, mut second) = (random([64, 128]), random([128, 128]), random([128, 16]));
    let begin = Instant::now();
    for _ in 0..STEPS {
        (first, second) = (first.detach().require_grad(), second.detach().require_grad());
        let hidden = burn::tensor::activation::relu(x.clone().matmul(first.clone()));
        let gradients = hidden.matmul(second.clone()).square().mean().backward();
        let step = |weight: Tensor<2>, gradient: Tensor<2>| weight.inner() - gradient * 1e-4;
        let of = |weight: &Tensor<2>| weight.grad(&gradients).expect("it is of the loss");
        let (next, last) = (step(first.clone(), of(&first)), step(second.clone(), of(&second)));
        (first, second) = (next.autodiff(), last.autodiff());
    }
    first.into_data().try_to_vec::<f32>().expect("the device computes");
    begin.elapsed()
}
