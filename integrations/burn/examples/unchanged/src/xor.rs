//! A multilayer perceptron that learns exclusive or. It names no backend: it is a program of burn as any
//! other.

use burn::nn::loss::{MseLoss, Reduction};
use burn::nn::{Linear, LinearConfig};
use burn::optim::{GradientsParams, SgdConfig};
use burn::prelude::*;
use burn::tensor::TensorReadError;
use burn::tensor::activation::{relu, sigmoid};

#[derive(Module, Debug)]
struct Mlp {
    hidden: Linear,
    output: Linear,
}

impl Mlp {
    fn new(device: &Device) -> Self {
        Self { hidden: LinearConfig::new(2, 16).init(device), output: LinearConfig::new(16, 1).init(device) }
    }

    fn forward(&self, input: Tensor<2>) -> Tensor<2> {
        sigmoid(self.output.forward(relu(self.hidden.forward(input))))
    }
}

const STEPS: usize = 400;

/// Trains, and says what the network answers.
pub(crate) fn run(device: &Device) -> Result<String, TensorReadError> {
    device.seed(7);
    let device = device.clone().autodiff();
    let inputs = Tensor::<2>::from_floats([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]], &device);
    let targets = Tensor::<2>::from_floats([[0.0], [1.0], [1.0], [0.0]], &device);
    let mut model = Mlp::new(&device);
    let mut optimizer = SgdConfig::new().init();
    for _ in 0..STEPS {
        let loss = MseLoss::new().forward(model.forward(inputs.clone()), targets.clone(), Reduction::Mean);
        let gradients = GradientsParams::from_grads(loss.backward(), &model);
        model = optimizer.step(1.0, model, gradients);
    }
    let answers = model.forward(inputs).round().try_into_vec_as::<f32>()?;
    Ok(format!("xor after {STEPS} steps: {answers:?}"))
}
