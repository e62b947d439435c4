//! A perceptron of one hidden layer that learns a function of eight numbers.

use burn::nn::loss::{MseLoss, Reduction};
use burn::nn::{Linear, LinearConfig};
use burn::optim::AdamConfig;
use burn::prelude::*;
use burn::tensor::activation::relu;

use super::{Epoch, Size, learn};
use crate::numbers::Numbers;
use crate::weights::with_weights;

const FEATURES: usize = 8;
const HIDDEN: usize = 64;
const BATCH: usize = 64;

#[derive(Module, Debug)]
struct Perceptron {
    hidden: Linear,
    output: Linear,
}

impl Perceptron {
    fn new(device: &Device) -> Self {
        Self {
            hidden: LinearConfig::new(FEATURES, HIDDEN).init(device),
            output: LinearConfig::new(HIDDEN, 1).init(device),
        }
    }

    fn forward(&self, features: Tensor<2>) -> Tensor<2> {
        self.output.forward(relu(self.hidden.forward(features)))
    }
}

struct Item {
    features: [f32; FEATURES],
    target: f32,
}

fn items(count: usize) -> Vec<Item> {
    let mut numbers = Numbers::new(1);
    let item = |_| {
        let features = std::array::from_fn(|_| numbers.within(1.0));
        let sum: f32 = features.iter().sum();
        Item { features, target: sum * sum * 0.1 + features[0] - features[1] }
    };
    (0..count).map(item).collect()
}

/// What a batcher does: a tensor for each item, and then one of them all.
fn batch(items: &[Item], device: &Device) -> (Tensor<2>, Tensor<2>) {
    let rows = items.iter().map(|item| Tensor::<1>::from_floats(item.features, device).unsqueeze());
    let targets = items.iter().map(|item| Tensor::<1>::from_floats([item.target], device));
    (Tensor::cat(rows.collect(), 0), Tensor::cat(targets.collect(), 0).unsqueeze_dim(1))
}

pub(super) fn prepare(size: Size, device: &Device) -> Epoch {
    let items = items(size.of(16, 2) * BATCH);
    let device = device.clone().autodiff();
    let mut model = with_weights(Perceptron::new(&device), 2);
    Epoch::training(move || {
        let mut optimizer = AdamConfig::new().init();
        let mut losses = Vec::new();
        for items in items.chunks(BATCH) {
            let (features, targets) = batch(items, &device);
            let loss = MseLoss::new().forward(model.forward(features), targets, Reduction::Mean);
            model = learn(loss, model, &mut optimizer, 1e-2, &mut losses);
        }
        losses
    })
}
