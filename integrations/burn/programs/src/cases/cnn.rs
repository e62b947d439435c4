//! A small convolutional network for pictures of ten kinds.

use burn::nn::conv::{Conv2d, Conv2dConfig};
use burn::nn::loss::CrossEntropyLossConfig;
use burn::nn::pool::{AdaptiveAvgPool2d, AdaptiveAvgPool2dConfig};
use burn::nn::{Dropout, DropoutConfig, Linear, LinearConfig};
use burn::optim::AdamConfig;
use burn::prelude::*;
use burn::tensor::TensorData;
use burn::tensor::activation::relu;

use super::{Epoch, Size, learn};
use crate::numbers::Numbers;
use crate::weights::with_weights;

const CLASSES: usize = 10;
const CHANNELS: [usize; 2] = [8, 16];

#[derive(Module, Debug)]
struct Network {
    conv1: Conv2d,
    conv2: Conv2d,
    pool: AdaptiveAvgPool2d,
    dropout: Dropout,
    hidden: Linear,
    output: Linear,
}

impl Network {
    fn new(hidden: usize, device: &Device) -> Self {
        let [first, second] = CHANNELS;
        Self {
            conv1: Conv2dConfig::new([1, first], [3, 3]).init(device),
            conv2: Conv2dConfig::new([first, second], [3, 3]).init(device),
            pool: AdaptiveAvgPool2dConfig::new([8, 8]).init(),
            // The layer is there, and drops nothing: devices draw other random numbers.
            dropout: DropoutConfig::new(0.0).init(),
            hidden: LinearConfig::new(second * 8 * 8, hidden).init(device),
            output: LinearConfig::new(hidden, CLASSES).init(device),
        }
    }

    fn forward(&self, pictures: Tensor<3>) -> Tensor<2> {
        let first = self.dropout.forward(self.conv1.forward(pictures.unsqueeze_dim(1)));
        let second = self.dropout.forward(self.conv2.forward(first));
        let pooled = self.pool.forward(relu(second)).flatten(1, 3);
        self.output.forward(relu(self.dropout.forward(self.hidden.forward(pooled))))
    }
}

struct Picture {
    pixels: Vec<f32>,
    class: i64,
}

/// Pictures of stripes: the class is how wide they are, and which way they go.
fn pictures(count: usize, side: usize) -> Vec<Picture> {
    let mut numbers = Numbers::new(11);
    let picture = |_| {
        let class = numbers.below(CLASSES);
        let width = 1 + class / 2;
        let shift = numbers.below(side);
        let pixel = |at: usize| {
            let across = if class.is_multiple_of(2) { at % side } else { at / side };
            let bright = ((across + shift) / width).is_multiple_of(2);
            (if bright { 200.0 } else { 40.0 }) + numbers.within(40.0)
        };
        Picture { pixels: (0..side * side).map(pixel).collect(), class: class as i64 }
    };
    (0..count).map(picture).collect()
}

/// What a batcher does: each picture is a tensor, brought to a mean of 0 and a deviation of 1.
fn batch(pictures: &[Picture], side: usize, device: &Device) -> (Tensor<3>, Tensor<1, Int>) {
    let images = pictures.iter().map(|picture| {
        let pixels = Tensor::<2>::from_data(TensorData::new(picture.pixels.clone(), [side, side]), device);
        ((pixels / 255.0 - 0.47) / 0.33).unsqueeze::<3>()
    });
    let classes = pictures.iter().map(|picture| Tensor::from_ints([picture.class], device));
    (Tensor::cat(images.collect(), 0), Tensor::cat(classes.collect(), 0))
}

pub(super) fn prepare(size: Size, device: &Device) -> Epoch {
    let side = size.of(28, 12);
    let batch_size = size.of(64, 2);
    let pictures = pictures(size.of(4, 2) * batch_size, side);
    let device = device.clone().autodiff();
    let mut model = with_weights(Network::new(size.of(512, 8), &device), 12);
    Epoch::training(move || {
        let mut optimizer = AdamConfig::new().init();
        let loss = CrossEntropyLossConfig::new().init(&device);
        let mut losses = Vec::new();
        for pictures in pictures.chunks(batch_size) {
            let (images, classes) = batch(pictures, side, &device);
            let loss = loss.forward(model.forward(images), classes);
            model = learn(loss, model, &mut optimizer, 1e-3, &mut losses);
        }
        losses
    })
}
