//! The network: two convolutions, a pooling layer, dropout and a linear layer; about 10,000 parameters.

use burn::nn::conv::{Conv2d, Conv2dConfig};
use burn::nn::loss::CrossEntropyLossConfig;
use burn::nn::pool::{MaxPool2d, MaxPool2dConfig};
use burn::nn::{Dropout, DropoutConfig, Linear, LinearConfig, PaddingConfig2d, Relu};
use burn::prelude::*;
use burn::train::{ClassificationOutput, InferenceStep, TrainOutput, TrainStep};
use device_registry::activity;

use crate::batch::DigitBatch;
use crate::data::{CLASSES, SIDE};

const CHANNELS: [usize; 2] = [16, 32];

/// The network, on the device that holds its parameters.
#[derive(Module, Debug)]
pub struct Network {
    conv1: Conv2d,
    conv2: Conv2d,
    pool: MaxPool2d,
    dropout: Dropout,
    linear: Linear,
    relu: Relu,
}

impl Network {
    /// A network with random parameters on `device`; `device.seed(...)` makes them repeatable. `dropout` is
    /// the part of its features that each training step leaves out.
    pub fn new(device: &Device, dropout: f64) -> Self {
        let [first, second] = CHANNELS;
        let conv =
            |channels| Conv2dConfig::new(channels, [3, 3]).with_padding(PaddingConfig2d::Same).init(device);
        Self {
            conv1: conv([1, first]),
            conv2: conv([first, second]),
            pool: MaxPool2dConfig::new([2, 2]).init(),
            dropout: DropoutConfig::new(dropout).init(),
            linear: LinearConfig::new(second * (SIDE / 2) * (SIDE / 2), CLASSES).init(device),
            relu: Relu::new(),
        }
    }

    /// One score per class for each picture: `[digits, 1, 8, 8]` to `[digits, 10]`.
    pub fn forward(&self, images: Tensor<4>) -> Tensor<2> {
        let x = self.relu.forward(self.conv1.forward(images));
        let x = self.relu.forward(self.conv2.forward(x));
        let x = self.pool.forward(x);
        let x = self.dropout.forward(x);
        self.linear.forward(x.flatten(1, 3))
    }

    fn classify(&self, batch: DigitBatch) -> ClassificationOutput {
        let scores = self.forward(batch.images);
        let loss = CrossEntropyLossConfig::new()
            .init(&scores.device())
            .forward(scores.clone(), batch.labels.clone());
        ClassificationOutput::new(loss, scores, batch.labels)
    }
}

impl TrainStep for Network {
    type Input = DigitBatch;
    type Output = ClassificationOutput;

    fn step(&self, batch: DigitBatch) -> TrainOutput<ClassificationOutput> {
        let forward = activity::span("forward");
        let output = self.classify(batch);
        drop(forward);
        let _backward = activity::span("backward");
        TrainOutput::new(self, output.loss.backward(), output)
    }
}

impl InferenceStep for Network {
    type Input = DigitBatch;
    type Output = ClassificationOutput;

    fn step(&self, batch: DigitBatch) -> ClassificationOutput {
        let _span = activity::span("validation");
        self.classify(batch)
    }
}
