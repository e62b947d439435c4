//! A convolutional network that tells horizontal bars from vertical ones. It names no backend either.

use burn::nn::conv::{Conv2d, Conv2dConfig};
use burn::nn::loss::CrossEntropyLossConfig;
use burn::nn::pool::{AdaptiveAvgPool2d, AdaptiveAvgPool2dConfig};
use burn::nn::{Linear, LinearConfig};
use burn::optim::{AdamConfig, GradientsParams};
use burn::prelude::*;
use burn::tensor::activation::relu;
use burn::tensor::{Distribution, TensorReadError};

#[derive(Module, Debug)]
struct Network {
    conv: Conv2d,
    pool: AdaptiveAvgPool2d,
    linear: Linear,
}

impl Network {
    fn new(device: &Device) -> Self {
        Self {
            conv: Conv2dConfig::new([1, 8], [3, 3]).init(device),
            pool: AdaptiveAvgPool2dConfig::new([1, 1]).init(),
            linear: LinearConfig::new(8, 2).init(device),
        }
    }

    fn forward(&self, images: Tensor<4>) -> Tensor<2> {
        let features = self.pool.forward(relu(self.conv.forward(images)));
        self.linear.forward(features.flatten(1, 3))
    }
}

const SIDE: usize = 8;
const STEPS: usize = 60;

/// A picture of each bar, with noise: `[2 * SIDE, 1, SIDE, SIDE]`, and which are vertical.
fn pictures(device: &Device) -> (Tensor<4>, Tensor<1, Int>) {
    let rows = Tensor::<2>::eye(SIDE, device).reshape([SIDE, 1, SIDE, 1]).expand([SIDE, 1, SIDE, SIDE]);
    let columns = rows.clone().swap_dims(2, 3);
    let images = Tensor::cat(vec![rows, columns], 0);
    let noise = Tensor::random(images.dims(), Distribution::Normal(0.0, 0.1), device);
    let labels = Tensor::cat(vec![Tensor::zeros([SIDE], device), Tensor::ones([SIDE], device)], 0);
    (images + noise, labels)
}

/// Trains, and says how many of other pictures the network tells right.
pub(crate) fn run(device: &Device) -> Result<String, TensorReadError> {
    device.seed(7);
    let device = device.clone().autodiff();
    let mut network = Network::new(&device);
    let mut optimizer = AdamConfig::new().init();
    let loss = CrossEntropyLossConfig::new().init(&device);
    for _ in 0..STEPS {
        let (images, labels) = pictures(&device);
        let loss = loss.forward(network.forward(images), labels);
        let gradients = GradientsParams::from_grads(loss.backward(), &network);
        network = optimizer.step(0.05, network, gradients);
    }
    let (images, labels) = pictures(&device);
    let guesses = network.forward(images).argmax(1).squeeze_dim::<1>(1);
    let right = guesses.equal(labels).int().sum().try_into_scalar::<i64>()?;
    Ok(format!("bars after {STEPS} steps: {right} of {} right", 2 * SIDE))
}
