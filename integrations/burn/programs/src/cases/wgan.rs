//! A Wasserstein GAN: a generator with batch norms makes pictures, and a critic tells them from others.

use burn::module::{ModuleMapper, Param};
use burn::nn::{BatchNorm, BatchNormConfig, LeakyRelu, LeakyReluConfig, Linear, LinearConfig};
use burn::optim::RmsPropConfig;
use burn::prelude::*;
use burn::tensor::TensorData;

use super::{Epoch, Size, learn};
use crate::numbers::Numbers;
use crate::weights::with_weights;

const PIXELS: usize = 28 * 28;
/// The critic learns so often for each time that the generator does.
const CRITIC_STEPS: usize = 5;
const RATE: f64 = 5e-5;
const CLIP: f32 = 0.01;

#[derive(Module, Debug)]
struct Layer {
    linear: Linear,
    norm: Option<BatchNorm>,
    activation: LeakyRelu,
}

impl Layer {
    fn new(inputs: usize, outputs: usize, normed: bool, device: &Device) -> Self {
        Self {
            linear: LinearConfig::new(inputs, outputs).init(device),
            norm: normed.then(|| BatchNormConfig::new(outputs).init(device)),
            activation: LeakyReluConfig::new().with_negative_slope(0.2).init(),
        }
    }

    fn forward(&self, input: Tensor<2>) -> Tensor<2> {
        let output = self.linear.forward(input);
        self.activation.forward(match &self.norm {
            Some(norm) => norm.forward(output),
            None => output,
        })
    }
}

/// Some layers and a linear one.
#[derive(Module, Debug)]
struct Layers {
    layers: Vec<Layer>,
    output: Linear,
}

impl Layers {
    /// A network of these widths; `normed`: with batch norms in all but the first layer.
    fn new(widths: &[usize], normed: bool, device: &Device) -> Self {
        let pairs: Vec<_> = widths.windows(2).map(|pair| (pair[0], pair[1])).collect();
        let [layers @ .., (inputs, outputs)] = &pairs[..] else { unreachable!("a network has layers") };
        let layer = |(number, (inputs, outputs)): (usize, &(usize, usize))| {
            Layer::new(*inputs, *outputs, normed && number > 0, device)
        };
        Self {
            layers: layers.iter().enumerate().map(layer).collect(),
            output: LinearConfig::new(*inputs, *outputs).init(device),
        }
    }

    fn forward(&self, input: Tensor<2>) -> Tensor<2> {
        self.output.forward(self.layers.iter().fold(input, |input, layer| layer.forward(input)))
    }
}

fn pictures(generator: &Layers, noise: Tensor<2>) -> Tensor<2> {
    generator.forward(noise).tanh()
}

/// Keeps the critic's weights small, as its theory asks.
struct Clip;

impl ModuleMapper for Clip {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        param.map(|tensor| Tensor::from_inner(tensor.inner().clamp(-CLIP, CLIP)).require_grad())
    }
}

/// Pictures of one bright block each.
fn blocks(count: usize) -> Vec<[f32; PIXELS]> {
    let mut numbers = Numbers::new(7);
    let block = |_| {
        let left = numbers.below(18);
        let top = numbers.below(18);
        std::array::from_fn(|pixel| {
            let inside = (left..left + 10).contains(&(pixel % 28)) && (top..top + 10).contains(&(pixel / 28));
            numbers.within(0.1) + if inside { 0.8 } else { -0.8 }
        })
    };
    (0..count).map(block).collect()
}

pub(super) fn prepare(size: Size, device: &Device) -> Epoch {
    let batch = size.of(32, 4);
    let blocks = blocks(size.of(CRITIC_STEPS, 2) * batch);
    let (latent, generator, critic): (_, &[usize], &[usize]) = match size {
        Size::Full => (64, &[64, 128, 256, 512, 1024, PIXELS], &[PIXELS, 512, 256, 1]),
        Size::Tiny => (4, &[4, 8, 8, PIXELS], &[PIXELS, 8, 1]),
    };
    let critic_steps = size.of(CRITIC_STEPS, 2);
    let device = device.clone().autodiff();
    let mut generator = with_weights(Layers::new(generator, true, &device), 8);
    let mut critic = with_weights(Layers::new(critic, false, &device), 9);
    Epoch::training(move || {
        let optimizer = || RmsPropConfig::new().with_momentum(0.0).init();
        let mut for_generator = optimizer();
        let mut for_critic = optimizer();
        let mut numbers = Numbers::new(10);
        let mut losses = Vec::new();
        for (number, blocks) in blocks.chunks(batch).enumerate() {
            let mut noise = |device: &Device| {
                Tensor::<2>::from_data(
                    TensorData::new(numbers.many(batch * latent, 1.0), [batch, latent]),
                    device,
                )
            };
            let real = blocks.iter().map(|block| Tensor::<1>::from_floats(*block, &device).unsqueeze());
            let real = critic.forward(Tensor::cat(real.collect(), 0));
            // The generator does not learn here.
            let made = pictures(&generator.valid(), noise(&device.clone().inner()));
            let made = critic.forward(Tensor::from_inner(made));
            critic = learn(made.mean() - real.mean(), critic, &mut for_critic, RATE, &mut losses);
            critic = critic.map(&mut Clip);
            if (number + 1).is_multiple_of(critic_steps) {
                let loss = -critic.forward(pictures(&generator, noise(&device))).mean();
                generator = learn(loss, generator, &mut for_generator, RATE, &mut losses);
            }
        }
        losses
    })
}
